// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/autograd/messages.hpp. Pure: standard library only.
#pragma once

#include <weft/autograd/messages.hpp>
#include <weft/core/detail/little_endian.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace weft::autograd {

namespace detail {

using weft::detail::byte_sink;
using weft::detail::byte_source;

inline void encode_settings(byte_sink& to, const pass_settings& s) {
  to.put(s.retention);
  to.put(s.graph);
  to.put(s.leaves);
}
inline pass_settings decode_settings(byte_source& from) {
  pass_settings s;
  s.retention = from.get_enum(graph_retention::retain);
  s.graph = from.get_enum(gradient_graph::create);
  s.leaves = from.get_enum(leaf_gradients::inputs);
  return s;
}
inline void encode_text(byte_sink& to, std::string_view text) {
  text = text.substr(0, max_abort_text);
  to.put(static_cast<std::uint32_t>(text.size()));
  to.put_raw(std::as_bytes(std::span(text)));
}
inline std::string decode_text(byte_source& from) {
  const auto length = from.get<std::uint32_t>();
  if (length > max_abort_text) from.fail();
  const auto raw = from.get_raw(from.ok() ? length : 0);
  return std::string(reinterpret_cast<const char*>(raw.data()), raw.size());
}

/// Ascending: a message begins each step once.
inline std::vector<std::uint64_t> decode_steps(byte_source& from) {
  auto steps = from.get_all<std::uint64_t>();
  if (std::ranges::adjacent_find(steps, std::greater_equal<>()) != steps.end()) from.fail();
  return steps;
}

inline void encode_body(byte_sink& to, const need_message& m) {
  to.put(m.sequence);
  encode_settings(to, m.settings);
  to.put(m.reply);
  to.put_all(m.messages);
}
inline void encode_body(byte_sink& to, const ack_message& m) {
  to.put(m.sequence);
  to.put(m.needs);
  to.put_all(m.workers);
  to.put_all(m.waiting);
}
inline void encode_body(byte_sink&, const go_message&) {}
inline void encode_body(byte_sink& to, const grad_message& m) {
  to.put(m.message);
  to.put(m.slots);
  to.put_raw(std::as_bytes(std::span(m.present)));
  to.put(static_cast<std::uint8_t>(m.opens.has_value()));
  if (!m.opens) return;
  encode_settings(to, m.opens->settings);
  to.put(m.opens->plan);
}
inline void encode_body(byte_sink& to, const done_message& m) { to.put_all(m.workers); }
inline void encode_body(byte_sink& to, const abort_message& m) {
  to.put(m.origin);
  to.put(m.reason);
  encode_text(to, m.text);
}
inline void encode_body(byte_sink& to, const end_message& m) { to.put_all(m.steps); }
inline void encode_body(byte_sink&, const which_message&) {}
inline void encode_body(byte_sink& to, const waits_message& m) { encode_text(to, m.text); }

inline control_body decode_body(byte_source& from, std::uint8_t kind) {
  switch (kind) {
  case 0: {
    need_message m;
    m.sequence = from.get<std::uint32_t>();
    m.settings = decode_settings(from);
    m.reply = from.get_enum(need_reply::none);
    m.messages = from.get_all<message_id>();
    return m;
  }
  case 1: {
    ack_message m;
    m.sequence = from.get<std::uint32_t>();
    m.needs = from.get<std::uint32_t>();
    m.workers = from.get_all<worker_rank>();
    m.waiting = from.get_all<worker_rank>();
    return m;
  }
  case 2:
    return go_message{};
  case 3: {
    grad_message m;
    m.message = from.get<message_id>();
    m.slots = from.get<std::uint32_t>();
    const auto raw = from.get_raw((std::size_t{m.slots} + 7) / 8);
    m.present.resize(raw.size());
    std::ranges::transform(raw, m.present.begin(),
                           [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
    if (!m.present.empty() && m.slots % 8 != 0 && (m.present.back() >> (m.slots % 8)) != 0) {
      from.fail();
    }
    const auto opens = from.get<std::uint8_t>();
    if (opens > 1) from.fail();
    if (opens != 0) {
      m.opens.emplace().settings = decode_settings(from);
      m.opens->plan = from.get<std::uint32_t>();
    }
    return m;
  }
  case 4:
    return done_message{from.get_all<worker_rank>()};
  case 5: {
    abort_message m;
    m.origin = from.get<worker_rank>();
    m.reason = from.get_enum(abort_reason::misused);
    m.text = decode_text(from);
    return m;
  }
  case 6:
    return end_message{decode_steps(from)};
  case 7:
    return which_message{};
  case 8:
    return waits_message{decode_text(from)};
  default:
    from.fail();
    return end_message{};
  }
}

}  // namespace detail

inline std::vector<std::byte> encode(const control& message) {
  detail::byte_sink to;
  to.put(static_cast<std::uint8_t>(message.body.index()));
  to.put(message.pass.context);
  to.put(message.pass.initiator);
  to.put(message.pass.number);
  std::visit([&](const auto& body) { detail::encode_body(to, body); }, message.body);
  return to.take();
}

inline std::optional<control> decode(std::span<const std::byte> bytes) {
  detail::byte_source from(bytes);
  const auto kind = from.get<std::uint8_t>();
  control message;
  message.pass.context = from.get<context_id>();
  message.pass.initiator = from.get<worker_rank>();
  message.pass.number = from.get<std::uint32_t>();
  message.body = detail::decode_body(from, kind);
  if (!from.at_end()) return std::nullopt;
  return message;
}

}  // namespace weft::autograd
