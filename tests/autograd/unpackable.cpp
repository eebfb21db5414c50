// SPDX-License-Identifier: BSL-1.0
// Tensors at which libtorch itself throws while their message is made: whoever sends them is told
// so in libtorch's words, nothing of the message is left, and the next one goes.
#include "service_functions.hpp"
#include <weft/engine/services/context_state.hpp>
#include <weft/rref/rref.hpp>

#include <ATen/OpaqueTensorImpl.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace unpackable {

using namespace autograd_tests;
using weft::as_expected;
using weft::call_progress;

/// Libtorch's allocator, but for one size that nothing else here has.
class lacks_one_size final : public c10::Allocator {
 public:
  static constexpr std::int64_t size = 8 * 7919;

  /// While no worker runs: libtorch has no lock for it.
  lacks_one_size() { c10::SetCPUAllocator(this); }
  lacks_one_size(const lacks_one_size&) = delete;
  lacks_one_size& operator=(const lacks_one_size&) = delete;
  ~lacks_one_size() override { c10::SetCPUAllocator(usual_); }

  c10::DataPtr allocate(std::size_t n) override {
    TORCH_CHECK(n != static_cast<std::size_t>(size), "no memory for a copy of ", n, " bytes");
    return usual_->allocate(n);
  }
  c10::DeleterFnPtr raw_deleter() const override { return usual_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t n) const override {
    default_copy_data(to, from, n);
  }

 private:
  c10::Allocator* const usual_ = c10::GetCPUAllocator();
};

/// A kind of tensor that libtorch lets anybody add.
class strideless final : public c10::TensorImpl {
 public:
  strideless()
      : TensorImpl(c10::Storage(at::ones({3}).storage()),
                   c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>()) {
    set_sizes_contiguous({3});
    set_custom_sizes_strides(SizesStridesPolicy::CustomStrides);
  }

 private:
  c10::IntArrayRef strides_custom() const override {
    TORCH_CHECK(false, "this kind of tensor has no strides");
    return {};
  }
};

/// What libtorch does not have of a tensor; that weft itself refuses is memory that is gone. The
/// element type is asked for when the codec writes it, the rest when the message is framed.
enum lacking : int {
  element_type,
  strides,
  storage,
  memory,
  storage_and_memory,
  memory_of_conjugate,
  room_for_gaps,
  room_for_conjugate
};
constexpr int kinds = room_for_conjugate + 1;

at::Tensor make(int what) {
  constexpr std::int64_t floats = lacks_one_size::size / 4;
  switch (what) {
  case element_type: {
    auto t = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(at::zeros({256}, at::kByte).storage()),
        c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<std::string>());
    t.unsafeGetTensorImpl()->set_sizes_contiguous({2});
    return t;
  }
  case strides:
    return at::detail::make_tensor<strideless>();
  case storage:
    return at::detail::make_tensor<at::OpaqueTensorImpl<int>>(
        c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>(),
        c10::Device(at::kCPU), 7, std::vector<std::int64_t>{3});
  case memory: {
    at::Tensor t = at::ones({3});
    t.storage().unsafeGetStorageImpl()->release_resources();
    return t;
  }
  case storage_and_memory: {
    at::Tensor t = at::ones({3});
    t.unsafeGetTensorImpl()->release_resources();
    return t;
  }
  case memory_of_conjugate: {
    at::Tensor t = at::ones({3}, at::kComplexFloat);
    t.storage().unsafeGetStorageImpl()->release_resources();
    return t.conj();
  }
  case room_for_gaps:
    return at::arange(2 * floats, at::kFloat).slice(0, 0, 2 * floats, 2);
  default:
    return at::zeros({floats}, at::kComplexFloat).slice(0, 0, floats / 2).conj();
  }
}
void check_words(const weft::error& e, int what) {
  constexpr const char* words[kinds] = {"Unsupported TypeMeta",
                                        "this kind of tensor has no strides",
                                        "Cannot access storage",
                                        "a tensor whose memory is not there",
                                        "a tensor whose memory is not there",
                                        "a tensor whose memory is not there",
                                        "no memory for a copy",
                                        "no memory for a copy"};
  constexpr const char* types[kinds] = {"c10::Error", "c10::Error", "c10::NotImplementedError",
                                        "",           "",           "",
                                        "c10::Error", "c10::Error"};
  INFO(e.message());
  CHECK(e == errc::not_encodable);
  CHECK(says(e, words[what]));
  CHECK(e.detail().remote_type == types[what]);
  CHECK_FALSE(says(e, "frame #"));
  CHECK_FALSE(says(e, "Exception raised from"));
}
void check_told(const weft::error& e, int what, call_progress ran) {
  check_words(e, what);
  CHECK(e.ran() == ran);
}

std::atomic<int> received{0};
double take(const at::Tensor& good, const at::Tensor&, rref<at::Tensor>) {
  ++received;
  return good.sum().item<double>();
}
asio::awaitable<double> take_later(at::Tensor good, at::Tensor, rref<at::Tensor>) {
  ++received;
  co_return good.sum().item<double>();
}
double sum(const at::Tensor& t) { return t.sum().item<double>(); }
at::Tensor give(int what) { return make(what); }
asio::awaitable<at::Tensor> give_later(int what) { co_return make(what); }
weft::immediate<at::Tensor> give_here(int what) { return make(what); }
std::int64_t dimensions(at::Tensor& t) { return t.dim(); }
at::Tensor twice_of_first(const at::Tensor& a, const at::Tensor&) { return a * 2; }
std::vector<at::Tensor> twice_and(const at::Tensor& a, int what) { return {a * 2, make(what)}; }

TEST_CASE("autograd unpackable: the caller hears of an argument, nothing was sent, the next goes") {
  const lacks_one_size now;
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    const at::Tensor good = at::ones({3});
    const auto with = me.share(at::ones({2}));
    for (const int rank : {1, 0}) {  // another worker, and oneself
      CAPTURE(rank);
      const auto p = me.peer(rank);
      for (int what = 0; what < kinds; ++what) {
        CAPTURE(what);
        received = 0;
        const at::Tensor bad = make(what);
        for (const auto& e :
             {co_await failure_of(p.call<&take>(good, bad, with, as_expected)),
              co_await failure_of(p.call<&take_later>(good, bad, with, as_expected)),
              co_await thrown_by(p.call<&take>(good, bad, with)),
              co_await thrown_by(p.start<&take>(good, bad, with).get())}) {
          check_told(e, what, call_progress::not_sent);
          CHECK(e.detail().peer == "worker" + std::to_string(rank));
          CHECK(e.detail().function.find("unpackable::take") != std::string::npos);
        }
        try {
          p.post<&take>(good, bad, with);
          FAIL("nothing was thrown");
        } catch (const weft::rpc_error& e) {
          check_told(e.error(), what, call_progress::not_sent);
        }
        // Who uses a result that was never asked for hears the same.
        const auto unmade = co_await thrown_by(p.remote<&take>(good, bad, with).to_here());
        check_words(unmade, what);
        CHECK(unmade.ran() <= call_progress::not_executed);  // the use, at an owner that is oneself
        CHECK(says(unmade, "was not sent"));

        CHECK(calls_waiting(me, static_cast<std::uint32_t>(rank)) == 0);
        CHECK(all.rrefs(0).counters().pins == 0);  // the reference beside it is here alone
        CHECK(co_await p.call<&sum>(good) == 3);
        CHECK(received == 0);
      }
    }
    CHECK(all.rrefs(0).counters().refused + all.rrefs(1).counters().refused == 0);
  });
}

TEST_CASE("autograd unpackable: the caller hears of a result, which its function did return") {
  const lacks_one_size now;
  workers_everywhere(2, [](workers&, worker& me) -> asio::awaitable<void> {
    for (const int rank : {1, 0}) {
      CAPTURE(rank);
      const auto p = me.peer(rank);
      for (int what = 0; what < kinds; ++what) {
        CAPTURE(what);
        for (const auto& e : {co_await failure_of(p.call<&give>(what, as_expected)),
                              co_await failure_of(p.call<&give_later>(what, as_expected)),
                              co_await failure_of(p.call<&give_here>(what, as_expected)),
                              co_await thrown_by(p.start<&give>(what).get())}) {
          check_told(e, what, call_progress::executed);
          CHECK(e.detail().from == weft::origin::remote_runtime);
          CHECK(e.detail().function.find("unpackable::give") != std::string::npos);
        }
        // Where it was made it can stay, and be used.
        const auto kept = p.remote<&give>(what);
        CHECK(co_await kept.call<&dimensions>() == 1);
        check_told(co_await thrown_by(kept.to_here()), what, call_progress::executed);
        CHECK(co_await kept.call<&dimensions>() == 1);
        CHECK(co_await p.call<&sum>(at::ones({3})) == 3);
      }
    }
  });
}

TEST_CASE("autograd unpackable: a context keeps nothing of a message that was not made") {
  const lacks_one_size now;
  workers_everywhere(2, [](workers& all, worker& me) -> asio::awaitable<void> {
    for (int what = 0; what < kinds; ++what) {
      CAPTURE(what);
      const at::Tensor a = leaf(1, {3});
      co_await weft::autograd::with_context(me, [&](context ctx) -> asio::awaitable<void> {
        const auto recorded = [&] {
          const std::lock_guard lock(weft::engine::state_of(ctx.state())->mutex);
          return weft::engine::state_of(ctx.state())->sends.size();
        };
        const auto argument = co_await thrown_by(me.peer(1).call<&twice_of_first>(a, make(what)));
        check_told(argument, what, call_progress::not_sent);
        CHECK(recorded() == 0);
        const auto result = co_await thrown_by(me.peer(1).call<&twice_and>(a, what));
        check_told(result, what, call_progress::executed);
        CHECK(recorded() == 1);  // that call was sent
        const at::Tensor y = co_await me.peer(1).call<&twice>(a);
        co_await ctx.backward(y.sum());
        CHECK(same((co_await ctx.gradients()).find(a), at::full({3}, 2.0)));
      });
      CHECK(co_await all_forgotten(all));
    }
  });
}

}  // namespace unpackable
