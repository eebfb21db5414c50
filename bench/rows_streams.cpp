// SPDX-License-Identifier: BSL-1.0
#include "rows.hpp"
#include "weft_pair.hpp"

#include <ATen/ATen.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace served {

asio::awaitable<void> small_items(weft::sink<std::string> out) {
  const std::string item(1024, 'x');
  for (;;) co_await out.write(item);
}
weft::immediate<void> take_small(std::string) { return {}; }

/// 40 MB.
at::Tensor& large() {
  static at::Tensor t = at::ones({10'000'000});
  return t;
}
asio::awaitable<void> large_items(weft::sink<at::Tensor> out) {
  for (;;) co_await out.write(large());
}
at::Tensor large_result() { return large(); }

}  // namespace served

namespace {

using clock = std::chrono::steady_clock;
constexpr auto warm_up = std::chrono::milliseconds(100),
               time_of_row = std::chrono::milliseconds(700);

/// How often `once` ends in a second.
template <class Once>
asio::awaitable<double> rate_of(Once once) {
  const auto begin = clock::now();
  while (clock::now() - begin < warm_up) co_await once();
  const auto from = clock::now();
  std::uint64_t n = 0;
  for (; clock::now() - from < time_of_row; ++n) co_await once();
  co_return static_cast<double>(n) / std::chrono::duration<double>(clock::now() - from).count();
}

template <auto F>
asio::awaitable<void> read_items(weft::worker& me, figures& out) {
  auto [in] = co_await me.peer(callee_rank).open<F>();
  out["rate"] = co_await rate_of([&]() -> asio::awaitable<void> {
    if (!co_await in.next()) throw std::runtime_error("the stream ended");
  });
}
/// As fast as the peer takes them: each of 256 is followed by a call.
asio::awaitable<void> post_items(weft::worker& me, figures& out) {
  const weft::peer there = me.peer(callee_rank);
  const std::string item(1024, 'x');
  constexpr int of_each = 256;
  out["rate"] = of_each * co_await rate_of([&]() -> asio::awaitable<void> {
                  for (int i = 1; i < of_each; ++i) there.post<&served::take_small>(item);
                  co_await there.call<&served::take_small>(item);
                });
}
asio::awaitable<void> call_large(weft::worker& me, figures& out) {
  out["rate"] = co_await rate_of([&]() -> asio::awaitable<void> {
    static_cast<void>(co_await me.peer(callee_rank).call<&served::large_result>());
  });
}

}  // namespace

void add_stream_rows(std::vector<row>& rows) {
  for (const placement where : {placement::one_core, placement::two_cores}) {
    const auto threads = where == placement::one_core ? threads_of_links(0) : threads_of_links();
    const std::string at = where == placement::one_core ? ".one_core" : ".two_cores";
    const auto run = [&](const std::string& name, job what) {
      return weft_run(name + at, link_kind::tcp, where, threads, what);
    };
    rows.push_back({"stream.1KB" + at,
                    "M/s",
                    {{"weft", run("stream.1KB", read_items<&served::small_items>), "rate", 1e-6},
                     {"posts", run("stream.posts", post_items), "rate", 1e-6}}});
    rows.push_back({"stream.40MB" + at,
                    "GB/s",
                    {{"weft", run("stream.40MB", read_items<&served::large_items>), "rate", 0.04},
                     {"calls", run("stream.calls", call_large), "rate", 0.04}}});
  }
}

}  // namespace bench
