// SPDX-License-Identifier: BSL-1.0
// Functions that stay where they were made and are sent as values. Use them for progress, for
// results that come piece by piece, and for questions back.
#pragma once

#include <weft/rpc/detail/refusals.hpp>
#include <weft/rref/detail/called_back.hpp>
#include <weft/rref/rref.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/structure.hpp>

#include <asio/awaitable.hpp>

#include <concepts>
#include <cstddef>
#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft {

template <class Signature>
class callback;

/// A function of its maker's worker that other workers may call. R and Args must be values that can
/// be sent. Copies share the function. It is destroyed on its maker's worker thread when the last
/// copy anywhere is gone. A default-constructed callback is empty. Calls run on its maker's worker
/// thread and must not block. A lambda may use variables of its coroutine as long as they live.
/// Errors are those of an rref's call.
///
///   weft::callback<void(int)> told(me, [&](int step) { last = step; });
///   co_await p.call<&train>(told);            // there: told.post(step), or co_await told(step)
template <class R, class... Args>
class callback<R(Args...)> {
  using target = detail::called_back<R(Args...)>;

 public:
  callback() = default;
  /// `f` is called with the arguments. It returns R, or an asio::awaitable<R> if it waits.
  template <class F>
    requires std::is_invocable_v<F&, Args...>
  callback(worker& me, F f)
      : target_(me.share(std::shared_ptr<target>(
            std::make_shared<detail::called_back_by<F, R(Args...)>>(std::move(f))))) {}

  /// Only for clear compile errors: a function of another signature, and no worker given.
  template <class F>
  callback(worker&, F) {
    static_assert(detail::fits_signature<F, R(Args...)>,
                  "weft: this function does not take the arguments of the callback's signature; "
                  "write the same in both: weft::callback<void(int)>(me, [](int step) { ... }).");
  }
  template <class F>
    requires(!std::same_as<F, callback> && std::is_invocable_v<F&, Args...>)
  explicit callback(F) {
    static_assert(detail::has_its_worker<F>,
                  "weft: a callback's function runs at a worker; pass that worker first: "
                  "weft::callback<void(int)>(me, f).");
  }

  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(target_); }

  /// Calls the function and waits for its result. Call options come last, as with any call.
  template <class... Given>
  [[nodiscard]] auto operator()(Given&&... given) const {
    return target_.template call<&target::call>(std::forward<Given>(given)...);
  }
  /// As peer::start and peer::post.
  template <class... Given>
  [[nodiscard]] future<R> start(Given&&... given) const {
    return target_.template start<&target::call>(std::forward<Given>(given)...);
  }
  template <class... Given>
  void post(Given&&... given) const {
    target_.template post<&target::call>(std::forward<Given>(given)...);
  }

  /// Equal callbacks share one function.
  friend bool operator==(const callback& a, const callback& b) { return a.target_ == b.target_; }

 private:
  friend struct codec<callback>;

  rref<target> target_;
};

template <class Signature>
inline constexpr bool detail::is_callback<callback<Signature>> = true;

template <class R, class... Args>
struct codec<callback<R(Args...)>> {
  using reference = codec<rref<detail::called_back<R(Args...)>>>;
  static constexpr std::size_t min_size = reference::min_size;
  static void encode(writer& w, const callback<R(Args...)>& value) {
    reference::encode(w, value.target_);
  }
  static callback<R(Args...)> decode(reader& r) {
    callback<R(Args...)> out;
    out.target_ = reference::decode(r);
    return out;
  }
};
template <class R, class... Args>
struct structure<callback<R(Args...)>> {
  static constexpr std::string_view tag = "weft::callback 1";
  using parts = std::tuple<detail::stored<R>, std::remove_cvref_t<Args>...>;
};

}  // namespace weft
