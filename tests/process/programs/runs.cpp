// SPDX-License-Identifier: BSL-1.0
// A program that calls `run` more than once:
// `runs [beside] <transport>:<workers>[:<what is set>]...`, one call after the other, or beside each
// other on threads. Its status is the worst of them.
#include <weft/run.hpp>
#include <weft/transport/inproc.hpp>
#include <weft/transport/tcp.hpp>

#include <asio/post.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

namespace runs {

void say(const std::string& text) { std::cout << text + "\n" << std::flush; }

int slow() {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return 1;
}

/// Starts what goes into the window, at most 100 calls, and awaits them.
asio::awaitable<void> fill(weft::worker& me) {
  std::vector<weft::future<int>> all;
  try {
    for (int n = 0; n < 100; ++n) all.push_back(me.peer(1).start<&slow>());
  } catch (const weft::rpc_error& e) {
    say(e.what());
  }
  say("started " + std::to_string(all.size()));
  int done = 0;
  for (auto& one : all) done += co_await std::move(one);
  say("done " + std::to_string(done));
}

/// An error with as many and as long texts as travel.
int fail_at_length(int causes) {
  weft::error why;
  for (int n = 0; n < causes; ++n) {
    why = weft::error(weft::errc::invalid_argument, std::string(10'000, 'x')).with([&](auto& d) {
      d.peer = d.function = std::string(10'000, 'y');
      d.cause = why.shared_detail();
      d.cause_code = why.code();
    });
  }
  throw weft::rpc_error(why);
}

/// From a call, and then itself.
asio::awaitable<void> throw_much(weft::worker& me) {
  const auto r = co_await me.peer(0).call<&fail_at_length>(20, weft::as_expected);
  say(std::string("a call: ") + (r ? "no error" : r.error().code().message()));
  throw std::runtime_error(std::string(1'000'000, 'z'));
}

/// Nothing forbids it.
struct wordless : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return nullptr; }
};
int throw_wordless() { throw wordless(); }

/// A value that nobody can send.
struct unsendable {};
int take(const unsendable&) { return 0; }

}  // namespace runs

template <>
struct weft::codec<runs::unsendable> {
  static constexpr std::size_t min_size = 0;
  static void encode(writer&, const runs::unsendable&) { throw runs::wordless(); }
  static runs::unsendable decode(reader&) { return {}; }
};
template <>
struct weft::structure<runs::unsendable> {
  static constexpr std::string_view tag = "unsendable 1";
};

namespace runs {

/// What is thrown in each place where users' code runs.
asio::awaitable<void> throw_without_words(weft::worker& me, const std::string& what) {
  const auto of = [](const auto& r) { return r ? "no error" : r.error().message(); };
  if (what.ends_with(":wordless_function")) {
    say("it: " + of(co_await me.peer(0).call<&throw_wordless>(weft::as_expected)));
  } else if (what.ends_with(":wordless_codec")) {
    say("it: " + of(co_await me.peer(0).call<&take>(unsendable(), weft::as_expected)));
  } else if (what.ends_with(":wordless_handler")) {
    asio::post(me.get_executor(), [] { throw wordless(); });
    co_await weft::sleep_for(std::chrono::seconds(60));
  } else if (what.ends_with(":wordless_main")) {
    throw wordless();
  } else if (what.ends_with(":empty_main")) {
    throw std::runtime_error("");
  }
}

/// The n-th call, as `what` says.
int call(std::size_t n, const std::string& what) {
  const std::string name = "call " + std::to_string(n);
  const bool little = what.ends_with(":little_window");
  const bool least = what.ends_with(":least_payload");
  const auto main_ = [name, what, little, least](weft::worker& me) -> asio::awaitable<void> {
    say(name + ": rank " + std::to_string(me.rank()) + " of " + std::to_string(me.world_size()));
    if (little && me.rank() == 0) co_await fill(me);
    if (least && me.rank() == 1) co_await throw_much(me);
    if (me.rank() == 1) co_await throw_without_words(me, what);
  };
  weft::options o;
  o.workers = static_cast<std::uint32_t>(std::stoul(what.substr(what.find(':') + 1)));
  if (what.ends_with(":no_window")) o.window_bytes = 0;
  if (what.ends_with(":no_frames")) o.outbox_frames = 0;
  if (what.ends_with(":no_bytes")) o.outbox_bytes = 0;
  if (what.ends_with(":no_payload")) o.bounds.payload = 0;
  if (what.ends_with(":small_payload")) o.bounds.payload = 256 * 1024 - 1;
  if (what.ends_with(":small_greeting")) o.bounds.handshake = 63;
  if (what.ends_with(":no_link_memory")) o.bounds.link_tensor_bytes = 0;
  if (what.ends_with(":no_memory")) o.bounds.worker_tensor_bytes = 0;
  if (what.ends_with(":io_threads")) o.io_threads = 65537;
  if (what.ends_with(":intra_op_threads")) o.intra_op_threads = 2147483648;
  if (least) o.bounds.payload = 256 * 1024;
  if (what.ends_with(":no_stall_limit")) o.stall_limit = {};
  if (what.ends_with(":no_pool_idle")) o.buffer_cache_idle = {};
  if (what.ends_with(":no_call")) o.call_deadline = {};
  if (what.ends_with(":no_rendezvous")) o.rendezvous_deadline = {};
  if (what.ends_with(":no_handshake")) o.handshake_deadline = std::chrono::seconds(-1);
  if (little) o.window_bytes = 4096;
  if (what.ends_with(":no_place")) o.place = weft::placement{.rank = 2, .size = 2};
  if (what.ends_with(":placed")) {
    o.place = weft::placement{.rank = std::getenv("PLACE") == std::string("1"), .size = 2};
  }
  o.compute_threads = what.ends_with(":compute_threads") ? 4294967295 : 1;
  const int status = what.starts_with("inproc:") ? weft::run<weft::inproc>(main_, o)
                                                 : weft::run<weft::tcp>(main_, o);
  say(name + " returned " + std::to_string(status));
  return status;
}

}  // namespace runs

int main(int argc, char** argv) {
  std::vector<std::string> calls(argv + 1, argv + argc);
  const bool beside = !calls.empty() && calls.front() == "beside";
  if (beside) calls.erase(calls.begin());
  std::vector<int> status(calls.size());
  std::vector<std::thread> threads;
  for (std::size_t n = 0; n < calls.size(); ++n) {
    threads.emplace_back([&, n] { status[n] = runs::call(n, calls[n]); });
    if (!beside) threads.back().join();
  }
  for (std::thread& t : threads) {
    if (t.joinable()) t.join();
  }
  return calls.empty() ? 2 : *std::max_element(status.begin(), status.end());
}
