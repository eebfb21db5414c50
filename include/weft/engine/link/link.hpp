// SPDX-License-Identifier: BSL-1.0
// Room link: everything about one peer. The connection and its handshake (handshake.hpp,
// pairing.hpp), flow control (window.hpp), life (signs_of_life.hpp), calls that wait for replies
// (pending_calls.hpp), and this file: the link itself, which knows no users' types. Includes up to
// rref/, and rooms serving, helper and shutdown; of the worker it sees serving/link_host.hpp.
//
// One call of a coroutine function over TCP, there and back, each line a function and its file.
// Files are of impl/, here or of room serving, where no folder stands; "│" is a change of thread.
//
//   caller's worker thread                                callee's I/O thread
//     peer::call, make_call         rpc/impl/peer.hpp       framed::read_into   transport/
//     call_and_wait, on co_await    rpc/impl/peer.hpp       frame_assembler     transport/
//     send_now, send_body           link_call.hpp           frame_arrived       link_read.hpp
//     arguments_body::write, codecs rpc/impl/peer.hpp       handle_arrived      a batch
//     send_request: a pending call  link_call.hpp           handle
//     queue: services attach        link_send.hpp           handle_request      link_serve.hpp
//     message::finish               wire/impl/message.hpp   dispatch
//     push: outbox, window          link_send.hpp           request_queue::push request_queue.hpp
//     flush, write_locked           link_send.hpp         │ callee's worker thread
//     erased_connection::try_write  transport/              request_queue::drain
//     framed::try_write ─ sendmsg ─────────────────────────►start_coroutine, serve  link_serve.hpp
//                                                           request_queue::serve
//   caller's I/O thread                                     request_coroutine::loop   serving/
//     framed::read_into … handle    as above                serving::serve      serving.hpp
//     request_queue::push           request_queue.hpp       thunk::start: decode, f, deliver
//   │ caller's worker thread                                             rpc/detail/invocation.hpp
//     request_queue::drain                                  serving::finish, answer
//     handle_here, reply_arrived    link_read.hpp           queue … framed::try_write  as a request
//     pending_calls::complete       link/                          │
//     call_and_wait goes on, deliver_answer  ◄─────────────────────┘
//
// Where no I/O threads are, what they do here is the worker's own thread's part, or its helper's.
// Immediate functions run in `dispatch`, plain ones on the compute pool from there. A call that
// finds no room, or is awaited on another executor, goes through `send_later`; one to this worker
// itself takes the same way over transport/loopback.
//
// Large tensors travel on a connection of their own, beside this: bulk_out.hpp, bulk_in.hpp.
//
// Bodies: impl/link_call.hpp (the caller's half of a call), link_send.hpp (outbox and writing),
// link_bulk.hpp (large tensors),
// link_state.hpp (connections, loss, life), link_read.hpp (reading), link_serve.hpp (requests) and
// link_unmade.hpp (requests whose object is being made).
#pragma once

#include <weft/core/detail/waiting_line.hpp>
#include <weft/core/event.hpp>
#include <weft/core/time.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/link/bulk_in.hpp>
#include <weft/engine/link/bulk_out.hpp>
#include <weft/engine/link/given_answers.hpp>
#include <weft/engine/link/pairing.hpp>
#include <weft/engine/link/pending_calls.hpp>
#include <weft/engine/link/signs_of_life.hpp>
#include <weft/engine/link/transport_set.hpp>
#include <weft/engine/link/window.hpp>
#include <weft/engine/serving/link_host.hpp>
#include <weft/engine/serving/request_source.hpp>
#include <weft/engine/serving/served_calls.hpp>
#include <weft/engine/serving/served_request.hpp>
#include <weft/engine/shutdown/drain.hpp>
#include <weft/memory/detail/memory_budget.hpp>
#include <weft/transport/frame_sink.hpp>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace weft::engine {

/// What is under way on a link, counted. When nothing is, all are 0 but two, of which the one at
/// the caller is equal to the other at the callee: `window_used` there, `window_owed` here.
struct link_counts {
  std::size_t calls = 0;                ///< whose replies somebody awaits here
  std::int64_t answers_due = 0;         ///< of all calls that were sent
  std::size_t served = 0;               ///< requests of the peer whose functions have not ended
  std::size_t throttled = 0;            ///< ... that wait until replies are written
  std::size_t for_objects = 0;          ///< ... for objects that are being made
  std::uint64_t window_used = 0;        ///< bytes
  std::uint64_t window_held = 0;        ///< bytes of the peer's requests that have not begun
  std::uint64_t window_owed = 0;        ///< bytes, free again, of which the peer was not told
  std::uint64_t replies_unwritten = 0;  ///< bytes
  std::uint64_t budget_used = 0;        ///< bytes of received tensors and arguments
};

class link final : public request_source, public frame_sink {
 public:
  link(link_host& me, std::uint32_t rank, asio::io_context& io);

  [[nodiscard]] state current_state() const override;
  [[nodiscard]] std::string transport() const override;
  [[nodiscard]] error reason() const override;

  // ── calls ──
  sending send_now(outgoing_call& c, const request_body& body, error& why) noexcept override;
  asio::awaitable<call_result> send_later(outgoing_call& c, const request_body& body) override;
  void post(outgoing_call& c, const request_body& body) override;
  void require_can_send() override;
  void no_longer_given(const given_memory& where) noexcept override { given_.remove(where); }
  asio::awaitable<void> wait_writable(std::optional<duration> limit) override;
  [[nodiscard]] reply_line& replies() noexcept override { return pending_; }
  [[nodiscard]] error describe(const error& e, const outgoing_call& c) const noexcept override;
  [[nodiscard]] error caught(const outgoing_call& c, call_progress ran) const noexcept override;
  [[nodiscard]] pending_calls& pending() noexcept { return pending_; }
  /// Destroys the coroutines that wait for replies, without running them: they hold the link.
  void drop_calls() noexcept { pending_.drop_all(); }

  // ── sending, any thread ──

  expected<std::uint64_t> queue(message&& m, const frame_header& header) noexcept override;
  bool append(frame&& f) override;
  void flush() noexcept override;
  void write_now() noexcept override;
  void flush_late() noexcept override;
  [[nodiscard]] std::size_t waiting() const override;
  /// Room for one more request, in the outbox and in the peer's window. False: there is none now.
  [[nodiscard]] bool can_send() noexcept;
  /// Somebody waits in line.
  [[nodiscard]] bool has_waiters() const noexcept { return !line_.empty(); }
  /// Waits in line until there is room; with the same ticket again, where it stood before. Errors,
  /// all not_sent: timed_out, cancelled, or the reason why the link is down. Worker's thread.
  enum class message_size : std::uint8_t { any, large };
  asio::awaitable<expected<void>> wait_in_line(time_point deadline, waiting_line::ticket& ticket,
                                               message_size what = message_size::any);
  /// Room for large tensors, too. False: there is none now.
  [[nodiscard]] bool can_send_bulk() noexcept;
  asio::awaitable<void> wait_writable_until(time_point deadline);
  void mark_down(error reason) noexcept override;

  // ── connections, any thread ──

  /// Connects now if it never did, and goes on trying.
  void open();
  /// Where it lives, or will.
  [[nodiscard]] asio::io_context& io() const;
  /// Whether a connection that the peer opened is taken. `yes`: `install` or `unreserve` follows.
  using welcome = pairing::welcome;
  [[nodiscard]] welcome reserve();
  /// The promised connection broke before it was installed; connects anew if anything waits.
  void unreserve();
  using arrived_frame = engine::arrived_frame;
  /// What goes on with the rest of a frame for which memory lacked; or why the link cannot.
  [[nodiscard]] static expected<arrived_frame> to_partial(frame&& rest, partial_frame what,
                                                          std::uint64_t bytes, error why);
  /// What came right behind the handshake.
  struct early {
    std::vector<arrived_frame> frames;
    bool another_begun = false;
    bool takes_bulk = false;  // the peer
  };
  /// Takes over a connection on `at` whose handshake is done.
  void install(connection_ptr connection, asio::io_context& at, early first);
  /// A try to connect failed: tries again later, unless it never can.
  void cannot_connect(error why);
  /// The connection for its own bulk, or none: it could not be opened.
  void bulk_opened(connection_ptr connection, asio::io_context& at);
  /// Its large tensors travel apart from now on.
  [[nodiscard]] bool sends_bulk() const;
  /// As `reserve` and so on, of the peer's connection for bulk.
  [[nodiscard]] welcome reserve_bulk();
  void unreserve_bulk();
  void install_bulk(connection_ptr connection, asio::io_context& at, early first);
  /// Where its tensors go, of a frame on that connection.
  [[nodiscard]] intrusive_ptr<given_memory> given_for_bulk(const frame& bulk);

  // ── the end, worker's thread ──

  /// Ends every waiting call, and whatever would wait for room from now on; the link stays.
  void fail_calls(const error& reason);
  /// Closes without reporting a loss (end of a run).
  void close() noexcept;
  /// Cancels every coroutine that serves a request of this link.
  void cancel_all_served() noexcept;

  /// Worker's thread.
  [[nodiscard]] link_counts count();
  /// Functions of the peer's requests that have not ended, in order. Worker's thread.
  [[nodiscard]] std::multiset<std::string> serves();

  /// Whether a loss, if there was one, has been told to everybody here. Worker's thread.
  [[nodiscard]] bool settled() const { return lost_ || current_state() != state::down; }
  /// It is down, and was up before, or has taken posts. Else whoever called by it was told.
  [[nodiscard]] bool broke() const;
  /// The posts to the peer, and those of it that ran; `down`: it was up before.
  [[nodiscard]] peer_counts carried_posts() const;
  /// Posts of the peer that have not ended.
  [[nodiscard]] std::uint64_t posts_under_way() const noexcept {
    const std::uint64_t ended = requests.ended.load();
    return requests.arrived.load() - ended;
  }

  // ── life ──

  /// Every ping interval, on the front thread: says that this worker lives, if nothing else did.
  void send_heartbeat(bool reading) noexcept;
  /// Every ping interval, on each thread with links and the front: whether the peer still does.
  void check_peer(const asio::io_context& here, duration interval) noexcept;

  // ── request_source ──
  void handle_here(frame&& f, error allocation_error) override;
  void start_coroutine(intrusive_ptr<served_request> call) override;
  void watch_waits() override;
  void unwatched(std::uint64_t number) noexcept override;
  void object_found(const intrusive_ptr<served_request>& call) noexcept override;
  void object_missed(const intrusive_ptr<served_request>& call) noexcept override;
  void begin_forward(served_request& call) override;
  void end_forward(served_request& call) noexcept override;
  void forget(served_request& call) noexcept override;

  /// Forgets requests that wait, unanswered: they hold this link.
  void drop_waiting();

  // ── the helper's thread ──

  /// Reads what has come, if any thread may, and goes on writing. False: not read, as the worker's
  /// thread is at it. With `why`, `mark_down` is to follow, when the others have been read.
  [[nodiscard]] bool help(error& why) noexcept;
  /// Bytes that a write under way has left, and `help` can write.
  [[nodiscard]] std::uint64_t left_to_write() const noexcept;

  // ── frame_sink, the thread that reads ──
  [[nodiscard]] const limits& bounds() const noexcept override;
  [[nodiscard]] expected<blob> allocate(std::size_t size) override;
  [[nodiscard]] intrusive_ptr<given_memory> given_for(const frame& head) override;
  [[nodiscard]] expected<void> frame_arrived(frame&& f) override;
  [[nodiscard]] expected<void> frame_skipped(frame&& rest, partial_frame what, std::uint64_t bytes,
                                             error why) override;
  void progress() noexcept override;

 private:
  // calling
  [[nodiscard]] bool can_send_at_once() noexcept;
  void begin(outgoing_call& c) const noexcept;
  [[nodiscard]] static frame_header header_of(const outgoing_call& c);
  sending send_request(outgoing_call& c, message&& m, time_point now, error& why);
  sending send_body(outgoing_call& c, const request_body& body, time_point now,
                    error& why) noexcept;
  [[nodiscard]] std::optional<message> written(const request_body& body, error& why) const noexcept;
  asio::awaitable<call_result> call_from_elsewhere(outgoing_call& c, const request_body& body);
  struct tickets {
    waiting_line::ticket any, large;
    message_size what = message_size::any;
  };
  asio::awaitable<expected<void>> find_room(time_point deadline, message_size what, tickets& mine);
  using result_or_tickets = std::variant<call_result, tickets>;
  asio::awaitable<result_or_tickets> exchange_for_others(outgoing_call c, message m, tickets mine);

  // sending
  std::optional<std::uint64_t> push(frame&& f);
  void write_locked(std::unique_lock<std::mutex>& lock) noexcept;
  void wrote(std::uint64_t before) noexcept;
  write_status write_on(std::unique_lock<std::mutex>& lock) noexcept;
  asio::awaitable<void> write_rest(connection_ptr connection);
  bool update_can_send() noexcept;
  [[nodiscard]] bool update_bulk_room() noexcept;
  void room_changed() noexcept;
  [[nodiscard]] bool look_for_room(message_size what) noexcept;
  void replies_written(receive_window& counts, std::uint64_t bytes) noexcept;
  void wake_line() noexcept;
  void send_small(frame_kind kind, std::uint64_t call) noexcept;
  void give_credit() noexcept;
  [[nodiscard]] bool take_back(std::uint64_t number) noexcept;
  [[nodiscard]] call_progress abandon_call(std::uint64_t call, std::uint64_t number) noexcept;
  template <class Tell>
  void each_service(Tell&& tell) noexcept;

  // connections
  void begin_connecting() noexcept;
  [[nodiscard]] bool is_helped(const any_connection& c, const asio::io_context& at) const noexcept;
  void begin_reading(connection_ptr connection);
  void fail_pending(const error& why) noexcept;
  void finish_loss();

  // bulk
  class bulk_sink;
  void write_bulk() noexcept;
  asio::awaitable<void> write_bulk_rest(connection_ptr connection);
  [[nodiscard]] bool goes_as_bulk(const frame& f, bool& connect) noexcept;
  asio::awaitable<void> read_bulk_loop(connection_ptr connection);
  void read_bulk(any_connection* from, bulk_sink& sink);
  [[nodiscard]] expected<void> bulk_arrived(bulk_sink& sink);
  [[nodiscard]] expected<void> await_bulk(bulk_head&& head);
  [[nodiscard]] expected<void> join_bulk();
  [[nodiscard]] expected<void> whole(bulk_head&& head, bulk_body&& body);
  [[nodiscard]] expected<void> hold(arrived_frame&& came);
  [[nodiscard]] expected<void> release_held();
  void read_last_bulk() noexcept;
  [[nodiscard]] bool help_bulk(error& why);
  [[nodiscard]] bool read_bulk_at_once(any_connection& from, bulk_sink& sink, int most, error& why);
  void drop_bulk() noexcept;
  void bulk_broke(error why);

  // reading
  [[nodiscard]] intrusive_ptr<given_memory> given_memory_for(frame_kind k, const frame& head);
  [[nodiscard]] error over_budget(std::uint64_t size, const char* of_what) const;
  asio::awaitable<void> read_loop(connection_ptr connection);
  void read_some(any_connection* from);
  expected<void> handle_arrived();
  expected<void> look_over(const std::vector<arrived_frame>& batch);
  [[nodiscard]] static bool gives_credit(frame_kind k) noexcept {
    return is_answer(k) || k == frame_kind::window;
  }
  expected<void> take_credit(const std::vector<arrived_frame>& batch);
  expected<void> handle(arrived_frame&& came);
  expected<void> to_worker(arrived_frame&& came);
  expected<void> service_frame(arrived_frame&& came);
  [[nodiscard]] expected<void> admit(const frame& f);
  expected<void> tell_readers(incoming_message& m);
  void reply_arrived(incoming_message&& m);
  void watch_stalls();

  // serving
  expected<void> handle_request(arrived_frame&& came);
  void dispatch(const intrusive_ptr<served_request>& call);
  void submit_plain(intrusive_ptr<served_request> call) noexcept;
  void serve(const intrusive_ptr<served_request>& call);
  void serve_here(const intrusive_ptr<served_request>& call) noexcept;
  void fail(const intrusive_ptr<served_request>& call) noexcept;
  /// Under the serving lock: as the peer takes its replies.
  [[nodiscard]] bool may_begin() const noexcept {
    return granted_.may_begin() && bulk_granted_.may_begin();
  }
  enum class order : std::uint8_t { none, of_arrival, released };
  [[nodiscard]] bool begin(const intrusive_ptr<served_request>& call, order how) noexcept;
  [[nodiscard]] bool begins_at_once(const served_request& call) const noexcept;
  void leave_window(served_request& call, std::unique_lock<std::mutex>& lock) noexcept;
  void no_longer_served(std::uint64_t call) noexcept;
  void stop_throttling() noexcept {
    const std::lock_guard lock(serving_mutex_);
    throttling_off_ = true;
  }
  void release_soon() noexcept;
  void release_throttled();
  void wait_for_object(const intrusive_ptr<served_request>& call);
  void fail_with_object(const intrusive_ptr<served_request>& call,
                        const call_target& target) noexcept;
  void cancel_served(std::uint64_t call);

  mutable std::mutex mutex_;  // guards the next group
  pairing pairing_;
  asio::io_context* io_;
  bool helped_ = false;  // the helper reads it, too
  outbox outbox_;
  bool writing_ = false;  // write_rest is under way
  connection_ptr connection_;
  error reason_;  // why it is down, or why the last try to connect failed
  unsigned tries_ = 0;
  std::uint64_t unsent_from_ = 0;  // of a lost link: frames from here on were not begun
  bool was_up_ = false;
  send_window window_, bulk_window_;
  signs_of_life life_;
  bulk_out bulk_out_;
  connection_ptr bulk_connection_;  // the peer's
  bool bulk_reserved_ = false;

  // Guards the next five. Taken under `mutex_` too, never the other way round: who reads requests
  // does not wait for who writes.
  std::mutex serving_mutex_;
  receive_window granted_, bulk_granted_;
  served_calls<served_request> served_;
  std::deque<intrusive_ptr<served_request>> throttled_;  // wait until replies are written
  bool throttling_off_ = false;  // the link is down: no request waits any more

  /// Calls of one peer that wait for objects; more are refused with resource_exhausted.
  static constexpr std::size_t most_waiting_calls = 65536;
  std::atomic<std::size_t> for_objects_{0};
  std::atomic<std::uint64_t> last_wait_{0};
  std::mutex waits_mutex_;  // guards the next two; nothing is called under it
  std::map<std::uint64_t, intrusive_ptr<object_wait>> unwatched_;  // the worker's thread is busy
  bool watch_asked_ = false;
  std::atomic<std::size_t> forwards_pending_{0};  // requests that wait to; as many

  std::atomic<bool> dead_{false};       // nothing more is read
  std::atomic<bool> can_send_{true};    // for a request; written under the lock
  std::atomic<bool> bulk_room_{true};   // likewise, for large tensors
  std::atomic<bool> its_turn_{false};   // who has waited for room sends next, whoever waits behind
  std::atomic<bool> bulk_turn_{false};  // likewise
  std::atomic<bool> bulk_refused_{false};  // of a post: who waits for room then waits for that
  std::atomic<bool> has_bulk_{false};      // to write; written under the lock
  std::atomic<bool> releasing_{false};     // release_throttled is on its way
  std::atomic<bool> waking_{false};        // who wakes the line is
  std::atomic<std::uint64_t> received_{0};
  std::atomic<std::uint64_t> written_{0};
  std::atomic<bool> peer_busy_{false};  // its reading thread, by its own word
  // Calls that were sent and not answered, also those that nobody waits for any more; less the
  // answers that were read and wait for the worker's thread.
  std::atomic<std::int64_t> answers_due_{0};
  std::atomic<std::size_t> controls_{0};  // control frames that were read and wait for it
  given_answers given_;

  const intrusive_ptr<memory_budget> budget_;  // of received tensors and arguments of coroutines
  // Held by the thread that reads, and handles what it has read: the connection's own, or the
  // helper. Guards the next four. Before all other locks.
  std::mutex reading_mutex_;
  connection_ptr shared_;  // which any thread may read, while it does
  std::vector<arrived_frame> arrived_;
  time_point arrived_at_{};               // the batch under way
  std::vector<std::uint64_t> cancelled_;  // by what came together, sorted
  std::atomic<bool> partial_{false};      // a frame has begun; changed under that lock
  std::atomic<std::uint64_t> progress_{0};
  bulk_in bulk_in_;
  std::unique_ptr<timer> stall_;     // of the connection's thread
  std::unique_ptr<timer> retry_;     // of the front thread
  std::unique_ptr<timer> bulk_end_;  // likewise

  // The worker's thread:
  pending_calls pending_;
  waiting_line line_, bulk_line_;
  std::optional<error> calls_over_;  // why no call waits for room any more
  bool lost_ = false;
  std::uint64_t given_up_ = 0;  // calls that nobody waits for any more, whose answers may come
};

}  // namespace weft::engine
