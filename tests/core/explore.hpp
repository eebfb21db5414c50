// SPDX-License-Identifier: BSL-1.0
// Every schedule of a small world of a protocol: all states that its moves lead to, breadth first.
//
//   struct world {                                    // copied for each move
//     struct move { ... };
//     std::vector<move> moves() const;
//     static bool optional(const move&);              // a fault: it may come, or not
//     std::string name(const move&) const;            // for the trace of a failure
//     void make(const move&);                         // may throw `broken`
//     void audit() const;                             // throws `broken`: what holds in every state
//     void finish() const;                            // ... in which only optional moves are left
//     void encode(encoder&) const;                    // all that its future depends on
//   };
//   explore("what it is", world{...}, 100'000);       // no more states than that, or it fails
//
// A failure is told with the shortest way to it. It is one, too, that some state leads to no end
// without optional moves, and that two which are encoded alike differ in what they lead to.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace exploring {

/// A protocol does not keep what it promises.
struct broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};
inline void hold(bool condition, std::string_view what) {
  if (!condition) throw broken(std::string(what));
}
template <class Number, class... Numbers>
void hold(bool condition, std::string_view what, const Number& number, const Numbers&... more) {
  if (condition) return;
  std::string text(what);
  text += " " + std::to_string(number);
  ((text += "." + std::to_string(more)), ...);
  throw broken(text);
}

/// Of a state: two with the same are the same, but for a chance of 2^-128.
struct fingerprint {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const fingerprint&, const fingerprint&) = default;
};

/// Collects what a state is. Whoever encodes a list says its length, so that no two states run
/// together.
class encoder {
 public:
  encoder& operator<<(std::uint64_t n) {
    high_ = mixed(high_ ^ n, 0x9e3779b97f4a7c15u);
    low_ = mixed(low_ + n, 0xd6e8feb86659fd93u);
    return *this;
  }
  encoder& operator<<(std::string_view text) {
    *this << text.size();
    for (const char c : text) *this << static_cast<unsigned char>(c);
    return *this;
  }
  template <class Range, class Each>
  void list(const Range& all, Each&& each) {
    *this << all.size();
    for (const auto& element : all) each(element);
  }
  template <class Range>
  void list(const Range& all) {
    list(all, [this](const auto& element) { *this << static_cast<std::uint64_t>(element); });
  }
  [[nodiscard]] fingerprint done() const { return {high_, low_}; }

 private:
  static std::uint64_t mixed(std::uint64_t n, std::uint64_t factor) {
    n = (n ^ (n >> 32)) * factor;
    n = (n ^ (n >> 29)) * 0xbf58476d1ce4e5b9u;
    return n ^ (n >> 32);
  }
  std::uint64_t high_ = 1;
  std::uint64_t low_ = 2;
};

/// For tests that encode a class which does not show its state. Once in a program, outside of any
/// namespace, for each such class,
///
///   template struct exploring::revealed<some_class, &some_class::first_, &some_class::second_>;
///
/// and `with_members(object, visit)` calls `visit` with all of these members.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-template-friend"
#endif
template <class Class>
struct members_wanted {
  friend constexpr auto members_of(members_wanted);
};
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
template <class Class, auto... Members>
struct revealed {
  friend constexpr auto members_of(members_wanted<Class>) { return std::tuple(Members...); }
};
template <class Class, class Visit>
decltype(auto) with_members(Class& object, Visit&& visit) {
  using wanted = members_wanted<std::remove_const_t<Class>>;
  return std::apply(
      [&](const auto... member) -> decltype(auto) { return visit(object.*member...); },
      members_of(wanted()));
}

/// A part of a world that many worlds share until one of them changes it.
template <class T>
class shared {
 public:
  template <class... Args>
  explicit shared(std::in_place_t, Args&&... args)
      : value_(std::make_shared<T>(std::forward<Args>(args)...)) {}
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  T& change() {
    if (value_.use_count() > 1) value_ = std::make_shared<T>(std::as_const(*value_));
    return *value_;
  }

 private:
  std::shared_ptr<T> value_;
};

struct outcome {
  std::size_t states = 0;
  std::size_t moves = 0;
  std::size_t ends = 0;
  std::string failure;  ///< with its trace; empty: there is none
};

template <class World>
class exploration {
 public:
  /// One in `audited` of the states that are met again is compared with the first.
  exploration(World first, std::size_t most, std::size_t audited = 64)
      : first_(std::move(first)), most_(most), audited_(audited) {}

  outcome run() {
    try {
      first_.audit();
    } catch (const broken& why) {
      return {1, 0, 0, why.what()};
    }
    meet(first_, {0, 0});
    open_.emplace_back(first_);
    for (std::uint32_t at = 0; !open_.empty() && out_.failure.empty(); ++at) {
      const World here = std::move(open_.front());
      open_.pop_front();
      expand(here, at);
    }
    out_.states = known_.size();
    if (out_.failure.empty()) demand_ends();
    return out_;
  }

 private:
  using move = typename World::move;
  struct known {
    std::uint32_t before = 0;  // the state that it was first reached from
    std::uint32_t by = 0;      // which move of that
    std::uint64_t leads_to = 0;
  };

  static fingerprint print_of(const World& w) {
    encoder e;
    w.encode(e);
    return e.done();
  }
  std::pair<std::uint32_t, bool> meet(const World& w, known how) {
    const auto next = static_cast<std::uint32_t>(known_.size());
    const auto [it, fresh] = index_.try_emplace(print_of(w), next);
    if (fresh) known_.push_back(how);
    return {it->second, fresh};
  }

  void expand(const World& here, std::uint32_t at) {
    const std::vector<move> moves = here.moves();
    std::uint64_t leads_to = moves.size();
    if (std::all_of(moves.begin(), moves.end(), World::optional)) {
      ++out_.ends;
      ends_.push_back(at);
      try {
        here.finish();
      } catch (const broken& why) {
        return fail(why.what(), at);
      }
    }
    for (std::uint32_t i = 0; i < moves.size() && out_.failure.empty(); ++i) {
      ++out_.moves;
      World next = here;
      try {
        next.make(moves[i]);
        next.audit();
      } catch (const broken& why) {
        return fail(why.what(), at, &moves[i]);
      }
      const auto [index, fresh] = meet(next, {at, i});
      if (!World::optional(moves[i])) edges_.emplace_back(at, index);
      leads_to = combined(leads_to, print_of(next));
      if (fresh) {
        open_.push_back(std::move(next));
      } else if (audited_ != 0 && ++again_ % audited_ == 0) {
        const std::uint64_t seen = consequences(next);
        // Of a state whose turn has not come it is compared then.
        if (index <= at && index != at) {
          if (seen != known_[index].leads_to) return fail(unlike, at, &moves[i]);
        } else {
          expected_.emplace(index, seen);
        }
      }
      if (known_.size() > most_) {
        return fail("more than " + std::to_string(most_) + " states", at, &moves[i]);
      }
    }
    known_[at].leads_to = leads_to;
    const auto [first, last] = expected_.equal_range(at);
    for (auto it = first; it != last; ++it) {
      if (it->second != leads_to) return fail(unlike, at);
    }
    expected_.erase(first, last);
  }
  /// What a state leads to, in short.
  static std::uint64_t consequences(const World& here) {
    const std::vector<move> moves = here.moves();
    std::uint64_t out = moves.size();
    for (const move& m : moves) {
      World next = here;
      try {
        next.make(m);
      } catch (const broken&) {
        return 0;
      }
      out = combined(out, print_of(next));
    }
    return out;
  }
  /// In any order: equal states may list their moves differently.
  static std::uint64_t combined(std::uint64_t sum, const fingerprint& f) {
    return sum + (f.high ^ (f.low * 0x9e3779b97f4a7c15u));
  }

  /// Those that lead to an end are found backwards from the ends.
  void demand_ends() {
    std::vector<std::vector<std::uint32_t>> before(known_.size());
    for (const auto& [from, to] : edges_) before[to].push_back(from);
    std::vector<bool> leads(known_.size(), false);
    std::vector<std::uint32_t> open = ends_;
    for (const std::uint32_t e : open) leads[e] = true;
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      open.pop_back();
      for (const std::uint32_t b : before[at]) {
        if (!leads[b]) open.push_back(b);
        leads[b] = true;
      }
    }
    for (std::uint32_t s = 0; s < known_.size(); ++s) {
      if (!leads[s]) return fail("no end can be reached any more", s);
    }
  }

  /// Goes the way to that state once more, and names what it does.
  void fail(const std::string& why, std::uint32_t at, const move* last = nullptr) {
    std::vector<std::uint32_t> way;
    for (std::uint32_t s = at; s != 0; s = known_[s].before) way.push_back(known_[s].by);
    World w = first_;
    std::string text = why + (last || at != 0 ? ", after\n" : "\n");
    while (!way.empty()) {
      const move m = w.moves().at(way.back());
      way.pop_back();
      text += "  " + w.name(m) + "\n";
      w.make(m);
    }
    if (last) text += "  " + w.name(*last) + "\n";
    out_.failure = text;
  }

  static constexpr const char* unlike = "a state that is encoded like another leads elsewhere";
  struct spread {
    std::size_t operator()(const fingerprint& f) const { return static_cast<std::size_t>(f.low); }
  };

  World first_;
  std::size_t most_;
  std::size_t audited_;
  std::size_t again_ = 0;
  outcome out_;
  std::deque<World> open_;  // in the order of their numbers
  std::vector<known> known_;
  std::unordered_map<fingerprint, std::uint32_t, spread> index_;
  std::unordered_multimap<std::uint32_t, std::uint64_t> expected_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;
  std::vector<std::uint32_t> ends_;
};

/// Whether bounds that take minutes are wanted: WEFT_EXPLORE_WIDELY is set.
[[nodiscard]] inline bool widely() { return std::getenv("WEFT_EXPLORE_WIDELY") != nullptr; }

/// Explores, and fails the test if anything is wrong.
template <class World>
outcome explore(std::string_view what, World first, std::size_t most) {
  outcome out = exploration<World>(std::move(first), widely() ? 1000 * most : most).run();
  CHECK_MESSAGE(out.failure.empty(), std::string(what) << ": " << out.failure);
  CHECK(out.moves > 0);
  CHECK(out.ends > 0);
  MESSAGE(std::string(what) << ": " << out.states << " states, " << out.moves << " moves, "
                            << out.ends << " ends");
  return out;
}

}  // namespace exploring
