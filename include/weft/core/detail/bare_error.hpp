// SPDX-License-Identifier: BSL-1.0
// Errors that can be made when there is no memory: what remains is the code and how far it got.
#pragma once

#include <weft/core/error.hpp>

#include <cstddef>
#include <exception>
#include <new>
#include <utility>

namespace weft::detail {

/// One detail for each `call_progress`, made before main and never destroyed.
class bare_details {
 public:
  bare_details() noexcept {
    for (std::size_t i = 0; i < count; ++i) {
      new (&storage_[i]) error_detail;
      at(i)->ran = static_cast<call_progress>(i);
      at(i)->retain();
    }
  }
  [[nodiscard]] intrusive_ptr<const error_detail> of(call_progress ran) noexcept {
    return intrusive_ptr<const error_detail>(at(static_cast<std::size_t>(ran)));
  }

 private:
  static constexpr std::size_t count = 4;
  struct alignas(error_detail) room {
    std::byte bytes[sizeof(error_detail)];
  };
  error_detail* at(std::size_t i) noexcept {
    return std::launder(reinterpret_cast<error_detail*>(&storage_[i]));
  }
  room storage_[count];
};
inline bare_details bare_error_details;

[[nodiscard]] inline error bare_error(errc code, call_progress ran) noexcept {
  return {make_error_code(code), bare_error_details.of(ran)};
}

/// As the constructor of `error`, but without its words if there is no memory for them.
[[nodiscard]] inline error sure_error(errc code, const char* text, call_progress ran,
                                      origin from = origin::local) noexcept {
  try {
    return error(code, text, ran, from);
  } catch (...) {  // only for want of memory; the code tells enough
    return bare_error(code, ran);
  }
}

/// That error as what is thrown; std::bad_alloc if there is no memory for one.
[[nodiscard]] inline std::exception_ptr sure_exception(errc code, const char* text,
                                                       call_progress ran) noexcept try {
  return std::make_exception_ptr(rpc_error(sure_error(code, text, ran)));
} catch (...) {
  return std::current_exception();
}

/// As `e.with(edit)`; if there is no memory, without its words, but with what `edit` says of how
/// far the call got. So `edit` sets `ran` first.
template <class Edit>
[[nodiscard]] error with_if_possible(const error& e, Edit&& edit) noexcept {
  try {
    return e.with(edit);
  } catch (const std::bad_alloc&) {
    error_detail bare;
    bare.ran = e.ran();
    try {
      edit(bare);
    } catch (const std::bad_alloc&) {
    }
    return bare_error(static_cast<errc>(e.code().value()), bare.ran);
  }
}

}  // namespace weft::detail
