// SPDX-License-Identifier: BSL-1.0
// One object on each of several workers: shards of a table, replicas of a model.
#pragma once

#include <weft/core/gather.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/structure.hpp>

#include <asio/awaitable.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

template <class T>
class sharded;

/// Makes one T on each of the peers, all at once, from copies of the arguments, and waits until all
/// are made. If one fails, it throws the first error, and none of the objects is left.
///
///   auto table = co_await weft::make_sharded<shard>(me.peers("server"), rows);
template <class T, class... Args>
[[nodiscard]] asio::awaitable<sharded<T>> make_sharded(std::vector<peer> peers, Args... args);

/// References to the objects, in the order of the peers. Like an rref, it may be an argument, a
/// result, or anywhere inside a value. At a receiver, `local()` is the receiver's own object. If a
/// worker is lost, only uses of its object fail.
template <class T>
class sharded {
 public:
  using value_type = T;

  sharded() = default;
  explicit sharded(std::vector<rref<T>> instances) : instances_(std::move(instances)) {}

  [[nodiscard]] std::size_t size() const noexcept { return instances_.size(); }
  /// The reference at that place, counted from 0. Throws rpc_error invalid_argument if `place` is
  /// not less than size().
  [[nodiscard]] const rref<T>& operator[](std::size_t place) const {
    if (place < size()) return instances_[place];
    throw rpc_error(errc::invalid_argument, "there is no object " + std::to_string(place) +
                                                " (counted from 0); there are " +
                                                std::to_string(size()));
  }
  [[nodiscard]] auto begin() const noexcept { return instances_.begin(); }
  [[nodiscard]] auto end() const noexcept { return instances_.end(); }

  /// The reference to the object of that worker. Throws rpc_error unknown_peer if it has none.
  [[nodiscard]] const rref<T>& on(std::uint32_t rank) const {
    for (const rref<T>& r : instances_) {
      if (r.id().owner == rank) return r;
    }
    throw rpc_error(errc::unknown_peer, "worker " + std::to_string(rank) + " has none of these " +
                                            std::to_string(size()) + " objects");
  }
  /// This worker's own object. Throws rpc_error unknown_peer if it has none, else as `rref::local`.
  [[nodiscard]] std::shared_ptr<T> local() const {
    for (const rref<T>& r : instances_) {
      if (r.is_owner()) return r.local();
    }
    throw rpc_error(errc::unknown_peer,
                    "this worker has none of these " + std::to_string(size()) + " objects");
  }

  /// Calls a function of all objects at once; results are in the order of the peers. The first
  /// error cancels the other calls. With `as_expected`, each is a result or an error.
  template <auto M, class... Args>
  [[nodiscard]] auto call_all(const Args&... args) const {
    using R = typename function<M>::result;
    std::vector<asio::awaitable<R>> calls;
    calls.reserve(size());
    if constexpr (detail::wants_expected<Args...>) {
      for (const rref<T>& r : instances_) calls.push_back(throwing<M>(r, args...));
      return gather(std::move(calls), as_expected);
    } else {
      for (const rref<T>& r : instances_) calls.push_back(r.template call<M>(args...));
      return gather(std::move(calls));
    }
  }

 private:
  friend struct codec<sharded>;

  /// The call without its last option, which `gather` heeds.
  template <auto M, class... Args>
  static auto throwing(const rref<T>& r, const Args&... args) {
    return std::apply([&r](const auto&... rest) { return r.template call<M>(rest...); },
                      std::tuple_cat(without_expected(args)...));
  }
  template <class Arg>
  static auto without_expected(const Arg& arg) {
    if constexpr (std::is_same_v<Arg, as_expected_t>) {
      return std::tuple<>();
    } else {
      return std::tuple<const Arg&>(arg);
    }
  }

  std::vector<rref<T>> instances_;
};

namespace detail {
/// Answers when the object is made.
template <class T>
immediate<void> is_made(T&) {
  return {};
}
}  // namespace detail

template <class T, class... Args>
asio::awaitable<sharded<T>> make_sharded(std::vector<peer> peers, Args... args) {
  std::vector<rref<T>> instances;
  instances.reserve(peers.size());
  for (const peer& p : peers) instances.push_back(p.template make<T>(args...));
  sharded<T> all(std::move(instances));
  co_await all.template call_all<&detail::is_made<typename detail::called_object<T>::type>>();
  co_return all;
}

template <class T>
struct codec<sharded<T>> {
  using elements = std::tuple<rref<T>>;
  using references = codec<std::vector<rref<T>>>;
  static constexpr std::size_t min_size = references::min_size;
  static void encode(writer& w, const sharded<T>& value) {
    references::encode(w, value.instances_);
  }
  static sharded<T> decode(reader& r) { return sharded<T>(references::decode(r)); }
};
template <class T>
struct structure<sharded<T>> {
  static constexpr std::string_view tag = "weft::sharded 1";
};

}  // namespace weft
