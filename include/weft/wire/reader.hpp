// SPDX-License-Identifier: BSL-1.0
// Reads values out of a received payload, trusting nothing: no byte beyond the payload is read,
// and nothing is allocated that the bytes received do not pay for.
#pragma once

#include <weft/core/error.hpp>
#include <weft/wire/detail/budget.hpp>
#include <weft/wire/limits.hpp>
#include <weft/wire/message_extensions.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace weft {

class incoming_message;

/// Over bytes that outlive it. Throws `rpc_error` with `bad_arguments`, `not_executed`, whose text
/// names the field being read where it is known. Neither copied nor shared.
class reader {
 public:
  /// How a payload may end.
  enum class tail { exact, zeros };

  /// `record`, `limit` and `source` must outlive the reader; `source` is the message that the
  /// bytes belong to, if any.
  explicit reader(std::span<const std::byte> in, message_extensions& record,
                  const limits& limit = default_limits, tail end = tail::exact,
                  incoming_message* source = nullptr) noexcept
      : in_(in),
        record_(&record),
        limits_(&limit),
        source_(source),
        budget_(detail::budget_of(in.size())),
        tail_(end) {}

  template <class T>
    requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
  [[nodiscard]] T number() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  /// A number of elements that take at least `min_element_bytes` (and at least one) each. Refuses
  /// more than the remaining bytes can hold.
  [[nodiscard]] std::size_t count(std::size_t min_element_bytes) {
    const std::uint32_t n = number<std::uint32_t>();
    if (n > remaining() / std::max<std::size_t>(min_element_bytes, 1)) {
      fail("a count of " + std::to_string(n) + " with " + std::to_string(remaining()) +
           " bytes left");
    }
    return n;
  }
  /// The next `n` bytes; they live as long as the message.
  [[nodiscard]] std::span<const std::byte> raw(std::size_t n) { return {take(n), n}; }
  /// This message's P (see parts.hpp).
  template <class P>
  P& extension() {
    return record_->get<P>();
  }

  /// Before allocating `n` bytes: refuses when the payload does not pay for them.
  void charge(std::uint64_t n) {
    if (n > budget_) {
      fail("the value would take more memory than a payload of this size may ask for");
    }
    budget_ -= n;
  }
  void charge(std::uint64_t count, std::uint64_t each) {
    charge(detail::saturating_multiply(count, each));
  }

  /// One level deeper, as long as the result lives (see writer).
  class level {
   public:
    explicit level(reader& r) : reader_(r) {
      if (r.depth_ >= r.limits_->depth) {
        r.fail("the value is nested more than " + std::to_string(r.limits_->depth) +
               " levels deep");
      }
      ++r.depth_;
    }
    level(const level&) = delete;
    level& operator=(const level&) = delete;
    ~level() { --reader_.depth_; }

   private:
    reader& reader_;
  };
  [[nodiscard]] level nested() { return level(*this); }

  /// Says for error texts what is read next. `type` must be a literal or live as long.
  void field(std::string_view type, std::size_t index) noexcept {
    field_type_ = type;
    field_index_ = index;
  }
  /// Refuses the payload: throws `rpc_error` with `why` and the current field.
  [[noreturn]] void fail(const std::string& why) const {
    std::string text = why;
    if (!field_type_.empty()) {
      text += ", while reading field " + std::to_string(field_index_) + " of '" +
              std::string(field_type_) + "'";
    }
    throw rpc_error(error(errc::bad_arguments, std::move(text), call_progress::not_executed,
                          origin::remote_runtime));
  }

  /// Requires that everything was read; a padded payload may end with zeros.
  void finish() {
    field_type_ = {};
    const auto rest = in_.subspan(at_);
    if (tail_ == tail::exact && !rest.empty()) {
      fail(std::to_string(rest.size()) + " bytes are left over");
    }
    if (!std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; })) {
      fail("the padding is not zero");
    }
    at_ = in_.size();
  }

  [[nodiscard]] std::size_t remaining() const noexcept { return in_.size() - at_; }
  [[nodiscard]] std::size_t position() const noexcept { return at_; }
  [[nodiscard]] message_extensions& record() noexcept { return *record_; }
  [[nodiscard]] const limits& limit() const noexcept { return *limits_; }
  [[nodiscard]] incoming_message* source() const noexcept { return source_; }

 private:
  const std::byte* take(std::size_t n) {
    if (n > in_.size() - at_) {
      fail(std::to_string(n) + " bytes wanted, " + std::to_string(in_.size() - at_) + " left");
    }
    const std::byte* p = in_.data() + at_;
    at_ += n;
    return p;
  }

  std::span<const std::byte> in_;
  message_extensions* record_;
  const limits* limits_;
  incoming_message* source_;
  std::size_t at_ = 0;
  std::uint64_t budget_;
  int depth_ = 0;
  tail tail_;
  std::string_view field_type_;
  std::size_t field_index_ = 0;
};

}  // namespace weft
