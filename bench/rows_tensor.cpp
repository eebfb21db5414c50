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
double first(at::Tensor x) { return static_cast<const float*>(x.const_data_ptr())[0]; }

asio::awaitable<void> empty() { co_return; }

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

/// The result goes to memory that is there.
template <std::size_t Bytes>
asio::awaitable<void> there_and_into(weft::worker& me, figures& out) {
  auto callee = me.peer(callee_rank);
  const auto tensor = at::ones({static_cast<std::int64_t>(Bytes / sizeof(float))}, at::kFloat);
  const at::Tensor result = at::zeros_like(tensor);
  pace times(std::chrono::milliseconds(Bytes > (1U << 22U) ? 1500 : 500));
  while (times.more()) {
    times.begin();
    co_await callee.template call<&served::same>(tensor, weft::into(result));
    times.end();
  }
  out = times.latency();
}

asio::awaitable<void> send_large(weft::peer to, const bool& enough) {
  const auto tensor = at::ones({100'000'000}, at::kFloat);
  // bounded: by the measurement
  while (!enough) co_await to.call<&served::first>(tensor);
}
/// Empty calls, one after another, while tensors of 400 MB go to the same peer.
asio::awaitable<void> beside_large(weft::worker& me, figures& out) {
  auto callee = me.peer(callee_rank);
  bool enough = false;
  co_await callee.call<&served::first>(at::ones({10'000'000}, at::kFloat));
  auto sending = me.spawn(send_large(callee, enough));
  pace times(std::chrono::milliseconds(2500));
  while (times.more()) {
    times.begin();
    co_await callee.call<&served::empty>();
    times.end();
  }
  enough = true;
  co_await std::move(sending);
  out = times.latency();
}

constexpr unsigned many = 8;

/// To all others, along a tree or by one call each.
template <bool Tree>
asio::awaitable<void> to_many(weft::worker& me, figures& out) {
  std::vector<weft::peer> all;
  for (unsigned r = 1; r <= many; ++r) all.push_back(me.peer(r));
  const auto tensor = at::ones({10 << 20}, at::kFloat);
  pace times(std::chrono::milliseconds(2500));
  while (times.more()) {
    times.begin();
    if constexpr (Tree) {
      co_await weft::broadcast<&served::first>(all, tensor);
    } else {
      co_await weft::call_all<&served::first>(all, tensor);
    }
    times.end();
  }
  out = times.latency();
}

template <std::size_t Bytes>
void add_into(std::vector<row>& rows, const std::string& size) {
  constexpr auto where = placement::two_cores;
  for (const auto over : {link_kind::unix_socket, link_kind::tcp}) {
    const auto name = "into." + size + "." + name_of(over);
    const auto medium = over == link_kind::tcp ? raw::medium::tcp : raw::medium::unix_socket;
    rows.push_back(
        {name + ".p50",
         "ms",
         {{"weft", weft_run(name, over, where, by_default, there_and_into<Bytes>), "p50", 1e-3},
          {"call", weft_run(name + ".call", over, where, by_default, there_and_back<Bytes>), "p50",
           1e-3},
          {"raw",
           make_run({.name = "raw " + name,
                     .where = where,
                     .measure = [=] { return raw::echo(medium, Bytes, where); }}),
           "p50", 1e-3}}});
  }
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
  add_into<std::size_t{1} << 20U>(rows, "1MB");
  add_into<std::size_t{40} << 20U>(rows, "40MB");
  const auto beside = make_run({.name = "raw lane", .where = placement::two_cores, .measure = [] {
                                  return raw::echo_beside(400'000'000, placement::two_cores);
                                }});
  const auto lane =
      weft_run("lane", link_kind::tcp, placement::two_cores, by_default, beside_large);
  for (const std::string p : {"p50", "p99"}) {
    rows.push_back({"lane.empty." + p, "µs", {{"weft", lane, p, 1}, {"raw", beside, p, 1}}});
  }
  const auto eight = [](const std::string& name, job what) {
    constexpr auto where = placement::two_cores;
    return make_run({.name = "weft " + name, .where = where, .measure = [=] {
                       return among(1 + many, link_kind::tcp, where, by_default, what);
                     }});
  };
  rows.push_back({"call.broadcast.40MB.8.p50",
                  "ms",
                  {{"weft", eight("call.broadcast", to_many<true>), "p50", 1e-3},
                   {"calls", eight("call.broadcast.calls", to_many<false>), "p50", 1e-3}}});
}

}  // namespace bench
