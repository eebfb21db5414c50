// SPDX-License-Identifier: BSL-1.0
// An inference server that collects rows of several clients, and runs its model once for all of
// them. Prints
//
//   96 answers are right
//   batches were larger than one row
#include <weft/run.hpp>

#include <ATen/ATen.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace std::literals;

constexpr std::int64_t inputs = 4, outputs = 2;
constexpr std::size_t most_rows = 16;     // of a batch
constexpr auto fill_time = 2ms;           // that a batch which is not full waits for more
constexpr std::size_t rows_waiting = 64;  // before clients wait for room

/// Its functions are coroutines, on their worker's one thread.
class server {
 public:
  /// The model's answer to one row. Shape [inputs] -> [outputs].
  asio::awaitable<at::Tensor> infer(at::Tensor row) {
    // What does not fit fails here, by itself, and not the batch that it would have been in.
    if (row.scalar_type() != at::kFloat || row.sizes() != at::IntArrayRef{inputs}) {
      throw std::invalid_argument("a row is of 4 floats");
    }
    const auto mine = std::make_shared<request>(std::move(row));
    co_await waiting_.send(mine);
    co_await weft::event::wait(mine->done);
    if (mine->failure) std::rethrow_exception(mine->failure);
    co_return mine->answer;
  }
  /// Until `close`.
  asio::awaitable<void> serve() {
    while (auto first = co_await waiting_.receive()) {
      std::vector<std::shared_ptr<request>> batch{*first};
      take_what_waits(batch);
      if (batch.size() < most_rows) {
        co_await weft::sleep_for(fill_time);
        take_what_waits(batch);
      }
      co_await run(batch);
    }
  }
  asio::awaitable<void> close() {
    waiting_.close();
    co_return;
  }
  asio::awaitable<std::size_t> batches() { co_return batches_; }

 private:
  struct request {
    explicit request(at::Tensor r) : row(std::move(r)) {}
    at::Tensor row, answer;
    std::exception_ptr failure;
    weft::intrusive_ptr<weft::event> done = weft::make_intrusive<weft::event>();
  };

  void take_what_waits(std::vector<std::shared_ptr<request>>& batch) {
    while (batch.size() < most_rows) {
      auto next = waiting_.try_receive();
      if (!next) return;
      batch.push_back(std::move(*next));
    }
  }
  /// On the pool, while this worker's thread takes the next rows.
  asio::awaitable<void> run(const std::vector<std::shared_ptr<request>>& batch) {
    std::vector<at::Tensor> rows;
    for (const auto& r : batch) rows.push_back(r->row);
    std::exception_ptr failure;
    std::vector<at::Tensor> answers(batch.size());
    try {
      answers = co_await weft::on_pool(
          [weight = weight_](const std::vector<at::Tensor>& in) {
            const at::NoGradGuard none;
            return at::stack(in).matmul(weight).unbind();
          },
          std::move(rows));
    } catch (...) {
      failure = std::current_exception();
    }
    ++batches_;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      batch[i]->answer = answers[i];
      batch[i]->failure = failure;
      batch[i]->done->set();
    }
  }

  at::Tensor weight_ = at::full({inputs, outputs}, 0.5);
  weft::channel<std::shared_ptr<request>> waiting_{rows_waiting};
  std::size_t batches_ = 0;
};

/// Asks for `n` rows at once; how many answers were right.
asio::awaitable<int> ask(weft::rref<server> model, int n) {
  std::vector<asio::awaitable<at::Tensor>> calls;
  for (int i = 0; i < n; ++i) calls.push_back(model.call<&server::infer>(at::full({4}, 1.0 * i)));
  int right = 0;
  int i = 0;
  for (const at::Tensor& y : co_await weft::gather(std::move(calls))) {
    right += at::equal(y, at::full({2}, 2.0 * i++)) ? 1 : 0;
  }
  co_return right;
}

asio::awaitable<void> drive(weft::worker& me, weft::rref<server> model) {
  std::vector<asio::awaitable<int>> clients;
  for (const weft::peer& p : me.peers("client")) clients.push_back(p.call<&ask>(model, 32));
  int right = 0;
  for (const int n : co_await weft::gather(std::move(clients))) right += n;
  std::cout << right << " answers are right\n";
  const std::size_t batches = co_await model.call<&server::batches>();
  std::cout << (batches < 96 ? "batches were larger than one row\n" : "each row was a batch\n");
  co_await model.call<&server::close>();
}

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  weft::rref<server> model = me.make<server>();
  std::vector<asio::awaitable<void>> both;  // the first error ends the other, and is thrown
  both.push_back(model.call<&server::serve>(weft::within(weft::no_limit)));
  both.push_back(drive(me, model));
  co_await weft::gather(std::move(both));
}

int main() {
  weft::options o{.workers = 4};
  o.role = [](std::uint32_t rank, std::uint32_t) { return std::string(rank == 0 ? "" : "client"); };
  return weft::run<weft::unix_socket, weft::tcp>(main_, o);
}
