// SPDX-License-Identifier: BSL-1.0
// Reads values from a received payload, and trusts nothing. It reads no byte beyond the payload,
// and the received bytes limit how much memory it allocates.
#pragma once

#include <weft/core/detail/little_endian.hpp>
#include <weft/wire/detail/budget.hpp>
#include <weft/wire/limits.hpp>
#include <weft/wire/message_extensions.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace weft {

class incoming_message;

/// Reads from bytes, which must outlive it. Throws `rpc_error` with `bad_arguments`,
/// `not_executed`. If the field that it reads is known, the text names it. Do not copy or share it:
/// one thread uses it.
///
///   geo::shape weft_decode(weft::reader& r, std::type_identity<geo::shape>) {
///     return {r.number<double>(), r.number<std::int32_t>()};
///   }
class reader {
 public:
  /// How a payload may end.
  enum class tail { exact, zeros };

  /// `record`, `limit` and `source` must outlive the reader. `source` is the message that the bytes
  /// belong to, if any.
  explicit reader(std::span<const std::byte> in, message_extensions& record,
                  const limits& limit = default_limits, tail end = tail::exact,
                  incoming_message* source = nullptr) noexcept;

  template <class T>
    requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
  [[nodiscard]] T number() {
    return detail::load<T>(take(sizeof(T)));
  }
  /// Reads a number of elements, of at least `min_element_bytes` bytes (and at least one) each.
  /// Refuses a number of elements that the remaining bytes cannot hold.
  [[nodiscard]] std::size_t count(std::size_t min_element_bytes);
  /// The next `n` bytes; they live as long as the message.
  [[nodiscard]] std::span<const std::byte> raw(std::size_t n) { return {take(n), n}; }
  /// This message's P (wire/message_extensions.hpp).
  template <class P>
  P& extension() {
    return record_->get<P>();
  }

  /// Call it before you allocate `n` bytes. Refuses if the payload is too small to allow them.
  void charge(std::uint64_t n);
  void charge(std::uint64_t count, std::uint64_t each) {
    charge(detail::saturating_multiply(count, each));
  }

  /// One level deeper, as long as this object lives (see writer).
  class level {
   public:
    explicit level(reader& r);
    level(const level&) = delete;
    level& operator=(const level&) = delete;
    ~level() { --reader_.depth_; }

   private:
    reader& reader_;
  };
  [[nodiscard]] level nested() { return level(*this); }

  /// Sets the field that error texts name. `type` must be a literal, or live as long as the reader.
  void field(std::string_view type, std::size_t index) noexcept {
    field_type_ = type;
    field_index_ = index;
  }
  /// Refuses the payload: throws `rpc_error` with `why` and the current field.
  [[noreturn]] void fail(const std::string& why) const;

  /// Refuses the payload unless all of it was read. A padded payload may end with zeros.
  void finish();

  [[nodiscard]] std::size_t remaining() const noexcept { return in_.size() - at_; }
  [[nodiscard]] std::size_t position() const noexcept { return at_; }
  [[nodiscard]] message_extensions& record() noexcept { return *record_; }
  [[nodiscard]] const limits& limit() const noexcept { return *limits_; }
  [[nodiscard]] incoming_message* source() const noexcept { return source_; }

 private:
  const std::byte* take(std::size_t n);
  [[noreturn]] void fail_short(std::size_t wanted) const;
  [[noreturn]] void fail_count(std::size_t n) const;
  [[noreturn]] void fail_budget() const;
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

inline std::size_t reader::count(std::size_t min_element_bytes) {
  const auto n = number<std::uint32_t>();
  if (n > remaining() / (min_element_bytes > 1 ? min_element_bytes : 1)) fail_count(n);
  return n;
}

inline void reader::charge(std::uint64_t n) {
  if (n > budget_) fail_budget();
  budget_ -= n;
}

inline const std::byte* reader::take(std::size_t n) {
  if (n > in_.size() - at_) fail_short(n);
  const std::byte* p = in_.data() + at_;
  at_ += n;
  return p;
}

}  // namespace weft

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/wire/impl/reader.hpp>
#endif
