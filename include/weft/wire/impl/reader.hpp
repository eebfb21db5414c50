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

WEFT_DECL reader::reader(std::span<const std::byte> in, message_extensions& record,
                         const limits& limit, tail end, incoming_message* source) noexcept
    : in_(in),
      record_(&record),
      limits_(&limit),
      source_(source),
      budget_(detail::budget_of(in.size())),
      tail_(end) {}

WEFT_DECL void reader::fail_short(std::size_t wanted) const {
  fail(std::to_string(wanted) + " bytes wanted, " + std::to_string(remaining()) + " left");
}
WEFT_DECL void reader::fail_count(std::size_t n) const {
  fail("a count of " + std::to_string(n) + " with " + std::to_string(remaining()) + " bytes left");
}
WEFT_DECL void reader::fail_budget() const {
  fail("the value would take more memory than a payload of this size may ask for");
}

WEFT_DECL reader::level::level(reader& r) : reader_(r) {
  if (r.depth_ >= r.limits_->depth) {
    r.fail("the value is nested more than " + std::to_string(r.limits_->depth) + " levels deep");
  }
  ++r.depth_;
}

WEFT_DECL void reader::fail(const std::string& why) const {
  std::string text = why;
  if (!field_type_.empty()) {
    text += ", while reading field " + std::to_string(field_index_) + " of '" +
            std::string(field_type_) + "'";
  }
  throw rpc_error(error(errc::bad_arguments, std::move(text), call_progress::not_executed,
                        origin::remote_runtime));
}

WEFT_DECL void reader::finish() {
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

}  // namespace weft
