// SPDX-License-Identifier: BSL-1.0
// Functions of each tensor, on the compute pool.
#include <weft/run.hpp>
#include <weft/tensordict/on_pool.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>

#include <stdexcept>
#include <string>

namespace tensordict_on_pool {

using weft::tensordict;

TEST_CASE("tensordict on_pool: each tensor once, and an exception comes back") {
  const int status = weft::run<weft::inproc>(
      [](weft::worker&) -> asio::awaitable<void> {
        tensordict td({{"n", {{"y", at::ones({3})}}}});
        for (int i = 0; i < 40; ++i) td.set(std::to_string(i), at::full({i}, i));
        for (const std::size_t parts : {0U, 1U, 4U, 100U}) {
          const tensordict got =
              co_await weft::apply_on_pool(td, [](const at::Tensor& t) { return t + 1; }, parts);
          CHECK(got.size() == td.size());
          for (const auto& [key, t] : td.leaves()) CHECK(got.tensor(key).equal(t + 1));
        }
        std::string said;
        try {
          static_cast<void>(co_await weft::apply_on_pool(td, [](const at::Tensor& t) -> at::Tensor {
            if (t.numel() == 7) throw std::runtime_error("seven");
            return t;
          }));
        } catch (const std::runtime_error& e) {
          said = e.what();
        }
        CHECK(said == "seven");
        CHECK((co_await weft::apply_on_pool(tensordict(), [](const at::Tensor& t) {
                return t;
              })).is_empty());
      },
      weft::options{.workers = 1});
  CHECK(status == 0);
}

}  // namespace tensordict_on_pool
