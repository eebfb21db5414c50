// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/wire/message.hpp.
#pragma once

#include <weft/wire/detail/broken_protocol.hpp>
#include <weft/wire/detail/section_of.hpp>
#include <weft/wire/message.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>

namespace weft {

WEFT_DECL void message::section(section_kind kind, std::span<const std::byte> content) {
  if (content.size() > limits_->table) {
    throw rpc_error(errc::message_too_large, "a section of " + std::to_string(content.size()) +
                                                 " bytes; a table may hold " +
                                                 std::to_string(limits_->table));
  }
  for (std::size_t at = 0; at < sections_.size();) {
    if (detail::load<section_kind>(sections_.data() + at) == kind) {
      throw rpc_error(errc::invalid_argument, "the message already has a section of kind " +
                                                  std::to_string(static_cast<int>(kind)));
    }
    at += 8 + detail::load<std::uint32_t>(sections_.data() + at + 4);
  }
  sections_.number(kind);
  sections_.number(std::uint16_t{0});
  sections_.number(static_cast<std::uint32_t>(content.size()));
  sections_.append(content.data(), content.size());
  ++section_count_;
}

WEFT_DECL std::uint16_t message::add_blob(blob b) {
  if (frame_.blobs.size() >= limits_->tensors) {
    throw rpc_error(errc::message_too_large,
                    "a message may hold " + std::to_string(limits_->tensors) + " tensor buffers");
  }
  frame_.blobs.push_back(std::move(b));
  return static_cast<std::uint16_t>(frame_.blobs.size() - 1);
}

WEFT_DECL void message::same_payload(const incoming_message& as) {
  const std::span<const std::byte> values = as.whole().payload();
  writer_.raw(values.data(), values.size());
  padded_ = (as.header().flags & flag_padded) != 0;
}

WEFT_DECL void message::check_limits(std::uint64_t payload) const {
  if (payload > limits_->payload) {
    throw rpc_error(errc::message_too_large, "the values take " + std::to_string(payload) +
                                                 " bytes; a payload may hold " +
                                                 std::to_string(limits_->payload));
  }
  const std::uint64_t table = std::uint64_t{8} * frame_.blobs.size() + sections_.size();
  if (table > limits_->table) {
    throw rpc_error(errc::message_too_large, "the sections take " + std::to_string(table) +
                                                 " bytes; a table may hold " +
                                                 std::to_string(limits_->table));
  }
  std::uint64_t tensors = 0;
  for (const blob& b : frame_.blobs) tensors = detail::saturating_add(tensors, b.size());
  if (tensors > limits_->frame_tensor_bytes) {
    throw rpc_error(errc::message_too_large, "the tensors take " + std::to_string(tensors) +
                                                 " bytes; a message may hold " +
                                                 std::to_string(limits_->frame_tensor_bytes));
  }
}

WEFT_DECL frame message::finish(frame_header header) && {
  record_.finish(*this);
  bytes& head = frame_.head;
  header.flags &= static_cast<std::uint16_t>(~flag_padded);
  if (padded_) header.flags |= flag_padded;
  std::uint64_t payload = head.size() - header_size;
  if (const auto wanted = detail::payload_for(writer_.cost()); wanted > payload) {
    check_limits(wanted);
    head.resize(header_size + wanted);
    std::memset(head.data() + header_size + payload, 0, wanted - payload);
    payload = wanted;
    header.flags |= flag_padded;
  }
  check_limits(payload);
  header.payload_bytes = payload;
  header.sections = section_count_;
  header.tensors = static_cast<std::uint16_t>(frame_.blobs.size());
  for (const blob& b : frame_.blobs) head.number(std::uint64_t{b.size()});
  head.append(sections_.data(), sections_.size());
  header.table_bytes = static_cast<std::uint32_t>(head.size() - header_size - payload);
  frame_.header = header;
  frame_.seal();
  return std::move(frame_);
}

WEFT_DECL expected<void> incoming_message::check() {
  constexpr auto refuse = &detail::broken_protocol;
  const frame_header& h = frame_.header;
  const std::uint64_t head = header_size + h.payload_bytes + h.table_bytes;
  if (h.payload_bytes > limits_->payload || frame_.head.size() != head) {
    return refuse("the frame's head has " + std::to_string(frame_.head.size()) + " bytes, not " +
                  std::to_string(head));
  }
  const bool elsewhere = frame_.on_bulk() && frame_.blobs.empty();
  if ((frame_.blobs.size() != h.tensors && !elsewhere) || h.table_bytes / 8 < h.tensors) {
    return refuse("the frame has " + std::to_string(frame_.blobs.size()) + " tensor buffers, not " +
                  std::to_string(h.tensors));
  }
  for (std::size_t i = 0; i < frame_.blobs.size(); ++i) {
    if (frame_.blobs[i].size() != frame_.blob_length(i)) {
      return refuse("tensor buffer " + std::to_string(i) + " has another length than its table");
    }
  }
  const auto table = frame_.table();
  std::size_t at = std::size_t{8} * h.tensors;
  std::array<section_kind, most_sections_to_skip> others{};
  std::size_t all_others = 0;
  for (std::uint16_t i = 0; i < h.sections; ++i) {
    if (table.size() - at < 8) return refuse("the table ends inside a section");
    const auto kind = detail::load<std::uint16_t>(table.data() + at);
    const bool other = may_be_skipped(section_kind{kind});
    const auto zero = detail::load<std::uint16_t>(table.data() + at + 2);
    const auto length = detail::load<std::uint32_t>(table.data() + at + 4);
    at += 8;
    if (kind == 0 || (kind >= sections_.size() && !other) || zero != 0) {
      return refuse("unknown section kind " + std::to_string(kind));
    }
    if (other && all_others == others.size()) return refuse("too many sections of unknown kinds");
    const auto end = others.begin() + static_cast<std::ptrdiff_t>(all_others);
    if (other ? std::find(others.begin(), end, section_kind{kind}) != end
              : sections_[kind].first != 0) {
      return refuse("two sections of kind " + std::to_string(kind));
    }
    if (length > table.size() - at) return refuse("the table ends inside a section");
    if (other) {
      others[all_others++] = section_kind{kind};
    } else {
      sections_[kind] = {header_size + h.payload_bytes + at, length};
    }
    section_bits_ |= bit_of(section_kind{kind});
    at += length;
  }
  if (at != table.size()) return refuse("the table is longer than its sections");
  if (h.tensors > 0 && !section(section_kind::tensors)) {
    return refuse("tensor buffers without a tensors section");
  }
  return {};
}

WEFT_DECL std::optional<std::span<const std::byte>>
incoming_message::section(section_kind kind) const noexcept {
  if (may_be_skipped(kind)) {
    if ((section_bits_ & bit_of(kind)) == 0) return std::nullopt;
    const auto with_head = detail::section_of(frame_, kind);
    return with_head.empty() ? std::nullopt : std::optional(with_head.subspan(8));
  }
  const auto index = static_cast<std::size_t>(kind);
  if (index >= sections_.size() || sections_[index].first == 0) return std::nullopt;
  return frame_.head.view().subspan(sections_[index].first, sections_[index].second);
}

}  // namespace weft
