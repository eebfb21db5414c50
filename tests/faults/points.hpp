// SPDX-License-Identifier: BSL-1.0
// One piece of work at every point of which memory lacks.
#pragma once

#include "shortage.hpp"
#include <weft/core/error.hpp>

#include <asio/awaitable.hpp>
#include <doctest/doctest.h>

#include <exception>
#include <new>
#include <string>

namespace weft::testing {

/// What a caller may be told: bad_alloc as it is, or the typed error. The text tells what else it
/// was, empty if it was that.
[[nodiscard]] inline std::string not_a_shortage(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const rpc_error& e) {
    // There was not even memory to keep the words for.
    const bool wordless = e.error() == errc::rref_lost &&
                          e.error().message().find("was never sent") != std::string::npos;
    error root = e.error();  // of what a function asked of others
    // bounded: every turn goes one cause deeper
    while (root == errc::remote_exception && root.cause()) root = root.cause();
    return wordless || root == errc::resource_exhausted ? "" : e.what();
  } catch (const std::bad_alloc&) {
    return "";
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "not a std::exception";
  }
}

/// Awaits `work` until it has ended; what it threw.
template <class T>
asio::awaitable<std::exception_ptr> end_of(asio::awaitable<T> work) {
  try {
    static_cast<void>(co_await std::move(work));
  } catch (...) {
    co_return std::current_exception();
  }
  co_return nullptr;
}

/// Runs `step(n)` -> awaitable<outcome> for n = 1, 2, … until no allocation failed.
struct outcome {
  bool struck = false;  ///< an allocation failed
  bool failed = false;  ///< somebody was told
};
struct points {
  int struck = 0;  ///< steps in which an allocation failed; none: the work never came there
  int failed = 0;  ///< steps of which somebody was told
};
template <class Step>
asio::awaitable<points> at_every_point(int most, Step step) {
  points all;
  outcome now{true, false};
  for (int n = 1; now.struck && n <= most; ++n) {
    CAPTURE(n);
    now = co_await step(n);
    if (now.struck) ++all.struck;
    if (now.failed) {
      CHECK(now.struck);
      ++all.failed;
    }
  }
  CHECK_FALSE(now.struck);  // every point was met
  co_return all;
}

}  // namespace weft::testing
