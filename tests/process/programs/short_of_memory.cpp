// SPDX-License-Identifier: BSL-1.0
// A worker whose process may not have more memory: `short_of_memory <tcp|unix> <io_threads>`, as
// two workers, of which rank 1 takes 400 MB where 200 MB are left, and then, when it may have all.
#include <weft/run.hpp>

#include <cstdint>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>

#include <sys/resource.h>
#include <unistd.h>

namespace short_of_memory {

using weft::worker;

void say(const std::string& line) { std::cout << line + "\n" << std::flush; }
std::int64_t size_of(at::Tensor t) { return t.numel(); }
std::uint64_t length_of(std::string s) { return s.size(); }
std::string text_of(std::uint64_t length) { return std::string(length, 'x'); }

/// The address space of this process may grow by so many bytes; 0: as it likes.
void leave(std::uint64_t more) {
  ::rlimit now{};
  if (::getrlimit(RLIMIT_AS, &now) != 0) throw std::runtime_error("no limit");
  now.rlim_cur = now.rlim_max;
  if (more != 0) {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    now.rlim_cur = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + more;
  }
  if (::setrlimit(RLIMIT_AS, &now) != 0) throw std::runtime_error("no new limit");
}

template <class T>
void say_whether(const weft::expected<T>& r) {
  say(r ? "taken"
        : "refused: " + std::to_string(r.error().code().value()) + " " +
              std::to_string(static_cast<int>(r.error().ran())) + " " + r.error().message());
}

/// A string of 400 MB, where nobody but who has it may take so much more.
asio::awaitable<void> with_a_string(weft::peer p) {
  constexpr std::uint64_t length = 400'000'000;
  const std::string big(length, 'x');
  std::string mine = big;
  leave(200'000'000u);
  say("at the caller");
  say_whether(co_await p.call<&length_of>(std::move(mine), weft::as_expected));
  leave(0u);
  co_await p.call<&leave>(200'000'000u);
  say("at the callee");
  say_whether(co_await p.call<&length_of>(big, weft::as_expected));
  say("as a result");
  say_whether(co_await p.call<&text_of>(length, weft::as_expected));
  co_await p.call<&leave>(0u);
  say("string: " + std::to_string(co_await p.call<&length_of>(big)));
}

asio::awaitable<void> main_(worker& me) {
  if (me.rank() != 0) co_return;
  auto p = me.peer(1);
  const at::Tensor big = at::ones({100'000'000});
  // All threads of the other have begun, and what they keep of memory is theirs.
  for (int i = 0; i < 8; ++i) static_cast<void>(co_await p.call<&size_of>(at::ones({1000})));
  co_await p.call<&leave>(200'000'000u);
  for (int i = 0; i < 3; ++i) {
    const auto r = co_await p.call<&size_of>(big, weft::as_expected);
    say_whether(r);
    say("small: " + std::to_string(co_await p.call<&size_of>(at::ones({1000}))));
  }
  co_await p.call<&leave>(0u);
  say("large: " + std::to_string(co_await p.call<&size_of>(big)));
  co_await with_a_string(p);
}

}  // namespace short_of_memory

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  weft::options o;
  o.workers = 2;
  o.bounds.payload = 1u << 30;
  o.io_threads = static_cast<unsigned>(std::stoul(argv[2]));
  if (argv[1] == std::string("tcp")) return weft::run<weft::tcp>(short_of_memory::main_, o);
  return weft::run<weft::unix_socket>(short_of_memory::main_, o);
}
