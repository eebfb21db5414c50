// SPDX-License-Identifier: BSL-1.0
// What a coroutine finds on the io_context that it runs on: the clock and the compute pool of the
// worker that lives there.
#pragma once

#include <weft/config.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/core/time.hpp>

#include <asio/execution_context.hpp>

#include <algorithm>
#include <mutex>
#include <vector>

namespace weft::detail {

/// Work for a compute pool. Dropped without being run where the pool ends before.
class pool_job : public ref_counted {
 public:
  virtual void run() noexcept = 0;
};

/// The worker that runs an io_context, as coroutines there see it.
class context_owner {
 public:
  [[nodiscard]] virtual clock& time_here() const noexcept = 0;
  /// Runs it on the compute pool.
  virtual void submit(intrusive_ptr<pool_job> job) = 0;

 protected:
  ~context_owner() = default;
};

/// The workers of one io_context; nearly always one.
class context_owners final : public asio::execution_context::service {
 public:
  using key_type = context_owners;
  WEFT_PROCESS_WIDE inline static asio::execution_context::id id;

  explicit context_owners(asio::execution_context& context) : service(context) {}
  void shutdown() override {}

  /// The first that entered and has not left; null: none. It leaves once its run is over, on the
  /// thread of the io_context, or when nobody runs that.
  [[nodiscard]] static context_owner* of(asio::execution_context& context) {
    context_owners& all = asio::use_service<context_owners>(context);
    const std::lock_guard lock(all.mutex_);
    return all.owners_.empty() ? nullptr : all.owners_.front();
  }
  void enter(context_owner& h) {
    const std::lock_guard lock(mutex_);
    owners_.push_back(&h);
  }
  void leave(const context_owner& h) noexcept {
    const std::lock_guard lock(mutex_);
    owners_.erase(std::remove(owners_.begin(), owners_.end(), &h), owners_.end());
  }

 private:
  std::mutex mutex_;
  std::vector<context_owner*> owners_;
};

}  // namespace weft::detail
