// SPDX-License-Identifier: BSL-1.0
// What serves an invocation and can be told to stop.
#pragma once

namespace weft::engine {

class cancellable {
 public:
  virtual void cancel() = 0;

 protected:
  ~cancellable() = default;
};

}  // namespace weft::engine
