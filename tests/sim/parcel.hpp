// SPDX-License-Identifier: BSL-1.0
// A number that travels with a buffer, as a tensor does, in programs without libtorch: whether it
// has one, and what is in it, follows from the number.
#pragma once

#include <weft/core/intrusive_ptr.hpp>
#include <weft/wire/blob.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/message.hpp>
#include <weft/wire/structure.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace weft::testing {

struct parcel {
  std::uint64_t number = 0;
  bool whole = true;  ///< its buffer came as it was sent

  parcel() = default;
  parcel(std::uint64_t n) noexcept : number(n) {}
  [[nodiscard]] std::vector<std::byte> buffer() const {
    if (number % 3 != 0) return {};
    return std::vector<std::byte>(1 + number % 41, static_cast<std::byte>(number % 251));
  }
};

/// The buffers of one message.
struct parcel_buffers final : message_extension {
  struct memory final : blob_owner {
    std::vector<std::byte> bytes;
  };
  std::vector<blob> all;

  void finish(message& m) override {
    if (all.empty()) return;
    for (blob& b : all) m.add_blob(std::move(b));
    constexpr std::array<std::byte, 4> nothing{};
    m.section(section_kind::tensors, nothing);
  }
};

}  // namespace weft::testing

template <>
struct weft::codec<weft::testing::parcel> {
  static constexpr std::size_t min_size = 12;

  static void encode(writer& w, const testing::parcel& p) {
    w.number(p.number);
    const std::vector<std::byte> bytes = p.buffer();
    if (bytes.empty()) return w.number(~std::uint32_t{0});
    auto& buffers = w.extension<testing::parcel_buffers>();
    w.number(static_cast<std::uint32_t>(buffers.all.size()));
    auto memory = make_intrusive<testing::parcel_buffers::memory>();
    memory->bytes = bytes;
    std::byte* const data = memory->bytes.data();
    buffers.all.emplace_back(data, bytes.size(), std::move(memory));
  }
  static testing::parcel decode(reader& r) {
    testing::parcel out(r.number<std::uint64_t>());
    const auto index = r.number<std::uint32_t>();
    const std::vector<std::byte> sent = out.buffer();
    if (sent.empty()) {
      out.whole = index == ~std::uint32_t{0};
      return out;
    }
    const auto& blobs = r.source()->blobs();
    out.whole = index < blobs.size() &&
                std::vector<std::byte>(blobs[index].data(),
                                       blobs[index].data() + blobs[index].size()) == sent;
    return out;
  }
};
template <>
struct weft::structure<weft::testing::parcel> {
  static constexpr std::string_view tag = "weft::testing::parcel 1";
  using parts = std::tuple<>;
};
