// SPDX-License-Identifier: BSL-1.0
// The header of a frame. The wire page, at the end of this file, says enough to write a peer in any
// language.
#pragma once

#include <weft/core/error.hpp>
#include <weft/wire/limits.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace weft {

/// Kinds of frames. The wire page says what each kind holds.
enum class frame_kind : std::uint8_t {
  hello = 1,       ///< handshake: who connects
  welcome = 2,     ///< handshake: accepted
  refuse = 3,      ///< handshake: not accepted, payload is an error
  request = 4,     ///< run a function
  reply = 5,       ///< its result
  failure = 6,     ///< its error
  cancel = 7,      ///< the caller no longer waits
  control = 8,     ///< membership: end of a run, lost workers (engine/shutdown/shutdown.hpp)
  ping = 9,        ///< sign of life if nothing else is sent; bit 0 of `call`: no thread reads now
  window = 10,     ///< credit for requests; `function` 0: the sender has none left
  bulk = 11,       ///< on a bulk connection: the tensors of a frame (wire/bulk.hpp)
  challenge = 12,  ///< handshake: a proof, and a request for one
  proof = 13,      ///< handshake: the answer
  ready = 14,      ///< handshake: the connecting side has heard the welcome
  rref = 16,       ///< reference counting (rref/ledger_wire.hpp)
  autograd = 24    ///< backward passes (autograd/messages.hpp)
};

/// A request is answered by a reply or a failure.
[[nodiscard]] constexpr bool is_answer(frame_kind kind) noexcept {
  return kind == frame_kind::reply || kind == frame_kind::failure;
}

/// Kinds from 32 on are for services beyond weft's own: a frame of such a kind goes to the service
/// that owns it (rpc/service.hpp). If none does, the link ends.
[[nodiscard]] constexpr bool is_of_other_services(frame_kind kind) noexcept {
  return static_cast<std::uint8_t>(kind) >= 32;
}

/// Kinds of sections in the table.
enum class section_kind : std::uint16_t { tensors = 1, rref = 2, autograd = 3, trace = 4 };
/// Kinds from 0x8000 on are for services beyond weft's own. Whoever does not know one skips it.
[[nodiscard]] constexpr bool may_be_skipped(section_kind kind) noexcept {
  return static_cast<std::uint16_t>(kind) >= 0x8000;
}
/// Of those at most so many in one frame.
inline constexpr std::size_t most_sections_to_skip = 16;

inline constexpr std::uint16_t flag_no_reply = 1;
inline constexpr std::uint16_t flag_padded = 2;
inline constexpr std::uint16_t flag_bulk = 4;
inline constexpr std::uint16_t known_flags = flag_no_reply | flag_padded | flag_bulk;

inline constexpr std::size_t header_size = 64;
inline constexpr std::uint32_t frame_magic = 0x54464557;  // "WEFT"
inline constexpr std::uint8_t wire_version = 4;

/// The 64 bytes before each frame, as the wire page lists them.
///
///   frame_header h{.kind = frame_kind::cancel, .call = id};
///   encode_header(h, out);
struct frame_header {
  frame_kind kind = frame_kind::request;
  std::uint16_t flags = 0;
  std::uint64_t call = 0;
  std::uint64_t function = 0;
  std::uint32_t signature = 0;
  std::uint32_t deadline = 0;  ///< see `deadline_field`
  std::uint64_t trace = 0;
  std::uint64_t span = 0;
  std::uint16_t sections = 0;
  std::uint16_t tensors = 0;
  std::uint32_t table_bytes = 0;
  std::uint64_t payload_bytes = 0;

  friend bool operator==(const frame_header&, const frame_header&) = default;
};

/// The header's `deadline` for a call with that time left; at least 1. Beyond 24 days: 0, none.
[[nodiscard]] constexpr std::uint32_t
deadline_field(std::chrono::steady_clock::duration left) noexcept {
  using namespace std::chrono;
  constexpr std::int64_t flag = std::int64_t{1} << 31;
  const std::int64_t us = std::max<std::int64_t>(1, duration_cast<microseconds>(left).count());
  if (us < flag) return static_cast<std::uint32_t>(us);
  const std::int64_t ms = us / 1000;
  return ms < flag ? static_cast<std::uint32_t>(flag + ms) : 0;
}
/// The time that a header's `deadline` leaves; nothing if it is 0, no deadline.
[[nodiscard]] constexpr std::optional<std::chrono::steady_clock::duration>
time_left(std::uint32_t field) noexcept {
  constexpr std::uint32_t flag = std::uint32_t{1} << 31;
  if (field == 0) return std::nullopt;
  if (field < flag) return std::chrono::microseconds(field);
  return std::chrono::milliseconds(field - flag);
}

/// Writes a header. Pure.
void encode_header(const frame_header& h, std::span<std::byte, header_size> out) noexcept;

/// Reads and checks a header against `limit`. Pure. Errors: version_mismatch, protocol_error,
/// message_too_large.
[[nodiscard]] expected<frame_header> decode_header(std::span<const std::byte, header_size> in,
                                                   const limits& limit);

}  // namespace weft

// The wire page: how one frame looks. With this comment a peer can be written in any language.
//
// Everything is little-endian. A frame is
//
//   header    64 bytes, below
//   payload   header.payload_bytes: the values, written by codecs (wire/codec.hpp)
//   table     header.table_bytes: header.tensors buffer lengths of 8 bytes each, then
//             header.sections sections, each {kind 2, zero 2, length 4, bytes}, one of a kind; of
//             kinds from 0x8000 on at most 16
//   tensors   the buffers' bytes, one after another, in the order of their lengths
//
//   offset size field      meaning
//        0    4 magic      57 45 46 54, "WEFT"
//        4    1 version    4
//        5    1 kind       frame_kind
//        6    2 flags      bit 0: no reply wanted; bit 1: payload ends with zero padding; bit 2:
//                          the tensors' bytes are not here, but in a bulk frame (below); others
//                          zero
//        8    8 call       caller's slot: index in the low 32 bits, generation in the high 32; 0
//                          where no reply is wanted
//       16    8 function   hash of the function's name (below); in replies, failures and windows:
//                         how many bytes of the window are free again (link/window.hpp)
//       24    4 signature  hash of its result and parameters (below), 0 in replies
//       28    4 deadline   time left for this call when it was sent: below 2^31 in µs, else
//                         2^31 + ms; 0: no deadline (replies, most posts)
//       32    8 trace      low half of the trace id, 0: none
//       40    8 span       the caller's span, 0: none
//       48    2 sections   number of sections
//       50    2 tensors    number of tensor buffers
//       52    4 table      bytes of the table
//       56    8 payload    bytes of the payload
//
// A connection begins with `hello`, `challenge`, `proof`, `welcome` and `ready`, or a `refuse`
// (engine/link/handshake.hpp); each is at most 4 KiB and has no tensors. If a header breaks a rule
// of this page, its receiver closes the connection; it skips nothing.
//
// A worker may open one further connection to a peer, for its own large tensors, with a hello that
// says so. On it travel bulk frames only. Each belongs to a request, reply or autograd frame with
// bit 2 of its flags on the first connection: they come in the same order there. Such a frame is
// whole when both have come, so frames behind it that are whole earlier are handled earlier.
//
// function is the 64-bit FNV-1a hash of the function's name: begin with 0xcbf29ce484222325; for
// each byte, xor it in, then multiply by 0x100000001b3, modulo 2^64. The name is
//   of a function or member    its qualified name with inline namespaces, "geo::shape::scale"; of
//                              an extern "C" one its bare name
//   of a weft::named           that text
//   of a constructor           the class's name, "::", its last part: "geo::shape::shape"
//   of rref::to_here           "weft::rref<geo::shape>::to_here"
// Template arguments are part of a name, without spaces but in ", " between them:
//   "geo::sum<int, (unsigned int)3>", "geo::at<&geo::origin, (geo::axis)1, true, nullptr>"
// Types have "const" and "*" behind them ("char const*"), defaulted arguments are written out, and
// inline namespaces within std are left out (rpc/detail/mangled_name.hpp).
//
// signature is the same hash over descriptions, its low half xor its high half. First comes the
// result (of coroutine and immediate functions the value that they hold), then each parameter in
// order. An injected parameter and the object of a member are left out. References and const are
// ignored. A description is a byte for the kind of the type, then the data of that kind. A number
// is 8 bytes. A text is its length, a number, then its bytes:
//    0 void                                nothing
//    1 bool   2 character   3 signed       its size in bytes, a number
//    4 unsigned             5 floating     the same
//    6 enum                                description of its underlying type
//    7 string   8 vector, deque, list      number 1, description of the element
//    9 set     10 multiset                 the same, ordered or not
//   11 map     12 multimap   15 pair       number 2, descriptions of both
//   13 optional   14 unique_ptr            number 1, description of what it holds
//   16 tuple   17 variant                  number of elements, description of each
//   18 array, also T[n]                    number of elements, description of one
//   19 duration                            numbers period::num and period::den, description of rep
//   20 time_point                          number 1, description of its duration
//   21 complex                             number 1, description of its part
//   22 aggregate                           number of members, description of each
//   23 an aggregate (or a type of 25)      number: how many of these types up it is, 1 for the
//      that is being described             innermost
//   24 a type with a format of its own     a text, then descriptions of its parts: "at::Tensor 1",
//                                          "weft::rref 1", or the tag of its weft::structure
//   25 a class with weft_encode            a text, its name; then the number of its template
//                                          arguments, and these (wire/structure.hpp)
// The result of a constructor, and a result that cannot be sent, is 24 "opaque".
//
// What the payloads hold, and the header fields that a kind sets beside kind and lengths:
//    1 hello, 2 welcome,  JSON (engine/link/handshake.hpp)
//    12 challenge,
//    13 proof, 14 ready
//    3 refuse, 6 failure  an error (wire/error_codec.hpp); failure: the request's `call`
//    4 request            the parameters in order; every field of the header. The registration of
//                         the callee limits the bytes of requests in flight (link/window.hpp)
//    5 reply              the result; nothing for void, and if the request has a creation. The
//                         request's `call`
//    7 cancel             nothing; the `call` that its caller no longer waits for
//    8 control            the end of a run (engine/shutdown/shutdown.hpp): what 1, rank 4, string.
//                         If what is 5 or 6, round 8 follows. If it is 6, count 4 and count reports
//                         of 21 bytes follow.
//                         what: 1 finished, 2 failed, 3 lost, 4 ended, 5 count, 6 counts, 7 gone
//                         (the run goes on without that worker).
//                         rank: the sender in 1 and 6, the culprit in 2 and 3, the receiver in 4
//                         and 5, the worker that is gone (never 0) in 7.
//                         The string says why in 2, 3 and 7, else it is empty.
//                         3 comes from rank 0, or from a worker that has heard it and leaves; 7
//                         comes only from rank 0.
//                         A report: peer 4, sent 8, finished 8, down 1. Reports are ascending by
//                         peer; a report of zeros is left out
//    9 ping               nothing; bit 0 of `call`: the thread that reads is busy with user code
//   10 window             nothing; `function`: credit (link/window.hpp); `call`: credit for bulk
//                         frames of requests, a window of its own; both 0: the sender needs some
//   11 bulk               of the frame that it belongs to: the first 256 bytes of a request's
//                         payload, else nothing; the same lengths, section 1 and `call`; of a
//                         request also `function` and `signature`. `deadline`: that frame's kind
//   16 rref               messages of 40 bytes each (rref/ledger_wire.hpp)
//   24 autograd           length 4, then a message of that many bytes (autograd/messages.hpp); the
//                         gradients are the tensors of the frame, in order; if they have a history,
//                         it has section 3, too. Three messages belong to no pass: release is 16 1,
//                         context 8; joined is 17 1, context 8, count 4, count ranks of 4 bytes;
//                         steps is 18 1, context 8, count 4, count numbers of 8 bytes, ascending
// Kinds that a service of both sides owns begin at 32. They come without bit 2 of the flags. The
// link ends at a worker that has no service for such a kind.
// What the sections hold:
//    1 tensors   descriptors (wire/tensor_desc.hpp)
//    2 rref      flags 1 (bit 0: a target, bit 1: a creation, from bit 2 on: how many workers
//                forwarded the request; all only in requests), then the target's rref_id 16, the
//                creation 24, and count 4, count transfers of 24 bytes: the references of the
//                payload, which has only their places (rref/ledger_wire.hpp)
//    3 autograd  context 8 (serial in the low 44 bits, creator in the high 20), message 8 (0: no
//                tensor has a history), mode 1, count 4, count ranks of 4 bytes: the workers that
//                joined the context through this call (none in requests)
//    4 trace     not sent yet
//    from 0x8000 on   what a service of both sides says; whoever does not know it skips it
//
// Numbers that these pages give names to:
//   code of weft's errors    1 timed_out, 2 cancelled, 3 peer_died, 4 unknown_peer,
//     5 unknown_function, 6 signature_mismatch, 7 remote_exception, 8 message_too_large,
//     9 protocol_error, 10 bad_arguments, 11 version_mismatch, 12 unauthenticated, 13 wrong_peer,
//     14 duplicate_name, 15 rendezvous_failed, 16 shutting_down, 17 resource_exhausted,
//     18 too_many_calls, 19 not_encodable, 20 no_common_transport, 21 closed, 22 invalid_argument,
//     23 rref_owner_died, 24 rref_lost, 25 rref_not_owner, 26 autograd_context_gone,
//     27 autograd_pass_aborted, 28 worker_failed, 29 ambiguous_function; of generic and system
//     ones: errno. A category 0 ends the chain of causes
//   origin of an error       0 local, 1 transport, 2 remote runtime, 3 remote user
//   execution                0 not sent, 1 not executed, 2 maybe executed, 3 executed
//   rref messages            kind: 0 add, 1 del, 2 added, 3 deled, 4 xack; why, in added only:
//     0 fine, 1 lost, 2 owner died, 3 creation failed, 4 creator died, 5 too many; epoch 1;
//     sequence: 0 in xack, elsewhere not; transfer: never 0 in xack, any in add, elsewhere 0
//   an rref in a payload     its place among the section's transfers, 4 bytes; 2^32 - 1: empty
//   autograd messages        retention: 0 release, 1 retain; graph: 0 none, 1 create; leaves: 0
//     all, 1 inputs; reply: 0 an ack of its own, 1 none; plan: 0 all messages of the context; mode
//     of a context: 0 smart, 1 fast;
//     reason: 0 failed, 1 refused, 2 lost, 3 cancelled, 4 misused; text of at most 4096 bytes; bit
//     i of the presence bits is bit i % 8 of byte i / 8, those past `slots` are zero
//   dtype                    0 uint8, 1 int8, 2 int16, 3 int32, 4 int64, 5 float16, 6 float32,
//     7 float64, 8 to 10 complex of those, 11 bool, 15 bfloat16, 18 bits1x8, 19 bits2x4,
//     20 bits4x2, 21 bits8, 22 bits16, 23 float8_e5m2, 24 float8_e4m3fn, 25 float8_e5m2fnuz,
//     26 float8_e4m3fnuz, 27 uint16, 28 uint32, 29 uint64, 44 float8_e8m0fnu, 45 float4_e2m1fn_x2
//
// Padding, of requests and replies: the values that a receiver builds from a payload may cost
// 60 KiB and 3 bytes for each byte of the payload. If they cost more, the sender must pad the
// payload; more padding does no harm. Elements and held values cost their size in C++; a string has
// one element more, for its end. Each allocation costs 16 more, each element of a map, set, list or
// deque 48 more. Each tensor descriptor costs 448. A vector of bool is words of 8 bytes. A deque,
// also an empty one, costs 96 and the larger of 512 and its element's size.

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/wire/impl/header.hpp>
#endif
