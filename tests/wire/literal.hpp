// SPDX-License-Identifier: BSL-1.0
// Bytes as hexadecimal text, of whole frames too. Those that stand in the tests are also built by
// tests/rpc/wire_page.py, from the words of the wire page.
#pragma once

#include <weft/wire/frame.hpp>
#include <weft/wire/limits.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <wire/sent_over.hpp>

namespace weft_test {

inline std::string hex(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const std::byte b : bytes) {
    out += digits[std::to_integer<std::size_t>(b >> 4)];
    out += digits[std::to_integer<std::size_t>(b & std::byte{15})];
  }
  return out;
}
/// As it is on the wire, with its tensors.
inline std::string hex(const weft::frame& f) {
  std::string out = hex(f.head.view());
  for (const weft::blob& b : f.blobs) out += hex({b.data(), b.size()});
  return out;
}

inline std::vector<std::byte> bytes_in(std::string_view hex) {
  std::vector<std::byte> out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return out;
}
/// Throws if its header is none.
inline weft::frame frame_in(std::string_view hex) {
  const auto all = bytes_in(hex);
  const std::span bytes(all);
  weft::frame out;
  out.header = weft::decode_header(bytes.first<weft::header_size>(), weft::default_limits).value();
  std::size_t at = weft::header_size + out.header.payload_bytes + out.header.table_bytes;
  out.head.append(bytes.data(), at);
  for (std::size_t i = 0; i < out.header.tensors; ++i) {
    out.blobs.push_back(copy_of(bytes.subspan(at, out.blob_length(i))));
    at += out.blob_length(i);
  }
  return out;
}

}  // namespace weft_test
