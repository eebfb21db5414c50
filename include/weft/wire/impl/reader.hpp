// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/wire/reader.hpp.
#pragma once

#include <weft/core/error.hpp>
#include <weft/wire/detail/budget.hpp>
#include <weft/wire/limits.hpp>
#include <weft/wire/message_extensions.hpp>
#include <weft/wire/reader.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace weft {

inline reader::reader(std::span<const std::byte> in, message_extensions& record,
                      const limits& limit, tail end, incoming_message* source) noexcept
    : in_(in),
      record_(&record),
      limits_(&limit),
      source_(source),
      budget_(detail::budget_of(in.size())),
      tail_(end) {}

inline std::size_t reader::count(std::size_t min_element_bytes) {
  const std::uint32_t n = number<std::uint32_t>();
  if (n > remaining() / std::max<std::size_t>(min_element_bytes, 1)) {
    fail("a count of " + std::to_string(n) + " with " + std::to_string(remaining()) +
         " bytes left");
  }
  return n;
}

inline void reader::charge(std::uint64_t n) {
  if (n > budget_) {
    fail("the value would take more memory than a payload of this size may ask for");
  }
  budget_ -= n;
}

inline reader::level::level(reader& r) : reader_(r) {
  if (r.depth_ >= r.limits_->depth) {
    r.fail("the value is nested more than " + std::to_string(r.limits_->depth) + " levels deep");
  }
  ++r.depth_;
}

inline void reader::fail(const std::string& why) const {
  std::string text = why;
  if (!field_type_.empty()) {
    text += ", while reading field " + std::to_string(field_index_) + " of '" +
            std::string(field_type_) + "'";
  }
  throw rpc_error(error(errc::bad_arguments, std::move(text), call_progress::not_executed,
                        origin::remote_runtime));
}

inline void reader::finish() {
  field_type_ = {};
  const auto rest = in_.subspan(at_);
  if (tail_ == tail::exact && !rest.empty()) {
    fail(std::to_string(rest.size()) + " bytes are left over: more was written than is read");
  }
  if (!std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; })) {
    fail("the padding is not zero");
  }
  at_ = in_.size();
}

inline const std::byte* reader::take(std::size_t n) {
  if (n > in_.size() - at_) {
    fail(std::to_string(n) + " bytes wanted, " + std::to_string(in_.size() - at_) + " left");
  }
  const std::byte* p = in_.data() + at_;
  at_ += n;
  return p;
}

}  // namespace weft
