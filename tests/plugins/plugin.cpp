// SPDX-License-Identifier: BSL-1.0
#include "plugin.hpp"

#include <weft/core/log.hpp>

#include <ATen/ops/ones.h>

#include <chrono>
#include <iostream>

namespace plugin {

int add_hundred(int x) { return x + 100; }  // hidden, where the library hides

at::Tensor triple(const at::Tensor& x) { return x.mul(3); }

asio::awaitable<double> time_left(weft::worker& me) {
  const auto scope = weft::this_scope();
  if (!scope || !scope->deadline) co_return -1;
  co_return std::chrono::duration<double>(*scope->deadline - me.time().now()).count();
}

asio::awaitable<at::Tensor> calls(weft::worker& me, at::Tensor x) {
  const weft::peer next = me.peer((me.rank() + 1) % me.world_size());
  const at::Tensor tripled = co_await next.call<&triple>(x);
  const int hundred = co_await next.call<&add_hundred>(7);
  const auto made = next.make<counter>();
  const int counted = co_await made.call<&counter::add>(5);
  co_await weft::sleep_for(std::chrono::milliseconds(1));
  co_return tripled.add(hundred + counted);
}

}  // namespace plugin

/// Errors that the engine, the library's own copy of weft and this file make have one category.
static bool errors_agree(weft::worker& me) {
  bool unknown = false;
  try {
    static_cast<void>(me.peer("nobody"));
  } catch (const weft::rpc_error& e) {
    unknown = e.error() == weft::errc::unknown_peer && e.code().message() == "unknown peer";
  }
  return unknown && weft::rpc_error(weft::errc::closed, "").error() == weft::errc::closed;
}

static asio::awaitable<void> say_what_calls_return(weft::worker& me) {
  if (errors_agree(me)) weft::detail::say("plugin", "errors agree");
  const at::Tensor sum = (co_await plugin::calls(me, at::ones({3}))).sum();
  std::cout << "calls " + std::to_string(sum.item<int>()) + "\n" << std::flush;
}

void plugin_main(weft::worker& me, asio::awaitable<void>& begun) {
  begun = say_what_calls_return(me);
}
