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
#include <iostream>
#include <map>
#include <stdexcept>
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

/// At a client: never returns. It is cancelled when the run ends; its caller hears when its worker
/// is lost.
asio::awaitable<void> stay() { co_await weft::event::wait(weft::make_intrusive<weft::event>()); }
asio::awaitable<std::string> tell(weft::worker& me, std::string what) {
  co_return me.name() + " is told that " + what;
}

asio::awaitable<void> serve(weft::worker& me) {
  std::cout << "the server knows " << me.peers("client").size() << " clients\n";
  // An event hears nothing of a worker that is lost before it says hello.
  co_await weft::with_deadline(10s, weft::event::wait(hello_of("ann")));
  co_await weft::with_deadline(10s, weft::event::wait(hello_of("bob")));
  std::cout << "ann has said hello, and bob has\n";
  // A call does.
  const auto gone =
      co_await me.peer("bob").call<&stay>(weft::within(weft::no_limit), weft::as_expected);
  if (gone) throw std::logic_error("stay has returned");
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
