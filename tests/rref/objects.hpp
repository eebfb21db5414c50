// SPDX-License-Identifier: BSL-1.0
// Objects that tell how they lived.
#pragma once

#include "workers.hpp"

#include <asio/post.hpp>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

namespace rref_tests {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::rref;
using weft::worker;

/// What became of all probes of a test; constant addresses, so that every worker's code finds it.
struct record {
  std::atomic<int> made{0};
  std::atomic<int> destroyed{0};
  std::atomic<int> elsewhere{0};  ///< destroyed on another thread than their worker's

  static record& of_all() {
    static record it;
    return it;
  }
  void reset() { made = destroyed = elsewhere = 0; }
};

/// The door at which slow functions and constructors wait.
inline gate& door() {
  static gate it;
  return it;
}

class probe {
 public:
  explicit probe(int value) : value_(value) { ++record::of_all().made; }
  probe(probe&& other) noexcept
      : value_(other.value_.load()),
        home_(other.home_),
        alive_(std::exchange(other.alive_, false)) {}
  probe& operator=(probe&&) = delete;
  ~probe() {
    if (!alive_) return;
    ++record::of_all().destroyed;
    if (home_ && !weft::detail::context_of(*home_).get_executor().running_in_this_thread()) {
      ++record::of_all().elsewhere;
    }
  }

  int add(int x) { return value_ += x; }
  [[nodiscard]] int value() const { return value_; }
  weft::immediate<int> peek() { return value_.load(); }
  asio::awaitable<int> add_later(int x) {
    co_await asio::post(asio::use_awaitable);
    co_return value_ += x;
  }
  std::string spell() { return std::to_string(value_.load()); }
  int fail() { throw std::runtime_error("this probe is broken"); }
  int slow() {
    door().pass();
    return value_;
  }
  /// From now on the destructor checks that it runs on this worker's thread.
  void stay(worker& me) { home_ = &me; }

 private:
  std::atomic<int> value_;  // calls may run on several threads of the pool
  worker* home_ = nullptr;
  bool alive_ = true;
};

/// A probe whose constructor waits at the door.
class slow_probe : public probe {
 public:
  explicit slow_probe(int value) : probe(waited(value)) {}

 private:
  static int waited(int value) {
    door().pass();
    return value;
  }
};

}  // namespace rref_tests
