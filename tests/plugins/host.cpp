// SPDX-License-Identifier: BSL-1.0
// A program that is linked with the library (PLUGIN_LINKED), or loads it: host FILE [late], late:
// when the run has begun.
#include "plugin.hpp"
#include <weft/run.hpp>

#include <ATen/ops/ones.h>

#include <iostream>
#include <string>

#include <dlfcn.h>

namespace {

void say(const std::string& text) { std::cout << text + "\n" << std::flush; }

#ifndef PLUGIN_LINKED
asio::awaitable<void> main_of_the_library(weft::worker& me, const char* file) {
  void* const library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(::dlerror());
  const auto its_main = reinterpret_cast<decltype(&plugin_main)>(::dlsym(library, "plugin_main"));
  asio::awaitable<void> begun;
  its_main(me, begun);
  co_await std::move(begun);
}
#endif

asio::awaitable<void> main_(weft::worker& me, const char* file) {
  if (me.rank() != 0) co_return;
#ifdef PLUGIN_LINKED
  const at::Tensor tripled = co_await me.peer(1).call<&plugin::triple>(at::ones({3}));
  say("triple " + std::to_string(tripled.sum().item<int>()));
  const double left =
      co_await me.peer(1).call<&plugin::time_left>(weft::within(std::chrono::hours(1)));
  say(left > 1800 && left <= 3600 ? "its deadline is seen" : "its deadline is not seen");
  asio::awaitable<void> begun;
  plugin_main(me, begun);
  co_await std::move(begun);
#else
  co_await main_of_the_library(me, file);
#endif
  const auto made = me.peer(1).make<plugin::counter>();
  say("counter " + std::to_string(co_await made.call<&plugin::counter::add>(5)));
}

}  // namespace

int main(int argc, char** argv) {
  weft::log_to([](const weft::log_entry& e) { say("heard: " + std::string(e.text)); });
  const char* const file = argc > 1 ? argv[1] : nullptr;
  if (file && argc == 2 && !::dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
    say(::dlerror());
    return 2;
  }
  return weft::run<weft::inproc>([file](weft::worker& me) { return main_(me, file); },
                                 weft::options{.workers = 2});
}
