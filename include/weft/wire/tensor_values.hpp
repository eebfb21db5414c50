// SPDX-License-Identifier: BSL-1.0
// libtorch's small values in messages: c10::Device, c10::Scalar, c10::ScalarType.
//
//   Device      {type 1, index 1}           as libtorch numbers them; index -1: none
//   Scalar      {kind 1, value 1, 8 or 16}  kind: 0 bool, 1 int64, 2 uint64, 3 double, 4 complex
//   ScalarType  {1}
#pragma once

#include <weft/wire/codec.hpp>
#include <weft/wire/structure.hpp>

#include <c10/core/Device.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

/// A device of the receiver. If the receiver does not have it, libtorch throws when it is used.
template <>
struct codec<c10::Device> {
  static constexpr std::size_t min_size = 2;
  static void encode(writer& w, const c10::Device& value) {
    w.number(static_cast<std::uint8_t>(value.type()));
    w.number(static_cast<std::uint8_t>(value.index()));
  }
  static c10::Device decode(reader& r) {
    const auto type = r.number<std::uint8_t>();
    const auto index = static_cast<c10::DeviceIndex>(r.number<std::uint8_t>());
    const auto kind = static_cast<c10::DeviceType>(type);
    if (type >= static_cast<std::uint8_t>(c10::COMPILE_TIME_MAX_DEVICE_TYPES)) {
      r.fail("a device of an unknown type");
    }
    // What its constructor asserts.
    if (index < -1 || (kind == c10::DeviceType::CPU && index > 0)) {
      r.fail("a device with an impossible index");
    }
    return {kind, index};
  }
};
template <>
struct structure<c10::Device> {
  static constexpr std::string_view tag = "c10::Device 1";
};

/// A number. A symbolic Scalar throws not_encodable.
template <>
struct codec<c10::Scalar> {
  static constexpr std::size_t min_size = 2;
  static void encode(writer& w, const c10::Scalar& value) {
    if (value.isSymbolic()) {
      throw rpc_error(errc::not_encodable, "a symbolic Scalar means nothing in another process");
    }
    if (value.isComplex()) {
      const auto z = value.toComplexDouble();
      w.number(std::uint8_t{4});
      w.number(z.real());
      w.number(z.imag());
    } else if (value.isFloatingPoint()) {
      w.number(std::uint8_t{3});
      w.number(value.toDouble());
    } else if (value.isBoolean()) {
      w.number(std::uint8_t{0});
      w.number(static_cast<std::uint8_t>(value.toBool()));
    } else if (value.type() == c10::ScalarType::UInt64) {
      w.number(std::uint8_t{2});
      w.number(value.toUInt64());
    } else {
      w.number(std::uint8_t{1});
      w.number(value.toLong());
    }
  }
  static c10::Scalar decode(reader& r) {
    switch (r.number<std::uint8_t>()) {
    case 0:
      return codec<bool>::decode(r);
    case 1:
      return r.number<std::int64_t>();
    case 2:
      return r.number<std::uint64_t>();
    case 3:
      return r.number<double>();
    case 4: {
      const auto real = r.number<double>();
      return c10::complex<double>(real, r.number<double>());
    }
    default:
      r.fail("a Scalar of an unknown kind");
    }
  }
};
template <>
struct structure<c10::Scalar> {
  static constexpr std::string_view tag = "c10::Scalar 1";
};

template <>
struct codec<c10::ScalarType> {
  static constexpr std::size_t min_size = 1;
  static void encode(writer& w, const c10::ScalarType& value) {
    w.number(static_cast<std::uint8_t>(value));
  }
  static c10::ScalarType decode(reader& r) {
    const auto number = r.number<std::uint8_t>();
    if (number > static_cast<std::uint8_t>(c10::ScalarType::Undefined)) {
      r.fail("an unknown ScalarType");
    }
    return static_cast<c10::ScalarType>(number);
  }
};
template <>
struct structure<c10::ScalarType> {
  static constexpr std::string_view tag = "c10::ScalarType 1";
};

}  // namespace weft
