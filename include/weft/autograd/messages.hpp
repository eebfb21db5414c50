// SPDX-License-Identifier: BSL-1.0
// The control messages of a backward pass, and their bytes. Pure: standard library only.
//
// Wire form, little-endian, fixed width:
//   kind u8 | context u64 | initiator u32 | number u32 | body
//   need  0: sequence u32 | settings | reply u8 | count u32 | count x message u64
//   ack   1: sequence u32 | needs u32 | count u32 | count x worker u32
//                                     | count u32 | count x worker u32
//   go    2: nothing
//   grad  3: message u64 | slots u32 | (slots + 7) / 8 bytes of presence bits; the gradients that
//            are present follow as tensors of the same frame, in slot order; then
//            opens u8 (0: ends here) | settings | plan u32
//   done  4: count u32 | count x worker u32
//   abort 5: origin u32 | reason u8 | length u32 | length bytes of text
//   end   6: count u32 | count x step u64, ascending
//   which 7: nothing
//   waits 8: length u32 | length bytes of text
//   settings: retention u8 | graph u8 | leaves u8
#pragma once

#include <weft/autograd/types.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace weft::autograd {

/// Identifies one backward pass. Numbers count up per (context, initiator), and none is used twice.
struct pass_id {
  context_id context = 0;
  worker_rank initiator = 0;
  std::uint32_t number = 0;

  friend auto operator<=>(const pass_id&, const pass_id&) = default;
};

/// Why a pass was aborted.
enum class abort_reason : std::uint8_t {
  failed,     ///< a node or hook threw
  refused,    ///< the asked worker does not know a message or the context
  lost,       ///< a worker that takes part died
  cancelled,  ///< the caller cancelled, or its deadline passed
  misused,    ///< the graph leads out of the context: a mistake of the user
};

/// Which worker broke a rule of the protocol.
enum class blame : std::uint8_t {
  sender,    ///< the sender: no correct worker ever sends that message
  somebody,  ///< perhaps another worker: it may have told the sender something wrong
};

/// How a need is acknowledged.
enum class need_reply : std::uint8_t {
  own,   ///< by its own `ack_message`
  none,  ///< not at all: the receiver waits for an ack of the sender, and that counts this need
};

/// "Your send nodes of these messages are needed." Sent by the forward receiver.
struct need_message {
  std::uint32_t sequence = 0;  ///< counts per (pass, sender, receiver)
  pass_settings settings{};
  std::vector<message_id> messages;
  need_reply reply = need_reply::own;
  friend bool operator==(const need_message&, const need_message&) = default;
};
/// Answers one `need_message`. Names the workers that joined below the answering worker.
struct ack_message {
  std::uint32_t sequence = 0;
  std::vector<worker_rank> workers;
  std::uint32_t needs = 0;  ///< how many needs the sender has sent to the receiver so far
  std::vector<worker_rank> waiting{};  ///< those of `workers` that run only after `go_message`
  friend bool operator==(const ack_message&, const ack_message&) = default;
};
/// Discovery is over everywhere: run. The initiator sends it to workers that wait for it.
struct go_message {
  friend bool operator==(const go_message&, const go_message&) = default;
};
/// What a worker needs to know of a pass that begins there without discovery.
struct pass_opening {
  pass_settings settings{};
  /// The number of the initiator's pass whose plan it repeats; 0: all messages are needed (FAST).
  std::uint32_t plan = 0;
  friend bool operator==(const pass_opening&, const pass_opening&) = default;
};
/// The gradients of one forward message. Undefined gradients are not sent.
struct grad_message {
  message_id message = 0;
  std::uint32_t slots = 0;
  std::vector<std::uint8_t> present;  ///< bit i % 8 of byte i / 8; bits past `slots` are zero
  /// In a pass without discovery, which opens at a worker with the first gradient that comes.
  std::optional<pass_opening> opens{};

  /// Whether slot `i` < `slots` has a gradient.
  bool has(std::uint32_t i) const { return ((present[i / 8] >> (i % 8)) & 1U) != 0; }
  void set(std::uint32_t i) {
    present[i / 8] = static_cast<std::uint8_t>(present[i / 8] | (1U << (i % 8)));
  }
  /// The number of tensors in the same frame.
  std::uint32_t count() const {
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < slots; ++i) n += has(i) ? 1U : 0U;
    return n;
  }
  friend bool operator==(const grad_message&, const grad_message&) = default;
};
/// All needed nodes have run here. Sent to the initiator.
struct done_message {
  /// In a pass without discovery: the workers that got gradients from here.
  std::vector<worker_rank> workers{};
  friend bool operator==(const done_message&, const done_message&) = default;
};
/// The pass is aborted; its gradients are dropped.
struct abort_message {
  worker_rank origin = 0;  ///< the worker that failed or was lost
  abort_reason reason = abort_reason::failed;
  std::string text;  ///< UTF-8, at most `max_abort_text` bytes
  friend bool operator==(const abort_message&, const abort_message&) = default;
};
/// The pass has succeeded everywhere: its gradients become visible. Sent by the initiator.
struct end_message {
  /// Steps that run at the receiver then, by their numbers there, ascending.
  std::vector<std::uint64_t> steps{};
  friend bool operator==(const end_message&, const end_message&) = default;
};
/// "Which gradients do you wait for?" The initiator asks, shortly before the deadline.
struct which_message {
  friend bool operator==(const which_message&, const which_message&) = default;
};
/// Answers `which_message`, for people.
struct waits_message {
  std::string text;  ///< UTF-8, at most `max_abort_text` bytes
  friend bool operator==(const waits_message&, const waits_message&) = default;
};

using control_body = std::variant<need_message, ack_message, go_message, grad_message, done_message,
                                  abort_message, end_message, which_message, waits_message>;

/// Whether a pass may begin with this message where it comes. Who sends it, waits for what follows.
[[nodiscard]] inline bool begins(const control_body& m) {
  const auto* grad = std::get_if<grad_message>(&m);
  return std::holds_alternative<need_message>(m) || (grad && grad->opens);
}

struct control {
  pass_id pass;
  control_body body;
  friend bool operator==(const control&, const control&) = default;
};

/// In bytes. `encode` cuts longer texts; `decode` refuses them.
inline constexpr std::size_t max_abort_text = 4096;

std::vector<std::byte> encode(const control& message);

/// Returns nothing unless the bytes are exactly one well-formed message. Allocates at most as many
/// bytes as it was given.
std::optional<control> decode(std::span<const std::byte> bytes);

}  // namespace weft::autograd

#include <weft/autograd/impl/messages.hpp>
