// SPDX-License-Identifier: BSL-1.0
#include "peers/raw.hpp"
#include "peers/tensorpipe.hpp"
#include "rows.hpp"
#include "samples.hpp"
#include "weft_pair.hpp"

#include <ATen/ATen.h>

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace served {

asio::awaitable<at::Tensor> same(at::Tensor x) { co_return x; }

}  // namespace served

namespace {

template <std::size_t Bytes>
asio::awaitable<void> there_and_back(weft::worker& me, figures& out) {
  auto callee = me.peer(callee_rank);
  const auto tensor = at::ones({static_cast<std::int64_t>(Bytes / sizeof(float))}, at::kFloat);
  pace times(std::chrono::milliseconds(Bytes > (1U << 22U) ? 1500 : 500));
  while (times.more()) {
    times.begin();
    const auto reply = co_await callee.template call<&served::same>(tensor);
    times.end();
    if (reply.nbytes() != Bytes) throw std::runtime_error("the echo has another size");
  }
  out = times.latency();
}

template <std::size_t Bytes>
void add_size(std::vector<row>& rows, const std::string& size) {
  constexpr auto where = placement::two_cores;
  for (const auto over : {link_kind::inproc, link_kind::unix_socket, link_kind::tcp}) {
    const auto name = "tensor." + size + "." + name_of(over);
    const auto run_of = [&](const std::string& who, std::function<figures()> measure) {
      return make_run({.name = who + " " + name, .where = where, .measure = std::move(measure)});
    };
    row one{name + ".p50", "ms", {}};
    const auto add = [&](const std::string& who, std::function<figures()> measure) {
      one.subjects.push_back({who, run_of(who, std::move(measure)), "p50", 1e-3});
    };
    add("weft", [=] { return between(over, where, by_default, there_and_back<Bytes>); });
    if (over != link_kind::inproc) {
      const auto medium = over == link_kind::tcp ? raw::medium::tcp : raw::medium::unix_socket;
      add("raw", [=] { return raw::echo(medium, Bytes, where); });
    }
    if (over == link_kind::tcp) {
      add("tensorpipe", [=] { return tensorpipe::echo_tensor(Bytes, where); });
    }
    rows.push_back(std::move(one));
  }
}

}  // namespace

void add_tensor_rows(std::vector<row>& rows) {
  add_size<std::size_t{4} << 10U>(rows, "4KB");
  add_size<std::size_t{1} << 20U>(rows, "1MB");
  add_size<std::size_t{40} << 20U>(rows, "40MB");
}

}  // namespace bench
