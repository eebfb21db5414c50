// SPDX-License-Identifier: BSL-1.0
// The shell around the wave: records messages, carries passes between workers, keeps contexts.
//
//   section of a request, reply or failure
//     {context 8, message 8 (0: no tensor with grad), count 4, workers 4 each}
//     workers: in replies and failures, those that joined the context below the call
//   frame of kind autograd   {length 4, what 1, ...}, `length` counting from `what`
//     what 0-6   a control message (messages.hpp), gradients as tensors of the frame
//     what 7     {context 8}: its creator releases it
//     what 8     {context 8, count 4, workers 4 each}: tells the creator who else joined, where no
//                reply could
//
//   creator                     participant                  participant below
//     request {context} ──────────► joins ── request ───────────► joins
//     ◄── reply {who joined} ───────┘ ◄── reply ──────────────────┘
//     release ────────────────────► forgets
//     release ────────────────────────────────────────────────────► forgets
//
// A context is created where `scope` runs and joined by whoever serves a call inside it; one-way
// calls (`post`) are neither recorded nor in the context. Message numbers count per context and
// sender, so a message is named by context, sender and number; receive nodes keep all three, and
// the section brings them. A call in a context that the callee knows to be over is answered with
// autograd_context_gone. Lock order: the service's, then one
// context's, then a link's. No user code and no destructor of the user's nodes runs under them.
#pragma once

#include <weft/autograd/ended_passes.hpp>
#include <weft/autograd/frame.hpp>
#include <weft/autograd/gradient_map.hpp>
#include <weft/autograd/nodes.hpp>
#include <weft/autograd/pass.hpp>
#include <weft/autograd/released_contexts.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/wire/detail/tensor_error.hpp>
#include <weft/wire/tensor.hpp>

#include <asio/awaitable.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace weft {

namespace autograd::detail {

/// Who waits for a pass that began here.
struct pass_waiter : ref_counted {
  ref<event> over = make_ref<event>();
  std::optional<aborted> failure;  // these two under the context's lock, before `over` is set
  error run_ended;
};

/// One context on one worker.
struct context_state final : ref_counted {
  context_state(context_id which, worker_rank made_by, worker_rank from)
      : id(which), creator(made_by), brought_by(from) {}
  const context_id id;
  const worker_rank creator;
  const worker_rank brought_by;  ///< whose call came first; the creator itself where it was made

  mutable std::mutex mutex;  // guards the rest
  bool released = false;
  error gone;       ///< autograd_context_gone and why, once it is released
  error spoiled;    ///< why a pass that succeeded could not be added, or that its creator is lost
  error run_ended;  ///< why nobody waits here any more, once the run has failed
  message_id last_message = 0;
  std::uint32_t last_pass = 0;
  send_table sends;
  std::set<worker_rank> joined;  ///< other workers that may have this context
  bool unreported = false;       ///< `joined` grew since the last reply
  ended_passes ended;            ///< of others' passes
  std::map<pass_id, std::shared_ptr<local_pass>> passes;
  std::map<pass_id, ref<pass_waiter>> waiters;
  gradient_map gradients;
  ref<event> pass_over;  ///< set when the next pass is over; made by who waits for that

  /// A pass has run here and its initiator may already say that it succeeded, or its sums are still
  /// being added. Under the lock.
  [[nodiscard]] bool settling() const {
    for (const auto& [which, pass] : passes) {
      const wave& plan = pass->plan();
      if (plan.phase() == wave_phase::ended) return true;
      if (plan.phase() == wave_phase::settled && !plan.is_initiator()) return true;
    }
    return false;
  }
  /// Throws if there are no gradients to be had. Under the lock.
  void check() const {
    if (released) throw rpc_error(gone);
    if (spoiled) throw rpc_error(spoiled);
  }
  /// The gradients as they are; `autograd_service::gradients` waits for what is on its way.
  [[nodiscard]] gradient_map snapshot() const {
    const std::lock_guard lock(mutex);
    return gradients;
  }
};

/// In the record of a message: what `dropped` takes back.
struct recorded_send final : part {
  ref<context_state> context;
  message_id message = 0;    ///< 0: no tensor with grad
  bool told_joined = false;  ///< the section says who joined
};

}  // namespace autograd::detail

namespace detail {
template <class T = void>
class live_autograd_service;
}

/// What contexts ask of their worker. Made by `detail::live_autograd_service`.
class autograd_service : public service {
 public:
  static constexpr service_slot slot = service_slot::autograd;
  using implementation = detail::live_autograd_service<>;
  using context_state = autograd::detail::context_state;

  // ── for autograd::context; awaitables on the worker's thread ──
  [[nodiscard]] virtual ref<context_state> open() = 0;
  /// Tells every worker that joined, and forgets the context here. By its creator.
  virtual void release(context_state& state) = 0;
  [[nodiscard]] virtual asio::awaitable<void> backward(ref<context_state> state,
                                                       std::vector<at::Tensor> roots,
                                                       std::vector<at::Tensor> gradients,
                                                       autograd::graph_retention retention,
                                                       std::optional<duration> limit) = 0;
  /// The gradients of this worker's leaves, with those of every pass whose `backward` has returned
  /// before the caller was told so: waits for passes that ran here until their outcome is known.
  /// Throws autograd_context_gone; timed_out at the scope's deadline or after the call deadline;
  /// cancelled; what ended the run.
  [[nodiscard]] virtual asio::awaitable<autograd::gradient_map>
  gradients(ref<context_state> state) = 0;
  /// The context of the running coroutine or function, if any; it may be released meanwhile.
  [[nodiscard]] static ref<context_state> current() {
    const auto here = this_scope();
    if (!here || !here->autograd) return nullptr;
    return ref<context_state>(
        const_cast<context_state*>(static_cast<const context_state*>(here->autograd.get())));
  }
  /// For tests: contexts known here, and their passes under way.
  [[nodiscard]] virtual std::size_t contexts() const = 0;
  [[nodiscard]] virtual std::size_t passes() const = 0;
  /// Frames sent: control messages, gradients, releases.
  [[nodiscard]] virtual std::uint64_t frames() const noexcept = 0;

  /// Bounds of what peers can make this worker keep.
  static constexpr std::size_t most_contexts = 65536;  // brought by one peer
  static constexpr std::size_t most_passes = 1024;     // under way, in one context
};

namespace detail {

/// A template only so that its bodies are compiled where a worker is made and nowhere else.
template <class T>
class live_autograd_service final : public autograd_service {
 public:
  explicit live_autograd_service(worker& me) : me_(me) { use_tensors<T>(); }

  [[nodiscard]] ref<context_state> open() override;
  void release(context_state& state) override;
  [[nodiscard]] asio::awaitable<void> backward(ref<context_state> state,
                                               std::vector<at::Tensor> roots,
                                               std::vector<at::Tensor> gradients,
                                               autograd::graph_retention retention,
                                               std::optional<duration> limit) override;
  [[nodiscard]] asio::awaitable<autograd::gradient_map>
  gradients(ref<context_state> state) override;
  [[nodiscard]] std::size_t contexts() const override;
  [[nodiscard]] std::size_t passes() const override;
  [[nodiscard]] std::uint64_t frames() const noexcept override { return frames_; }

  // ── service ──
  [[nodiscard]] bool owns(frame_kind kind) const noexcept override {
    return kind == frame_kind::autograd;
  }
  void attach(link& to, const frame_header& header, message& m) override;
  void dropped(link& to, parts& record) override;
  expected<void> arrive(link& from, incoming_message& m) override;
  expected<void> frame(link& from, incoming_message& m) override;
  void down(link& peer, const error& reason) override;
  void fail_waits(const error& why) override;
  [[nodiscard]] std::optional<std::string> in_words(const std::exception& e) const override {
    return words_of(e);
  }

 private:
  /// A worker and a pass's initiator are told that its part of the pass is refused, and why.
  struct refusal {
    std::uint32_t to = 0;
    autograd::pass_id pass;
    std::string text;
    bool initiator_too = true;  ///< false: the pass goes on here; whoever believes it, tells it
  };
  /// What memory lacked for: outputs of that pass from `next` on. Null: nothing.
  struct unfinished {
    std::shared_ptr<autograd::local_pass> pass;
    autograd::outputs out;
    std::size_t next = 0;
  };
  /// What a step leaves to be done without the lock.
  struct after {
    unfinished rest;
    /// Its pass is to be given up instead of that, for this reason.
    std::optional<std::string> give_up;
    std::vector<std::uint32_t> flush;
    std::vector<std::shared_ptr<autograd::local_pass>> run;
    std::vector<std::shared_ptr<autograd::local_pass>> destroy;
    std::vector<ref<event>> wake;
    std::optional<autograd::violation> violation;
    std::vector<refusal> refusals;
  };

  // contexts
  struct joining {
    ref<context_state> context;
    error refused;  ///< set: the call is, and its link stays
  };
  [[nodiscard]] ref<context_state> find(autograd::context_id id) const;
  [[nodiscard]] expected<joining> join(autograd::context_id id, std::uint32_t from);
  void forget(const ref<context_state>& state, const std::string& why);
  void send_release(std::uint32_t to, autograd::context_id id);
  void send_joined(autograd::context_id id, const std::vector<std::uint32_t>& joined);
  void add_joined(autograd::context_id id, const std::vector<std::uint32_t>& joined);
  [[nodiscard]] expected<void> read_section(link& from, incoming_message& m);
  [[nodiscard]] std::string absence(autograd::context_id id) const;
  [[nodiscard]] const std::string& name_of(std::uint32_t rank) const {
    return me_.members().members[rank].name;
  }

  // frames
  [[nodiscard]] error queue(std::uint32_t to, std::span<const std::byte> what,
                            const std::vector<at::Tensor>& tensors);
  void refuse(const refusal& what);
  [[nodiscard]] bool takes_refusals(std::uint32_t to);
  [[nodiscard]] expected<void> release_arrived(link& from, std::span<const std::byte> body);
  [[nodiscard]] expected<void> joined_arrived(link& from, std::span<const std::byte> body);
  [[nodiscard]] expected<void> control_arrived(link& from, const autograd::control& what,
                                               std::vector<at::Tensor> tensors,
                                               const error& lacking);
  [[nodiscard]] static bool commits_by_computing(const context_state& c, autograd::local_pass& pass,
                                                 const autograd::control_body& body);
  void hear(context_state& c, const std::shared_ptr<autograd::local_pass>& pass, std::uint32_t from,
            const autograd::control_body& body, std::vector<at::Tensor> tensors, after& todo);
  [[nodiscard]] static error no_sums() noexcept {
    return sure_error(errc::autograd_pass_aborted,
                      "the gradients of a pass could not be added up: std::bad_alloc",
                      execution::executed);
  }
  [[nodiscard]] bool computes(const ref<context_state>& c,
                              const std::shared_ptr<autograd::local_pass>& pass, std::uint32_t from,
                              const autograd::control_body& body);
  [[nodiscard]] expected<std::shared_ptr<autograd::local_pass>>
  admit(context_state& c, std::uint32_t from, const autograd::control& what, after& todo);

  // passes
  static constexpr const char* short_of_memory = "std::bad_alloc";  // fits a string as it is
  [[nodiscard]] static std::string caught_words() noexcept;
  template <class Make>
  void step(context_state& c, const std::shared_ptr<autograd::local_pass>& pass, after& todo,
            Make&& make) noexcept;
  void carry_on(context_state& c, after& todo) noexcept;
  void carry_out(context_state& c, const std::shared_ptr<autograd::local_pass>& pass,
                 std::size_t which, after& todo);
  void forsake(context_state& c, const unfinished& rest) noexcept;
  void bury(context_state& c, autograd::local_pass& pass) noexcept;
  void finish(const ref<context_state>& c, after todo) noexcept;
  void run(const ref<context_state>& c, const std::shared_ptr<autograd::local_pass>& pass) noexcept;
  [[nodiscard]] time_point deadline_of(std::optional<duration> limit) const;
  [[nodiscard]] rpc_error failure_of(const context_state& c, const autograd::aborted& why,
                                     execution if_lost) const;

  worker& me_;
  mutable std::mutex mutex_;  // guards the next group
  autograd::context_serial last_context_ = 0;
  std::map<autograd::context_id, ref<context_state>> contexts_;
  std::map<std::uint32_t, std::size_t> brought_;  // how many of them, by peer
  std::map<std::uint32_t, std::size_t> refused_;  // at least as many as wait to be written
  autograd::released_contexts released_;          // those of other creators
  error run_ended_;                               // set in contexts that are made after it
  std::atomic<std::uint64_t> frames_{0};
};

}  // namespace detail
}  // namespace weft

#include <weft/autograd/impl/service.hpp>
#include <weft/autograd/impl/service_backward.hpp>
#include <weft/autograd/impl/service_receive.hpp>
