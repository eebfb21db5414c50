// SPDX-License-Identifier: BSL-1.0
// Remembers which passes of a context are over, so that a late message never revives one. Decides
// what to do with a message of an unknown pass. Pure: standard library only.
#pragma once

#include <weft/autograd/messages.hpp>

#include <cstddef>
#include <cstdint>
#include <map>

namespace weft::autograd {

/// What to do with a control message of a pass for which this worker holds no `wave`.
enum class admission : std::uint8_t {
  fresh,   ///< a new pass: make its wave and step it. If the initiator is already lost, then step
           ///< `lost`, too: no one else will
  stale,   ///< the pass is over, or the message is harmless: ignore it, but answer a need
  refuse,  ///< no pass begins with it: answer `abort_message`; see `blame_for`
};

/// The worker to blame for a message from `from` whose pass `self` does not know. Only the
/// initiator knows which of its passes began; other workers tell it which workers take part.
blame blame_for(const control& message, worker_rank from, worker_rank self);

/// The ended passes of one context, as intervals per initiator. Passes count up, so a gap is a pass
/// that is in flight or never came here. Beyond the limit the oldest gap counts as ended, too. If a
/// worker still needs something in that pass, it must be told so. Not thread-safe.
class ended_passes {
 public:
  /// `limit` >= 1 bounds the intervals kept for one initiator.
  explicit ended_passes(std::size_t limit = 4096) : limit_(limit) {}

  bool contains(const pass_id& pass) const;

  /// Call it when a wave is over and forgotten, or must not begin.
  void add(const pass_id& pass);

  /// The number of intervals kept for one initiator.
  std::size_t intervals(worker_rank initiator) const;

  /// Decides about a message of a pass that has no wave here. If the message aborts the pass, it
  /// remembers the pass as ended. `self` is this worker.
  admission admit(const control& message, worker_rank self);

 private:
  using table = std::map<std::uint32_t, std::uint32_t>;  // first -> last

  std::size_t limit_;
  std::map<worker_rank, table> ended_;
};

}  // namespace weft::autograd

#include <weft/autograd/impl/ended_passes.hpp>
