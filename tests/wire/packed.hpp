// SPDX-License-Identifier: BSL-1.0
// Values as the payload of a frame, and back.
#pragma once

#include <weft/core/error.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/message.hpp>

#include <tuple>
#include <utility>

namespace weft_test {

template <class... Ts>
weft::frame pack(const Ts&... values) {
  weft::message m;
  weft::encode_all(m.payload(), values...);
  return std::move(m).finish({});
}

/// Throws if the frame is not what it says.
template <class... Ts>
std::tuple<Ts...> unpack(weft::frame f) {
  weft::incoming_message in(std::move(f));
  if (const auto checked = in.check(); !checked) throw weft::rpc_error(checked.error());
  weft::reader r = in.payload();
  return weft::decode_all<Ts...>(r);
}

}  // namespace weft_test
