// SPDX-License-Identifier: BSL-1.0
// A worker as coroutines on its io_context see it, of the test's own.
#pragma once

#include <weft/core/detail/home.hpp>

#include <asio/io_context.hpp>

namespace weft::testing {

/// Lives on `io` while it lives.
class home_of_a_test : public detail::home {
 public:
  explicit home_of_a_test(asio::io_context& io) : here_(asio::use_service<detail::homes>(io)) {
    here_.enter(*this);
  }
  home_of_a_test(const home_of_a_test&) = delete;
  home_of_a_test& operator=(const home_of_a_test&) = delete;

 protected:
  ~home_of_a_test() { here_.leave(*this); }

 private:
  detail::homes& here_;
};

}  // namespace weft::testing
