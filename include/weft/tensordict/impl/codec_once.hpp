// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/codec.hpp that are compiled once.
//
//   u8 (0: as it is, 1: consolidated), then, if consolidated, the buffer, a tensor
//   dimensions: count, then i64 each | names: count (0, or one for each), then strings
//   entries: count, then each: key, value
//   value: u8, then 0: a tensor; 1: a tensordict; 2: data, as JSON; 3: a lazy stack: its dimension,
//   the dimension's name, the batch size of its parts, count, then the parts, as values
//   a tensor in a buffer: u8 dtype, u8 dimensions, i64 each, i64: where it begins
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/codec.hpp>
#include <weft/tensordict/detail/buffer_plan.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>
#include <weft/wire/tensor_desc.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace detail {

/// What a receiver allocates for JSON: nlohmann has some 24 bytes for a character that begins a
/// value or ends one.
template <class Coder>
void charge_json(Coder& c, const std::string& text) {
  c.charge(text.size());
  constexpr std::uint64_t value = 80;
  const auto begins_or_ends = [](char t) {
    return std::string_view("[]{},:").find(t) != std::string_view::npos;
  };
  c.charge(static_cast<std::uint64_t>(std::count_if(text.begin(), text.end(), begins_or_ends)),
           value);
}
/// What a tensor over a buffer costs a receiver. The bytes that it alone has of the buffer count
/// for it; views come in the order of their bytes.
class view_costs {
 public:
  [[nodiscard]] std::uint64_t of(std::int64_t begin, std::int64_t bytes) noexcept {
    constexpr std::int64_t cost = 256;
    const std::int64_t own =
        std::max<std::int64_t>(0, bytes - std::max<std::int64_t>(0, end_ - begin));
    end_ = std::max(end_, begin + bytes);
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, cost - own));
  }

 private:
  std::int64_t end_ = 0;
};

// ── writing ──

/// Where a tensor over a buffer begins in it, in bytes.
inline std::int64_t begin_in(const at::Tensor& t, const at::Tensor& buffer) {
  return t.storage_offset() * static_cast<std::int64_t>(t.itemsize()) - buffer.storage_offset();
}

class tensordict_writer {
 public:
  /// `buffer`: of a consolidated one, else undefined.
  tensordict_writer(writer& out, const at::Tensor& buffer) : out_(out), buffer_(buffer) {}

  void dict(const tensordict_node& node) {
    const auto deeper = out_.nested();
    out_.charge(sizeof(tensordict_node));
    sizes(node.batch);
    codec<std::vector<std::string>>::encode(out_, node.names);
    out_.count(node.entries.size());
    out_.charge(node.entries.size(), sizeof(tensordict_node::entry));
    for (const auto& e : node.entries) {
      codec<std::string>::encode(out_, e.key);
      value(e.value);
    }
  }

 private:
  void value(const tensordict_value& value) {
    if (value.is_tensor()) {
      out_.number(std::uint8_t{0});
      tensor(value.tensor());
    } else if (value.is_dict()) {
      out_.number(std::uint8_t{1});
      dict(tensordict_node::of(value.dict()));
    } else if (value.is_data()) {
      out_.number(std::uint8_t{2});
      const std::string text = value.data().to_string();
      codec<std::string>::encode(out_, text);
      charge_json(out_, text);
    } else {
      stack(value.stack());
    }
  }
  void stack(const lazy_stack& stack) {
    const auto deeper = out_.nested();
    const lazy_node& node = lazy_node::of(stack);
    out_.number(std::uint8_t{3});
    out_.number(static_cast<std::uint32_t>(node.dim));
    codec<std::string>::encode(out_, node.name);
    sizes(part_batch(stack));
    out_.count(node.parts.size());
    out_.charge(sizeof(lazy_node));
    out_.charge(node.parts.size(), sizeof(tensordict_value));
    for (const tensordict_value& part : node.parts) value(part);
  }
  void tensor(const at::Tensor& t) {
    if (!buffer_.defined()) {
      codec<at::Tensor>::encode(out_, t);
      return;
    }
    out_.number(static_cast<std::uint8_t>(t.scalar_type()));
    out_.number(static_cast<std::uint8_t>(t.dim()));
    out_.raw(t.sizes().data(), t.sizes().size() * sizeof(std::int64_t));
    const std::int64_t begin = begin_in(t, buffer_);
    out_.number(begin);
    out_.charge(costs_.of(begin, static_cast<std::int64_t>(t.nbytes())));
  }
  void sizes(const batch_sizes& sizes) {
    codec<std::vector<std::int64_t>>::encode(out_, {sizes.begin(), sizes.end()});
  }

  writer& out_;
  const at::Tensor& buffer_;
  view_costs costs_;
};

/// All tensors are still where `consolidate` put them: a tensor may have been given other memory.
WEFT_DECL bool is_in(const tensordict_value& value, const at::Tensor& buffer) {
  if (value.is_tensor()) {
    const at::Tensor& t = value.tensor();
    const std::int64_t begin = begin_in(t, buffer);
    return t.storage().unsafeGetStorageImpl() == buffer.storage().unsafeGetStorageImpl() &&
           begin >= 0 && begin + static_cast<std::int64_t>(t.nbytes()) <= buffer.numel() &&
           t.is_contiguous() && static_cast<std::size_t>(t.dim()) <= max_tensor_dims &&
           !t.requires_grad();
  }
  if (value.is_dict()) {
    const auto& entries = tensordict_node::of(value.dict()).entries;
    return std::all_of(entries.begin(), entries.end(),
                       [&](const auto& e) { return is_in(e.value, buffer); });
  }
  if (value.is_data()) return true;
  const auto& parts = value.stack().parts();
  return std::all_of(parts.begin(), parts.end(), [&](const auto& p) { return is_in(p, buffer); });
}

// ── reading ──

class tensordict_reader {
 public:
  tensordict_reader(reader& in, at::Tensor buffer) : in_(in), buffer_(std::move(buffer)) {}

  [[nodiscard]] tensordict dict() {
    const auto deeper = in_.nested();
    in_.charge(sizeof(tensordict_node));
    const auto batch = codec<std::vector<std::int64_t>>::decode(in_);
    tensordict out = tensordict_node::make(batch, codec<std::vector<std::string>>::decode(in_));
    tensordict_node& node = tensordict_node::of(out);
    constexpr std::size_t least = 4 + 1 + 4;  // an empty key, a kind, a number or a length
    const std::size_t count = in_.count(least);
    in_.charge(count, sizeof(tensordict_node::entry));
    node.entries.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      auto key = codec<std::string>::decode(in_);
      tensordict_value v = value();
      if (v.is_tensor() && v.tensor().defined()) {
        require_batch(v.tensor().sizes(), batch, key);
      } else {
        if (v.is_dict()) require_batch(v.dict().batch_size(), batch, key);
        v = fit(std::move(v), batch, key);
      }
      node.entries.push_back({std::move(key), std::move(v)});
    }
    if (!node.index_new()) in_.fail("a key twice in a tensordict");
    return out;
  }

 private:
  tensordict_value value() {
    const auto kind = in_.number<std::uint8_t>();
    switch (kind) {
    case 0:
      return buffer_.defined() ? view() : codec<at::Tensor>::decode(in_);
    case 1:
      return dict();
    case 2: {
      const auto text = codec<std::string>::decode(in_);
      charge_json(in_, text);
      return non_tensor::parse(text);
    }
    case 3:
      return stack();
    default:
      in_.fail("an entry of a tensordict that is of kind " + std::to_string(kind));
    }
  }
  lazy_stack stack() {
    const auto deeper = in_.nested();
    const auto dim = in_.number<std::uint32_t>();
    auto name = codec<std::string>::decode(in_);
    const auto batch = codec<std::vector<std::int64_t>>::decode(in_);
    const std::size_t count = in_.count(1);
    in_.charge(sizeof(lazy_node));
    in_.charge(count, sizeof(tensordict_value));
    std::vector<tensordict_value> parts;
    parts.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      parts.push_back(value());
      if (batch_of(parts.back(), batch) != at::IntArrayRef(batch)) {
        in_.fail("a part of a lazy stack with another batch size");
      }
    }
    return lazy_stack(std::move(parts), static_cast<std::int64_t>(dim), std::move(name), batch);
  }
  at::Tensor view() {
    const auto type = in_.number<std::uint8_t>();
    const auto dims = in_.number<std::uint8_t>();
    if (dims > max_tensor_dims) in_.fail("a tensor of " + std::to_string(dims) + " dimensions");
    std::int64_t shape[max_tensor_dims];
    for (std::size_t i = 0; i < dims; ++i) shape[i] = in_.number<std::int64_t>();
    const auto begin = in_.number<std::int64_t>();
    const auto scalar = static_cast<at::ScalarType>(type);
    const auto item = static_cast<std::int64_t>(item_size(type));
    if (item == 0 || torch_name(scalar).empty()) in_.fail("a tensor of an unknown dtype");
    const at::IntArrayRef all(shape, dims);
    const auto bytes = bytes_of(all, scalar);
    if (!bytes || begin < 0 || begin % item != 0 || begin > buffer_.numel() ||
        *bytes > buffer_.numel() - begin) {
      in_.fail("a tensor of sizes " + words(all) + " at " + std::to_string(begin) +
               " of a buffer of " + std::to_string(buffer_.numel()) + " bytes");
    }
    in_.charge(costs_.of(begin, *bytes));
    at::Tensor out = view_of(buffer_, begin, scalar, all);
    require_bools(out, "of a tensordict");
    return out;
  }
  reader& in_;
  at::Tensor buffer_;
  view_costs costs_;
};

}  // namespace detail

WEFT_DECL void codec<tensordict>::encode(writer& w, const tensordict& value) {
  const detail::tensordict_node& node = detail::tensordict_node::of(value);
  const bool one = node.buffer.defined() && detail::is_in(value, node.buffer);
  w.number(static_cast<std::uint8_t>(one ? 1 : 0));
  if (one) codec<at::Tensor>::encode(w, node.buffer);
  detail::tensordict_writer(w, one ? node.buffer : at::Tensor()).dict(node);
}

WEFT_DECL void codec<lazy_stack>::encode(writer& w, const lazy_stack& value) {
  tensordict around;
  around.set("", value);
  codec<tensordict>::encode(w, around);
}
WEFT_DECL lazy_stack codec<lazy_stack>::decode(reader& r) {
  const tensordict around = codec<tensordict>::decode(r);
  if (around.size() == 1 && around.contains("") && around.get("").is_stack()) {
    return around.stack("");
  }
  r.fail("a lazy stack that is none");
}

WEFT_DECL tensordict codec<tensordict>::decode(reader& r) {
  const auto how = r.number<std::uint8_t>();
  if (how > 1) r.fail("a tensordict of kind " + std::to_string(how));
  at::Tensor buffer;
  if (how == 1) {
    buffer = codec<at::Tensor>::decode(r);
    if (!buffer.defined() || buffer.scalar_type() != at::kByte || buffer.dim() != 1 ||
        !buffer.is_contiguous() || buffer.requires_grad()) {
      r.fail("a buffer of a tensordict that is no uint8 tensor of one dimension");
    }
    constexpr std::int64_t widest = 16;  // what arrives lies at a multiple of 64 in memory
    if (buffer.storage_offset() % widest != 0) {
      buffer = buffer.clone();
    }
  }
  try {
    tensordict out = detail::tensordict_reader(r, buffer).dict();
    if (how == 1) {
      out.lock_();
      detail::tensordict_node::of(out).buffer = std::move(buffer);
    }
    return out;
  } catch (const tensordict_error& e) {
    r.fail(e.what());
  }
}

}  // namespace weft
