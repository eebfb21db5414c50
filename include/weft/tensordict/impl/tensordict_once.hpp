// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/tensordict.hpp that are compiled once: entries and locks.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <functional>

namespace weft {
namespace detail {

// ── the node ──

WEFT_DECL tensordict tensordict_node::make(at::IntArrayRef batch, std::vector<std::string> names) {
  require_sizes(batch);
  if (!names.empty() && names.size() != batch.size()) {
    throw tensordict_error(tensordict_errc::dimension, std::to_string(names.size()) +
                                                           " names for a batch size of " +
                                                           words(batch));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty() && std::count(names.begin(), names.end(), names[i]) > 1) {
      throw tensordict_error(tensordict_errc::dimension,
                             "two dimensions have the name '" + names[i] + "'");
    }
  }
  auto node = make_intrusive<tensordict_node>();
  node->batch.assign(batch.begin(), batch.end());
  node->names = std::move(names);
  return tensordict(std::move(node));
}

inline constexpr std::uint32_t no_entry = 0xffffffff;

WEFT_DECL std::size_t tensordict_node::slot(std::string_view key) const noexcept {
  const std::size_t mask = index_.size() - 1;
  std::size_t at = std::hash<std::string_view>()(key) & mask;
  constexpr std::size_t most_steps = 1000;  // at most half is full: a dozen are rare
  for (std::size_t steps = 0; steps < most_steps; ++steps) {
    if (index_[at] == no_entry || entries[index_[at]].key == key) return at;
    at = (at + 1) & mask;
  }
  return npos;
}
WEFT_DECL std::size_t tensordict_node::find(std::string_view key) const noexcept {
  if (entries.size() > most_searched) {
    const std::size_t at = slot(key);
    return at == npos || index_[at] == no_entry ? npos : index_[at];
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].key == key) return i;
  }
  return npos;
}

WEFT_DECL void tensordict_node::put(std::string_view key, tensordict_value value) {
  if (const std::size_t at = find(key); at != npos) {
    entries[at].value = std::move(value);
    return;
  }
  entries.push_back({std::string(key), std::move(value)});
  if (entries.size() <= most_searched) return;
  bool placed = true;
  if (index_.size() < 2 * entries.size()) {
    placed = index_new();
  } else {
    const std::size_t at = slot(key);
    placed = at != npos;
    if (placed) index_[at] = static_cast<std::uint32_t>(entries.size() - 1);
  }
  if (placed) return;
  entries.pop_back();
  static_cast<void>(index_new());
  throw tensordict_error(tensordict_errc::format,
                         "the keys of a tensordict were chosen to have one hash");
}

WEFT_DECL void tensordict_node::remove(std::size_t at) {
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(at));
  index_.clear();
  static_cast<void>(index_new());
}

WEFT_DECL bool tensordict_node::index_new() {
  if (entries.size() <= most_searched) {
    for (std::size_t i = 1; i < entries.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        if (entries[i].key == entries[k].key) return false;
      }
    }
    return true;
  }
  index_.assign(std::bit_ceil(4 * entries.size()), no_entry);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::size_t at = slot(entries[i].key);
    if (at == npos || index_[at] != no_entry) return false;
    index_[at] = static_cast<std::uint32_t>(i);
  }
  return true;
}

WEFT_DECL void tensordict_node::lock_children() {
  for (entry& e : entries) {
    each_dict(e.value, [](const tensordict& td) {
      tensordict_node& child = of(td);
      ++child.locked_by;
      if (!std::exchange(child.locked, true)) child.lock_children();
    });
  }
}
/// They stay locked if they are locked by others, or were.
WEFT_DECL void tensordict_node::free_children() noexcept {
  for (entry& e : entries) {
    each_dict(e.value, [](const tensordict& td) { --of(td).locked_by; });
  }
}

/// `value` as an entry of a tensordict of this batch size: a nested one of a smaller batch size
/// takes the larger one, in a copy of its dictionary.
WEFT_DECL tensordict_value fit(tensordict_value value, at::IntArrayRef batch,
                               const nested_key& key) {
  if (value.is_tensor()) {
    if (!value.tensor().defined()) {
      throw tensordict_error(tensordict_errc::kind, "entry " + words(key) + " is undefined");
    }
    require_batch(value.tensor().sizes(), batch, key);
    return value;
  }
  if (value.is_data()) return value;
  if (value.is_stack()) {
    require_batch(value.stack().batch_size(), batch, key);
    return value;
  }
  if (begins_with(value.dict().batch_size(), batch)) return value;
  tensordict other = value.dict().clone(tensordict::recurse::no);
  key_path path;
  for (std::size_t i = 0; i < key.size(); ++i) path.emplace_back(key[i]);
  require_batch_of_all(other, batch, path);
  other.batch_size_(batch);
  return other;
}

}  // namespace detail

// ── what it is ──

using detail::tensordict_node;

WEFT_DECL tensordict::tensordict() : tensordict(at::IntArrayRef()) {}
WEFT_DECL tensordict::tensordict(at::IntArrayRef batch_size)
    : tensordict(tensordict_node::make(batch_size)) {}
WEFT_DECL tensordict::tensordict(intrusive_ptr<ref_counted> node) noexcept
    : node_(std::move(node)) {}
WEFT_DECL tensordict::tensordict(std::initializer_list<tensordict_item> items,
                                 at::IntArrayRef batch_size, std::vector<std::string> names)
    : tensordict(tensordict_node::make(batch_size, std::move(names))) {
  for (const tensordict_item& i : items) add(i);
}
WEFT_DECL void tensordict::add(const tensordict_item& item) {
  if (item.value_) {
    set(item.key_, *item.value_);
    return;
  }
  tensordict inner(batch_size());
  for (const tensordict_item& i : item.nested_) inner.add(i);
  set(item.key_, std::move(inner));
}

WEFT_DECL tensordict_item::tensordict_item(std::string key, at::Tensor value)
    : key_(std::move(key)), value_(std::move(value)) {}
WEFT_DECL tensordict_item::tensordict_item(std::string key, tensordict value)
    : key_(std::move(key)), value_(std::move(value)) {}
WEFT_DECL tensordict_item::tensordict_item(std::string key, non_tensor value)
    : key_(std::move(key)), value_(std::move(value)) {}
WEFT_DECL tensordict_item::tensordict_item(std::string key, lazy_stack value)
    : key_(std::move(key)), value_(std::move(value)) {}
WEFT_DECL tensordict_item::tensordict_item(std::string key,
                                           std::initializer_list<tensordict_item> nested)
    : key_(std::move(key)), nested_(nested) {}

WEFT_DECL at::IntArrayRef tensordict::batch_size() const noexcept { return node().batch; }
WEFT_DECL std::int64_t tensordict::dim() const noexcept {
  return static_cast<std::int64_t>(node().batch.size());
}
WEFT_DECL std::int64_t tensordict::numel() const noexcept {
  std::int64_t n = 1;
  for (const std::int64_t size : node().batch) n *= size;
  return n;
}
WEFT_DECL std::int64_t tensordict::bytes() const {
  std::int64_t n = 0;
  detail::each_tensor(*this,
                      [&](const at::Tensor& t) { n += static_cast<std::int64_t>(t.nbytes()); });
  return n;
}
WEFT_DECL std::vector<std::string> tensordict::names() const {
  return node().names.empty() ? std::vector<std::string>(node().batch.size()) : node().names;
}
WEFT_DECL std::size_t tensordict::size() const noexcept { return node().entries.size(); }
WEFT_DECL bool tensordict::is_empty() const noexcept {
  bool empty = true;
  for (const auto& e : node().entries) {
    empty = empty && !e.value.is_tensor() && !detail::holds_data(e.value);
    detail::each_dict(e.value, [&](const tensordict& td) { empty = empty && td.is_empty(); });
  }
  return empty;
}

WEFT_DECL const char* tensordict_value::kind() const noexcept {
  constexpr const char* kinds[] = {"a tensor", "a tensordict", "non-tensor data", "a lazy stack"};
  return kinds[value_.index()];
}
namespace detail {
[[noreturn]] WEFT_DECL void refuse_kind(const tensordict_value& value, const char* wanted,
                                        const std::string& entry) {
  throw tensordict_error(tensordict_errc::kind, entry + " is " + value.kind() + ", not " + wanted);
}
}  // namespace detail
WEFT_DECL const at::Tensor& tensordict_value::tensor() const {
  if (const auto* t = std::get_if<at::Tensor>(&value_)) return *t;
  detail::refuse_kind(*this, "a tensor", "the entry");
}
WEFT_DECL const tensordict& tensordict_value::dict() const {
  if (const auto* td = std::get_if<tensordict>(&value_)) return *td;
  detail::refuse_kind(*this, "a tensordict", "the entry");
}
WEFT_DECL const non_tensor& tensordict_value::data() const {
  if (const auto* data = std::get_if<non_tensor>(&value_)) return *data;
  detail::refuse_kind(*this, "non-tensor data", "the entry");
}
WEFT_DECL const lazy_stack& tensordict_value::stack() const {
  if (const auto* stack = std::get_if<lazy_stack>(&value_)) return *stack;
  detail::refuse_kind(*this, "a lazy stack", "the entry");
}

// ── entries ──

WEFT_DECL bool tensordict::contains(const nested_key& key) const noexcept {
  return detail::walk(node(), key).value != nullptr;
}
WEFT_DECL const tensordict_value& tensordict::get(const nested_key& key) const {
  return detail::value_at(node(), key);
}
WEFT_DECL const at::Tensor& tensordict::tensor(const nested_key& key) const {
  const tensordict_value& v = get(key);
  if (v.is_tensor()) return v.tensor();
  detail::refuse_kind(v, "a tensor", "entry " + detail::words(key));
}
WEFT_DECL tensordict tensordict::dict(const nested_key& key) const {
  const tensordict_value& v = get(key);
  if (v.is_dict()) return v.dict();
  detail::refuse_kind(v, "a tensordict", "entry " + detail::words(key));
}
WEFT_DECL const non_tensor& tensordict::data(const nested_key& key) const {
  const tensordict_value& v = get(key);
  if (v.is_data()) return v.data();
  detail::refuse_kind(v, "non-tensor data", "entry " + detail::words(key));
}
WEFT_DECL const lazy_stack& tensordict::stack(const nested_key& key) const {
  const tensordict_value& v = get(key);
  if (v.is_stack()) return v.stack();
  detail::refuse_kind(v, "a lazy stack", "entry " + detail::words(key));
}
WEFT_DECL tensordict_entry tensordict::operator[](std::string_view key) const& {
  return {*this, std::string(key)};
}
WEFT_DECL tensordict_value tensordict::operator[](std::string_view key) const&& { return get(key); }
WEFT_DECL tensordict_value tensordict_value::operator[](std::string_view key) const {
  return dict().get(key);
}

WEFT_DECL const at::Tensor& tensordict_entry::tensor() const { return in_.tensor(key_); }
WEFT_DECL tensordict tensordict_entry::dict() const { return in_.dict(key_); }
WEFT_DECL tensordict_entry tensordict_entry::operator[](std::string_view key) const {
  tensordict_entry out = *this;
  out.key_.emplace_back(key);
  return out;
}
WEFT_DECL const tensordict_entry& tensordict_entry::operator=(const at::Tensor& value) const {
  tensordict(in_).set(key_, value);
  return *this;
}
WEFT_DECL const tensordict_entry& tensordict_entry::operator=(const tensordict& value) const {
  tensordict(in_).set(key_, value);
  return *this;
}
WEFT_DECL const tensordict_entry& tensordict_entry::operator=(const non_tensor& value) const {
  tensordict(in_).set(key_, value);
  return *this;
}
WEFT_DECL const tensordict_entry& tensordict_entry::operator=(const lazy_stack& value) const {
  tensordict(in_).set(key_, value);
  return *this;
}
WEFT_DECL const tensordict_entry& tensordict_entry::operator=(const tensordict_entry& value) const {
  tensordict(in_).set(key_, value.in_.get(value.key_));
  return *this;
}

namespace detail {
WEFT_DECL void list_keys(const tensordict& td, tensordict::leaves_only which, key_path& path,
                         std::vector<key_path>& out);
WEFT_DECL void list_keys_in(const tensordict_value& value, tensordict::leaves_only which,
                            key_path& path, std::vector<key_path>& out) {
  if (value.is_dict()) list_keys(value.dict(), which, path, out);
  if (!value.is_stack()) return;
  std::size_t number = 0;
  for (const tensordict_value& part : value.stack().parts()) {
    path.push_back(std::to_string(number++));
    list_keys_in(part, which, path, out);
    path.pop_back();
  }
}
WEFT_DECL void list_keys(const tensordict& td, tensordict::leaves_only which, key_path& path,
                         std::vector<key_path>& out) {
  for (const auto& e : tensordict_node::of(td).entries) {
    path.push_back(e.key);
    list_keys_in(e.value, which, path, out);
    if (e.value.is_tensor() || which == tensordict::leaves_only::no) out.push_back(path);
    path.pop_back();
  }
}
WEFT_DECL void list_leaves(const tensordict_value& value, key_path& path,
                           std::vector<std::pair<key_path, at::Tensor>>& out) {
  if (value.is_tensor()) {
    out.emplace_back(path, value.tensor());
  } else if (value.is_dict()) {
    for (const auto& e : tensordict_node::of(value.dict()).entries) {
      path.push_back(e.key);
      list_leaves(e.value, path, out);
      path.pop_back();
    }
  } else if (value.is_stack()) {
    std::size_t number = 0;
    for (const tensordict_value& part : value.stack().parts()) {
      path.push_back(std::to_string(number++));
      list_leaves(part, path, out);
      path.pop_back();
    }
  }
}
}  // namespace detail

WEFT_DECL std::vector<key_path> tensordict::keys(nested deep, leaves_only which) const {
  std::vector<key_path> out;
  key_path path;
  if (deep == nested::yes) {
    detail::list_keys(*this, which, path, out);
    return out;
  }
  for (const auto& e : node().entries) {
    if (e.value.is_tensor() || which == leaves_only::no) out.push_back({e.key});
  }
  return out;
}
WEFT_DECL std::vector<std::pair<key_path, at::Tensor>> tensordict::leaves() const {
  std::vector<std::pair<key_path, at::Tensor>> out;
  key_path path;
  detail::list_leaves(*this, path, out);
  return out;
}

WEFT_DECL tensordict& tensordict::set(const nested_key& key, tensordict_value value) {
  // Nothing is made before all is checked.
  constexpr std::size_t most_names = 1000;  // tensordicts within one another
  if (key.size() > most_names) {
    throw tensordict_error(tensordict_errc::no_key,
                           "a key of " + std::to_string(key.size()) + " names");
  }
  const auto [at, depth] = detail::reach(node(), key);
  detail::require_unlocked(*at, key);
  tensordict_value fits = detail::fit(std::move(value), at->batch, key);
  if (detail::has(fits, *at)) {
    throw tensordict_error(tensordict_errc::kind,
                           "entry " + detail::words(key) + " would contain itself");
  }
  for (std::size_t i = key.size(); i-- > depth + 1;) {
    tensordict around(at->batch);
    tensordict_node::of(around).put(key[i], std::move(fits));
    fits = std::move(around);
  }
  at->put(key[depth], std::move(fits));
  return *this;
}

WEFT_DECL tensordict& tensordict::set_(const nested_key& key, const at::Tensor& value) {
  const at::Tensor& into = tensor(key);
  const bool part = detail::walk(node(), key).through_stack;
  if (!part) detail::require_batch(value.sizes(), detail::parent_of(node(), key).batch, key);
  detail::require_broadcast(value.sizes(), into.sizes(), key);
  into.copy_(value);
  return *this;
}

WEFT_DECL tensordict& tensordict::erase(const nested_key& key) {
  static_cast<void>(pop(key));
  return *this;
}
WEFT_DECL tensordict_value tensordict::pop(const nested_key& key) {
  tensordict_node& in = detail::parent_of(node(), key);
  const std::size_t place = in.find(key[key.size() - 1]);
  if (place == tensordict_node::npos) detail::refuse_key(in, key);
  detail::require_unlocked(in, key);
  tensordict_value out = std::move(in.entries[place].value);
  in.remove(place);
  return out;
}
WEFT_DECL tensordict& tensordict::rename_key_(const nested_key& from, const nested_key& to) {
  tensordict_value moved = get(from);
  const tensordict_node& in = detail::parent_of(node(), from);
  detail::require_unlocked(in, from);
  if (detail::same(from, to)) return *this;
  if (moved.is_dict() && detail::below(to, from)) {
    throw tensordict_error(tensordict_errc::kind,
                           "entry " + detail::words(from) + " would contain itself");
  }
  set(to, std::move(moved));
  // If `to` lies above `from`, that one is gone already.
  if (!detail::below(from, to)) erase(from);
  return *this;
}

// ── lock ──

WEFT_DECL tensordict& tensordict::lock_() {
  if (!std::exchange(node().locked, true)) node().lock_children();
  return *this;
}
WEFT_DECL tensordict& tensordict::unlock_() {
  if (!node().locked) return *this;
  if (node().locked_by > 0) {
    throw tensordict_error(tensordict_errc::locked,
                           "the tensordict is an entry of a locked one: unlock that one");
  }
  node().locked = false;
  node().buffer.reset();
  node().folder.reset();
  node().free_children();
  for (auto& e : node().entries) {
    detail::each_dict(e.value, [](const tensordict& td) {
      if (tensordict_node::of(td).locked_by == 0) tensordict(td).unlock_();
    });
  }
  return *this;
}
WEFT_DECL bool tensordict::is_locked() const noexcept { return node().locked; }

}  // namespace weft
