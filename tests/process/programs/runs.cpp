// SPDX-License-Identifier: BSL-1.0
// A program that calls `run` more than once:
// `runs [beside] <transport>:<workers>[:<what is set>]...`, one call after the other, or beside each
// other on threads. Its status is the worst of them.
#include <weft/run.hpp>
#include <weft/transport/inproc.hpp>
#include <weft/transport/tcp.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
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

/// The n-th call, as `what` says.
int call(std::size_t n, const std::string& what) {
  const std::string name = "call " + std::to_string(n);
  const bool little = what.ends_with(":little_window");
  const bool least = what.ends_with(":least_payload");
  const auto main_ = [name, little, least](weft::worker& me) -> asio::awaitable<void> {
    say(name + ": rank " + std::to_string(me.rank()) + " of " + std::to_string(me.world_size()));
    if (little && me.rank() == 0) co_await fill(me);
    if (least && me.rank() == 1) co_await throw_much(me);
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
  o.compute_threads = 1;
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
