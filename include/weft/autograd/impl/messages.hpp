// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/autograd/messages.hpp. Pure: standard library only.
#pragma once

#include <weft/autograd/messages.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace weft::autograd {

namespace detail {

class byte_sink {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_unsigned_v<T>);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::byte>((value >> (8 * i)) & 0xFFU));
    }
  }
  template <class T>
  void put_all(const std::vector<T>& values) {
    put(static_cast<std::uint32_t>(values.size()));
    for (T value : values) put(value);
  }
  void put_raw(std::span<const std::uint8_t> raw) {
    for (std::uint8_t b : raw) bytes_.push_back(static_cast<std::byte>(b));
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Once something did not fit, `ok()` stays false and everything read is zero or empty.
class byte_source {
 public:
  explicit byte_source(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T get() {
    static_assert(std::is_unsigned_v<T>);
    if (!ok_ || bytes_.size() < sizeof(T)) return fail(), T{};
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value |= std::to_integer<std::uint64_t>(bytes_[i]) << (8 * i);
    }
    bytes_ = bytes_.subspan(sizeof(T));
    return static_cast<T>(value);
  }
  template <class T>
  std::vector<T> get_all() {
    const auto count = get<std::uint32_t>();
    if (!ok_ || count > bytes_.size() / sizeof(T)) return fail(), std::vector<T>{};
    std::vector<T> values(count);
    for (T& value : values) value = get<T>();
    return values;
  }
  std::vector<std::uint8_t> get_raw(std::size_t count) {
    if (!ok_ || count > bytes_.size()) return fail(), std::vector<std::uint8_t>{};
    std::vector<std::uint8_t> raw(count);
    for (std::uint8_t& b : raw) b = get<std::uint8_t>();
    return raw;
  }
  /// An enumerator of `E` counted from zero to `last`.
  template <class E>
  E get_enum(E last) {
    const auto value = get<std::uint8_t>();
    if (value > static_cast<std::uint8_t>(last)) return fail(), E{};
    return static_cast<E>(value);
  }
  void fail() { ok_ = false; }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

inline void encode_body(byte_sink& to, const need_message& m) {
  to.put(m.sequence);
  to.put(static_cast<std::uint8_t>(m.retention));
  to.put(static_cast<std::uint8_t>(m.reply));
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
  to.put_raw(m.present);
}
inline void encode_body(byte_sink&, const done_message&) {}
inline void encode_body(byte_sink& to, const abort_message& m) {
  to.put(m.origin);
  to.put(static_cast<std::uint8_t>(m.reason));
  const auto text = std::string_view(m.text).substr(0, max_abort_text);
  to.put(static_cast<std::uint32_t>(text.size()));
  to.put_raw({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}
inline void encode_body(byte_sink&, const end_message&) {}

inline control_body decode_body(byte_source& from, std::uint8_t kind) {
  switch (kind) {
  case 0: {
    need_message m;
    m.sequence = from.get<std::uint32_t>();
    m.retention = from.get_enum(graph_retention::retain);
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
    m.present = from.get_raw((std::size_t{m.slots} + 7) / 8);
    if (!m.present.empty() && m.slots % 8 != 0 && (m.present.back() >> (m.slots % 8)) != 0) {
      from.fail();
    }
    return m;
  }
  case 4:
    return done_message{};
  case 5: {
    abort_message m;
    m.origin = from.get<worker_rank>();
    m.reason = from.get_enum(abort_reason::misused);
    const auto length = from.get<std::uint32_t>();
    if (length > max_abort_text) return from.fail(), m;
    const auto raw = from.get_raw(length);
    m.text.assign(raw.begin(), raw.end());
    return m;
  }
  case 6:
    return end_message{};
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
