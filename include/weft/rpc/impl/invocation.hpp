// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/invocation.hpp: running a function and replying.
#pragma once

#include <weft/core/detail/insist.hpp>
#include <weft/core/event.hpp>
#include <weft/rpc/detail/caught.hpp>
#include <weft/rpc/invocation.hpp>
#include <weft/rpc/link.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/wire/error_codec.hpp>

namespace weft::detail {

/// How an invocation is served. A template only so that it is compiled where a worker is made.
template <class T = void>
struct serving {
  /// Runs a light or plain function on this thread, then replies.
  static void run(invocation& call);
  /// Runs a coroutine function; the reply is sent when it ends.
  static asio::awaitable<void> serve(ref<invocation> call);
  /// Sends the reply or failure.
  static void finish(invocation& call) noexcept;
  /// Its deadline has passed.
  [[nodiscard]] static bool too_late(const invocation& call) noexcept;
  /// Turns the exception in flight into the call's failure.
  static void fail_from_exception(invocation& call) noexcept;

 private:
  static void answer(invocation& call, link& peer);
  static void describe_exception(invocation& call);
};

template <class T>
void serving<T>::run(invocation& call) {
  const ref<const scope> self(&call);
  const scope_guard guard(&call);
  if (call.failure) {
    // It cannot run.
  } else if (call.given_up.load(std::memory_order_relaxed)) {
    call.failure = sure_error(errc::cancelled, "the caller gave up before the function began",
                              execution::not_executed, origin::remote_runtime);
  } else if (too_late(call)) {
    call.failure = sure_error(errc::timed_out, "the deadline passed before the function began",
                              execution::not_executed, origin::remote_runtime);
  } else {
    try {
      call.function->run(call);
    } catch (...) {
      fail_from_exception(call);
    }
  }
  finish(call);
}

template <class T>
asio::awaitable<void> serving<T>::serve(ref<invocation> call) {
  try {
    co_await call->function->start(*call);
  } catch (...) {
    fail_from_exception(*call);
  }
  finish(*call);
}

template <class T>
bool serving<T>::too_late(const invocation& call) noexcept {
  return call.deadline && call.who.self().time().now() >= *call.deadline;
}

template <class T>
void serving<T>::finish(invocation& call) noexcept {
  const struct done_at_the_end {
    invocation& call;
    ~done_at_the_end() { call.done(); }
  } later{call};
  link& peer = call.from();
  try {
    answer(call, peer);
  } catch (...) {
    // Nobody can be told for want of memory: silence would cost the caller its whole deadline.
    peer.lose(caught(call.who.self(), execution::maybe_executed));
  }
}

template <class T>
void serving<T>::answer(invocation& call, link& peer) {
  worker& me = call.who.self();
  if (call.failure) {
    if (auto* keeper = call.in.record().find<result_keeper>()) keeper->fail(call.failure);
  }
  if ((call.in.header().flags & flag_no_reply) != 0) {
    if (call.failure) {
      me.post_failed(call.in.header().function, call.function ? call.function->name : "",
                     call.who.rank(), call.failure);
    }
    return;
  }
  const auto send = [&](message&& m, const frame_header& header) {
    const auto queued = peer.queue(std::move(m), header);
    if (queued && (call.in.header().flags & flag_unhurried) != 0) {
      peer.flush_late();
    } else if (queued) {
      peer.flush();
    }
    return queued;
  };
  frame_header header;
  header.call = call.call();
  if (!call.failure) {
    header.kind = frame_kind::reply;
    const auto sent = send(std::move(call.out), header);
    if (sent || peer.now() == link::state::down) return;
    call.failure = with_if_possible(sent.error(), [](error_detail& d) {
      d.ran = execution::executed;
      d.from = origin::remote_runtime;
    });
  }
  header.kind = frame_kind::failure;
  insist([&] {
    message m(me.settings().bounds);
    codec<error>::encode(m.payload(), call.failure);
    const auto sent = send(std::move(m), header);
    if (sent || peer.now() == link::state::down) return;
    if (sent.error() == errc::resource_exhausted) throw std::bad_alloc();
    throw rpc_error(sent.error());
  });
}

template <class T>
void serving<T>::fail_from_exception(invocation& call) noexcept {
  try {
    describe_exception(call);
  } catch (...) {  // no memory for the words
    call.failure = bare_error(errc::remote_exception, execution::executed);
  }
}

template <class T>
void serving<T>::describe_exception(invocation& call) {
  error& failure = call.failure;
  auto remote = [&](std::string type, std::string text) {
    auto story = make_ref<error_detail>();
    story->from = origin::remote_user;
    story->ran = execution::executed;
    story->text = std::move(text);
    story->remote_type = std::move(type);
    story->peer = call.who.self().name();
    failure = error(make_error_code(errc::remote_exception), ref<const error_detail>(story));
  };
  // The caller's time is over, which its own timer may not have told it yet: what it gets must not
  // depend on which of the two it hears first.
  auto ran_out = [&] {
    if (!call.deadline || call.who.self().time().now() < *call.deadline) return false;
    failure = error(errc::timed_out, "the deadline passed while the function ran",
                    execution::maybe_executed, origin::remote_runtime);
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
  if (call.now != invocation::stage::function && !aborted()) {
    // A user's codec, or weft's: the function did not run, or it did.
    const bool before = call.now == invocation::stage::arguments;
    const execution ran = before ? execution::not_executed : execution::executed;
    failure = with_if_possible(caught(call.who.self(), ran), [&](error_detail& d) {
      d.ran = ran;
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
      remote(type_name_of(e), e.what());
    } else if (!ran_out()) {
      failure = error(errc::cancelled, "the function was cancelled", execution::maybe_executed,
                      origin::remote_runtime);
    }
  } catch (const std::bad_alloc&) {
    failure =
        sure_error(errc::resource_exhausted, "no memory for what the function did (std::bad_alloc)",
                   execution::executed, origin::remote_user);
  } catch (const std::exception& e) {
    remote(type_name_of(e), call.who.self().in_words(e));
  } catch (...) {
    remote("unknown", "an exception that is not a std::exception");
  }
}

}  // namespace weft::detail
