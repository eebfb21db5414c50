// SPDX-License-Identifier: BSL-1.0
// What the tests of lost workers start: `on_loss <deed>`, as two servers
// of ranks 0 and 1 and a client. The run goes on without the client.
#include <weft/run.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>

#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>

#include <chrono>
#include <core/for_ever.hpp>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>

#include <signal.h>
#include <unistd.h>

namespace on_loss {

using namespace std::chrono_literals;
using weft::errc;
using weft::worker;

std::string deed;
constexpr std::uint32_t client = 2;

int add(int a, int b) { return a + b; }
struct record {
  explicit record(int v) : value(v) {}
  int get() const { return value; }
  int value;
};
// One write per line, so that lines of several processes do not mix.
void say(const std::string& text) { std::cout << text + "\n" << std::flush; }

void say_ready(const worker& me) {
  say("pid " + std::to_string(::getpid()) + " is ready, rank " + std::to_string(me.rank()));
}

asio::awaitable<void> wait_for_ever() { co_await weft::testing::for_ever(); }

/// What a failed await ended with.
asio::awaitable<std::string> end_of(asio::awaitable<void> what) {
  try {
    co_await std::move(what);
  } catch (const weft::rpc_error& e) {
    co_return e.error() == errc::peer_died ? "peer_died"
    : e.error() == errc::rref_owner_died   ? "rref_owner_died"
                                           : e.what();
  }
  co_return "success";
}
asio::awaitable<void> get(weft::rref<record> r) { co_await r.call<&record::get>(); }
asio::awaitable<void> wait_at(weft::peer p) { co_await p.call<&wait_for_ever>(weft::within(1h)); }

int servers_ready = 0;
/// At the client: on its one thread.
asio::awaitable<void> note_ready() {
  ++servers_ready;
  co_return;
}

asio::awaitable<void> serve(worker& me) {
  const weft::peer lost = me.peer(client);
  const weft::rref<record> its = lost.make<record>(7);
  co_await get(its);
  lost.post<&wait_for_ever>();
  co_await lost.call<&note_ready>();
  say_ready(me);
  const std::string call = co_await end_of(wait_at(lost));
  const std::string rref = co_await end_of(get(its));
  say("rank " + std::to_string(me.rank()) + " heard " + call + " and " + rref);
  const int three = co_await me.peer(1 - me.rank()).call<&add>(1, 2);
  if (three != 3) throw std::runtime_error("1 + 2 is not " + std::to_string(three));
  if (deed == "hold") co_await wait_for_ever();
}

asio::awaitable<void> main_(worker& me) {
  for (std::uint32_t r = 0; r < me.world_size(); ++r) co_await me.peer(r).call<&add>(1, 2);
  if (me.rank() != client) co_return co_await serve(me);
  for (const std::uint32_t r : {0u, 1u}) me.peer(r).post<&wait_for_ever>();
  say_ready(me);
  // Before it goes, both have what they lose with it.
  asio::steady_timer pause(co_await asio::this_coro::executor);
  while (servers_ready < 2) {  // bounded: by the run's own deadlines
    pause.expires_after(std::chrono::milliseconds(1));
    co_await pause.async_wait(asio::use_awaitable);
  }
  if (deed == "throw") throw std::runtime_error("the user has left");
  if (deed == "exit") std::exit(0);
  co_await wait_for_ever();
}

std::string role_of(std::uint32_t rank, std::uint32_t) { return rank == client ? "client" : ""; }

}  // namespace on_loss

int main(int argc, char** argv) {
  on_loss::deed = argc > 1 ? argv[1] : "wait";
  weft::options o;
  o.workers = 3;
  o.role = on_loss::role_of;
  o.on_loss = weft::loss_policy::go_on_without({"client"});
  if (on_loss::deed == "stop") {
    o.lost_after = std::chrono::seconds(2);
    o.shutdown_deadline = std::chrono::seconds(1);
  }
  const int status = weft::run<weft::unix_socket, weft::tcp>(on_loss::main_, o);
  on_loss::say("run returned " + std::to_string(status));
  return status;
}
