// SPDX-License-Identifier: BSL-1.0
// Where the calls of broadcasts meet their arguments. The call comes straight from who made it, the
// arguments along a tree of workers. Whichever is first waits for the other:
//
//   caller ── call number ──────────► │ claim ─┐
//   parent in the tree ── arguments ► │ offer ─┴─► the function runs, once; a second offer is
//                                     │            dropped
//
// Every pair of caller and worker counts its broadcasts from 0, so that whatever comes twice, or
// late, is known by its number.
#pragma once

#include <weft/core/detail/type_key.hpp>
#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/service.hpp>
#include <weft/rpc/worker.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

namespace weft::detail {

/// The numbers of one caller's broadcasts to one worker, at the caller. Pure.
class broadcast_numbers {
 public:
  [[nodiscard]] std::uint64_t open() {
    open_.insert(open_.end(), next_);
    return next_++;
  }
  void close(std::uint64_t number) { open_.erase(number); }
  /// All numbers before this one are closed.
  [[nodiscard]] std::uint64_t first_open() const noexcept {
    return open_.empty() ? next_ : *open_.begin();
  }

 private:
  std::uint64_t next_ = 0;
  std::set<std::uint64_t> open_;
};

/// The arguments of one broadcast, and who waits for them.
struct broadcast_slot final : ref_counted {
  std::shared_ptr<void> arguments;
  type_id type;  ///< of the arguments
  bool claimed = false;
  /// Set once this worker has passed the arguments on: then the function may change them.
  intrusive_ptr<event> ready = make_intrusive<event>();
  std::unique_ptr<timer> until;  ///< while they wait for their call
};

/// The broadcasts of one caller, at a worker that it calls. Pure, but for the slots.
class broadcast_arrivals {
 public:
  /// Numbers so far beyond the first that is open are not remembered: no caller has as many open.
  static constexpr std::uint64_t most_open = 1u << 16;
  using slot = intrusive_ptr<broadcast_slot>;

  /// Arguments came: their slot, without arguments yet; null: nobody wants them any more, or they
  /// are here.
  [[nodiscard]] slot offered(std::uint64_t number) {
    if (is_over(number)) return nullptr;
    slot& s = slots_[number];
    if (!s) s = make_intrusive<broadcast_slot>();
    return s->arguments ? nullptr : s;
  }
  /// The call came, with the caller's `first_open`. Null: it came before, or its arguments did and
  /// no longer wait.
  [[nodiscard]] slot claimed(std::uint64_t number, std::uint64_t first_open) {
    if (first_open > below_) {
      below_ = first_open;
      over_.erase(over_.begin(), over_.lower_bound(below_));
      const auto end = slots_.lower_bound(below_);
      for (auto at = slots_.begin(); at != end;) {
        at = at->second->claimed ? std::next(at) : slots_.erase(at);
      }
    }
    if (is_over(number)) return nullptr;
    slot& s = slots_[number];
    if (!s) s = make_intrusive<broadcast_slot>();
    return std::exchange(s->claimed, true) ? nullptr : s;
  }
  /// The function has its arguments, or nobody waits for its result; or they waited in vain.
  void over(std::uint64_t number, bool in_vain = false) {
    slots_.erase(number);
    if (number >= below_ && number - below_ < most_open) over_.try_emplace(number, in_vain);
  }
  /// Its arguments waited for their call until its deadline.
  [[nodiscard]] bool waited_in_vain(std::uint64_t number) const {
    const auto of = over_.find(number);
    return of != over_.end() && of->second;
  }
  [[nodiscard]] std::size_t waiting() const noexcept { return slots_.size(); }
  /// How many numbers it remembers.
  [[nodiscard]] std::size_t remembered() const noexcept { return over_.size(); }

 private:
  [[nodiscard]] bool is_over(std::uint64_t number) const {
    return number < below_ || over_.contains(number);
  }

  std::uint64_t below_ = 0;             // all before this are over
  std::map<std::uint64_t, bool> over_;  // of each: whether its arguments waited in vain
  std::map<std::uint64_t, slot> slots_;
};

/// All of them, at one worker. Worker's thread.
class broadcasts final : public service {
 public:
  static constexpr service_id place = service_id::broadcasts;
  /// Arguments whose call does not come wait no longer, whatever the deadline: it was sent before
  /// them, and waits only for room.
  static constexpr duration most_waiting = std::chrono::minutes(10);

  explicit broadcasts(worker& me) noexcept : me_(me) {}

  [[nodiscard]] broadcast_numbers& to(std::uint32_t rank) { return numbers_[rank]; }
  [[nodiscard]] broadcast_arrivals& from(std::uint32_t caller) { return arrivals_[caller]; }

  /// Keeps arguments for their call, which must come by `deadline`. Null: they are not wanted.
  [[nodiscard]] intrusive_ptr<broadcast_slot> offer(std::uint32_t caller, std::uint64_t number,
                                                    std::optional<time_point> deadline,
                                                    std::shared_ptr<void> arguments, type_id type) {
    if (me_.link_to(caller).current_state() == link::state::down) return nullptr;
    auto slot = from(caller).offered(number);
    if (!slot) return nullptr;
    slot->arguments = std::move(arguments);
    slot->type = type;
    if (!slot->claimed) {  // its call is on its way, or has come and gone
      const time_point latest = me_.time().now() + most_waiting;
      slot->until = me_.time().make_timer(context_of(me_));
      slot->until->arm(deadline ? std::min(*deadline, latest) : latest,
                       [this, caller, number] { from(caller).over(number, true); });
    }
    return slot;
  }

  /// Until this goes, the call of that number waits for its arguments or has them.
  class claim {
   public:
    claim(broadcasts& at, std::uint32_t caller, std::uint64_t number, std::uint64_t first_open)
        : slot(at.from(caller).claimed(number, first_open)),
          at_(at),
          caller_(caller),
          number_(number) {
      if (!slot && at.from(caller).waited_in_vain(number)) {
        throw rpc_error(errc::timed_out, "its arguments waited for it until its deadline",
                        call_progress::not_executed);
      }
      if (!slot) {
        throw rpc_error(errc::bad_arguments, "this call of a broadcast came before",
                        call_progress::not_executed);
      }
      slot->until = nullptr;
    }
    claim(const claim&) = delete;
    claim& operator=(const claim&) = delete;
    ~claim() { at_.from(caller_).over(number_); }

    const intrusive_ptr<broadcast_slot> slot;

   private:
    broadcasts& at_;
    const std::uint32_t caller_;
    const std::uint64_t number_;
  };

  void down(link& peer, const error&) override { arrivals_.erase(peer.rank()); }

  /// How many wait here, for a call or for arguments.
  [[nodiscard]] std::size_t waiting() const noexcept {
    std::size_t n = 0;
    for (const auto& [rank, of] : arrivals_) n += of.waiting();
    return n;
  }

 private:
  worker& me_;
  std::map<std::uint32_t, broadcast_numbers> numbers_;
  std::map<std::uint32_t, broadcast_arrivals> arrivals_;
};

}  // namespace weft::detail
