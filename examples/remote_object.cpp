// SPDX-License-Identifier: BSL-1.0
// An object that lives in another process: worker 0 makes a counter at worker 1, uses it, and hands
// the reference to worker 2, who uses it too. It is destroyed with its last reference. Prints
//
//   42 after worker 0, 43 after worker 2
//   at worker 1: the counter ends at 43
#include <weft/run.hpp>

#include <iostream>

class counter {
 public:
  explicit counter(int begin) : value_(begin) {}
  counter(const counter&) = delete;
  ~counter() { std::cout << "at worker 1: the counter ends at " << value_ << std::endl; }

  // A coroutine runs on its worker's one thread: no lock is needed.
  asio::awaitable<int> add(int n) { co_return value_ += n; }

 private:
  int value_;
};

asio::awaitable<int> add_one(weft::rref<counter> to) {
  co_return co_await to.call<&counter::add>(1);
}

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  weft::rref<counter> there = me.peer(1).make<counter>(40);  // usable at once
  int mine = co_await there.call<&counter::add>(2);
  int theirs = co_await me.peer(2).call<&add_one>(there);  // shares the reference, not the counter
  std::cout << mine << " after worker 0, " << theirs << " after worker 2" << std::endl;
}

int main() { return weft::run<weft::unix_socket, weft::tcp>(main_, weft::options{.workers = 3}); }
