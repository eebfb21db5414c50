// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/into.hpp.
#pragma once

#include <weft/config.hpp>
#include <weft/core/detail/what_of.hpp>
#include <weft/core/error.hpp>
#include <weft/rpc/function_entry.hpp>
#include <weft/rpc/into.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/frame.hpp>
#include <weft/wire/message.hpp>
#include <weft/wire/structure.hpp>
#include <weft/wire/tensor_desc.hpp>

#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft {

namespace detail {

[[nodiscard]] inline std::string shape_in_words(const at::Tensor& t) {
  std::ostringstream out;
  out << t.scalar_type() << ' ' << t.sizes();
  return out.str();
}

/// Why that can be no destination; nullptr if it can.
[[nodiscard]] inline const char* refuse_destination(const at::Tensor& t) {
  if (!t.defined()) return "is undefined";
  if (t.layout() != at::kStrided || !t.device().is_cpu() || !t.is_non_overlapping_and_dense() ||
      t.is_conj() || t.is_neg()) {
    return "is not dense memory of this process";
  }
  return t.requires_grad() ? "requires grad" : nullptr;
}
[[nodiscard]] inline std::byte* bytes_of(const at::Tensor& t) {
  return static_cast<std::byte*>(t.mutable_data_ptr());
}

/// Puts what came into `to` if it is not there, and makes it that; or why it cannot.
[[nodiscard]] inline error settle(at::Tensor& came, const at::Tensor& to, const char* what,
                                  call_progress ran) {
  if (!came.defined()) {
    return {errc::invalid_argument, std::string(what) + " is undefined", ran};
  }
  if (came.requires_grad()) {
    return {errc::invalid_argument,
            std::string(what) +
                " requires grad: weft::into takes values that autograd does not record",
            ran};
  }
  if (came.layout() != to.layout() || came.scalar_type() != to.scalar_type() ||
      came.sizes() != to.sizes()) {
    return {errc::invalid_argument,
            std::string(what) + " is " + shape_in_words(came) + ", the tensor of weft::into is " +
                shape_in_words(to),
            ran};
  }
  const at::NoGradGuard no_grad;
  if (came.const_data_ptr() != to.const_data_ptr()) {
    to.copy_(came);
  } else if (came.strides() != to.strides()) {
    to.copy_(came.clone());
  }
  came = to;
  return {};
}

/// The memory of a tensor, for the one tensor of a result.
class tensor_given final : public given_memory {
 public:
  explicit tensor_given(at::Tensor to) : to_(std::move(to)), data_(bytes_of(to_)) {}

  [[nodiscard]] std::byte* place(const frame& head, std::size_t,
                                 std::size_t bytes) noexcept override {
    // Bools are checked first: another value than 0 and 1 is none.
    const bool fits = head.header.tensors == 1 && bytes == to_.nbytes();
    return fits && to_.scalar_type() != at::kBool ? data_ : nullptr;
  }
  [[nodiscard]] const at::Tensor& to() const noexcept { return to_; }

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
    const error why = settle(result, static_cast<const tensor_given&>(*given).to(), "the result",
                             call_progress::executed);
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

// ── arguments ──

WEFT_PROCESS_WIDE inline constexpr char arguments_given_key = 0;  // only its address is used

/// The memory of tensors that functions of the callee have named, for a request's.
class arguments_given final : public given_memory {
 public:
  struct one {
    std::size_t buffer = 0;
    at::Tensor to;
    std::byte* data = nullptr;
  };
  std::vector<one> all;

  [[nodiscard]] const void* kind() const noexcept override { return tag(); }
  [[nodiscard]] static const void* tag() noexcept { return &arguments_given_key; }
  [[nodiscard]] std::byte* place(const frame&, std::size_t buffer,
                                 std::size_t bytes) noexcept override {
    for (const one& o : all) {
      if (o.buffer == buffer && o.to.nbytes() == bytes) return o.data;
    }
    return nullptr;
  }
};

/// The destination into which that tensor was read, if it was.
[[nodiscard]] inline at::Tensor destination_of(const at::Tensor& came, reader& r) {
  const incoming_message* const m = r.source();
  if (!m) return {};
  for (const blob& b : m->blobs()) {
    if (!b.owner() || b.owner()->kind() != arguments_given::tag()) continue;
    for (const auto& o : static_cast<const arguments_given&>(*b.owner()).all) {
      if (o.data == came.const_data_ptr() && came.numel() > 0) return o.to;
    }
  }
  return {};
}

using place_function = at::Tensor (*)(const announced&);
template <class>
inline constexpr place_function place_of = nullptr;
template <auto Place>
inline constexpr place_function place_of<into<at::Tensor, Place>> = Place;

/// Calls `found(i, descriptor)` for each of these tensors that lies alone in its buffer, from the
/// first byte to the last, and is a plain value. For none if the head is wrong, which whoever gets
/// the frame will say.
template <class Found>
void each_that_fills(const frame& head, std::span<const std::uint32_t> wanted, Found&& found) {
  frame copy;
  copy.header = head.header;
  copy.head.append(head.head.data(), head.head.size());
  for (std::size_t i = 0; i < head.header.tensors; ++i) {
    copy.blobs.emplace_back(nullptr, static_cast<std::size_t>(head.blob_length(i)), nullptr);
  }
  incoming_message m(std::move(copy));
  if (!m.check()) return;
  const std::vector<blob>& blobs = m.blobs();
  const auto section = m.section(section_kind::tensors);
  if (!section || !check_tensors(*section, blobs).empty()) return;
  const auto lies_in_one = [](const tensor_desc& d) {
    return d.layout == tensor_layout::strided && d.buffer != no_buffer;
  };
  const auto each = [&](auto&& see) {
    tensor_desc_reader descs(*section);
    tensor_desc d;
    for (std::uint32_t k = 0; k < descs.head().total; ++k) {
      static_cast<void>(descs.next(d, blobs));
      if (lies_in_one(d)) see(k, d);
    }
  };
  std::vector<std::uint32_t> users(blobs.size());
  each([&](std::uint32_t, const tensor_desc& d) { ++users[d.buffer]; });
  each([&](std::uint32_t k, const tensor_desc& d) {
    const tensor_shape shape = shape_of(d);
    if (d.dtype == dtype_bool || users[d.buffer] != 1 || d.offset != 0 ||
        shape.elements != shape.extent ||
        shape.extent * item_size(d.dtype) != blobs[d.buffer].size() ||
        (d.flags & tensor_requires_grad) != 0) {
      return;
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i] == k) found(i, d);
    }
  });
}

/// For the leading parameters that are `into`: their indices are the first of the payload.
template <class... A>
intrusive_ptr<given_memory> place_arguments(const frame& head) noexcept {
  constexpr place_function places[] = {place_of<A>..., nullptr};
  try {
    std::vector<std::uint32_t> wanted;
    const auto payload = head.payload();
    for (std::size_t i = 0; places[i] && payload.size() >= 4 * (i + 1); ++i) {
      wanted.push_back(load<std::uint32_t>(payload.data() + 4 * i));
    }
    auto out = make_intrusive<arguments_given>();
    each_that_fills(head, wanted, [&](std::size_t i, const tensor_desc& d) {
      announced what{static_cast<at::ScalarType>(d.dtype), {d.sizes().begin(), d.sizes().end()}};
      at::Tensor to = places[i](what);
      if (refuse_destination(to) || to.scalar_type() != what.dtype || to.sizes() != what.sizes) {
        return;
      }
      std::byte* const data = bytes_of(to);
      out->all.push_back({d.buffer, std::move(to), data});
    });
    return out->all.empty() ? nullptr : out;
  } catch (...) {  // of the user's function, which is asked again when all has come, and then heard
    return nullptr;
  }
}
template <auto Place, class... Rest>
inline constexpr placer placer_of<std::tuple<into<at::Tensor, Place>, Rest...>> =
    &place_arguments<into<at::Tensor, Place>, Rest...>;

}  // namespace detail

inline into<at::Tensor>::into(at::Tensor to) : to_(std::move(to)) {
  if (const char* const why = detail::refuse_destination(to_)) {
    throw rpc_error(errc::invalid_argument, std::string("the tensor of weft::into ") + why);
  }
}
inline intrusive_ptr<given_memory> into<at::Tensor>::give() const {
  return make_intrusive<detail::tensor_given>(to_);
}

template <auto Place>
struct codec<into<at::Tensor, Place>> {
  static constexpr std::size_t min_size = codec<at::Tensor>::min_size;
  static void encode(writer& w, const into<at::Tensor, Place>& value) {
    codec<at::Tensor>::encode(w, value.tensor());
  }
  static into<at::Tensor, Place> decode(reader& r) {
    at::Tensor came = codec<at::Tensor>::decode(r);
    at::Tensor to = detail::destination_of(came, r);
    if (!to.defined()) to = named_for(came);
    if (const char* const why = detail::refuse_destination(to)) {
      throw rpc_error(errc::invalid_argument, std::string("the tensor of weft::into ") + why,
                      call_progress::not_executed);
    }
    if (error why = detail::settle(came, to, "the argument", call_progress::not_executed)) {
      throw rpc_error(std::move(why));
    }
    return came;
  }

 private:
  [[nodiscard]] static at::Tensor named_for(const at::Tensor& came) {
    try {
      return Place(announced{came.scalar_type(), came.sizes().vec()});
    } catch (const rpc_error&) {
      throw;
    } catch (const std::exception& e) {
      throw rpc_error(errc::invalid_argument,
                      std::string("the function that names a tensor for weft::into threw: ") +
                          detail::what_of(e),
                      call_progress::not_executed);
    }
  }
};
template <auto Place>
struct structure<into<at::Tensor, Place>> {
  static constexpr std::string_view tag = "weft::into 1";
  using parts = std::tuple<at::Tensor>;
};

}  // namespace weft
