// SPDX-License-Identifier: BSL-1.0
// Bodies of ../joined.hpp.
#pragma once

#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/detail/what_of.hpp>
#include <weft/engine/worker/joined.hpp>

#include <asio/steady_timer.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace weft::engine {

inline joined::joined(std::unique_ptr<runtime> life, asio::io_context* loop,
                      std::function<void(const error&)> said)
    : life_(std::move(life)),
      loop_(loop),
      loop_lives_(loop ? waiter_registry::of(*loop) : nullptr),
      said_(std::move(said)) {}

inline joined::~joined() {
  if (ends_threads_.joinable()) ends_threads_.join();
}

inline void joined::begin(membership all, random_source random, store_ptr store) {
  store_ = std::move(store);
  life_->join(std::move(all), std::move(random));
  using failure = std::shared_ptr<std::optional<std::string>>;
  auto until_left = [](intrusive_ptr<event> left, failure why) -> asio::awaitable<void> {
    co_await event::wait(std::move(left));
    if (*why) throw std::runtime_error(**why);
  };
  auto main_ = [until_left, left = left_, why = failure_](weft::worker&) {
    return until_left(left, why);
  };
  if (!loop_) return life_->start(main_);
  auto& here = asio::use_service<joined_here>(*loop_);
  here.keep(shared_from_this());
  keeps_loop_.emplace(loop_->get_executor());
  try {
    life_->start(main_, [this] { end_on_loop(); });
  } catch (...) {
    keeps_loop_.reset();
    here.forget(*this);
    throw;
  }
}

inline weft::worker& joined::worker() {
  if (!life_) throw rpc_error(errc::invalid_argument, "this worker's io_context is gone");
  return life_->worker();
}

// ── on a loop of its own ──

inline error joined::run() {
  run_for(duration::max());
  return end_->what;
}

inline bool joined::run_for(duration most) {
  if (loop_) {
    throw rpc_error(errc::invalid_argument,
                    "this worker runs on an io_context of yours: run that io_context");
  }
  if (end_->there->is_set()) return true;
  if (life_->worker().on_thread()) {
    throw rpc_error(errc::invalid_argument, "the loop of worker '" + life_->worker().name() +
                                                "' cannot be run from a handler on this loop");
  }
  struct counted {
    std::atomic<int>& n;
    explicit counted(std::atomic<int>& inside) : n(inside) { ++n; }
    ~counted() { --n; }
  } const inside(inside_);
  if (most == duration::max()) {
    life_->run_loop();
  } else if (!life_->run_loop_for(most)) {
    return false;
  }
  life_->end_threads("it is left behind, and weft frees nothing of its own that it can reach");
  conclude();
  return true;
}

// ── both ──

inline void joined::leave() {
  if (!said_so_.exchange(true)) left_->set();
}
inline void joined::fail(std::string why) {
  if (said_so_.exchange(true)) return;
  *failure_ = std::move(why);
  left_->set();
}

inline asio::awaitable<error> joined::ended() {
  return wait_for(end_, loop_ ? std::weak_ptr<joined>() : weak_from_this());
}

inline asio::awaitable<error> joined::wait_for(std::shared_ptr<outcome> end,
                                               std::weak_ptr<joined> of) {
  if (const auto own = of.lock(); own && own->life_->worker().on_thread()) {
    throw rpc_error(
        errc::invalid_argument,
        "do not wait for the end of the run on the worker's own loop: the loop ends with the run");
  }
  try {
    co_await event::wait(end->there);
  } catch (const std::system_error&) {
    throw rpc_error(errc::cancelled, "waiting for the end of a worker's run");
  }
  co_return end->what;
}

/// Once; `otherwise`: what the run ended with if it is not over.
inline void joined::conclude(std::optional<error> otherwise) noexcept {
  try {
    end_->what = otherwise && !life_->over() ? *otherwise : life_->result();
  } catch (const std::exception& e) {
    end_->what = error(errc::worker_failed, detail::what_of(e), call_progress::maybe_executed);
  } catch (...) {  // the user's, of no known type
    end_->what = error(errc::worker_failed, "something that is no std::exception was thrown",
                       call_progress::maybe_executed);
  }
  store_.reset();
  if (said_) or_die([this] { said_(end_->what); });
  end_->there->set();
}

inline void joined::abandon() noexcept {
  abandoned_.store(true);
  const auto fail = [](joined& self) {
    if (self.end_->there->is_set()) return self.loop_ ? self.free_when_alone(50) : void();
    if (self.life_) {
      self.life_->worker().shutdown(error(errc::cancelled, "its owner has destroyed it"));
    }
  };
  if (loop_) {
    on_loop(fail);
  } else if (inside_.load() > 0) {
    // It may come too late, and then goes with the loop: it does not hold what holds that.
    post_or_die(life_->worker().get_executor(), [weak = weak_from_this(), fail] {
      if (const auto self = weak.lock()) fail(*self);
    });
  }
}

// ── on a loop of the user's ──

inline void joined::on_loop(std::function<void(joined&)> what) {
  const auto guard = waiter_registry::guard_context(loop_lives_);
  if (!guard) return;
  post_or_die(*loop_, [self = shared_from_this(), what = std::move(what)] { what(*self); });
}

/// The run is over: its threads are waited for elsewhere, as the loop has other things to do.
inline void joined::end_on_loop() noexcept {
  const auto work = [this]() noexcept {
    life_->end_threads("it is left behind, and weft frees nothing of its own that it can reach");
    const auto guard = waiter_registry::guard_context(loop_lives_);
    if (!guard) return;
    post_or_die(*loop_, [self = shared_from_this()] {
      self->life_->drop_pool_work();
      self->conclude();
      self->keeps_loop_.reset();
      if (self->abandoned_.load()) self->free_when_alone(50);
    });
  };
  try {
    or_die([&] { ends_threads_ = std::thread(work); });
  } catch (const std::system_error&) {  // no thread to be had
    work();
  }
}

/// Once nothing refers to the worker any more: behind all that is ready now, and what that makes
/// ready. Tries for a second, as its handlers keep the loop busy; then it stays with the loop.
inline void joined::free_when_alone(int tries) {
  on_loop([tries](joined& first) {
    first.on_loop([tries](joined& self) {
      if (!self.life_) return;
      if (self.ends_threads_.joinable()) self.ends_threads_.join();
      self.life_->let_go_of_loop();
      if (self.life_->is_idle()) {
        self.life_.reset();
        asio::use_service<joined_here>(*self.loop_).forget(self);
      } else if (tries > 0) {
        const auto pause =
            std::make_shared<asio::steady_timer>(*self.loop_, std::chrono::milliseconds(20));
        pause->async_wait([pause, tries, one = self.shared_from_this()](asio::error_code ec) {
          if (!ec) or_die([&] { one->free_when_alone(tries - 1); });
        });
      }
    });
  });
}

inline void joined::loop_ends() noexcept {
  if (ends_threads_.joinable()) ends_threads_.join();
  if (life_) life_->let_go_of_loop();
}

inline void joined::loop_gone() noexcept {
  keeps_loop_.reset();
  if (!end_->there->is_set()) {
    conclude(error(errc::cancelled, "its io_context was destroyed before its run had ended",
                   call_progress::maybe_executed));
  }
  life_.reset();
}

inline joined_here::joined_here(asio::execution_context& loop)
    : asio::execution_context::service(loop) {
  // Those that workers use end after this one.
  auto& io = static_cast<asio::io_context&>(loop);
  const asio::steady_timer touch(io);
  static_cast<void>(waiter_registry::of(io));
  static_cast<void>(asio::use_service<weft::detail::context_owners>(io));
}

/// Before the loop destroys what waits in it: none of the workers' threads comes in its way, and
/// what is destroyed finds its worker. (Services end in the reverse order of their making, the
/// loop's own last.)
inline void joined_here::shutdown() {
  for (const std::shared_ptr<joined>& one : all_) one->loop_ends();
}

inline joined_here::~joined_here() {
  while (!all_.empty()) {
    all_.back()->loop_gone();
    all_.pop_back();
  }
}

inline void joined_here::keep(std::shared_ptr<joined> one) {
  const std::lock_guard lock(mutex_);
  all_.push_back(std::move(one));
}

inline void joined_here::forget(const joined& one) noexcept {
  std::shared_ptr<joined> last;  // dies outside of the lock
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(all_.begin(), all_.end(),
                               [&](const std::shared_ptr<joined>& j) { return j.get() == &one; });
  if (at == all_.end()) return;
  last = std::move(*at);
  all_.erase(at);
}

}  // namespace weft::engine
