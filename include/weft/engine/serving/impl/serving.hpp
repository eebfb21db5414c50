// SPDX-License-Identifier: BSL-1.0
// Bodies of ../serving.hpp and served_request.hpp.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/detail/what_of.hpp>
#include <weft/engine/serving/link_host.hpp>
#include <weft/engine/serving/request_source.hpp>
#include <weft/engine/serving/serving.hpp>
#include <weft/rpc/detail/caught.hpp>
#include <weft/wire/error_codec.hpp>

#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace weft::engine {

inline served_request::~served_request() {
  done();
  if (served || listed()) from_->forget(*this);  // it was dropped
}

inline void served_request::done() noexcept {
  if (std::exchange(done_, true)) return;
  from_->requests.finished.fetch_add(1);
  if (fate_.exchange(fate::runs) != fate::given_up) count_post(!accounted);
}

inline void served_request::give_up() noexcept {
  fate before = fate::open;
  if (fate_.compare_exchange_strong(before, fate::given_up)) count_post(true);
}
inline void served_request::cancel() {
  give_up();
  expired();
}

inline void served_request::count_post(bool cut) noexcept {
  if (!is_post()) return;
  if (cut) from_->requests.cut.fetch_add(1);
  from_->requests.ended.fetch_add(1);
}

inline void serving::evaluate(served_request& call) {
  const intrusive_ptr<const call_scope> self(&call);
  const scope_guard guard(&call);
  if (call.failure) {
    // It cannot run.
  } else if (!call.may_run()) {
    call.failure = error(errc::cancelled, "the caller gave up before the function began",
                         call_progress::not_executed, origin::remote_runtime);
  } else if (too_late(call)) {
    call.failure = error(errc::timed_out, "the deadline passed before the function began",
                         call_progress::not_executed, origin::remote_runtime);
  } else {
    try {
      call.function->execute(call);
    } catch (...) {
      fail_from_exception(call);
    }
  }
  finish(call);
}

inline asio::awaitable<void> serving::serve(intrusive_ptr<served_request> call) {
  try {
    co_await (call->forwarded ? forward(*call) : call->function->start(*call));
  } catch (...) {
    fail_from_exception(*call);
    // There may have been none for its frame.
    if (!call->runs && call->failure.ran() == call_progress::executed) {
      got_no_further(*call, call_progress::maybe_executed);
    }
  }
  finish(*call);
}

inline bool serving::too_late(const served_request& call) noexcept {
  return call.deadline && call.who.self().time().now() >= *call.deadline;
}

inline void serving::finish(served_request& call) noexcept {
  const struct done_at_the_end {
    served_request& call;
    ~done_at_the_end() { call.done(); }
  } later{call};
  request_source& peer = call.from();
  try {
    answer(call, peer);
  } catch (...) {  // the failure cannot be sent: silence would cost the caller its whole deadline
    peer.mark_down(caught_or_die(call.who.self(), call_progress::maybe_executed));
  }
}

inline void serving::answer(served_request& call, request_source& peer) {
  link_host& me = peer.self();
  auto* const keeper = call.in.record().find<result_keeper>();
  if (call.failure && keeper) keeper->fail(call.failure);
  if (call.is_post()) {
    call.accounted = call.failure != errc::cancelled;  // else it is told where its link is lost
    if (call.failure) {
      me.post_failed(call.in.header().function, call.function ? call.function->name : "",
                     call.who.rank(), call.failure);
    }
    return;
  }
  const auto send = [&](message&& m, const frame_header& header) {
    const auto queued = peer.queue(std::move(m), header);
    if (queued) keeper ? peer.flush_late() : peer.flush();  // nobody waits to hear of a kept one
    return queued;
  };
  frame_header header;
  header.call = call.call();
  if (!call.failure) {
    header.kind = frame_kind::reply;
    header.function = call.in.header().function;  // for who records it; credit travels there
    const auto sent = send(std::move(call.out), header);
    if (sent || peer.current_state() == weft::link::state::down) return;
    call.failure = sent.error().with([](error_detail& d) {
      d.ran = call_progress::executed;
      d.from = origin::remote_runtime;
    });
  }
  header.kind = frame_kind::failure;
  message m(me.settings().bounds);
  codec<error>::encode(m.payload(), call.failure);
  const auto sent = send(std::move(m), header);
  if (!sent && peer.current_state() != weft::link::state::down) throw rpc_error(sent.error());
}

inline void serving::fail_from_exception(served_request& call) noexcept {
  or_die([&] { describe_exception(call); });
}

inline void serving::refuse(served_request& call) noexcept {
  fail_from_exception(call);
  got_no_further(call, call_progress::not_executed);
  finish(call);
}

inline void serving::got_no_further(served_request& call, call_progress ran) noexcept {
  if (call.failure != errc::resource_exhausted) return;
  call.failure = call.failure.with([ran](error_detail& d) { d.ran = ran; });
}

inline void serving::describe_exception(served_request& call) {
  error& failure = call.failure;
  auto remote = [&](std::string type, std::string text) {
    auto story = make_intrusive<error_detail>();
    story->from = origin::remote_user;
    story->ran = call_progress::executed;
    story->text = std::move(text);
    story->remote_type = std::move(type);
    story->peer = call.who.self().name();
    failure =
        error(make_error_code(errc::remote_exception), intrusive_ptr<const error_detail>(story));
  };
  // A function of weft's may wait for what it needs, and does nothing before.
  const bool begun = call.reached != invocation::stage::arguments;
  const call_progress ran = begun ? call_progress::maybe_executed : call_progress::not_executed;
  // The caller's time is over, which its own timer may not have told it yet: what it gets must not
  // depend on which of the two it hears first.
  auto ran_out = [&] {
    if (!call.deadline || call.who.self().time().now() < *call.deadline) return false;
    failure = error(errc::timed_out,
                    begun ? "the deadline passed while the function ran"
                          : "the deadline passed before the function began",
                    ran, origin::remote_runtime);
    return true;
  };
  const auto aborted = [] {
    try {
      throw;
    } catch (const std::system_error& e) {
      return e.code() == asio::error::operation_aborted;
    } catch (...) {
      return false;
    }
  };
  if (call.reached != invocation::stage::function && !aborted()) {
    // A user's codec, or weft's: the function did not run, or it did.
    const call_progress known = begun ? call_progress::executed : call_progress::not_executed;
    failure = caught(call.who.self(), known).with([&](error_detail& d) {
      d.ran = known;
      d.from = origin::remote_runtime;
    });
    return;
  }
  try {
    throw;
  } catch (const rpc_error& e) {
    const error& inner = e.error();  // the function's own, or of a call that it made
    if ((inner != errc::timed_out && inner != errc::cancelled) || !ran_out()) {
      remote(type_name_of(e), inner.message());
      failure = failure.with([&](error_detail& d) {
        d.cause_code = inner.code();
        d.cause = inner.shared_detail();
      });
    }
  } catch (const std::system_error& e) {
    if (e.code() != asio::error::operation_aborted) {
      remote(type_name_of(e), detail::what_of(e));
    } else if (!ran_out()) {
      failure = error(errc::cancelled,
                      begun ? "the function was cancelled"
                            : "the caller gave up before the function began",
                      ran, origin::remote_runtime);
    }
  } catch (const std::bad_alloc&) {
    failure =
        error(errc::resource_exhausted, "the function could not allocate memory (std::bad_alloc)",
              call_progress::executed, origin::remote_user);
  } catch (const std::exception& e) {
    remote(type_name_of(e), call.who.self().in_words(e));
  } catch (...) {
    remote("unknown", "an exception that is not a std::exception");
  }
}

}  // namespace weft::engine
