// SPDX-License-Identifier: BSL-1.0
// The plain functions that run on a worker's pool right now, so that one that does not return can
// be named.
#pragma once

#include <weft/core/time.hpp>
#include <weft/engine/fwd.hpp>

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace weft::engine {

/// Any thread. Costs two short locks a function.
class running_functions {
 public:
  struct entry {
    std::string function;
    std::string caller;  ///< name of the worker that called it
    duration age{};
  };

  /// A function while it runs; lives on its thread's stack. What the names point to stays.
  class item {
   public:
    item(running_functions& all, std::string_view function, std::string_view caller,
         time_point begun)
        : all_(all), function_(function), caller_(caller), begun_(begun) {
      const std::lock_guard lock(all_.mutex_);
      next_ = all_.first_;
      if (next_) next_->previous_ = this;
      all_.first_ = this;
    }
    item(const item&) = delete;
    item& operator=(const item&) = delete;
    ~item() {
      const std::lock_guard lock(all_.mutex_);
      (previous_ ? previous_->next_ : all_.first_) = next_;
      if (next_) next_->previous_ = previous_;
    }

   private:
    friend class running_functions;
    running_functions& all_;
    const std::string_view function_;
    const std::string_view caller_;
    const time_point begun_;
    item* previous_ = nullptr;
    item* next_ = nullptr;
  };

  /// The oldest last.
  [[nodiscard]] std::vector<entry> list(time_point now) const {
    std::vector<entry> out;
    const std::lock_guard lock(mutex_);
    for (const item* i = first_; i; i = i->next_) {
      out.push_back({std::string(i->function_), std::string(i->caller_), now - i->begun_});
    }
    return out;
  }

 private:
  mutable std::mutex mutex_;
  item* first_ = nullptr;
};

}  // namespace weft::engine
