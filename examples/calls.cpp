// SPDX-License-Identifier: BSL-1.0
// Besides `call`: several at once by `start`, one way by `post`, and by `remote` a result that
// stays where it is made. Prints
//
//   sums: 5050 5000050000
//   the journal has 3 lines: one three two
//   the largest of 1000000 numbers that stayed there: 999999
#include <weft/run.hpp>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

std::int64_t sum_to(std::int64_t n) {
  std::int64_t sum = 0;
  for (std::int64_t i = 1; i <= n; ++i) sum += i;
  return sum;
}
at::Tensor numbers(std::int64_t n) { return at::arange(n); }
std::int64_t largest_of(const at::Tensor& t) { return t.max().item<std::int64_t>(); }

/// Its functions are coroutines on its owner's one thread: from one co_await to the next nobody
/// else runs, so they need no lock.
class journal {
 public:
  asio::awaitable<void> note(std::string line) {
    lines_.push_back(std::move(line));
    if (lines_.size() == 3) full_->set();
    co_return;
  }
  /// Posts may arrive in another order than they were sent in.
  asio::awaitable<std::vector<std::string>> lines() {
    co_await weft::event::wait(full_);
    std::vector<std::string> out = lines_;
    std::sort(out.begin(), out.end());
    co_return out;
  }

 private:
  std::vector<std::string> lines_;
  weft::intrusive_ptr<weft::event> full_ = weft::make_intrusive<weft::event>();
};

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  weft::peer there = me.peer(1);

  weft::future<std::int64_t> small = there.start<&sum_to>(100);  // both are on their way
  weft::future<std::int64_t> large = there.start<&sum_to>(100000);
  const std::int64_t first = co_await std::move(small), second = co_await std::move(large);
  std::cout << "sums: " << first << ' ' << second << '\n';

  weft::rref<journal> book = there.make<journal>();
  for (const char* line : {"one", "two", "three"}) book.post<&journal::note>(line);  // no reply
  const auto lines = co_await book.call<&journal::lines>();
  std::cout << "the journal has " << lines.size() << " lines:";
  for (const std::string& line : lines) std::cout << ' ' << line;
  std::cout << '\n';

  weft::rref<at::Tensor> stays = there.remote<&numbers>(1000000);  // usable at once
  std::cout << "the largest of 1000000 numbers that stayed there: "
            << co_await stays.call<&largest_of>() << '\n';
}

int main() { return weft::run<weft::unix_socket, weft::tcp>(main_, weft::options{.workers = 2}); }
