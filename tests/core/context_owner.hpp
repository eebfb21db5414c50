// SPDX-License-Identifier: BSL-1.0
// A worker as coroutines on its io_context see it, of the test's own.
#pragma once

#include <weft/core/detail/context_owner.hpp>

#include <asio/io_context.hpp>

namespace weft::testing {

/// Lives on `io` while it lives.
class owner_in_a_test : public detail::context_owner {
 public:
  explicit owner_in_a_test(asio::io_context& io)
      : here_(asio::use_service<detail::context_owners>(io)) {
    here_.enter(*this);
  }
  owner_in_a_test(const owner_in_a_test&) = delete;
  owner_in_a_test& operator=(const owner_in_a_test&) = delete;

 protected:
  ~owner_in_a_test() { here_.leave(*this); }

 private:
  detail::context_owners& here_;
};

}  // namespace weft::testing
