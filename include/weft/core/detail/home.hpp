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

/// A worker, as coroutines on its io_context see it.
class home {
 public:
  [[nodiscard]] virtual clock& time_here() const noexcept = 0;
  /// Runs it on the compute pool.
  virtual void submit(intrusive_ptr<pool_job> job) = 0;

 protected:
  ~home() = default;
};

/// The workers of one io_context; nearly always one.
class homes final : public asio::execution_context::service {
 public:
  using key_type = homes;
  WEFT_PROCESS_WIDE inline static asio::execution_context::id id;

  explicit homes(asio::execution_context& context) : service(context) {}
  void shutdown() override {}

  /// The first that entered and has not left; null: none. It leaves once its run is over, on the
  /// thread of the io_context, or when nobody runs that.
  [[nodiscard]] static home* of(asio::execution_context& context) {
    homes& all = asio::use_service<homes>(context);
    const std::lock_guard lock(all.mutex_);
    return all.homes_.empty() ? nullptr : all.homes_.front();
  }
  void enter(home& h) {
    const std::lock_guard lock(mutex_);
    homes_.push_back(&h);
  }
  void leave(const home& h) noexcept {
    const std::lock_guard lock(mutex_);
    homes_.erase(std::remove(homes_.begin(), homes_.end(), &h), homes_.end());
  }

 private:
  std::mutex mutex_;
  std::vector<home*> homes_;
};

}  // namespace weft::detail
