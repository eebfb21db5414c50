// SPDX-License-Identifier: BSL-1.0
// A program of random references for simulated worlds, and what must hold of their objects.
#pragma once

#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>

#include <cstdint>
#include <map>
#include <sim/calls.hpp>
#include <utility>
#include <vector>

namespace weft::testing {

/// What is known of one object.
struct seen_object {
  std::uint32_t owner = 0;
  int made = 0, dead = 0;
};

/// All objects of a world.
class object_witness {
 public:
  explicit object_witness(witness& of) : calls(of) { current = this; }
  object_witness(const object_witness&) = delete;
  object_witness& operator=(const object_witness&) = delete;
  ~object_witness() { current = nullptr; }

  witness& calls;
  std::vector<seen_object> objects;
  /// What functions have stored, by worker.
  std::map<std::uint32_t, std::vector<std::pair<std::uint64_t, rref<class thing>>>> stored;

  /// Objects of that worker that live.
  [[nodiscard]] int living(std::uint32_t owner) const {
    int n = 0;
    for (const seen_object& o : objects) n += o.owner == owner ? o.made - o.dead : 0;
    return n;
  }
  static thread_local object_witness* current;
};
inline thread_local object_witness* object_witness::current = nullptr;

/// An object whose life is watched; one that was moved from is none.
class thing {
 public:
  thing(std::uint64_t number, std::uint32_t here) : number_(number), in_(object_witness::current) {
    seen_object& o = in_->objects.at(number);
    ++o.made;
    if (o.owner != here) in_->calls.complain("an object was made on another worker");
  }
  thing(thing&& other) noexcept : number_(other.number_), in_(std::exchange(other.in_, nullptr)) {}
  thing& operator=(thing&&) = delete;
  ~thing() {
    if (!in_) return;
    seen_object& o = in_->objects.at(number_);
    if (++o.dead > o.made) in_->calls.complain("an object died twice");
    sim::world& w = in_->calls.world;
    if (w.runs_now() != o.owner) {
      in_->calls.complain("object " + std::to_string(number_) + " of worker " +
                          std::to_string(o.owner) + " died on worker " +
                          std::to_string(w.runs_now()));
    }
    w.tell(o.owner, "object dies, number", number_);
  }
  [[nodiscard]] std::uint64_t number() const { return number_; }

 private:
  std::uint64_t number_;
  object_witness* in_;
};

thing make_thing(worker& me, std::uint64_t number);
asio::awaitable<thing> make_slowly(worker& me, std::uint64_t number);
thing make_nothing(worker& me, std::uint64_t number);
asio::awaitable<std::uint64_t> look(worker& me, rref<thing> it, std::uint64_t number);
asio::awaitable<std::uint64_t> keep(worker& me, rref<thing> it, std::uint64_t number);
asio::awaitable<rref<thing>> pass_back(worker& me, rref<thing> it);
asio::awaitable<std::uint64_t> pass_on(worker& me, rref<thing> it, std::uint64_t number,
                                       std::uint32_t depth);

/// What each worker's main does.
asio::awaitable<void> some_references(worker& me, std::uint32_t steps);

}  // namespace weft::testing
