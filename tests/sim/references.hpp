// SPDX-License-Identifier: BSL-1.0
// A program of random references for simulated worlds, and what must hold of their objects.
//
// What the program has of an object it counts, by worker (`holds`). So it is known, of each object,
// that it lives while somebody has it, and when it should be dead.
#pragma once

#include <weft/rpc/immediate.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>

#include <cstdint>
#include <map>
#include <sim/calls.hpp>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft::testing {

/// What is known of one object.
struct seen_object {
  std::uint32_t owner = 0;
  const char* maker = "";
  bool sure = false;   // it will be made, but for faults
  bool seen = false;   // somebody has used it: it is there as long as it is held
  bool threw = false;  // what was to make it
  bool met = false;    // somebody has asked for it, and may have heard that
  int made = 0, dead = 0;
  std::vector<int> holders{};  // by rank: how many `holds`
  rref_id id{};                // of a reference to it
  time_point free_since{};     // of a moment without holders, the last one
};

template <class T>
struct held;
class thing;

/// All objects of a world.
class object_witness {
 public:
  explicit object_witness(witness& of) : calls(of) { current = this; }
  object_witness(const object_witness&) = delete;
  object_witness& operator=(const object_witness&) = delete;
  ~object_witness() { current = nullptr; }

  witness& calls;
  std::vector<seen_object> objects;
  std::uint32_t mains_over = 0;
  /// What functions have stored, by worker.
  std::map<std::uint32_t, std::vector<held<thing>>> stored;

  /// One that is about to be made; its number.
  std::uint64_t expect(worker& me, std::uint32_t owner, const char* maker, bool sure);
  void made(std::uint64_t number);
  void died(std::uint64_t number);
  void has(std::uint64_t number, std::uint32_t where, int more);
  void named(std::uint64_t number, const rref_id& id) {
    if (id.serial != 0) objects.at(number).id = id;
  }

  /// Whether a worker that lives has it.
  [[nodiscard]] bool is_held(std::uint64_t number) const;
  [[nodiscard]] bool all_let_go() const;
  /// Whether somebody who has it, and whose link to the owner is up there, is registered for it.
  [[nodiscard]] bool has_good_holder(std::uint64_t number) const;
  /// Objects of that worker that live though nobody has them.
  [[nodiscard]] int forgotten(std::uint32_t owner) const;
  /// Objects that could not be made there, which nobody has asked for.
  [[nodiscard]] std::uint64_t unmet(std::uint32_t owner) const;
  /// How long an object may live after its last holder has let go: a lost holder is noticed, and
  /// where something went wrong a call that waits may keep what it carries. Those who were cut off
  /// have to miss each other first, and who is paused wakes late.
  [[nodiscard]] duration longest_life() const;

  static thread_local object_witness* current;
};
inline thread_local object_witness* object_witness::current = nullptr;

/// That the program of this worker has an object, or a reference to it.
class holds {
 public:
  holds() = default;
  explicit holds(std::uint64_t number)
      : in_(object_witness::current), number_(number), where_(in_->calls.world.runs_now()) {
    in_->has(number_, where_, 1);
  }
  holds(const holds& other) : in_(other.in_), number_(other.number_), where_(other.where_) {
    if (in_) in_->has(number_, where_, 1);
  }
  holds(holds&& other) noexcept
      : in_(std::exchange(other.in_, nullptr)), number_(other.number_), where_(other.where_) {}
  holds& operator=(holds other) noexcept {
    std::swap(in_, other.in_);
    std::swap(number_, other.number_);
    std::swap(where_, other.where_);
    return *this;
  }
  ~holds() {
    if (in_) in_->has(number_, where_, -1);
  }

 private:
  object_witness* in_ = nullptr;
  std::uint64_t number_ = 0;
  std::uint32_t where_ = 0;
};

/// A reference that is counted wherever a program has it.
template <class T>
struct held {
  std::uint64_t number = 0;
  rref<T> it{};
  holds here{};

  held() = default;
  held(std::uint64_t n, rref<T> to) : number(n), it(std::move(to)), here(n) {
    object_witness::current->named(n, it.id());
  }

  static constexpr std::string_view weft_structure = "weft::testing::held 2";
  friend void weft_encode(writer& w, const held& h) {
    weft::encode(w, h.number);
    weft::encode(w, h.it);
    weft::encode(w, object_witness::current->calls.ballast());
  }
  friend held weft_decode(reader& r, std::type_identity<held>) {
    const auto n = weft::decode<std::uint64_t>(r);
    rref<T> to = weft::decode<rref<T>>(r);
    static_cast<void>(weft::decode<std::vector<std::uint64_t>>(r));
    return {n, std::move(to)};
  }
};

/// An object whose life is watched; one that was moved from, or copied from another, is none.
class thing {
 public:
  explicit thing(std::uint64_t number) : number_(number), in_(object_witness::current) {
    in_->made(number);
  }
  thing(const thing& other) : number_(other.number_) {}
  thing(thing&& other) noexcept : number_(other.number_), in_(std::exchange(other.in_, nullptr)) {}
  thing& operator=(thing&&) = delete;
  ~thing() {
    if (in_) in_->died(number_);
  }
  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] immediate<std::uint64_t> number_at_once() const { return number_; }

  static constexpr std::string_view weft_structure = "weft::testing::thing 1";
  friend void weft_encode(writer& w, const thing& t) { weft::encode(w, t.number_); }
  friend thing weft_decode(reader& r, std::type_identity<thing>) {
    return {weft::decode<std::uint64_t>(r), nullptr};
  }

 private:
  thing(std::uint64_t number, object_witness* in) : number_(number), in_(in) {}

  std::uint64_t number_;
  object_witness* in_ = nullptr;
};

/// An object that has a reference to another one.
struct nest {
  thing self;
  held<thing> inside;
  [[nodiscard]] held<thing> open() const { return inside; }
};

// ── the functions; those that make something get the number that it will have ──

thing make_thing(worker& me, std::uint64_t number);
immediate<thing> make_at_once(std::uint64_t number);
asio::awaitable<thing> make_slowly(worker& me, std::uint64_t number);
thing make_nothing(worker& me, std::uint64_t number);
/// Of an object that may not be made yet.
thing make_another(thing& of, std::uint64_t number, std::uint64_t number_of_first);
nest make_nest(worker& me, std::uint64_t number, held<thing> inside);
/// Lets somebody else make it, and does not wait for that.
rref<thing> refer_to(const held<thing>& it);
asio::awaitable<rref<thing>> refer_slowly_to(worker& me, held<thing> it);
immediate<rref<thing>> pass_reference(rref<thing> r);
asio::awaitable<held<thing>> let_make(worker& me, std::uint64_t number, std::uint32_t owner,
                                      bool slowly);

asio::awaitable<std::uint64_t> look(worker& me, held<thing> it);
asio::awaitable<std::uint64_t> keep(worker& me, held<thing> it);
asio::awaitable<std::uint64_t> keep_all(worker& me, std::vector<held<thing>> all);
asio::awaitable<held<thing>> pass_back(worker& me, held<thing> it);
asio::awaitable<std::map<std::uint64_t, held<thing>>> pass_back_all(worker& me,
                                                                    std::vector<held<thing>> all);
asio::awaitable<std::uint64_t> pass_on(worker& me, held<thing> it, std::uint32_t depth);
/// On the pool, where it has the object itself last if it can.
void let_go_on_pool(worker& me, held<thing> it);
/// Fills the way and the callee's window.
void swallow(worker& me, const std::vector<std::uint64_t>& much);

/// What each worker's main does.
asio::awaitable<void> some_references(worker& me, std::uint32_t steps);

}  // namespace weft::testing
