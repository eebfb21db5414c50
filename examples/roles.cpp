// SPDX-License-Identifier: BSL-1.0
// A server and two clients, of which one leaves without a word: the run goes on without it. Prints
//
//   the server knows 2 clients
//   ann has said hello, and bob has
//   bob has gone: peer died
//   ann is told that bob has gone
#include <weft/run.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include <unistd.h>

using namespace std::literals;

/// At the server, on its one thread.
std::map<std::string, weft::intrusive_ptr<weft::event>> greeted;
weft::intrusive_ptr<weft::event> hello_of(const std::string& name) {
  auto& e = greeted[name];
  if (!e) e = weft::make_intrusive<weft::event>();
  return e;
}
asio::awaitable<void> hello(std::string name) {
  hello_of(name)->set();
  co_return;
}

/// At a client: returns when the run is over, or never, if its worker goes.
asio::awaitable<void> stay() { co_await weft::sleep_for(1h); }
asio::awaitable<std::string> tell(weft::worker& me, std::string what) {
  co_return me.name() + " is told that " + what;
}

asio::awaitable<void> serve(weft::worker& me) {
  std::cout << "the server knows " << me.peers("client").size() << " clients\n";
  co_await weft::event::async_wait(hello_of("ann"), asio::use_awaitable);
  co_await weft::event::async_wait(hello_of("bob"), asio::use_awaitable);
  std::cout << "ann has said hello, and bob has\n";
  // Whatever waits for a worker that is lost hears of it.
  const auto gone = co_await me.peer("bob").call<&stay>(weft::within(1h), weft::as_expected);
  std::cout << "bob has gone: " << gone.error().code().message() << '\n';
  std::cout << co_await me.peer("ann").call<&tell>("bob has gone") << '\n';
}

asio::awaitable<void> main_(weft::worker& me) {
  if (me.role() == "server") co_return co_await serve(me);
  co_await me.peer("server").call<&hello>(me.name());
  if (me.name() == "bob") ::_exit(1);
}

int main() {
  weft::options o{.workers = 3};
  o.name = [](std::uint32_t rank, std::uint32_t) {
    return std::string(rank == 0 ? "server" : rank == 1 ? "ann" : "bob");
  };
  o.role = [](std::uint32_t rank, std::uint32_t) {
    return std::string(rank == 0 ? "server" : "client");
  };
  o.on_loss = weft::loss_policy::go_on_without({"client"});
  return weft::run<weft::unix_socket, weft::tcp>(main_, o);
}
