// SPDX-License-Identifier: BSL-1.0
// What the connections of the simulated transports are made of.
#pragma once

#include <weft/sim/detail/byte_stream.hpp>
#include <weft/sim/detail/frame_channel.hpp>
#include <weft/transport/detail/frame_pipe.hpp>
#include <weft/transport/framed.hpp>

#include <asio/io_context.hpp>

#include <string_view>
#include <utility>

namespace weft::sim::detail {

struct whole_frames {
  static constexpr std::string_view name = "sim";
  using channel_type = frame_channel;
  using connection_type = weft::detail::basic_pipe_connection<frame_channel>;
  static connection_type connect(asio::io_context& io, intrusive_ptr<frame_channel> in,
                                 intrusive_ptr<frame_channel> out) {
    return connection_type(io, std::move(in), std::move(out));
  }
};
template <class Stream>
struct bytes_under_framed {
  using channel_type = byte_channel;
  using connection_type = framed<Stream>;
  static connection_type connect(asio::io_context& io, intrusive_ptr<byte_channel> in,
                                 intrusive_ptr<byte_channel> out) {
    return connection_type(Stream(io, std::move(in), std::move(out)));
  }
};
struct pieces_of_bytes : bytes_under_framed<byte_stream> {
  static constexpr std::string_view name = "simbytes";
};
struct late_pieces_of_bytes : bytes_under_framed<waiting_byte_stream> {
  static constexpr std::string_view name = "simlate";
};

}  // namespace weft::sim::detail
