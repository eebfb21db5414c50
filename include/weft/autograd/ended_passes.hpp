// SPDX-License-Identifier: BSL-1.0
// Remembers which passes of a context are over, so that a late message never revives one, and says
// what to do with a message whose pass is not (or no longer) known. Pure: standard library only.
#pragma once

#include <weft/autograd/messages.hpp>

#include <cstddef>
#include <cstdint>
#include <map>

namespace weft::autograd {

/// What to do with a control message of a pass for which this worker holds no `wave`.
enum class admission : std::uint8_t {
  fresh,   ///< a new pass: make its wave and step it; then, if the initiator was lost before, step
           ///< `lost` too, for nobody else will
  stale,   ///< of a pass that is over, or harmless: ignore it, but answer a need
  refuse,  ///< no pass begins by it: answer `abort_message`; see `blame_for`
};

/// Who is to blame for a message of a pass that is not known to `self`, which got it from `from`.
/// Only an initiator knows which of its passes began, and who takes part it hears from others.
blame blame_for(const control& message, worker_rank from, worker_rank self);

/// The ended passes of one context, as intervals per initiator. Passes count up, so gaps are passes
/// that are under way or never came here; beyond the limit the oldest gap counts as ended too, and
/// whoever still needs something in such a pass must be told so. Not thread-safe.
class ended_passes {
 public:
  /// `limit` >= 1 bounds the intervals kept for one initiator.
  explicit ended_passes(std::size_t limit = 4096) : limit_(limit) {}

  bool contains(const pass_id& pass) const;

  /// Call when a wave is over and forgotten, or is not to begin.
  void add(const pass_id& pass);

  /// Intervals kept for one initiator.
  std::size_t intervals(worker_rank initiator) const;

  /// Judges a message of a pass that has no wave here, and remembers a pass that was aborted
  /// before it was heard of. `self` is this worker.
  admission admit(const control& message, worker_rank self);

 private:
  using table = std::map<std::uint32_t, std::uint32_t>;  // first -> last

  std::size_t limit_;
  std::map<worker_rank, table> ended_;
};

}  // namespace weft::autograd

#include <weft/autograd/impl/ended_passes.hpp>
