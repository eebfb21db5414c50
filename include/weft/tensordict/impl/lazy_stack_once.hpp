// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/lazy_stack.hpp that are compiled once.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/batch_index.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <numeric>

namespace weft {
namespace detail {

WEFT_DECL at::IntArrayRef batch_of(const tensordict_value& part, at::IntArrayRef inner) {
  if (part.is_dict()) return part.dict().batch_size();
  return part.is_stack() ? part.stack().batch_size() : inner;
}
WEFT_DECL batch_sizes without(at::IntArrayRef sizes, std::size_t dim) {
  batch_sizes out(sizes.begin(), sizes.end());
  out.erase(out.begin() + dim);
  return out;
}
WEFT_DECL batch_sizes part_batch(const lazy_stack& stack) {
  return without(stack.batch_size(), static_cast<std::size_t>(stack.stack_dim()));
}
WEFT_DECL lazy_stack same_stack(const lazy_stack& like, std::vector<tensordict_value> parts) {
  const batch_sizes batch = part_batch(like);
  return lazy_stack(std::move(parts), like.stack_dim(), like.stack_dim_name(), batch);
}

// ── data ──

WEFT_DECL data_elements data_of(const tensordict_value& value, at::IntArrayRef batch) {
  data_elements out;
  if (value.is_data()) {
    out.items.push_back(value.data());
    out.which = at::full(batch, 0, at::kLong);
    return out;
  }
  const lazy_stack& stack = value.stack();
  const batch_sizes inner = part_batch(stack);
  std::vector<at::Tensor> parts;
  for (const tensordict_value& part : stack.parts()) {
    data_elements of_part = data_of(part, inner);
    parts.push_back(of_part.which.add(static_cast<std::int64_t>(out.items.size())));
    out.items.insert(out.items.end(), of_part.items.begin(), of_part.items.end());
  }
  out.which = parts.empty() ? at::full(stack.batch_size(), 0, at::kLong)
                            : at::stack(parts, stack.stack_dim());
  return out;
}
WEFT_DECL tensordict_value stack_of(const std::vector<non_tensor>& items, const at::Tensor& which) {
  if (which.dim() == 0) return items[static_cast<std::size_t>(which.item<std::int64_t>())];
  std::vector<tensordict_value> parts;
  const at::Tensor flat = which.contiguous();
  const auto* numbers = static_cast<const std::int64_t*>(flat.const_data_ptr());
  for (std::int64_t i = 0; i < which.size(0); ++i) {
    if (which.dim() == 1) {
      parts.emplace_back(items[static_cast<std::size_t>(numbers[i])]);
    } else {
      parts.push_back(stack_of(items, which.select(0, i)));
    }
  }
  return lazy_stack(std::move(parts), 0, {}, which.sizes().slice(1));
}

// ── every tensor anew ──

WEFT_DECL tensordict_value mapped_value(const tensordict_value& value,
                                        c10::function_ref<at::Tensor(const at::Tensor&)> f) {
  if (value.is_tensor()) return f(value.tensor());
  if (value.is_dict()) return mapped(value.dict(), f);
  return value.is_data() ? value : tensordict_value(mapped(value.stack(), f));
}
WEFT_DECL tensordict mapped(const tensordict& td,
                            c10::function_ref<at::Tensor(const at::Tensor&)> f) {
  const tensordict_node& from = tensordict_node::of(td);
  tensordict out = tensordict_node::make(from.batch, from.names);
  tensordict_node& to = tensordict_node::of(out);
  to.entries.reserve(from.entries.size());
  for (const auto& e : from.entries) to.append(e.key, mapped_value(e.value, f));
  to.same_keys(from);
  return out;
}
WEFT_DECL lazy_stack mapped(const lazy_stack& stack,
                            c10::function_ref<at::Tensor(const at::Tensor&)> f) {
  std::vector<tensordict_value> parts;
  for (const tensordict_value& part : stack.parts()) parts.push_back(mapped_value(part, f));
  return same_stack(stack, std::move(parts));
}

// ── indexing ──

/// What a part becomes.
WEFT_DECL tensordict_value index_part(const tensordict_value& part,
                                      at::ArrayRef<at::indexing::TensorIndex> index) {
  if (index.empty()) return part;
  if (part.is_tensor()) return at::indexing::get_item(part.tensor(), index);
  return part.is_dict() ? tensordict_value(part.dict().index(index)) : part.stack().index(index);
}

/// How an index without ellipsis meets dimension `dim`: the item that selects from it, and the
/// place of what it gives among the dimensions of the result.
struct met_item {
  std::size_t item = 0;
  bool only_advanced = false;  // no other item is a tensor or a bool
  bool between = false;        // some stand before it, and some behind: it keeps them apart
  std::int64_t place = 0;      // if it is a slice, or the only tensor, of one dimension
};
WEFT_DECL met_item meet(at::ArrayRef<at::indexing::TensorIndex> index, std::size_t dim) {
  const auto advanced = [](const at::indexing::TensorIndex& i) {
    return i.is_tensor() || i.is_boolean();
  };
  met_item out;
  std::size_t taken = 0;
  for (out.item = 0; out.item < index.size(); ++out.item) {
    const auto& i = index[out.item];
    if (taken + dims_taken(i) > dim) break;
    taken += dims_taken(i);
  }
  // Tensors that stand side by side give their dimensions in their place, others give them first.
  std::size_t others = 0;
  std::int64_t block = 0;
  bool apart = false;
  bool ended = false;
  std::int64_t before = 0;  // dimensions that slices and None give before the item
  bool block_before = false;
  bool block_behind = false;
  for (std::size_t at = 0; at < index.size(); ++at) {
    const auto& i = index[at];
    if (i.is_integer()) continue;
    if (!advanced(i)) {
      ended = others > 0;
      before += at < out.item ? 1 : 0;
      continue;
    }
    if (at == out.item) continue;
    apart = apart || (ended && others > 0);
    block_before = block_before || at < out.item;
    block_behind = block_behind || at > out.item;
    ++others;
    const bool mask = i.is_boolean() || dims_taken(i) != 1 || i.tensor().scalar_type() == at::kBool;
    block = std::max(block, mask ? std::int64_t{1} : i.tensor().dim());
  }
  out.only_advanced = others == 0;
  out.between = block_before && block_behind;
  out.place = before + (others > 0 && (apart || block_before) ? block : 0);
  return out;
}

WEFT_DECL tensordict_value index_stack(const lazy_stack& stack, at::IntArrayRef batch,
                                       std::vector<at::indexing::TensorIndex> index) {
  if (stack.is_data()) {
    data_elements elements = data_of(stack, stack.batch_size());
    elements.which = at::indexing::get_item(elements.which, index);
    return stack_of(elements);
  }
  std::size_t taken = 0;
  for (const auto& i : index) taken += dims_taken(i);
  for (; taken < stack.batch_size().size(); ++taken) index.emplace_back(at::indexing::Slice());
  const auto dim = static_cast<std::size_t>(stack.stack_dim());
  const met_item met = meet(index, dim);
  at::indexing::TensorIndex item = index[met.item];
  std::vector<at::indexing::TensorIndex> rest = index;
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(met.item));
  const auto size = static_cast<std::int64_t>(stack.size());
  if (item.is_integer()) {
    const std::int64_t at = item.integer().guard_int(__FILE__, __LINE__);
    return index_part(stack[static_cast<std::size_t>(at < 0 ? at + size : at)], rest);
  }
  const bool slice = item.is_slice();
  if (slice ? met.between : !(met.only_advanced && item.is_tensor() && item.tensor().dim() == 1)) {
    return stack.dense().index(index);
  }
  const at::Tensor chosen =
      at::indexing::get_item(at::arange(size, at::kLong), {item}).contiguous();
  std::vector<tensordict_value> parts;
  const auto* numbers = static_cast<const std::int64_t*>(chosen.const_data_ptr());
  for (std::int64_t i = 0; i < chosen.numel(); ++i) {
    parts.push_back(index_part(stack[static_cast<std::size_t>(numbers[i])], rest));
  }
  if (parts.empty()) {  // nothing tells its keys any more
    return tensordict_node::make(batch);
  }
  batch_sizes inner = without(batch, static_cast<std::size_t>(met.place));
  return lazy_stack(std::move(parts), met.place, stack.stack_dim_name(), inner);
}

/// The first parts' keys that all have.
WEFT_DECL void common_keys(const tensordict_value& value, std::vector<std::string>& keys,
                           bool& first) {
  if (value.is_stack()) {
    for (const tensordict_value& part : value.stack().parts()) common_keys(part, keys, first);
  } else if (value.is_dict()) {
    const tensordict_node& node = tensordict_node::of(value.dict());
    if (std::exchange(first, false)) {
      for (const auto& e : node.entries) keys.push_back(e.key);
    } else {
      std::erase_if(keys, [&](const auto& k) { return node.find(k) == tensordict_node::npos; });
    }
  }
}

WEFT_DECL at::Tensor stacked_tensor(const tensordict_value& value, const nested_key& key) {
  if (value.is_dict()) return value.dict().tensor(key);
  if (!value.is_stack()) refuse_kind(value, "a tensordict", "the part");
  std::vector<at::Tensor> tensors;
  for (const tensordict_value& part : value.stack().parts()) {
    tensors.push_back(stacked_tensor(part, key));
    if (tensors.back().sizes() == tensors.front().sizes()) continue;
    throw tensordict_error(tensordict_errc::shape,
                           "entry " + words(key) + " of a lazy stack has the sizes " +
                               words(tensors.front().sizes()) + " and " +
                               words(tensors.back().sizes()) + ", which do not stack");
  }
  return at::stack(tensors, value.stack().stack_dim());
}

}  // namespace detail

using detail::lazy_node;

WEFT_DECL lazy_stack::lazy_stack(std::vector<tensordict_value> parts, std::int64_t dim,
                                 std::string name, at::IntArrayRef inner) {
  detail::require_sizes(inner);
  const at::IntArrayRef batch = parts.empty() ? inner : detail::batch_of(parts.front(), inner);
  for (const tensordict_value& part : parts) {
    if (part.kind() != parts.front().kind() ||
        detail::holds_data(part) != detail::holds_data(parts.front())) {
      throw tensordict_error(tensordict_errc::kind, std::string("the parts of a lazy stack are ") +
                                                        parts.front().kind() + " and " +
                                                        part.kind() + ": they are all of one kind");
    }
    if (part.is_tensor() && !part.tensor().defined()) {
      throw tensordict_error(tensordict_errc::kind, "a part of a lazy stack is undefined");
    }
    const at::IntArrayRef own =
        part.is_tensor() ? part.tensor().sizes() : detail::batch_of(part, inner);
    if (part.is_tensor() ? detail::begins_with(own, batch) : own == batch) continue;
    throw tensordict_error(tensordict_errc::shape,
                           "the parts of a lazy stack have the batch sizes " +
                               detail::words(batch) + " and " + detail::words(own));
  }
  const std::int64_t at =
      detail::wrap(dim, static_cast<std::int64_t>(batch.size()) + 1, "a lazy stack");
  auto node = make_intrusive<lazy_node>();
  node->batch.assign(batch.begin(), batch.end());
  node->batch.insert(node->batch.begin() + at, static_cast<std::int64_t>(parts.size()));
  detail::require_sizes(node->batch);
  node->parts = std::move(parts);
  node->dim = static_cast<std::size_t>(at);
  node->name = std::move(name);
  node_ = std::move(node);
}

WEFT_DECL at::IntArrayRef lazy_stack::batch_size() const noexcept {
  return lazy_node::of(*this).batch;
}
WEFT_DECL std::int64_t lazy_stack::dim() const noexcept {
  return static_cast<std::int64_t>(batch_size().size());
}
WEFT_DECL std::int64_t lazy_stack::stack_dim() const noexcept {
  return static_cast<std::int64_t>(lazy_node::of(*this).dim);
}
WEFT_DECL const std::string& lazy_stack::stack_dim_name() const noexcept {
  return lazy_node::of(*this).name;
}
WEFT_DECL const std::vector<tensordict_value>& lazy_stack::parts() const noexcept {
  return lazy_node::of(*this).parts;
}
WEFT_DECL std::size_t lazy_stack::size() const noexcept { return parts().size(); }
WEFT_DECL const tensordict_value& lazy_stack::operator[](std::size_t part) const {
  if (part < size()) return parts()[part];
  throw tensordict_error(tensordict_errc::index, "part " + std::to_string(part) +
                                                     " of a lazy stack of " +
                                                     std::to_string(size()));
}
WEFT_DECL bool lazy_stack::is_data() const noexcept {
  return std::all_of(parts().begin(), parts().end(), detail::holds_data);
}
WEFT_DECL std::vector<std::string> lazy_stack::keys() const {
  std::vector<std::string> out;
  bool first = true;
  detail::common_keys(*this, out, first);
  return out;
}
WEFT_DECL at::Tensor lazy_stack::tensor(const nested_key& key) const {
  if (parts().empty()) {
    throw tensordict_error(tensordict_errc::no_key, "a lazy stack without parts has no keys");
  }
  return detail::stacked_tensor(*this, key);
}
WEFT_DECL tensordict lazy_stack::dense() const {
  std::vector<tensordict> all;
  for (const tensordict_value& part : parts()) {
    if (part.is_tensor()) detail::refuse_kind(part, "a tensordict", "a part of the lazy stack");
    all.push_back(part.is_stack() ? part.stack().dense() : part.dict());
  }
  if (all.empty()) return detail::tensordict_node::make(batch_size());
  return weft::stack(all, stack_dim());
}
WEFT_DECL tensordict_value lazy_stack::index(at::ArrayRef<at::indexing::TensorIndex> index) const {
  const detail::batch_index at = detail::understood(batch_size(), {}, index);
  return detail::index_stack(*this, at.batch, at.index);
}

}  // namespace weft
