// SPDX-License-Identifier: BSL-1.0
// Codecs of values without elements in memory of their own (see weft/wire/codec.hpp).
#pragma once

#include <weft/wire/codec.hpp>
#include <weft/wire/detail/plain.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <complex>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

namespace weft {

template <class T>
  requires std::is_arithmetic_v<T>
struct codec<T> {
  static constexpr std::size_t min_size = sizeof(T);
  static void encode(writer& w, const T& value) {
    if constexpr (std::is_same_v<T, long double>) {
      std::byte image[sizeof(T)] = {};  // x87: ten bytes of value, the rest is not written
      std::memcpy(image, &value, std::numeric_limits<T>::digits == 64 ? 10 : sizeof(T));
      w.raw(image, sizeof image);
    } else {
      w.number(value);
    }
  }
  static T decode(reader& r) {
    if constexpr (std::is_same_v<T, bool>) {
      return detail::read_flag(r);
    } else {
      return r.number<T>();
    }
  }
};

template <class T>
  requires detail::fixed_enum<T>
struct codec<T> {
  using underlying = std::underlying_type_t<T>;
  static constexpr std::size_t min_size = sizeof(T);
  static void encode(writer& w, const T& value) {
    codec<underlying>::encode(w, static_cast<underlying>(value));
  }
  static T decode(reader& r) { return static_cast<T>(codec<underlying>::decode(r)); }
};

template <class T>
struct codec<std::complex<T>> {
  using elements = std::tuple<T>;
  static constexpr std::size_t min_size = 2 * codec<T>::min_size;
  static void encode(writer& w, const std::complex<T>& value) {
    codec<T>::encode(w, value.real());
    codec<T>::encode(w, value.imag());
  }
  static std::complex<T> decode(reader& r) {
    const T real = codec<T>::decode(r);
    return {real, codec<T>::decode(r)};
  }
};

template <>
struct codec<std::monostate> {
  static constexpr std::size_t min_size = 1;
  static void encode(writer& w, const std::monostate&) { w.number(std::uint8_t{0}); }
  static std::monostate decode(reader& r) {
    detail::read_zero(r);
    return {};
  }
};

template <class Rep, class Period>
struct codec<std::chrono::duration<Rep, Period>> {
  using elements = std::tuple<Rep>;
  static constexpr std::size_t min_size = sizeof(Rep);
  static void encode(writer& w, const std::chrono::duration<Rep, Period>& value) {
    codec<Rep>::encode(w, value.count());
  }
  static std::chrono::duration<Rep, Period> decode(reader& r) {
    return std::chrono::duration<Rep, Period>(codec<Rep>::decode(r));
  }
};

template <class Clock, class Duration>
  requires(!std::is_same_v<Clock, std::chrono::steady_clock>)
struct codec<std::chrono::time_point<Clock, Duration>> {
  using elements = std::tuple<Duration>;
  static constexpr std::size_t min_size = codec<Duration>::min_size;
  static void encode(writer& w, const std::chrono::time_point<Clock, Duration>& value) {
    codec<Duration>::encode(w, value.time_since_epoch());
  }
  static std::chrono::time_point<Clock, Duration> decode(reader& r) {
    return std::chrono::time_point<Clock, Duration>(codec<Duration>::decode(r));
  }
};

template <class T>
struct codec<std::optional<T>> {
  using elements = std::tuple<T>;
  static constexpr std::size_t min_size = 1;
  static void encode(writer& w, const std::optional<T>& value) {
    w.number(static_cast<std::uint8_t>(value.has_value()));
    if (value) codec<T>::encode(w, *value);
  }
  static std::optional<T> decode(reader& r) {
    if (!detail::read_flag(r)) return std::nullopt;
    return std::optional<T>(codec<T>::decode(r));
  }
};

template <class T>
  requires(!std::is_array_v<T>)
struct codec<std::unique_ptr<T>> {
  using elements = std::tuple<std::remove_const_t<T>>;
  using value_type = std::remove_const_t<T>;
  static constexpr std::size_t min_size = 1;
  static void encode(writer& w, const std::unique_ptr<T>& value) {
    w.number(static_cast<std::uint8_t>(value != nullptr));
    if (!value) return;
    const auto level = w.nested();
    w.charge(sizeof(T) + detail::allocation_cost);
    codec<value_type>::encode(w, *value);
  }
  static std::unique_ptr<T> decode(reader& r) {
    if (!detail::read_flag(r)) return nullptr;
    const auto level = r.nested();
    r.charge(sizeof(T) + detail::allocation_cost);
    return std::unique_ptr<T>(new T(codec<value_type>::decode(r)));
  }
};

template <class... Ts>
struct codec<std::variant<Ts...>> {
  using elements = std::tuple<Ts...>;
  using value_type = std::variant<Ts...>;
  static constexpr std::size_t min_size = 2;
  static_assert(sizeof...(Ts) < 256, "weft: a variant that is sent has at most 255 alternatives.");

  static void encode(writer& w, const value_type& value) {
    if (value.valueless_by_exception()) {
      throw rpc_error(errc::not_encodable, "a variant that lost its value in an exception");
    }
    w.number(static_cast<std::uint8_t>(value.index()));
    std::visit([&w]<class T>(const T& held) { codec<T>::encode(w, held); }, value);
  }
  static value_type decode(reader& r) {
    const std::size_t index = r.number<std::uint8_t>();
    if (index >= sizeof...(Ts)) {
      r.fail("alternative " + std::to_string(index) + " of a variant that has " +
             std::to_string(sizeof...(Ts)));
    }
    return decode_from<0>(r, index);
  }

 private:
  template <std::size_t I>
  static value_type decode_from(reader& r, std::size_t index) {
    if constexpr (I + 1 < sizeof...(Ts)) {
      if (index != I) return decode_from<I + 1>(r, index);
    }
    using chosen = std::variant_alternative_t<I, value_type>;
    return value_type(std::in_place_index<I>, codec<chosen>::decode(r));
  }
};

template <class A, class B>
struct codec<std::pair<A, B>> {
  using elements = std::tuple<std::remove_const_t<A>, std::remove_const_t<B>>;
  using first_codec = codec<std::remove_const_t<A>>;
  using second_codec = codec<std::remove_const_t<B>>;
  static constexpr std::size_t min_size = first_codec::min_size + second_codec::min_size;
  static void encode(writer& w, const std::pair<A, B>& value) {
    first_codec::encode(w, value.first);
    second_codec::encode(w, value.second);
  }
  static std::pair<A, B> decode(reader& r) {
    return std::pair<A, B>{first_codec::decode(r), second_codec::decode(r)};
  }
};

template <class... Ts>
struct codec<std::tuple<Ts...>> {
  using elements = std::tuple<Ts...>;
  static constexpr std::size_t min_size =
      sizeof...(Ts) == 0 ? 1 : (std::size_t{0} + ... + codec<Ts>::min_size);
  static void encode(writer& w, const std::tuple<Ts...>& value) {
    if constexpr (sizeof...(Ts) == 0) {
      w.number(std::uint8_t{0});
    } else {
      std::apply([&w](const Ts&... each) { (codec<Ts>::encode(w, each), ...); }, value);
    }
  }
  static std::tuple<Ts...> decode(reader& r) {
    if constexpr (sizeof...(Ts) == 0) {
      detail::read_zero(r);
      return {};
    } else {
      return std::tuple<Ts...>{codec<Ts>::decode(r)...};  // braces: left to right
    }
  }
};

template <class T, std::size_t N>
struct codec<std::array<T, N>> {
  using elements = std::tuple<T>;
  static constexpr std::size_t min_size = N == 0 ? 1 : N * codec<T>::min_size;
  static void encode(writer& w, const std::array<T, N>& value) {
    if constexpr (N == 0) {
      w.number(std::uint8_t{0});
    } else if constexpr (detail::is_bulk<T>) {
      w.raw(value.data(), sizeof value);
    } else {
      for (const T& each : value) codec<T>::encode(w, each);
    }
  }
  static std::array<T, N> decode(reader& r) {
    if constexpr (N == 0) {
      detail::read_zero(r);
      return {};
    } else if constexpr (detail::is_bulk<T>) {
      std::array<T, N> value;
      std::memcpy(value.data(), r.raw(sizeof value).data(), sizeof value);
      return value;
    } else if constexpr (N > 64 && std::is_default_constructible_v<T> &&
                         std::is_move_assignable_v<T>) {
      std::array<T, N> value{};
      for (T& each : value) each = codec<T>::decode(r);
      return value;
    } else {
      return [&r]<std::size_t... I>(std::index_sequence<I...>) {
        return std::array<T, N>{{(static_cast<void>(I), codec<T>::decode(r))...}};
      }(std::make_index_sequence<N>{});
    }
  }
};

}  // namespace weft
