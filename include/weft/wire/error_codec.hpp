// SPDX-License-Identifier: BSL-1.0
// How an error is sent: as the payload of `failure` and `refuse` frames, or as a value.
//
//   category 1   0 success (nothing follows), 1 weft, 2 generic, 3 system
//   code     4   the value in that category; other categories arrive as weft's remote_exception
//   origin 1, execution 1, incarnation 8, deadline µs 8, elapsed µs 8,
//   text, peer, function, remote type (strings, cut at 4096 bytes),
//   and again from `category` for the cause, at most 8 deep
#pragma once

#include <weft/core/error.hpp>
#include <weft/wire/codec.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft {

template <>
struct codec<error> {
  static constexpr std::size_t min_size = 1;
  static constexpr std::size_t max_text = 4096;
  static constexpr int max_causes = 8;

  static void encode(writer& w, const error& value);
  static error decode(reader& r);

 private:
  static error decode(reader& r, int causes_left);
  static void write_text(writer& w, const std::string& text);
  static std::string read_text(reader& r);
};

inline void codec<error>::write_text(writer& w, const std::string& text) {
  const std::size_t n = text.size() < max_text ? text.size() : max_text;
  w.count(n);
  w.charge(n);
  w.raw(text.data(), n);
}

inline std::string codec<error>::read_text(reader& r) {
  const std::size_t n = r.count(1);
  if (n > max_text) r.fail("an error text of " + std::to_string(n) + " bytes");
  r.charge(n);
  const auto source = r.raw(n);
  return std::string(reinterpret_cast<const char*>(source.data()), n);
}

inline void codec<error>::encode(writer& w, const error& value) {
  error next = value;
  for (int depth = 0; next && depth < max_causes; ++depth, next = next.cause()) {
    const std::error_code& code = next.code();
    const error_detail& d = next.detail();
    std::uint8_t category = 1;
    int number = code.value();
    std::string text = d.text;
    if (code.category() == std::generic_category()) {
      category = 2;
    } else if (code.category() == std::system_category()) {
      category = 3;
    } else if (code.category() != weft::category()) {
      number = static_cast<int>(errc::remote_exception);
      text = std::string(code.category().name()) + ": " + code.message() +
             (text.empty() ? "" : ": ") + text;
    }
    w.charge(sizeof(error_detail) + detail::allocation_cost);
    w.number(category);
    w.number(static_cast<std::int32_t>(number));
    w.number(d.from);
    w.number(d.ran);
    w.number(d.incarnation);
    w.number(static_cast<std::int64_t>(d.deadline.count()));
    w.number(static_cast<std::int64_t>(d.elapsed.count()));
    write_text(w, text);
    write_text(w, d.peer);
    write_text(w, d.function);
    write_text(w, d.remote_type);
  }
  w.number(std::uint8_t{0});
}

inline error codec<error>::decode(reader& r) { return decode(r, max_causes); }

inline error codec<error>::decode(reader& r, int causes_left) {
  const auto kind = r.number<std::uint8_t>();
  if (kind == 0) return {};
  if (kind > 3) r.fail("unknown error category " + std::to_string(kind));
  if (causes_left == 0) r.fail("an error with more than 8 causes");
  const int number = r.number<std::int32_t>();
  if (number == 0) r.fail("an error that says success");
  r.charge(sizeof(error_detail) + detail::allocation_cost);
  auto d = make_intrusive<error_detail>();
  const auto from = r.number<std::uint8_t>();
  const auto ran = r.number<std::uint8_t>();
  if (from > static_cast<std::uint8_t>(origin::remote_user) ||
      ran > static_cast<std::uint8_t>(call_progress::executed)) {
    r.fail("unknown origin or execution of an error");
  }
  d->from = static_cast<origin>(from);
  d->ran = static_cast<call_progress>(ran);
  d->incarnation = r.number<std::uint64_t>();
  d->deadline = std::chrono::microseconds(r.number<std::int64_t>());
  d->elapsed = std::chrono::microseconds(r.number<std::int64_t>());
  d->text = read_text(r);
  d->peer = read_text(r);
  d->function = read_text(r);
  d->remote_type = read_text(r);
  const error cause = decode(r, causes_left - 1);
  if (cause) {
    d->cause_code = cause.code();
    d->cause = cause.shared_detail();
  }
  const std::error_category& category = kind == 1   ? weft::category()
                                        : kind == 2 ? std::generic_category()
                                                    : std::system_category();
  return error(std::error_code(number, category), intrusive_ptr<const error_detail>(std::move(d)));
}

}  // namespace weft
