// SPDX-License-Identifier: BSL-1.0
// Codecs of standard containers (see weft/wire/codec.hpp). Writer and reader charge the same.
#pragma once

#include <weft/wire/codec.hpp>
#include <weft/wire/detail/ask_for_memory.hpp>
#include <weft/wire/detail/plain.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace weft {
namespace detail {

// What a container of `count` elements of type T allocates.
template <class Guard, class T>
void charge_elements(Guard& guard, std::size_t count, std::size_t extra_each = 0) {
  if (count == 0) return;
  guard.charge(count, sizeof(T) + extra_each);
  guard.charge(allocation_cost);
  ask_for_memory(saturating_multiply(count, sizeof(T) + extra_each));
}

/// What a deque has allocated before its first element, in libstdc++: one block of elements and a
/// table of blocks. The same number everywhere, since sender and receiver must agree. What further
/// blocks and the table's growth take is less than the node_cost of their elements.
template <class T>
inline constexpr std::size_t deque_cost =
    std::max<std::size_t>(512, sizeof(T)) + 64 + 2 * allocation_cost;
template <class Container>
inline constexpr bool is_deque = false;
template <class T, class Allocator>
inline constexpr bool is_deque<std::deque<T, Allocator>> = true;

/// What a peer may cost by keys that all fall into few buckets: the elements that one insertion
/// passes are counted, and the sum is linear in their number. What a poor hash of the user's needs
/// for about a thousand elements is always there.
template <class Container>
class bucket_budget {
 public:
  static constexpr bool hashed = requires(const Container& c) { c.bucket_count(); };
  static constexpr std::uint64_t each = 64;
  static constexpr std::uint64_t always = 1u << 20;

  explicit bucket_budget(std::size_t n) noexcept : left_(n * each + always) {}
  template <class Key>
  void inserted(const reader& r, const Container& into, const Key& key) {
    if constexpr (hashed) {
      const std::uint64_t passed = into.bucket_size(into.bucket(key));
      if (passed > left_) r.fail("the keys of an unordered container fall into few buckets");
      left_ -= passed;
    }
  }

 private:
  std::uint64_t left_;
};

/// Room for `n`. None for none: a hash table would allocate buckets that nobody charged.
template <class Container>
void reserve(Container& into, std::size_t n) {
  if constexpr (requires { into.reserve(n); }) {
    if (n > 0) into.reserve(n);
  }
}

// vector, deque, list.
template <class Container>
struct sequence_codec {
  using value_type = typename Container::value_type;
  using elements = std::tuple<value_type>;
  static constexpr std::size_t min_size = 4;
  static constexpr bool contiguous = is_bulk<value_type> && requires(Container& c) { c.data(); };
  static constexpr std::size_t extra_each =
      requires(Container& c) { c.reserve(0); } ? 0 : node_cost;

  template <class Guard>
  static void charge(Guard& guard, std::size_t count) {
    if constexpr (is_deque<Container>) guard.charge(deque_cost<value_type>);
    charge_elements<Guard, value_type>(guard, count, extra_each);
  }
  static void encode(writer& w, const Container& value) {
    w.count(value.size());
    charge(w, value.size());
    if constexpr (contiguous) {
      w.raw(value.data(), value.size() * sizeof(value_type));
    } else {
      const auto level = w.nested();
      for (const auto& each : value) codec<value_type>::encode(w, each);
    }
  }
  static Container decode(reader& r) {
    Container value;
    const std::size_t n = r.count(codec<value_type>::min_size);
    charge(r, n);
    if constexpr (contiguous) {
      const auto source = r.raw(n * sizeof(value_type));
      if (n > 0) {
        value.resize(n);
        std::memcpy(value.data(), source.data(), source.size());
      }
    } else {
      const auto level = r.nested();
      reserve(value, n);
      for (std::size_t i = 0; i < n; ++i) value.push_back(codec<value_type>::decode(r));
    }
    return value;
  }
};

// set, unordered_set.
template <class Container>
struct set_codec {
  using value_type = typename Container::value_type;
  using elements = std::tuple<value_type>;
  static constexpr std::size_t min_size = 4;

  static void encode(writer& w, const Container& value) {
    w.count(value.size());
    charge_elements<writer, value_type>(w, value.size(), node_cost);
    const auto level = w.nested();
    for (const auto& each : value) codec<value_type>::encode(w, each);
  }
  static Container decode(reader& r) {
    Container value;
    const std::size_t n = r.count(codec<value_type>::min_size);
    charge_elements<reader, value_type>(r, n, node_cost);
    const auto level = r.nested();
    reserve(value, n);
    bucket_budget<Container> budget(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto at = value.emplace_hint(value.end(), codec<value_type>::decode(r));
      if (value.size() != i + 1) r.fail("the same element twice in a set");
      budget.inserted(r, value, *at);
    }
    return value;
  }
};

// map, unordered_map.
template <class Container>
struct map_codec {
  using key_type = typename Container::key_type;
  using mapped_type = typename Container::mapped_type;
  using elements = std::tuple<key_type, mapped_type>;
  static constexpr std::size_t min_size = 4;

  static void encode(writer& w, const Container& value) {
    w.count(value.size());
    charge_elements<writer, typename Container::value_type>(w, value.size(), node_cost);
    const auto level = w.nested();
    for (const auto& [key, mapped] : value) {
      codec<key_type>::encode(w, key);
      codec<mapped_type>::encode(w, mapped);
    }
  }
  static Container decode(reader& r) {
    Container value;
    const std::size_t n = r.count(codec<key_type>::min_size + codec<mapped_type>::min_size);
    charge_elements<reader, typename Container::value_type>(r, n, node_cost);
    const auto level = r.nested();
    reserve(value, n);
    bucket_budget<Container> budget(n);
    for (std::size_t i = 0; i < n; ++i) {
      key_type key = codec<key_type>::decode(r);
      const auto at =
          value.emplace_hint(value.end(), std::move(key), codec<mapped_type>::decode(r));
      if (value.size() != i + 1) r.fail("the same key twice in a map");
      budget.inserted(r, value, at->first);
    }
    return value;
  }
};

}  // namespace detail

template <class C, class Traits>
  requires detail::is_bulk<C>
struct codec<std::basic_string<C, Traits>> {
  static constexpr std::size_t min_size = 4;
  static void encode(writer& w, const std::basic_string<C, Traits>& value) {
    w.count(value.size());
    w.charge(cost(value.size()));
    w.raw(value.data(), value.size() * sizeof(C));
  }
  static std::basic_string<C, Traits> decode(reader& r) {
    const std::size_t n = r.count(sizeof(C));
    r.charge(cost(n));
    std::basic_string<C, Traits> value;
    const auto source = r.raw(n * sizeof(C));
    if (n > 0) {
      value.resize(n);
      std::memcpy(value.data(), source.data(), source.size());
    }
    return value;
  }

 private:
  // Short ones live inside the string.
  static constexpr std::uint64_t cost(std::size_t n) noexcept {
    const std::uint64_t size = (std::uint64_t{n} + 1) * sizeof(C);
    return size <= 16 ? 0 : size + detail::allocation_cost;
  }
};

template <>
struct codec<std::vector<bool>> {
  static constexpr std::size_t min_size = 4;
  static void encode(writer& w, const std::vector<bool>& value) {
    w.count(value.size());
    w.charge(cost(value.size()));
    for (const bool each : value) w.number(static_cast<std::uint8_t>(each));
  }
  static std::vector<bool> decode(reader& r) {
    const std::size_t n = r.count(1);
    r.charge(cost(n));
    std::vector<bool> value;
    value.reserve(n);
    for (std::size_t i = 0; i < n; ++i) value.push_back(detail::read_flag(r));
    return value;
  }

 private:
  // Words of 64 bits.
  static constexpr std::uint64_t cost(std::size_t n) noexcept {
    return n == 0 ? 0 : (std::uint64_t{n} + 63) / 64 * 8 + detail::allocation_cost;
  }
};

template <class T>
struct codec<std::vector<T>> : detail::sequence_codec<std::vector<T>> {};
template <class T>
struct codec<std::deque<T>> : detail::sequence_codec<std::deque<T>> {};
template <class T>
struct codec<std::list<T>> : detail::sequence_codec<std::list<T>> {};
template <class K, class Less>
struct codec<std::set<K, Less>> : detail::set_codec<std::set<K, Less>> {};
template <class K, class Hash, class Equal>
struct codec<std::unordered_set<K, Hash, Equal>>
    : detail::set_codec<std::unordered_set<K, Hash, Equal>> {};
template <class K, class V, class Less>
struct codec<std::map<K, V, Less>> : detail::map_codec<std::map<K, V, Less>> {};
template <class K, class V, class Hash, class Equal>
struct codec<std::unordered_map<K, V, Hash, Equal>>
    : detail::map_codec<std::unordered_map<K, V, Hash, Equal>> {};

}  // namespace weft
