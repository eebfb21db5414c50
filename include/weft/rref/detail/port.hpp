// SPDX-License-Identifier: BSL-1.0
// The receiving end of a stream: an object at the reader's worker, to which the writer posts items.
//
//   writer's worker                          reader's worker
//     write ── post item ───────────────────►  push ── queue ── next
//     ask ──── call taken(n) ───────────────►  waits until n items were taken
//     room ◄── how many ─────────────────────┤
//     finish ─ call end ────────────────────►  the end, behind all items
//
// Posts and calls by one reference arrive in order, large or not, so this needs no protocol of its
// own. A stream
// ends with the call that opened it, which tells both sides of a loss.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/rpc/immediate.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/detail/pass_on.hpp>
#include <weft/wire/message.hpp>
#include <weft/wire/structure.hpp>

#include <asio/awaitable.hpp>

#include <algorithm>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace weft::detail {

/// How much a writer may have on its way: less than both before each item.
struct stream_window {
  static constexpr std::uint64_t items = 64;
  static constexpr std::uint64_t bytes = std::uint64_t{4} << 20;
};

/// The writer's account. Pure.
class stream_credit {
 public:
  /// From 1 to `stream_window`.
  void limit_to(std::uint64_t items, std::uint64_t bytes) noexcept {
    items_ = std::clamp<std::uint64_t>(items, 1, stream_window::items);
    most_bytes_ = std::clamp<std::uint64_t>(bytes, 1, stream_window::bytes);
  }
  [[nodiscard]] bool full() const noexcept {
    return sizes_.size() >= items_ || bytes_ >= most_bytes_;
  }
  void sent(std::uint64_t bytes) {
    sizes_.push_back(bytes);
    bytes_ += bytes;
  }
  /// The reader has taken so many in all. False: more than were sent.
  [[nodiscard]] bool taken(std::uint64_t items) {
    if (items > taken_ + sizes_.size()) return false;
    for (; taken_ < items; ++taken_) {
      bytes_ -= sizes_.front();
      sizes_.pop_front();
    }
    return true;
  }
  /// Enough is on its way to ask how much was taken.
  [[nodiscard]] bool is_worth_asking() const noexcept {
    return sizes_.size() >= items_ / 2 || bytes_ >= most_bytes_ / 2;
  }
  /// In all.
  [[nodiscard]] std::uint64_t sent() const noexcept { return taken_ + sizes_.size(); }
  /// How many shall be taken before the answer comes: at least one more, and most of them.
  [[nodiscard]] std::uint64_t to_ask_for() const noexcept {
    const std::uint64_t keep = items_ / 4;
    return taken_ + (sizes_.size() > keep ? sizes_.size() - keep : std::uint64_t{1});
  }

 private:
  std::list<std::uint64_t> sizes_;  // of items on their way
  std::uint64_t bytes_ = 0, taken_ = 0;
  std::uint64_t items_ = stream_window::items, most_bytes_ = stream_window::bytes;
};

/// What the reader knows beside the items. Pure.
class stream_progress {
 public:
  /// Item `number` came: whether it is kept, or why not.
  [[nodiscard]] error came(std::uint64_t number, std::uint64_t bytes) {
    if (closed_) return error(errc::closed, "the reader has closed the stream");
    if (failure_) return failure_;
    if (ended_) return error(errc::protocol_error, "an item behind the end of a stream");
    if (const error lost = all_came(number)) return lost;
    // What a payload costs is not counted alike on both sides.
    if (waiting_ >= stream_window::items || bytes_ >= 2 * stream_window::bytes) {
      return error(errc::protocol_error, "more items than the stream's window allows");
    }
    ++waiting_;
    ++came_;
    bytes_ += bytes;
    return {};
  }
  /// So many were sent, before this is asked: an error if one could not be read here.
  [[nodiscard]] error all_came(std::uint64_t sent) const {
    if (sent == came_) return {};
    return error(errc::bad_arguments,
                 "item " + std::to_string(came_) +
                     " of a stream did not arrive: its reader's worker could not read it, and has "
                     "logged why");
  }
  void took(std::uint64_t bytes) noexcept {
    --waiting_;
    bytes_ -= bytes;
    ++taken_;
  }
  /// The writer says that no more come; `finished`: as it meant to.
  void ended(bool finished) noexcept {
    if (!ended_) finished_ = finished;
    ended_ = true;
    if (!failure_) failure_ = std::exchange(thrown_, error());
  }
  /// As `ended`, behind so many items.
  void ended(bool finished, std::uint64_t sent) {
    if (const error lost = all_came(sent); lost && !ended_) failed(lost);
    ended(finished);
  }
  /// The writer's end is gone. If it has not said so, what it wrote may not have come.
  void gone() noexcept {
    untold_ = !ended_;
    ended(false);
  }
  /// The call that opened it has ended. What the function threw comes behind what it wrote.
  void call_ended(const error& how) {
    call_over_ = true;
    if (how && !failure_)
      (how.ran() == call_progress::executed && !ended_ ? thrown_ : failure_) = how;
  }
  /// What the writer has lost of so many items: nobody takes them any more.
  [[nodiscard]] error not_taken(std::uint64_t sent) const {
    if (!closed_ || sent <= taken_) return {};
    return error(errc::closed, "the reader has closed the stream, and has not taken " +
                                   std::to_string(sent - taken_) + " of its " +
                                   std::to_string(sent) + " items");
  }
  void failed(error why) {
    if (!failure_) failure_ = std::move(why);
  }
  void close() noexcept { closed_ = true; }

  /// Whether a reader that has taken all items waits for more; else it is at the end, or `failure`
  /// is set. At a worker that serves the call, nobody says how that ended.
  [[nodiscard]] bool waits(bool hears_of_call) const noexcept {
    if (failure_) return false;
    return !ended_ || (!finished_ && hears_of_call && !call_over_);
  }
  /// Why it ends before its end.
  [[nodiscard]] error failure(bool hears_of_call) const {
    if (failure_ || finished_) return failure_;
    if (!hears_of_call) {
      return error(errc::cancelled, "the writer dropped the stream before it had finished");
    }
    return !untold_ ? error()
                    : error(errc::peer_died, "the writer was lost before it told how many items "
                                             "it had written");
  }
  [[nodiscard]] bool is_closed() const noexcept { return closed_; }
  [[nodiscard]] std::uint64_t taken() const noexcept { return taken_; }
  [[nodiscard]] std::uint64_t came() const noexcept { return came_; }
  /// Why no further item is kept.
  [[nodiscard]] const error& broken() const noexcept { return failure_; }

 private:
  std::uint64_t waiting_ = 0, bytes_ = 0, came_ = 0, taken_ = 0;
  bool ended_ = false, finished_ = false, closed_ = false, call_over_ = false, untold_ = false;
  error failure_;
  error thrown_;  // of the function, whose end of the stream has not been heard
};

/// An item as it travels: a value, without the history of its tensors. Its bytes are told where it
/// is encoded and decoded.
template <class T>
struct stream_item {
  T value;
  std::uint64_t number = 0;  ///< from 0
  std::uint64_t bytes = 0;
  std::uint64_t* measured = nullptr;
};

/// Items that came, and who waits for them. Any thread.
template <class T>
class port_queue final : public ref_counted {
 public:
  explicit port_queue(bool hears_of_call = false) : hears_of_call_(hears_of_call) {}

  void push(stream_item<T>&& item) {
    intrusive_ptr<event> news;
    {
      const std::lock_guard lock(mutex_);
      if (error why = progress_.came(item.number, item.bytes)) {
        progress_.failed(std::move(why));  // nobody hears of it if the stream is closed
      } else {
        items_.push_back(std::move(item));
      }
      news = std::exchange(news_, nullptr);
    }
    if (news) news->set();
  }
  template <class Change>
  void change(Change&& what) {
    intrusive_ptr<event> news, room;
    {
      const std::lock_guard lock(mutex_);
      what(progress_);
      news = std::exchange(news_, nullptr);
      if (progress_.is_closed()) room = std::exchange(room_, nullptr);
    }
    if (news) news->set();
    if (room) room->set();
  }
  /// Nobody reads any more.
  void drop() {
    std::list<stream_item<T>> items;
    change([&](stream_progress& p) {
      p.close();
      std::swap(items, items_);
    });
  }

  /// An item, or the end: then `over`. Else what tells of news. Throws why there are no more.
  [[nodiscard]] std::optional<T> take(bool& over, intrusive_ptr<event>& news) {
    std::optional<T> out;
    intrusive_ptr<event> room;
    {
      const std::lock_guard lock(mutex_);
      if (!items_.empty()) {
        out.emplace(std::move(items_.front().value));
        progress_.took(items_.front().bytes);
        items_.pop_front();
        if (room_ && progress_.taken() >= room_at_) room = std::exchange(room_, nullptr);
      } else if (progress_.waits(hears_of_call_)) {
        if (!news_ || news_->is_set()) news_ = make_intrusive<event>();  // by a deadline
        news = news_;
      } else if (const error why = progress_.failure(hears_of_call_)) {
        throw rpc_error(why);
      } else {
        over = true;
      }
    }
    if (room) room->set();
    return out;
  }
  /// How many were taken, if as many as `items`; else what tells of it.
  [[nodiscard]] std::optional<std::uint64_t> taken(std::uint64_t items,
                                                   intrusive_ptr<event>& room) {
    const std::lock_guard lock(mutex_);
    if (progress_.is_closed()) {
      throw rpc_error(errc::closed, "the reader has closed the stream");
    }
    if (progress_.taken() >= items) return progress_.taken();
    if (items > progress_.came()) {
      progress_.failed(progress_.all_came(items));
      if (news_) news_->set();
    }
    if (const error why = progress_.broken()) throw rpc_error(why);
    if (!room_) room_at_ = items;
    room_at_ = std::min(room_at_, items);
    if (!room_) room_ = make_intrusive<event>();
    room = room_;
    return std::nullopt;
  }

 private:
  std::mutex mutex_;
  std::list<stream_item<T>> items_;
  stream_progress progress_;
  bool hears_of_call_;
  intrusive_ptr<event> news_;  // the reader waits
  intrusive_ptr<event> room_;  // a writer waits until `room_at_` were taken
  std::uint64_t room_at_ = 0;
};

/// The state of an end, which is dropped with its handle.
template <class State>
struct held_end {
  held_end() = default;
  held_end(held_end&& other) noexcept : state(std::exchange(other.state, nullptr)) {}
  held_end& operator=(held_end&& other) noexcept {
    return *this = std::exchange(other.state, nullptr);
  }
  held_end& operator=(intrusive_ptr<State> other) noexcept {
    std::swap(state, other);
    if (other) other->drop();
    return *this;
  }
  ~held_end() {
    if (state) state->drop();
  }

  intrusive_ptr<State> state;
};

/// The object behind the writer's reference. Its functions but `taken` run where they are read.
template <class T>
class port {
 public:
  using immediate_constructor = port;

  port() : queue_(make_intrusive<port_queue<T>>()) {}
  explicit port(intrusive_ptr<port_queue<T>> queue) : queue_(std::move(queue)) {}
  port(port&&) noexcept = default;
  port& operator=(port&&) = delete;
  ~port() {
    if (queue_) queue_->change([](stream_progress& p) { p.gone(); });
  }

  immediate<void> item(stream_item<T> came) {
    queue_->push(std::move(came));
    return {};
  }
  immediate<void> end(bool finished, std::uint64_t sent) {
    error why;
    queue_->change([&](stream_progress& p) {
      p.ended(finished, sent);
      why = p.not_taken(sent);
    });
    if (finished && why) throw rpc_error(why);
    return {};
  }
  asio::awaitable<std::uint64_t> taken(std::uint64_t items) {
    const auto queue = queue_;
    for (;;) {
      intrusive_ptr<event> room;
      if (const auto count = queue->taken(items, room)) co_return *count;
      co_await event::wait(room);
    }
  }
  [[nodiscard]] const intrusive_ptr<port_queue<T>>& queue() const noexcept { return queue_; }

 private:
  intrusive_ptr<port_queue<T>> queue_;
};

}  // namespace weft::detail

namespace weft {

template <class T>
struct codec<detail::stream_item<T>> {
  using elements = std::tuple<T>;
  static constexpr std::size_t min_size = 8 + codec<T>::min_size;

  static void encode(writer& w, const detail::stream_item<T>& item) {
    const std::size_t before = w.size();
    w.number(item.number);
    codec<T>::encode(w, item.value);
    if (!item.measured) return;
    *item.measured = w.size() - before;
    if (detail::encoded_tensor_bytes) *item.measured += detail::encoded_tensor_bytes(w);
  }
  static detail::stream_item<T> decode(reader& r) {
    if (detail::detach_received) detail::detach_received(r);
    const std::size_t before = r.position();
    const auto number = r.number<std::uint64_t>();
    detail::stream_item<T> out{codec<T>::decode(r), number};
    out.bytes = r.position() - before;
    if (const incoming_message* m = r.source()) {
      for (const blob& b : m->blobs()) out.bytes += b.size();
    }
    return out;
  }
};
template <class T>
struct structure<detail::stream_item<T>> {
  static constexpr std::string_view tag = "weft::stream_item 1";
  using parts = std::tuple<T>;
};

}  // namespace weft
