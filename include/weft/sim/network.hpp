// SPDX-License-Identifier: BSL-1.0
// The wires of a simulated world: frames or bytes in flight between two hosts, how long they take,
// and what happens to them if a wire is cut or a machine is gone.
//
//   host A ── channel ──► host B     one for each direction of a connection; in order, as TCP is
//              │ in flight │ arrived, not yet read
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/sim/choices.hpp>
#include <weft/sim/timeline.hpp>
#include <weft/transport/detail/pipe_waiter.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace weft::sim {

using host_id = std::uint32_t;

/// How the wires of a world behave. With the defaults they are calm.
struct wire_settings {
  duration delay = std::chrono::microseconds(50);  ///< the least travel time
  /// A random addition of up to so much, drawn for each frame or piece of bytes.
  duration jitter{};
  std::uint32_t refused_percent = 0;       ///< so many of 100 connection attempts are refused
  std::uint64_t buffer_bytes = 64u << 20;  ///< limit in flight and unread, in each direction
};

class channel;
class connect_attempt;
namespace detail {
class listener;
}

/// All wires of a world. One thread.
class network {
 public:
  network(timeline& time, choices& chooses, std::uint32_t hosts, wire_settings wires)
      : time_(time),
        choices_(chooses),
        hosts_(hosts),
        wires_(wires),
        silent_(hosts),
        listeners_(hosts) {}
  network(const network&) = delete;
  network& operator=(const network&) = delete;

  [[nodiscard]] timeline& time() noexcept { return time_; }
  [[nodiscard]] choices& decide() noexcept { return choices_; }
  [[nodiscard]] const wire_settings& wires() const noexcept { return wires_; }
  /// Draws how long the next frame or piece of bytes travels.
  [[nodiscard]] duration delay() {
    if (wires_.jitter <= duration::zero()) return wires_.delay;
    return wires_.delay + part_of(wires_.jitter, choices_.pick(1024), 1024);
  }

  /// Nothing gets from `from` to `to` until `heal` was called as often as `cut`. Frames and bytes
  /// wait, because TCP sends them again.
  void cut(host_id from, host_id to) { ++cut_[way(from, to)]; }
  void heal(host_id from, host_id to);
  [[nodiscard]] bool is_cut(host_id from, host_id to) const { return cut_.contains(way(from, to)); }
  /// The process on `h` is gone. `in_silence`: its machine is gone, too, and nobody is told. Else
  /// its system closes its connections; the choices decide whether its frames in flight are lost.
  void lose(host_id h, bool in_silence);
  /// Breaks the established connections between two hosts; frames and bytes in flight are lost. `a`
  /// notices it at once, `b` so much later, or still later when the way from `a` is healed. False:
  /// there was no connection.
  bool reset(host_id a, host_id b, duration later = {});

  /// Sets the listener of that host; null: none. A listener brings back a machine that was gone.
  void listen(host_id h, detail::listener* who) noexcept;
  [[nodiscard]] detail::listener* listener_at(host_id h) const noexcept { return listeners_.at(h); }
  /// Whether the machine is gone.
  [[nodiscard]] bool is_silent(host_id h) const noexcept { return silent_.at(h); }

  /// Called when something arrived or ended: (from, to, what, how much). For a log.
  std::function<void(host_id, host_id, const char*, std::uint64_t)> tells;

 private:
  friend class channel;
  friend class connect_attempt;

  /// Throws rpc_error: unknown_peer if one of them is not there.
  [[nodiscard]] std::uint64_t way(host_id from, host_id to) const;
  /// Lets `m` wait until a way is healed.
  void hold(moment& m);
  /// Cancels `m`, whether it waits for its time or for a heal.
  void drop(moment& m) noexcept;

  timeline& time_;
  choices& choices_;
  const std::uint32_t hosts_;
  const wire_settings wires_;
  std::map<std::uint64_t, std::uint32_t> cut_;  // ways, and how often
  std::vector<bool> silent_;
  std::vector<detail::listener*> listeners_;
  std::vector<channel*> channels_;  // in the order in which they were made
  std::vector<moment*> held_;       // until a way is healed
};

inline std::uint64_t network::way(host_id from, host_id to) const {
  if (from < hosts_ && to < hosts_) return std::uint64_t{from} * hosts_ + to;
  throw rpc_error(errc::unknown_peer, "no way leads from worker " + std::to_string(from) +
                                          " to worker " + std::to_string(to) + ": there are " +
                                          std::to_string(hosts_));
}
inline void network::hold(moment& m) {
  if (std::find(held_.begin(), held_.end(), &m) == held_.end()) held_.push_back(&m);
}
inline void network::drop(moment& m) noexcept {
  time_.remove(m);
  std::erase(held_, &m);
}

/// One direction of a connection. Use its ends as those of detail::frame_pipe.
class channel : public ref_counted, private moment {
 public:
  channel(network& net, host_id from, host_id to)
      : moment(net.time()), net_(net), from_(from), to_(to) {
    net_.channels_.push_back(this);
  }
  ~channel() override {
    std::erase(net_.channels_, this);
    net_.drop(*this);
    net_.drop(refusal_);
  }

  void set_reader(intrusive_ptr<weft::detail::pipe_waiter> where) { reader_ = std::move(where); }
  void set_writer(intrusive_ptr<weft::detail::pipe_waiter> where) { writer_ = std::move(where); }
  /// Each arrival wakes `bell`, whether the reader waits or not.
  void set_bell(const intrusive_ptr<weft::detail::pipe_waiter>& bell) {
    bell_ = bell;
    bell->wake();  // something may be there
  }
  /// True if the reader can take something, or the end. Else it wakes the reader when it can.
  [[nodiscard]] bool may_take() noexcept {
    reader_waits_ = arrived_ == 0 && !end_arrived_;
    return !reader_waits_;
  }
  /// True if the writer may put more. Else it wakes the writer when it may.
  [[nodiscard]] bool may_put() {
    writer_waits_ = !ended_ && !has_room();
    return !writer_waits_;
  }
  /// The writer can put nothing more.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  /// The writer is gone. Frames and bytes in flight still arrive, and the end behind them.
  void writer_gone() noexcept {
    if (std::exchange(ended_, true)) return;
    wake(writer_waits_, writer_);
    if (!lost_) due(net_.time().now() + net_.wires().delay);
  }
  /// The reader is gone. The writer notices it by the way back.
  void reader_gone() noexcept {
    if (ended_ || lost_) return;
    net_.time().add(refusal_, net_.time().now() + net_.wires().delay);
  }
  /// The connection breaks: frames and bytes in flight are lost.
  void break_off() {
    ended_ = end_arrived_ = true;
    in_flight_.clear();
    forget_in_flight();
    net_.drop(*this);
    net_.drop(refusal_);
    wake(writer_waits_, writer_);
    wake_reader();
  }
  /// The same, but the end at `who` notices it later, and gets nothing until then.
  void break_off_later(host_id who, duration later) {
    fall_silent();
    broken_ = true;
    const time_point then = net_.time().now() + later;
    if (who == from_) {
      net_.time().add(refusal_, then);
      hear_of_the_end();
    } else {
      net_.time().add(*this, then);
      ended_ = true;
      wake(writer_waits_, writer_);
    }
  }
  /// A machine is gone: nothing arrives any more, and neither end is told.
  void fall_silent() {
    lost_ = true;
    in_flight_.clear();
    forget_in_flight();
    net_.drop(*this);
    net_.drop(refusal_);
  }
  [[nodiscard]] host_id from() const noexcept { return from_; }
  [[nodiscard]] host_id to() const noexcept { return to_; }

 protected:
  [[nodiscard]] virtual bool has_room() const noexcept = 0;
  virtual void forget_in_flight() = 0;
  /// `units` more are in flight.
  void sent(std::uint64_t units) {
    if (lost_) return;
    const time_point at = std::max(last_, net_.time().now() + net_.delay());
    in_flight_.emplace_back(at, units);
    due(at);
  }
  /// The reader took `units`.
  void took(std::uint64_t units) noexcept {
    arrived_ -= units;
    wake(writer_waits_, writer_);
  }
  [[nodiscard]] std::uint64_t arrived() const noexcept { return arrived_; }
  [[nodiscard]] bool end_arrived() const noexcept { return end_arrived_; }
  void wait_to_read() noexcept { reader_waits_ = true; }
  [[nodiscard]] network& net() const noexcept { return net_; }

 private:
  friend class network;

  /// The writer hears that nobody reads.
  struct refusal final : moment {
    explicit refusal(channel& of) noexcept : moment(of.net_.time()), channel_(of) {}
    void comes() override {
      network& net = channel_.net_;
      if (net.is_cut(channel_.to_, channel_.from_)) return net.hold(*this);
      channel_.ended_ = true;
      wake(channel_.writer_waits_, channel_.writer_);
    }
    channel& channel_;
  };

  void due(time_point at) noexcept {
    last_ = std::max(last_, at);
    if (!awaited()) net_.time().add(*this, in_flight_.empty() ? last_ : in_flight_.front().first);
  }
  void comes() override {
    if (net_.is_cut(from_, to_)) return net_.hold(*this);
    if (broken_) return hear_of_the_end();
    std::uint64_t units = 0;
    while (!in_flight_.empty() && in_flight_.front().first <= net_.time().now()) {
      units += in_flight_.front().second;
      in_flight_.pop_front();
    }
    arrived_ += units;
    if (!in_flight_.empty()) {
      net_.time().add(*this, in_flight_.front().first);
    } else if (ended_ && last_ > net_.time().now()) {
      net_.time().add(*this, last_);
    } else if (ended_) {
      end_arrived_ = true;
    }
    if (net_.tells) net_.tells(from_, to_, end_arrived_ ? "ends" : "arrives", units);
    wake_reader();
  }
  void hear_of_the_end() noexcept {
    end_arrived_ = true;
    wake_reader();
  }
  void wake_reader() noexcept {
    wake(reader_waits_, reader_);
    if (bell_) bell_->wake();
  }
  static void wake(bool& waits, const intrusive_ptr<weft::detail::pipe_waiter>& who) noexcept {
    if (std::exchange(waits, false) && who) who->wake();
  }

  network& net_;
  const host_id from_, to_;
  std::deque<std::pair<time_point, std::uint64_t>> in_flight_;
  std::uint64_t arrived_ = 0;  // and not taken
  time_point last_{};          // what is put now does not arrive before
  bool ended_ = false;
  bool end_arrived_ = false;
  bool lost_ = false;    // what is put does not arrive
  bool broken_ = false;  // ... and both ends hear of that
  bool reader_waits_ = false;
  bool writer_waits_ = false;
  refusal refusal_{*this};
  intrusive_ptr<weft::detail::pipe_waiter> reader_;
  intrusive_ptr<weft::detail::pipe_waiter> writer_;
  intrusive_ptr<weft::detail::pipe_waiter> bell_;
};

inline void network::listen(host_id h, detail::listener* who) noexcept {
  listeners_[h] = who;
  if (who) silent_[h] = false;
}

inline void network::heal(host_id from, host_id to) {
  const auto cut = cut_.find(way(from, to));
  if (cut == cut_.end() || --cut->second > 0) return;
  cut_.erase(cut);
  for (moment* m : std::exchange(held_, {})) time_.add(*m, time_.now() + wires_.delay);
}

inline void network::lose(host_id h, bool in_silence) {
  if (in_silence) silent_[h] = true;
  for (channel* c : std::vector<channel*>(channels_)) {
    if (c->from_ != h && c->to_ != h) continue;
    if (in_silence) {
      c->fall_silent();
    } else if (c->from_ == h) {
      if (choices_.pick(2) == 1) {
        c->in_flight_.clear();
        c->forget_in_flight();
      }
      c->writer_gone();  // what its destructors would say is not said: it would be behind a hole
    }
  }
}

inline bool network::reset(host_id a, host_id b, duration later) {
  bool any = false;
  for (channel* c : std::vector<channel*>(channels_)) {
    if ((c->from_ != a || c->to_ != b) && (c->from_ != b || c->to_ != a)) continue;
    if (c->lost_) continue;
    any = true;
    if (later > duration::zero()) {
      c->break_off_later(b, later);
    } else {
      c->break_off();
    }
  }
  return any;
}

}  // namespace weft::sim
