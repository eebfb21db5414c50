// SPDX-License-Identifier: BSL-1.0
// The control messages of a backward pass, and their bytes. Pure: standard library only.
//
// Wire form, little-endian, fixed width:
//   kind u8 | context u64 | initiator u32 | number u32 | body
//   need  0: sequence u32 | retention u8 | reply u8 | count u32 | count x message u64
//   ack   1: sequence u32 | needs u32 | count u32 | count x worker u32
//                                     | count u32 | count x worker u32
//   go    2: nothing
//   grad  3: message u64 | slots u32 | (slots + 7) / 8 bytes of presence bits; the gradients that
//            are present follow as tensors of the same frame, in slot order
//   done  4: nothing
//   abort 5: origin u32 | reason u8 | length u32 | length bytes of text
//   end   6: nothing
#pragma once

#include <weft/autograd/types.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace weft::autograd {

/// One backward pass. Numbers count up per (context, initiator) and are never used twice.
struct pass_id {
  context_id context = 0;
  worker_rank initiator = 0;
  std::uint32_t number = 0;

  friend auto operator<=>(const pass_id&, const pass_id&) = default;
};

/// Why a pass was given up.
enum class abort_reason : std::uint8_t {
  failed,     ///< a node or hook threw
  refused,    ///< a message or context that the asked worker does not know
  lost,       ///< a worker that takes part died
  cancelled,  ///< the caller cancelled, or its deadline passed
  misused,    ///< the graph leads out of the context: a mistake of the user's
};

/// Who broke a rule of the protocol.
enum class blame : std::uint8_t {
  sender,    ///< no correct worker sends that, whatever it was told
  somebody,  ///< a correct worker sends it once a third has lied to it
};

/// How a need is acknowledged.
enum class need_reply : std::uint8_t {
  own,   ///< by an `ack_message` of its own
  none,  ///< not at all: the receiver waits for an ack of the sender, which counts this need
};

/// "Your send nodes of these messages are needed." Sent by the forward receiver.
struct need_message {
  std::uint32_t sequence = 0;  ///< counts per (pass, sender, receiver)
  graph_retention retention = graph_retention::release;
  std::vector<message_id> messages;
  need_reply reply = need_reply::own;
  friend bool operator==(const need_message&, const need_message&) = default;
};
/// Answers one `need_message`; names the workers that joined below the answering one.
struct ack_message {
  std::uint32_t sequence = 0;
  std::vector<worker_rank> workers;
  std::uint32_t needs = 0;  ///< how many needs the sender has sent to the receiver so far
  std::vector<worker_rank> waiting{};  ///< which of them do not run before they hear `go_message`
  friend bool operator==(const ack_message&, const ack_message&) = default;
};
/// Discovery is over everywhere: run. Sent by the initiator, to those that wait for it.
struct go_message {
  friend bool operator==(const go_message&, const go_message&) = default;
};
/// The gradients of one forward message; undefined ones are not sent.
struct grad_message {
  message_id message = 0;
  std::uint32_t slots = 0;
  std::vector<std::uint8_t> present;  ///< bit i % 8 of byte i / 8; bits past `slots` are zero

  /// Slot `i` < `slots` carries a gradient.
  bool has(std::uint32_t i) const { return ((present[i / 8] >> (i % 8)) & 1U) != 0; }
  void set(std::uint32_t i) {
    present[i / 8] = static_cast<std::uint8_t>(present[i / 8] | (1U << (i % 8)));
  }
  /// Number of tensors that travel along.
  std::uint32_t count() const {
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < slots; ++i) n += has(i) ? 1U : 0U;
    return n;
  }
  friend bool operator==(const grad_message&, const grad_message&) = default;
};
/// Everything needed has run here. Sent to the initiator.
struct done_message {
  friend bool operator==(const done_message&, const done_message&) = default;
};
/// The pass is given up; its gradients are dropped.
struct abort_message {
  worker_rank origin = 0;  ///< the worker that failed or was lost
  abort_reason reason = abort_reason::failed;
  std::string text;  ///< UTF-8, at most `max_abort_text` bytes
  friend bool operator==(const abort_message&, const abort_message&) = default;
};
/// The pass has succeeded everywhere: its gradients become visible. Sent by the initiator.
struct end_message {
  friend bool operator==(const end_message&, const end_message&) = default;
};

using control_body = std::variant<need_message, ack_message, go_message, grad_message, done_message,
                                  abort_message, end_message>;

struct control {
  pass_id pass;
  control_body body;
  friend bool operator==(const control&, const control&) = default;
};

/// Longer texts are cut by `encode` and refused by `decode`.
inline constexpr std::size_t max_abort_text = 4096;

std::vector<std::byte> encode(const control& message);

/// Nothing if the bytes are not exactly one well-formed message. Allocates at most as many bytes
/// as it was given.
std::optional<control> decode(std::span<const std::byte> bytes);

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
