// SPDX-License-Identifier: BSL-1.0
// Large tensors of a peer, which come on a connection of their own, and the frames that await them.
//
//   calls:  head ──► heads ─┐
//                           ├─ the first of each belong together ──► a whole frame, handled
//   bulk:   body ──► bodies ┘
#pragma once

#include <weft/core/event.hpp>
#include <weft/engine/serving/served_request.hpp>
#include <weft/rpc/call_target.hpp>
#include <weft/transport/any_connection.hpp>
#include <weft/transport/frame_sink.hpp>
#include <weft/wire/bulk.hpp>

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

namespace weft::engine {

/// A frame as it came from a connection.
struct arrived_frame {
  frame f;
  std::uint64_t bytes = 0;  ///< on the wire, on whichever connection
  error allocation_error;   ///< set: why there is only a part of it
};

/// A frame of a service, in its place among those of its kind.
struct held_frame {
  arrived_frame came;
  bool whole = false;
};

/// A request by a reference, in its place among those by the same one.
struct held_request {
  intrusive_ptr<served_request> call;
  bool whole = false;
};

/// What awaits its tensors; nothing: only they are left, to be dropped.
struct bulk_head {
  frame_header of;
  std::variant<std::monostate, intrusive_ptr<served_request>, held_request*, arrived_frame,
               held_frame*>
      what;

  /// Null: nothing awaits them.
  [[nodiscard]] const frame* head() const noexcept {
    if (const served_request* const call = request()) return &call->in.whole();
    if (const auto* came = std::get_if<arrived_frame>(&what)) return &came->f;
    if (const auto* held = std::get_if<held_frame*>(&what)) return &(*held)->came.f;
    return nullptr;
  }
  [[nodiscard]] served_request* request() const noexcept {
    if (const auto* call = std::get_if<intrusive_ptr<served_request>>(&what)) return call->get();
    if (const auto* held = std::get_if<held_request*>(&what)) return (*held)->call.get();
    return nullptr;
  }
};

/// Tensors that have come, or why there was no memory for them.
struct bulk_body {
  frame f;
  std::uint64_t bytes = 0;  ///< on the wire
  error lost;

  [[nodiscard]] bool is_of(const bulk_head& h) const noexcept {
    const frame* const head = h.head();
    if (head && !lost) return belongs_to(f, *head);
    return f.header.call == h.of.call && kind_behind(f.header) == h.of.kind;
  }
};

class bulk_in {
 public:
  std::mutex reading;  ///< who reads the connection holds it; before the link's
  // Under it:
  connection_ptr shared;         ///< which any thread may read
  std::vector<bulk_body> early;  ///< what came right behind the handshake
  bool broken = false;           ///< the helper reads it no more
  // Under the link's lock of who reads:
  std::list<bulk_head> heads;
  std::list<bulk_body> bodies;
  std::list<held_frame> held;
  std::uint64_t held_bytes = 0;  ///< in those
  using reference = decltype(call_target::reference);
  std::map<reference, std::list<held_request>> lines;
  intrusive_ptr<event> head_comes;  ///< null: no body waits for its head
  // Any thread:
  std::atomic<bool> awaited{false};  ///< some bytes
  std::atomic<std::uint64_t> progress{0};

  /// Whether that request waits for its tensors, or for those of one before it.
  [[nodiscard]] bool must_wait(const served_request& call) const {
    if (call.in.awaits_blobs()) return true;
    return call.target && !lines.empty() && lines.contains(call.target->reference);
  }
  /// Its place behind those by the same reference. Requires that it must wait, and has one.
  [[nodiscard]] held_request* line_up(const intrusive_ptr<served_request>& call) {
    auto& line = lines[call->target->reference];
    line.push_back({call, !call->in.awaits_blobs()});
    return &line.back();
  }
  /// The next that waits no longer; null: none.
  [[nodiscard]] intrusive_ptr<served_request> leave_line(const reference& by) {
    const auto at = lines.find(by);
    if (at == lines.end() || !at->second.front().whole) return nullptr;
    auto out = std::move(at->second.front().call);
    at->second.pop_front();
    if (at->second.empty()) lines.erase(at);
    return out;
  }
  /// Pairs the first two. False: one of them is not there.
  [[nodiscard]] bool next(bulk_head& head, bulk_body& body) {
    if (heads.empty() || bodies.empty()) return false;
    head = std::move(heads.front());
    body = std::move(bodies.front());
    heads.pop_front();
    bodies.pop_front();
    return true;
  }
  /// After a change of both: nothing more is read while tensors wait for their head.
  void settle() {
    if (!bodies.empty() && !head_comes) head_comes = make_intrusive<event>();
    if (bodies.empty() && head_comes) std::exchange(head_comes, nullptr)->set();
    awaited.store(!heads.empty(), std::memory_order_relaxed);
  }
};

}  // namespace weft::engine
