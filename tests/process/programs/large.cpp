// SPDX-License-Identifier: BSL-1.0
// What the tests of processes that are killed amid a large tensor start: `large <deed> <transport>
// <io_threads>`. Rank 2 is killed while the bytes of a tensor of 160 MB travel to or from it, or
// those of a stream's items. Ranks 0 and 1 go on, and then send each other large tensors.
#include <weft/run.hpp>
#include <weft/transport/tcp.hpp>
#include <weft/transport/unix_socket.hpp>
#include <weft/weft.hpp>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>

#include <signal.h>
#include <unistd.h>

namespace large {

using weft::worker;

constexpr std::int64_t floats = 40'000'000;
constexpr std::uint32_t lost = 2;
std::string deed;
std::atomic<pid_t> whom{0};  // who is killed when the bytes of `keep` begin to come
std::atomic<int> kept{0};

// One write per line, so that lines of several processes do not mix.
void say(const std::string& text) { std::cout << text + "\n" << std::flush; }
void require(bool is_so, const std::string& what) {
  if (!is_so) throw std::runtime_error(what);
}

at::Tensor place(const weft::announced& what) {
  at::Tensor t = at::empty(what.sizes, what.dtype);
  if (whom != 0) ::kill(whom, SIGKILL);
  return t;
}
void keep(weft::into<at::Tensor, &place>) { ++kept; }
double sum(at::Tensor t) { return t.sum(at::kDouble).item<double>(); }
int pid() { return ::getpid(); }
void arm(int pid) { whom = pid; }
asio::awaitable<void> items(weft::sink<at::Tensor> out) {
  // bounded: by the end of the stream
  for (int i = 0;; ++i) co_await out.write(at::full({floats / 10}, i));
}
/// At rank 2: sends a large argument to rank 0.
asio::awaitable<void> send(worker& me) { co_await me.peer(0).call<&keep>(at::full({floats}, 1)); }

/// What the call ends with; it must not end well.
asio::awaitable<void> require_lost(asio::awaitable<void> call) {
  weft::error why;
  try {
    co_await std::move(call);
  } catch (const weft::rpc_error& e) {
    why = e.error();
  }
  require(why == weft::errc::peer_died, "not peer_died, but: " + why.message());
}
asio::awaitable<void> read_items(worker& me, pid_t of) {
  auto [in] = co_await me.peer(lost).open<&items>();
  int n = 0;
  // bounded: by the loss
  while (const auto item = co_await in.next()) {
    require(item->eq(n).all().item<bool>(), "a wrong item");
    if (++n == 3) ::kill(of, SIGKILL);
  }
}

asio::awaitable<void> main_(worker& me) {
  if (me.rank() != 0) co_return;
  const weft::peer other = me.peer(1), gone = me.peer(lost);
  // The second of them finds the connection for large tensors.
  for (const weft::peer& p : {other, gone, other, gone}) {
    require(co_await p.call<&sum>(at::full({floats / 10}, 0.5)) == floats / 20, "a wrong sum");
  }
  const int pid_of_lost = co_await gone.call<&pid>();
  if (deed == "argument") {
    co_await gone.call<&arm>(pid_of_lost);
    co_await require_lost(gone.call<&keep>(at::full({floats}, 1)));
  } else if (deed == "caller") {
    whom = pid_of_lost;
    co_await require_lost(gone.call<&send>());
    whom = 0;
    require(kept == 0, "a function ran whose argument had not come");
  } else {
    co_await require_lost(read_items(me, pid_of_lost));
  }
  say("it is lost");
  for (int i = 0; i < 3; ++i) {
    require(co_await other.call<&sum>(at::full({floats / 10}, 2)) == floats / 5, "a wrong sum");
  }
  say("the others went on");
}

std::string role_of(std::uint32_t rank, std::uint32_t) { return rank == lost ? "lost" : ""; }

}  // namespace large

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  large::deed = argv[1];
  weft::options o;
  o.workers = 3;
  o.role = large::role_of;
  o.on_loss = weft::loss_policy::go_on_without({"lost"});
  o.io_threads = static_cast<unsigned>(std::stoi(argv[3]));
  return std::string(argv[2]) == "tcp" ? weft::run<weft::tcp>(large::main_, o)
                                       : weft::run<weft::unix_socket, weft::tcp>(large::main_, o);
}
