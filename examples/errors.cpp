// SPDX-License-Identifier: BSL-1.0
// What a call throws, what it says about having run, and calls that are made again. Prints
//
//   a function that throws: no such city: Atlantis
//   it ran, so repeating is up to you
//   a function that is too slow: timed out
//   it may have run
//   a worker that does not exist: unknown peer
//   with retry: 21 degrees, at the third attempt
#include <weft/run.hpp>

#include <atomic>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>

using namespace std::literals;

int population(std::string city) {
  if (city != "Utopia") throw std::runtime_error("no such city: " + city);
  return 110000;
}
asio::awaitable<int> takes_an_hour() {
  co_await weft::sleep_for(1h);
  co_return 1;
}

/// A sensor that answers at the third time of asking. To ask it twice does no harm.
std::atomic<int> asked{0};
asio::awaitable<int> temperature() {
  if (++asked < 3) co_await weft::sleep_for(1h);
  co_return 21;
}
template <>
inline constexpr bool weft::idempotent<&temperature> = true;
int times_asked() { return asked; }

std::string_view how_far(weft::call_progress ran) {
  switch (ran) {
  case weft::call_progress::not_sent:
    return "it was not sent";
  case weft::call_progress::not_executed:
    return "it did not run";
  case weft::call_progress::maybe_executed:
    return "it may have run";
  case weft::call_progress::executed:
    return "it ran, so repeating is up to you";
  }
  return "";
}

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  weft::peer there = me.peer(1);

  try {
    co_await there.call<&population>("Atlantis");
  } catch (const weft::rpc_error& e) {  // is a std::system_error; message() names peer and function
    const weft::error_detail& d = e.error().detail();  // peer, function, text and more, apart
    std::cout << "a function that throws: " << d.text << '\n' << how_far(e.error().ran()) << '\n';
  }

  const weft::expected<int> late =
      co_await there.call<&takes_an_hour>(weft::within(500ms), weft::as_expected);
  if (!late) {
    std::cout << "a function that is too slow: " << late.error().code().message() << '\n'
              << how_far(late.error().ran()) << '\n';
  }

  try {
    static_cast<void>(me.peer(7));
  } catch (const weft::rpc_error& e) {
    std::cout << "a worker that does not exist: " << e.error().code().message() << '\n';
  }

  const int degrees = co_await there.call<&temperature>(weft::retry{.each = 1s}, weft::within(10s));
  std::cout << "with retry: " << degrees << " degrees, at the "
            << (co_await there.call<&times_asked>() == 3 ? "third" : "wrong") << " attempt\n";
}

int main() { return weft::run<weft::unix_socket, weft::tcp>(main_, weft::options{.workers = 2}); }
