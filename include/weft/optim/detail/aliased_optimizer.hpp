// SPDX-License-Identifier: BSL-1.0
// A libtorch optimizer over aliases of parameters, its steps, and their turns.
//
//   parameter ──storage── alias (own version counter) ◄── libtorch optimizer
//       │                   ▲ grad, for the time of a step
//       └── gradient in the autograd context of the step
//
// Working on aliases leaves the user's `.grad` alone, and does not invalidate graphs that other
// trainers have recorded over the parameters.
#pragma once

#include <weft/autograd/gradient_map.hpp>
#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/detail/post_or_die.hpp>
#include <weft/core/detail/rethrow_taken.hpp>
#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/optim/detail/optimizer_state.hpp>
#include <weft/optim/detail/write_lock.hpp>
#include <weft/optim/options.hpp>

#include <asio/awaitable.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weft::optim::detail {

/// Errors of libtorch without the list of its stack frames.
template <class Work>
auto in_words(Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const c10::Error& e) {
    throw std::runtime_error(e.what_without_backtrace());
  }
}

/// The right to write some memory of this process, in turn with all other steps, until the last
/// copy of the `intrusive_ptr` is gone. Waits without a thread: await `granted`.
class write_turn final : public ref_counted {
 public:
  explicit write_turn(std::vector<const void*> memory) {
    const std::lock_guard lock(all().mutex);
    place_ = all().queue.enter(std::move(memory), granted);
    if (turns::is_granted(place_)) granted->set();
  }
  write_turn(const write_turn&) = delete;
  write_turn& operator=(const write_turn&) = delete;
  ~write_turn() override {
    weft::detail::or_die([this] {
      std::vector<intrusive_ptr<event>> now;
      {
        const std::lock_guard lock(all().mutex);
        now = all().queue.leave(place_);
      }
      for (const intrusive_ptr<event>& next : now) next->set();
    });
  }

  const intrusive_ptr<event> granted = make_intrusive<event>();

 private:
  using turns = write_lock<intrusive_ptr<event>>;
  /// Of the process, for inside one process workers can share memory.
  struct everybody {
    std::mutex mutex;
    turns queue;
  };
  static everybody& all() {
    static everybody& one = *new everybody;  // outlives whatever still computes at exit
    return one;
  }

  turns::place place_;
};

/// Throws if an optimizer cannot have them.
[[nodiscard]] inline std::vector<at::Tensor> checked_parameters(std::vector<at::Tensor> all) {
  const auto refuse = [](const char* why) {
    throw std::invalid_argument(std::string("a parameter of an optimizer ") + why);
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    const at::Tensor& p = all[i];
    if (!p.defined()) refuse("is an undefined tensor");
    if (!p.is_leaf()) refuse("is not a leaf: give the tensor it was computed from");
    const auto same = [&p](const at::Tensor& other) { return other.is_same(p); };
    if (std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i), same)) {
      refuse("was given twice");
    }
  }
  return all;
}

/// What a step of these parameters may write, by storage.
inline std::vector<const void*> memory_of(const std::vector<at::Tensor>& parameters) {
  std::vector<const void*> out;
  out.reserve(parameters.size());
  for (const at::Tensor& p : parameters) {
    if (p.has_storage()) {
      out.push_back(p.storage().unsafeGetStorageImpl());
    } else {
      out.push_back(p.unsafeGetTensorImpl());
    }
  }
  return out;
}

/// Leaves over the same memory.
inline std::vector<at::Tensor> aliases_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> aliases;
  aliases.reserve(parameters.size());
  for (const at::Tensor& p : parameters) {
    aliases.push_back(p.variable_data());
    aliases.back().set_requires_grad(p.requires_grad());
  }
  return aliases;
}

/// A libtorch optimizer over aliases of parameters, which it follows when their memory is replaced.
/// One thread at a time.
template <class Optimizer>
class aliased_optimizer {
 public:
  using options_type = typename optimizer_traits<Optimizer>::options;

  /// The parameters of each group, one group after another, and each group's options.
  aliased_optimizer(std::vector<at::Tensor> parameters, std::vector<std::size_t> sizes,
                    const std::vector<options_type>& options)
      : parameters_(std::move(parameters)),
        aliases_(aliases_of(parameters_)),
        sizes_(std::move(sizes)) {
    in_words([&] {
      std::size_t first = 0;
      for (std::size_t g = 0; g < sizes_.size(); ++g) {
        const auto begin = aliases_.begin() + static_cast<std::ptrdiff_t>(first);
        std::vector<at::Tensor> of(begin, begin + static_cast<std::ptrdiff_t>(sizes_[g]));
        first += sizes_[g];
        if (g == 0) {
          optimizer_ = std::make_unique<Optimizer>(std::move(of), options[g]);
          continue;
        }
        check(options[g]);
        optimizer_->add_param_group({std::move(of), std::make_unique<options_type>(options[g])});
      }
    });
  }

  /// What a step may write, by storage.
  [[nodiscard]] std::vector<const void*> memory() const { return memory_of(parameters_); }

  /// With the gradients times `scale`.
  void step(const autograd::gradient_map& gradients, double scale) {
    follow();
    const at::AutoGradMode off(false);
    const given_gradients given(aliases_, parameters_, gradients, scale);
    if (given.count() == 0) return;
    in_words([&] { optimizer_->step(); });
  }

  /// Of the gradients of its parameters, in double precision.
  [[nodiscard]] double gradient_norm(const autograd::gradient_map& gradients) const {
    const at::AutoGradMode off(false);
    return in_words([&] {
      double all = 0;
      for (const at::Tensor& p : parameters_) {
        at::Tensor g = gradients.find(p);
        if (!g.defined()) continue;
        if (g.is_sparse()) g = g.coalesce().values();
        const double norm =
            at::linalg_vector_norm(g.abs(), 2, {}, false, at::kDouble).template item<double>();
        all = std::hypot(all, norm);
      }
      return all;
    });
  }

  /// Of one group, or of all. Throws what the optimizer's constructor throws of such options; then
  /// nothing has changed. The same of options that need what it has not kept from its first step
  /// on.
  void set_options(std::optional<std::uint64_t> group, const options_type& options) {
    if (group && *group >= sizes_.size()) {
      throw std::invalid_argument("there is no parameter group " + std::to_string(*group) +
                                  ": the optimizer has " + std::to_string(sizes_.size()));
    }
    in_words([&] { check(options); });
    std::size_t first = 0;
    for (std::size_t g = 0; g < sizes_.size(); first += sizes_[g++]) {
      if (group.value_or(g) != g) continue;
      if constexpr (state_is_known<Optimizer>) {
        in_words([&] { check_kept_state(*optimizer_, aliases_, first, sizes_[g], options); });
      }
    }
    for (std::size_t g = 0; g < sizes_.size(); ++g) {
      if (group.value_or(g) != g) continue;
      optimizer_->param_groups()[g].set_options(std::make_unique<options_type>(options));
    }
  }
  /// Of each group.
  [[nodiscard]] std::vector<options_type> options() const {
    std::vector<options_type> out;
    for (std::size_t g = 0; g < sizes_.size(); ++g) out.push_back(options_of_group(g));
    return out;
  }
  [[nodiscard]] std::vector<parameter_state> state() {
    const at::AutoGradMode off(false);
    return in_words([&] { return read_state(*optimizer_, aliases_); });
  }
  void set_state(const std::vector<parameter_state>& given) {
    follow();
    const auto options_of = [this](std::size_t i) -> const options_type& {
      std::size_t g = 0;
      while (i >= sizes_[g]) i -= sizes_[g++];
      return options_of_group(g);
    };
    in_words([&] { write_state(*optimizer_, aliases_, options_of, given); });
  }

 private:
  /// Gives the aliases their gradients and takes them away again.
  class given_gradients {
   public:
    given_gradients(std::vector<at::Tensor>& aliases, const std::vector<at::Tensor>& parameters,
                    const autograd::gradient_map& gradients, double scale)
        : aliases_(aliases) {
      std::vector<at::Tensor> all(parameters.size());  // what throws leaves no alias with one
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        all[i] = gradients.find(parameters[i]);
        if (all[i].defined() && scale != 1) all[i] = all[i].mul(scale);
      }
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (!all[i].defined()) continue;
        aliases_[i].mutable_grad() = std::move(all[i]);
        ++count_;
      }
    }
    given_gradients(const given_gradients&) = delete;
    given_gradients& operator=(const given_gradients&) = delete;
    ~given_gradients() {
      for (at::Tensor& alias : aliases_) alias.mutable_grad() = at::Tensor();
    }
    [[nodiscard]] std::size_t count() const noexcept { return count_; }

   private:
    std::vector<at::Tensor>& aliases_;
    std::size_t count_ = 0;
  };

  static void check(const options_type& options) {
    Optimizer(std::vector<at::Tensor>{at::zeros({1})}, options);
  }
  [[nodiscard]] const options_type& options_of_group(std::size_t g) const {
    return static_cast<const options_type&>(std::as_const(*optimizer_).param_groups()[g].options());
  }

  /// torch::load, Module::to and set_data give a parameter other memory. Its alias goes there too
  /// and stays the same tensor, so that the optimizer's state stays with it.
  void follow() {
    for (std::size_t i = 0; i < aliases_.size(); ++i) {
      const at::Tensor& p = parameters_[i];
      at::Tensor& alias = aliases_[i];
      if (p.scalar_type() != alias.scalar_type() || p.sizes() != alias.sizes() ||
          p.layout() != alias.layout() || p.device() != alias.device()) {
        throw rpc_error(errc::invalid_argument,
                        "parameter " + std::to_string(i) + " was " + described(alias) +
                            " when the optimizer was made and is " + described(p) +
                            " now: make a new optimizer",
                        call_progress::not_executed);
      }
      const bool same = !p.has_storage() ||
                        (alias.is_alias_of(p) && alias.storage_offset() == p.storage_offset() &&
                         alias.strides() == p.strides());
      if (!same) alias.set_data(p.variable_data());
    }
  }

  static std::string described(const at::Tensor& t) {
    std::string out = t.toString() + " [";
    for (std::int64_t i = 0; i < t.dim(); ++i) {
      out += (i == 0 ? "" : ", ") + std::to_string(t.size(i));
    }
    return out + "]";
  }

  std::vector<at::Tensor> parameters_, aliases_;  // the latter are in the optimizer's groups
  std::vector<std::size_t> sizes_;                // of the groups
  std::unique_ptr<Optimizer> optimizer_;
};

/// One step on the pool. Owns all that it uses: the call and the optimizer may be gone meanwhile.
template <class Optimizer>
class step_job final : public ref_counted {
 public:
  step_job(std::shared_ptr<aliased_optimizer<Optimizer>> optimizer,
           autograd::gradient_map gradients, double scale, intrusive_ptr<write_turn> turn)
      : optimizer_(std::move(optimizer)),
        gradients_(std::move(gradients)),
        scale_(scale),
        turn_(std::move(turn)) {}

  void step() {
    try {
      optimizer_->step(gradients_, scale_);
    } catch (...) {  // what the optimizer throws
      failure = std::current_exception();
    }
    gradients_.clear();
    turn_ = nullptr;
    done->set();
  }

  const intrusive_ptr<event> done = make_intrusive<event>();
  std::exception_ptr failure;  ///< written before `done` is set

 private:
  std::shared_ptr<aliased_optimizer<Optimizer>> optimizer_;
  autograd::gradient_map gradients_;
  double scale_;
  intrusive_ptr<write_turn> turn_;
};

/// One step on the pool, in its turn, which has come. Once it computes it is done to its end.
/// Throws what the optimizer throws.
template <class Optimizer, class Pool>
asio::awaitable<void> step_on(Pool& pool, std::shared_ptr<aliased_optimizer<Optimizer>> optimizer,
                              autograd::gradient_map gradients, double scale,
                              intrusive_ptr<write_turn> turn) {
  const auto job = make_intrusive<step_job<Optimizer>>(std::move(optimizer), std::move(gradients),
                                                       scale, std::move(turn));
  weft::detail::post_or_die(pool, [job] { job->step(); });
  co_await event::wait(job->done);
  weft::detail::rethrow_taken(job->failure);
}

}  // namespace weft::optim::detail
