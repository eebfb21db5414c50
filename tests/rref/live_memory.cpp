// SPDX-License-Identifier: BSL-1.0
// Tensors arrive in memory of their own, also inside one process and at oneself.
#include <weft/core/gather.hpp>
#include <weft/wire/tensor_copies.hpp>

#include <ATen/ATen.h>

#include <rref/workers.hpp>
#include <utility>
#include <vector>

namespace rref_live_memory {

using namespace weft::testing;
using weft::rref;
using weft::worker;

void empty_it(at::Tensor t) { t.zero_(); }
asio::awaitable<int> empty_all(std::vector<at::Tensor> all) {
  for (at::Tensor& t : all) t.zero_();
  co_return static_cast<int>(all.size());
}
/// Whoever reads it from elsewhere has a copy.
class weights {
 public:
  at::Tensor now() { return now_; }
  at::Tensor as_it_is() { return weft::copied(now_); }
  asio::awaitable<void> add(double n) {
    now_.add_(n);
    co_return;
  }
  asio::awaitable<double> sum() { co_return now_.sum().item<double>(); }

 private:
  at::Tensor now_ = at::ones({2, 3}, at::kDouble);
};
double sum_and_empty(at::Tensor& t) {
  const double all = t.sum().item<double>();
  t.zero_();
  return all;
}

}  // namespace rref_live_memory

namespace {
using namespace rref_live_memory;
}

TEST_CASE("live memory: what a receiver changes in place its sender does not see") {
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    for (const std::uint32_t to : {0u, 1u}) {
      const auto p = me.peer(to);
      const at::Tensor x = at::ones({4, 4});
      co_await p.call<&empty_it>(x);
      co_await p.start<&empty_it>(x.t());
      CHECK(co_await p.call<&empty_all>(std::vector<at::Tensor>{x, x[1], x.slice(1, 1, 3)}) == 3);
      CHECK(x.sum().item<float>() == 16);
      const rref<at::Tensor> shared = me.share(x);
      CHECK(co_await shared.call<&sum_and_empty>() == 16);  // the object itself
      CHECK(x.sum().item<float>() == 0);
    }
  });
}

TEST_CASE("live memory: nor does an owner what is done to its results, nor the other way round") {
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    for (const std::uint32_t to : {0u, 1u}) {
      const auto w = me.peer(to).make<weights>();
      at::Tensor now = co_await w.call<&weights::now>();
      const at::Tensor copy = co_await w.call<&weights::as_it_is>();
      const rref<at::Tensor> stays = w.remote<&weights::now>();
      now.zero_();
      CHECK(co_await w.call<&weights::sum>() == 6);
      at::Tensor fetched = co_await stays.to_here();
      fetched.zero_();
      CHECK(co_await w.call<&weights::sum>() == 6);
      co_await w.call<&weights::add>(1);
      CHECK(now.sum().item<double>() == 0);
      CHECK(copy.sum().item<double>() == 6);
      // What stays is the weight itself.
      CHECK((co_await stays.to_here()).sum().item<double>() == 12);
    }
  });
}
