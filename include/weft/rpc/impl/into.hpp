// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/into.hpp.
#pragma once

#include <weft/core/error.hpp>
#include <weft/rpc/into.hpp>
#include <weft/wire/frame.hpp>

#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>

namespace weft {

namespace detail {

[[nodiscard]] inline std::string shape_in_words(const at::Tensor& t) {
  std::ostringstream out;
  out << t.scalar_type() << ' ' << t.sizes();
  return out.str();
}

/// The memory of a tensor, for the one tensor of a result.
class tensor_given final : public given_memory {
 public:
  explicit tensor_given(at::Tensor to)
      : to_(std::move(to)), data_(static_cast<std::byte*>(to_.mutable_data_ptr())) {}

  [[nodiscard]] std::byte* place(const frame& head, std::size_t,
                                 std::size_t bytes) noexcept override {
    if (head.header.tensors != 1 || bytes != to_.nbytes()) return nullptr;
    return data_;
  }
  [[nodiscard]] const at::Tensor& to() const noexcept { return to_; }

  /// Puts the result there if it is not, and makes it the destination itself; or why it cannot.
  [[nodiscard]] error settle(at::Tensor& result) const {
    if (result.requires_grad()) {
      return {errc::invalid_argument,
              "the result requires grad: weft::into takes values that autograd does not record",
              call_progress::executed};
    }
    if (result.layout() != to_.layout() || result.scalar_type() != to_.scalar_type() ||
        result.sizes() != to_.sizes()) {
      return {errc::invalid_argument,
              "the result is " + shape_in_words(result) + ", the tensor of weft::into is " +
                  shape_in_words(to_),
              call_progress::executed};
    }
    const at::NoGradGuard no_grad;
    const bool is_there = result.const_data_ptr() == to_.const_data_ptr();
    if (!is_there) {
      to_.copy_(result);
    } else if (result.strides() != to_.strides()) {
      to_.copy_(result.clone());
    }
    result = to_;
    return {};
  }

 private:
  at::Tensor to_;
  std::byte* data_;
};

template <class R, class Given>
void require_given_apart(const given_memory& memory, const Given& arguments) {
  static_assert(std::is_same_v<R, at::Tensor>,
                "weft: weft::into(t) is for functions that return one at::Tensor.");
  const at::Tensor& to = static_cast<const tensor_given&>(memory).to();
  const auto check = [&to](const auto& argument) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(argument)>, at::Tensor>) {
      if (argument.defined() && argument.has_storage() && argument.is_alias_of(to)) {
        throw rpc_error(errc::invalid_argument,
                        "the tensor of weft::into shares memory with an argument of the call");
      }
    }
  };
  std::apply([&check](const auto&... all) { (check(all), ...); }, arguments);
}

template <class Fn, class Delivered>
asio::awaitable<Delivered> call_into(link& to, intrusive_ptr<given_memory> given,
                                     asio::awaitable<Delivered> call) {
  struct until_the_end {
    intrusive_ptr<link> at;
    given_memory& memory;
    ~until_the_end() {
      at->no_longer_given(memory);
      memory.take_back();
    }
  } const ends{intrusive_ptr<link>(&to), *given};
  const auto settled = [&](at::Tensor& result) {
    const error why = static_cast<const tensor_given&>(*given).settle(result);
    return why ? why.with([&](error_detail& d) {
      d.peer = to.name();
      d.function = std::string(Fn::name());
    })
               : why;
  };
  Delivered result = co_await std::move(call);
  if constexpr (std::is_same_v<Delivered, at::Tensor>) {
    if (error why = settled(result)) throw rpc_error(std::move(why));
  } else if (result) {
    if (error why = settled(*result)) result = tl::unexpected(std::move(why));
  }
  co_return result;
}

}  // namespace detail

inline into<at::Tensor>::into(at::Tensor to) : to_(std::move(to)) {
  const auto refuse = [](const std::string& what) {
    throw rpc_error(errc::invalid_argument, "the tensor of weft::into " + what);
  };
  if (!to_.defined()) refuse("is undefined");
  if (to_.layout() != at::kStrided || !to_.device().is_cpu() ||
      !to_.is_non_overlapping_and_dense() || to_.is_conj() || to_.is_neg()) {
    refuse("is not dense memory of this process");
  }
  if (to_.requires_grad()) refuse("requires grad");
}
inline intrusive_ptr<given_memory> into<at::Tensor>::give() const {
  return make_intrusive<detail::tensor_given>(to_);
}

}  // namespace weft
