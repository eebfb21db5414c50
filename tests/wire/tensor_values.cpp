// SPDX-License-Identifier: BSL-1.0
#include <weft/wire/codec.hpp>
#include <weft/wire/message.hpp>
#include <weft/wire/tensor_values.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <core/error_of.hpp>
#include <cstdint>
#include <limits>
#include <vector>

namespace wire_tensor_values {

template <class T>
T travel(const T& value) {
  weft::message m;
  weft::encode(m.payload(), value);
  weft::incoming_message in(std::move(m).finish({}));
  weft::reader r = in.payload();
  T out = weft::decode<T>(r);
  r.finish();
  return out;
}

/// The error of bytes that lie.
template <class T>
weft::error read(std::vector<std::uint8_t> bytes) {
  weft::message m;
  for (std::uint8_t b : bytes) m.payload().number(b);
  weft::incoming_message in(std::move(m).finish({}));
  weft::reader r = in.payload();
  return weft::testing::error_of([&r] {
    static_cast<void>(weft::decode<T>(r));
    r.finish();
  });
}

TEST_CASE("tensor values: devices") {
  for (const char* name : {"cpu", "cuda", "cuda:3", "meta", "mps:0"}) {
    CHECK(travel(c10::Device(name)) == c10::Device(name));
  }
  CHECK(read<c10::Device>({255, 0}) == weft::errc::bad_arguments);
  constexpr auto first_unknown = static_cast<std::uint8_t>(c10::COMPILE_TIME_MAX_DEVICE_TYPES);
  CHECK(read<c10::Device>({first_unknown, 0}) == weft::errc::bad_arguments);
  CHECK(read<c10::Device>({1, 0x80}) == weft::errc::bad_arguments);
  CHECK(read<c10::Device>({0, 1}) == weft::errc::bad_arguments);
  CHECK(read<c10::Device>({1}) == weft::errc::bad_arguments);
  CHECK_FALSE(read<c10::Device>({1, 255}));
}

TEST_CASE("tensor values: scalars keep their kind and every bit") {
  const auto same = [](const c10::Scalar& s) {
    const c10::Scalar t = travel(s);
    return t.type() == s.type() && t.toComplexDouble() == s.toComplexDouble();
  };
  CHECK(travel(c10::Scalar(std::numeric_limits<std::int64_t>::min() + 1)).toLong() ==
        std::numeric_limits<std::int64_t>::min() + 1);
  CHECK(std::signbit(travel(c10::Scalar(-0.0)).toDouble()));
  CHECK(same(true));
  CHECK(same(false));
  CHECK(same(std::numeric_limits<std::int64_t>::min()));
  CHECK(travel(c10::Scalar(std::numeric_limits<std::uint64_t>::max())).toUInt64() ==
        std::numeric_limits<std::uint64_t>::max());
  CHECK(same(-0.5));
  CHECK(same(c10::complex<double>(1, -2)));
  CHECK(std::isnan(travel(c10::Scalar(std::nan(""))).toDouble()));
  CHECK(read<c10::Scalar>({5, 0, 0}) == weft::errc::bad_arguments);
  CHECK(read<c10::Scalar>({0, 2}) == weft::errc::bad_arguments);
  CHECK(read<c10::Scalar>({1, 0, 0}) == weft::errc::bad_arguments);
}

TEST_CASE("tensor values: dtypes") {
  for (auto t : {c10::kFloat, c10::kBFloat16, c10::kBool, c10::ScalarType::Undefined}) {
    CHECK((travel(t) == t));
  }
  const auto last = static_cast<std::uint8_t>(c10::ScalarType::Undefined);
  CHECK_FALSE(read<c10::ScalarType>({last}));
  CHECK(read<c10::ScalarType>({static_cast<std::uint8_t>(last + 1)}) == weft::errc::bad_arguments);
}

}  // namespace wire_tensor_values
