// SPDX-License-Identifier: BSL-1.0
// The shell around the wave: records messages, carries passes between workers, keeps contexts.
//
//   section of a request, reply or failure
//     {context 8, message 8 (0: no tensor with grad), mode 1, count 4, workers 4 each}
//     workers: in replies and failures, those that joined the context below the call
//   frame of kind autograd   {length 4, what 1, ...}, `length` counting from `what`
//     what 0-8   a control message (messages.hpp), gradients as tensors of the frame; if these have
//                a history, such a section, too, as they are a recorded message
//     what 16    {context 8}: its creator releases it
//     what 17    {context 8, count 4, workers 4 each}: tells the creator who else joined, where no
//                reply could
//     what 18    {context 8, count 4, steps 8 each}: a pass succeeded that the receiver took no
//                part in, and steps of optimizers there ride on its end
//
//   creator                     participant                  participant below
//     request {context} ──────────► joins ── request ───────────► joins
//     ◄── reply {who joined} ───────┘ ◄── reply ──────────────────┘
//     release ────────────────────► forgets
//     release ────────────────────────────────────────────────────► forgets
//
// A context is created where `with_context` runs and joined by whoever serves a call inside it;
// one-way calls (`post`) are neither recorded nor in the context. Message numbers count per context
// and sender, so a message is named by context, sender and number; receive nodes keep all three,
// and the section brings them. A call in a context that the callee knows to be over is answered
// with autograd_context_gone. Lock order: the service's, then one context's, then a link's. No user
// code and no destructor of the user's nodes runs under them.
#pragma once

#include <weft/autograd/frame.hpp>
#include <weft/autograd/nodes.hpp>
#include <weft/autograd/pass.hpp>
#include <weft/autograd/released_contexts.hpp>
#include <weft/autograd/service.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/services/context_state.hpp>
#include <weft/engine/worker/worker.hpp>

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

namespace weft::engine {

/// The one implementation of `weft::autograd_service`.
class autograd_service final : public weft::autograd_service {
 public:
  explicit autograd_service(engine::worker& me) : me_(me) {}

  [[nodiscard]] context_ptr open(autograd::mode how) override;
  void release(const context_ptr& state) override;
  [[nodiscard]] asio::awaitable<std::vector<at::Tensor>>
  backward(context_ptr context, autograd::backward_request what) override;
  [[nodiscard]] asio::awaitable<autograd::gradient_map> gradients(context_ptr context) override;
  [[nodiscard]] error ended(const context_ptr& context) const override;
  [[nodiscard]] std::optional<autograd::gradient_map>
  gradients_now(const context_ptr& context) const override;
  [[nodiscard]] std::uint64_t follow(std::weak_ptr<autograd::pass_follower> who) override;
  [[nodiscard]] std::size_t contexts() const override;
  [[nodiscard]] std::size_t passes() const override;
  [[nodiscard]] std::uint64_t frames() const noexcept override { return frames_; }

  // ── service ──
  [[nodiscard]] bool owns(frame_kind kind) const noexcept override {
    return kind == frame_kind::autograd;
  }
  void attach(weft::link& to, const frame_header& header, message& m) override;
  void dropped(weft::link& to, message_extensions& record) override;
  expected<void> arrive(weft::link& from, incoming_message& m) override;
  expected<void> frame(weft::link& from, incoming_message& m) override;
  void down(weft::link& peer, const error& reason) override;
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
  using prepared_steps = std::vector<std::unique_ptr<autograd::prepared_step>>;
  /// What a step leaves to be done without the lock.
  struct effects {
    std::vector<std::uint32_t> flush;
    std::vector<std::shared_ptr<autograd::local_pass>> run;
    std::vector<std::shared_ptr<autograd::local_pass>> walk;
    std::vector<std::shared_ptr<autograd::local_pass>> destroy;
    std::vector<std::shared_ptr<torch::autograd::Node>> nodes;  // to be destroyed, too
    std::vector<intrusive_ptr<event>> wake;
    std::optional<autograd::wave_output::violation> violation;
    std::vector<refusal> refusals;
    std::vector<std::pair<std::uint32_t, std::vector<std::byte>>> answers;  // to who asked
    prepared_steps steps;  // with these gradients, or without, and why
    autograd::gradient_map gradients;
    error lost;
    std::string release;  // that has waited for steps
  };

  // contexts
  struct joining {
    intrusive_ptr<context_state> context;
    error refused;  ///< set: the call is, and its link stays
  };
  [[nodiscard]] intrusive_ptr<context_state> find(autograd::context_id id) const;
  [[nodiscard]] expected<joining> join(autograd::context_id id, autograd::mode how,
                                       std::uint32_t from);
  void forget(const intrusive_ptr<context_state>& state, const std::string& why);
  void forget_behind_steps(const intrusive_ptr<context_state>& state, const std::string& why);
  void send_release(std::uint32_t to, autograd::context_id id);
  void send_joined(autograd::context_id id, const std::vector<std::uint32_t>& joined);
  void add_joined(autograd::context_id id, const std::vector<std::uint32_t>& joined);
  [[nodiscard]] std::string absence(autograd::context_id id) const;
  [[nodiscard]] const std::string& name_of(std::uint32_t rank) const {
    return me_.members().members[rank].name;
  }

  // frames
  [[nodiscard]] error queue(std::uint32_t to, std::span<const std::byte> what,
                            const std::vector<at::Tensor>& tensors,
                            std::span<const std::byte> section = {});
  [[nodiscard]] error queue_gradients(const intrusive_ptr<context_state>& c, std::uint32_t to,
                                      const autograd::control& what,
                                      const std::vector<at::Tensor>& tensors);
  void refuse(const refusal& what);
  [[nodiscard]] bool takes_refusals(std::uint32_t to);
  [[nodiscard]] expected<void> release_arrived(weft::link& from, std::span<const std::byte> body);
  [[nodiscard]] expected<void> joined_arrived(weft::link& from, std::span<const std::byte> body);
  [[nodiscard]] expected<void> control_arrived(weft::link& from, const autograd::control& what,
                                               std::vector<at::Tensor> tensors,
                                               const error& allocation_error);
  void keep_plan(context_state& c, autograd::local_pass& pass) const;
  [[nodiscard]] static std::shared_ptr<const autograd::kept_plan>
  find_plan(context_state& c, std::uint32_t initiator, std::uint32_t number);
  [[nodiscard]] std::shared_ptr<autograd::local_pass>
  new_pass(context_state& c, const autograd::pass_id& id, const std::vector<autograd::root>& roots,
           autograd::pass_settings settings, effects& todo);
  void prepare(const std::vector<std::uint64_t>& followers, prepared_steps& into) const;
  static void run_waiting_steps(context_state& c, effects& todo);
  [[nodiscard]] expected<void> steps_arrived(weft::link& from, std::span<const std::byte> body);
  void look_for_lost(context_state& c, const std::shared_ptr<autograd::local_pass>& pass,
                     effects& todo);
  [[nodiscard]] static bool commits_by_computing(const context_state& c, autograd::local_pass& pass,
                                                 worker_rank from,
                                                 const autograd::control_body& body);
  void hear(const intrusive_ptr<context_state>& c,
            const std::shared_ptr<autograd::local_pass>& pass, const weft::link& from,
            const autograd::control_body& body, std::vector<at::Tensor> tensors,
            const error& allocation_error, effects& todo);
  /// Of a pass that may have succeeded: what it came to here is neither added nor forgotten.
  [[nodiscard]] static error outcome_unknown(const weft::link& initiator) {
    return {errc::autograd_pass_aborted,
            "worker '" + initiator.name() +
                "' began a backward pass and was lost before it said whether the pass succeeded",
            call_progress::maybe_executed};
  }
  [[nodiscard]] expected<std::shared_ptr<autograd::local_pass>>
  admit(context_state& c, std::uint32_t from, const autograd::control& what, effects& todo);

  // passes
  void step(context_state& c, const std::shared_ptr<autograd::local_pass>& pass,
            autograd::outputs out, effects& todo);
  template <class Make>
  void whole_step(const intrusive_ptr<context_state>& c,
                  const std::shared_ptr<autograd::local_pass>& pass, Make&& make);
  [[nodiscard]] autograd::outputs apply(context_state& c,
                                        const std::shared_ptr<autograd::local_pass>& pass,
                                        autograd::wave_output::any& one, effects& todo);
  void run_effects(const intrusive_ptr<context_state>& c, effects todo);
  void evaluate(const intrusive_ptr<context_state>& c,
                const std::shared_ptr<autograd::local_pass>& pass);
  void ask_for_missing(const intrusive_ptr<context_state>& c,
                       const std::shared_ptr<autograd::local_pass>& pass);
  [[nodiscard]] std::string words_of_message(const context_state& c,
                                             autograd::message_id message) const;
  [[nodiscard]] std::string missing_here(const context_state& c,
                                         const autograd::local_pass& pass) const;
  [[nodiscard]] std::string missing_anywhere(const context_state& c,
                                             const autograd::local_pass& pass,
                                             const pass_waiter& heard) const;
  [[nodiscard]] time_point deadline_of(std::optional<duration> limit) const;
  [[nodiscard]] rpc_error failure_of(const context_state& c,
                                     const autograd::wave_output::aborted& why,
                                     call_progress if_lost) const;

  engine::worker& me_;
  mutable std::mutex mutex_;  // guards the next group
  autograd::context_serial last_context_ = 0;
  std::map<autograd::context_id, intrusive_ptr<context_state>> contexts_;
  std::map<std::uint32_t, std::size_t> brought_;  // how many of them, by peer
  std::map<std::uint32_t, std::size_t> refused_;  // at least as many as wait to be written
  autograd::released_contexts released_;          // those of other creators
  error run_ended_;                               // set in contexts that are made after it
  mutable std::mutex followers_mutex_;            // taken under others; guards the next two
  std::map<std::uint64_t, std::weak_ptr<autograd::pass_follower>> followers_;
  std::uint64_t last_follower_ = 0;
  std::atomic<std::uint64_t> frames_{0};
};

}  // namespace weft::engine

#include <weft/engine/services/impl/autograd_backward.hpp>
#include <weft/engine/services/impl/autograd_plans.hpp>
#include <weft/engine/services/impl/autograd_receive.hpp>
#include <weft/engine/services/impl/autograd_service.hpp>
