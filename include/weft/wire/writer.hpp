// SPDX-License-Identifier: BSL-1.0
// Writes values into a payload. Codecs use it; it knows no types beyond numbers and bytes.
#pragma once

#include <weft/core/error.hpp>
#include <weft/wire/bytes.hpp>
#include <weft/wire/detail/budget.hpp>
#include <weft/wire/limits.hpp>
#include <weft/wire/message_extensions.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

namespace weft {

/// Appends to a `bytes`. Numbers are little-endian and of fixed width. Throws `rpc_error` with
/// `not_encodable` or `message_too_large`, always `not_sent`. Do not copy or share it: one thread
/// uses it.
///
///   void weft_encode(weft::writer& w, const geo::shape& s) {
///     w.number(s.scale), w.number(s.sides);
///   }
class writer {
 public:
  /// All three must outlive the writer.
  explicit writer(bytes& out, message_extensions& record,
                  const limits& limit = default_limits) noexcept
      : out_(&out), record_(&record), limits_(&limit), begin_(out.size()) {}

  template <class T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void number(T value) {
    out_->number(value);
  }
  /// A number of elements or bytes, as 32 bits.
  void count(std::size_t n) {
    if (n > std::numeric_limits<std::uint32_t>::max()) refuse_count(n);
    number(static_cast<std::uint32_t>(n));
  }
  void raw(const void* data, std::size_t size) {
    if (size > limits_->payload) refuse_size(size);
    out_->append(data, size);
  }
  /// This message's P (wire/message_extensions.hpp).
  template <class P>
  P& extension() {
    return record_->get<P>();
  }

  /// Says that the receiver will allocate `n` bytes for the values just written. The reader charges
  /// the same. The message is padded until its budget is large enough (detail/budget.hpp).
  void charge(std::uint64_t n) noexcept { cost_ = detail::saturating_add(cost_, n); }
  void charge(std::uint64_t count, std::uint64_t each) noexcept {
    charge(detail::saturating_multiply(count, each));
  }
  [[nodiscard]] std::uint64_t cost() const noexcept { return cost_; }

  /// One level deeper, as long as this object lives. If a type can contain itself, its codec holds
  /// one.
  class level {
   public:
    explicit level(writer& w) : writer_(w) {
      if (++writer_.depth_ > writer_.limits_->depth) {
        --writer_.depth_;
        throw rpc_error(errc::not_encodable, "the value is nested more than " +
                                                 std::to_string(w.limits_->depth) + " levels deep");
      }
    }
    level(const level&) = delete;
    level& operator=(const level&) = delete;
    ~level() { --writer_.depth_; }

   private:
    writer& writer_;
  };
  [[nodiscard]] level nested() { return level(*this); }

  /// Bytes written so far.
  [[nodiscard]] std::size_t size() const noexcept { return out_->size() - begin_; }
  [[nodiscard]] message_extensions& record() noexcept { return *record_; }
  [[nodiscard]] const limits& limit() const noexcept { return *limits_; }

 private:
  friend class message;
  void rebind(bytes& out, message_extensions& record) noexcept {
    out_ = &out;
    record_ = &record;
  }
  [[noreturn]] static void refuse_count(std::size_t n) {
    throw rpc_error(errc::message_too_large,
                    std::to_string(n) + " elements; a container may hold 2^32 - 1");
  }
  [[noreturn]] void refuse_size(std::size_t size) const {
    throw rpc_error(errc::message_too_large, std::to_string(size) +
                                                 " bytes in one value; a payload may hold " +
                                                 std::to_string(limits_->payload));
  }

  bytes* out_;
  message_extensions* record_;
  const limits* limits_;
  std::size_t begin_;
  std::uint64_t cost_ = 0;
  int depth_ = 0;
};

}  // namespace weft
