// SPDX-License-Identifier: BSL-1.0
// New weights for seven actors: sent once along a tree, asked about by all, and read into memory
// that is there already. Prints
//
//   7 actors have weights of mean 2.0
//   actor 3 does not answer: remote exception: its rollout failed
//   best: actor 7, with 14
//   read back into the same memory: mean 2.0
//   actor 1 has them in its buffer: yes
#include <weft/run.hpp>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <vector>

at::Tensor weights;  // of this process

/// The arguments are this worker's own: it may keep and change them.
double load(at::Tensor fresh) {
  weights = std::move(fresh);
  return weights.mean().item<double>();
}
int rollout(weft::worker& me, int episodes) {
  if (me.rank() == 3) throw std::runtime_error("its rollout failed");
  return static_cast<int>(me.rank()) * episodes;
}
at::Tensor current() { return weights; }

at::Tensor buffer;  // of this process, made once

/// Where arguments of `store` are read to.
at::Tensor in_the_buffer(const weft::announced& what) {
  if (!buffer.defined()) buffer = at::empty(what.sizes, what.dtype);
  return buffer;
}
bool store(weft::into<at::Tensor, &in_the_buffer> fresh) {
  return fresh.tensor().is_same(buffer) && buffer.mean().item<double>() == 2.0;
}

asio::awaitable<void> main_(weft::worker& me) {
  if (me.role() != "learner") co_return;
  const std::vector<weft::peer> actors = me.peers("actor");

  // 4 MB go from here to three actors, and from those to the others.
  const at::Tensor fresh = at::full({1024, 1024}, 2.0, at::kFloat);
  const std::vector<double> means = co_await weft::broadcast<&load>(actors, fresh);
  std::printf("%zu actors have weights of mean %.1f\n", means.size(),
              *std::max_element(means.begin(), means.end()));

  // Seven calls. With as_expected the errors of some do not end the others.
  const auto scores = co_await weft::call_all<&rollout>(actors, 2, weft::as_expected);
  std::size_t best = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (!scores[i]) {
      std::printf("actor %u does not answer: remote exception: %s\n", actors[i].rank(),
                  scores[i].error().detail().text.c_str());
    } else if (*scores[i] > scores[best].value_or(0)) {
      best = i;
    }
  }
  std::printf("best: actor %u, with %d\n", actors[best].rank(), *scores[best]);

  at::Tensor copy = at::zeros({1024, 1024});
  const void* const memory = copy.data_ptr();
  co_await actors[best].call<&current>(weft::into(copy));
  std::printf("read back into %s memory: mean %.1f\n",
              copy.data_ptr() == memory ? "the same" : "other", copy.mean().item<double>());

  const bool there = co_await actors[0].call<&store>(copy);
  std::printf("actor %u has them in its buffer: %s\n", actors[0].rank(), there ? "yes" : "no");
}

int main() {
  return weft::run<weft::unix_socket, weft::tcp>(
      main_, {.workers = 8, .role = [](std::uint32_t rank, std::uint32_t) {
                return std::string(rank == 0 ? "learner" : "actor");
              }});
}
