// SPDX-License-Identifier: BSL-1.0
// Bodies of ../serving.hpp: calls whose object is a reference to one elsewhere. They go on
// there, as they came, and only this way, also where the caller could reach that object itself: so
// what was called first comes first.
//
//   caller ── request, deadline, gradients ─► owner of f's result, an rref<T> ─► owner of the T
//          ◄─ reply or failure, as it came ──                                 ◄─
#pragma once

#include <weft/engine/serving/request_source.hpp>
#include <weft/engine/serving/serving.hpp>
#include <weft/rref/detail/forwarding_address.hpp>
#include <weft/rref/impl/rref.hpp>
#include <weft/rref/section.hpp>
#include <weft/rref/service.hpp>
#include <weft/wire/detail/pass_on.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace weft::engine {

/// All that users' codecs wrote: its references and tensors have the same indices in both.
inline void pass_on(incoming_message& from, message& to) {
  to.same_payload(from);
  if (const auto* came = from.record().find<rref_handover>(); came && !came->references.empty()) {
    auto& goes = to.record().get<rref_handover>();
    for (std::size_t i = 0; i != came->references.size(); ++i) {
      if (goes.add(came->references[i]) == i) continue;
      throw rpc_error(errc::bad_arguments, "a message that hands a reference over twice");
    }
  }
  if (!from.section(section_kind::tensors)) return;
  if (!pass_tensors_on) weft::detail::no_tensors_known();
  pass_tensors_on(from, to);
}

class forwarded_body final : public request_body {
 public:
  forwarded_body(served_request& call, const intrusive_ptr<reference>& to,
                 const std::optional<rref_protocol::creation>& create) noexcept
      : call_(call), to_(to), create_(create) {}
  void was_sent() const noexcept override { call_.from().end_forward(call_); }
  void write(message& m) const override {
    const auto forwards = call_.in.record().find<rref_handover>()->forwards;
    if (forwards == rref_protocol::most_forwards) {
      throw rpc_error(errc::invalid_argument,
                      "the reference leads on from worker to worker more than " +
                          std::to_string(forwards) + " times; do references form a circle?");
    }
    prepare_reference{call_.who.self(), to_, create_}(m);
    m.record().get<rref_handover>().forwards = static_cast<std::uint8_t>(forwards + 1);
    pass_on(call_.in, m);
  }

 private:
  served_request& call_;
  const intrusive_ptr<reference>& to_;
  const std::optional<rref_protocol::creation>& create_;
};

/// What became of a call that went on, as its caller is told.
[[nodiscard]] inline error told_back(const served_request& call, const outgoing_call& c,
                                     const error& why) {
  const call_progress ran =
      why.ran() == call_progress::not_sent ? call_progress::not_executed : why.ran();
  const bool late = call.deadline && call.who.self().time().now() >= *call.deadline;
  // Whether its timer there or here rang first must not show.
  if (late && why == errc::cancelled) {
    return {errc::timed_out, "the deadline passed while the forwarded call was under way", ran,
            origin::remote_runtime};
  }
  // What was met here is this worker's, and not that of the one behind it.
  const bool met_here = why.ran() == call_progress::not_sent && why != errc::peer_died;
  // The caller of a post, who would say so itself, does not hear of it.
  return as_owner_loss(met_here ? why : c.to().describe(why, c)).with([ran](error_detail& d) {
    d.ran = ran;
    if (d.from == origin::local) d.from = origin::remote_runtime;
  });
}

/// A result that is to stay becomes a reference to where it stays, and what is called on that may
/// follow at once.
inline asio::awaitable<void> serving::forward(served_request& call) {
  weft::worker& me = call.who.self();
  const struct at_the_end {
    served_request& call;
    ~at_the_end() { call.from().end_forward(call); }
  } later{call};
  const intrusive_ptr<reference> to =
      forward_target(call.target->object.get(), call.target->type)->to;
  weft::link& next = me.link_to(to->id().owner);
  auto* keeper = call.in.record().find<result_keeper>();
  call.runs = true;
  call.from().begin_forward(call);

  std::optional<rref_protocol::creation> create;
  std::optional<creation_follower> follow;
  if (keeper) {
    auto fresh = me.use<weft::rref_service>().create(next.rank());
    if (!fresh) throw rpc_error(as_owner_loss(next.reason()));
    create = fresh->what;
    unbegun_creation made(me, call.function->name, fresh->reference);
    keeper->keep(std::make_shared<forwarding_address>(fresh->reference),
                 type_key<forwarding_address>);
    follow.emplace(creation_follower{me, made.begin()});
  }
  // Its time is that of the request: it may have none.
  outgoing_call c(next, *call.function, detail::call_settings{no_limit});
  const forwarded_body body(call, to, create);
  call.reached = invocation::stage::function;
  call_result r;
  try {
    r = co_await next.send_later(c, body);
  } catch (...) {  // as it was cancelled
    r.failure = next.caught(c, call_progress::not_sent);
  }
  if (follow) {
    (*follow)(r, c);  // whoever uses it hears what became of it
  } else if (r.reply) {
    call.reached = invocation::stage::result;
    pass_on(*r.reply, call.out);
  } else {
    call.failure = told_back(call, c, r.failure);
  }
}

}  // namespace weft::engine
