// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/tensordict.hpp that are compiled once: entries and locks.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>

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

WEFT_DECL std::size_t tensordict_node::find(std::string_view key) const noexcept {
  if (entries.size() <= most_searched) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].key == key) return i;
    }
    return npos;
  }
  const auto at = index_.find(key);
  return at == index_.end() ? npos : at->second;
}

WEFT_DECL void tensordict_node::put(std::string_view key, tensordict_value value) {
  if (const std::size_t at = find(key); at != npos) {
    entries[at].value = std::move(value);
    return;
  }
  entries.push_back({std::string(key), std::move(value)});
  if (entries.size() == most_searched + 1) {
    index_all();
  } else if (entries.size() > most_searched) {
    index_.emplace(entries.back().key, entries.size() - 1);
  }
}

WEFT_DECL void tensordict_node::remove(std::size_t at) {
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(at));
  index_.clear();
  if (entries.size() > most_searched) index_all();
}

WEFT_DECL void tensordict_node::index_all() {
  for (std::size_t i = 0; i < entries.size(); ++i) index_.emplace(entries[i].key, i);
}

WEFT_DECL void tensordict_node::lock_children() {
  for (entry& e : entries) {
    if (e.value.is_tensor()) continue;
    tensordict_node& child = of(e.value.dict());
    ++child.locked_by;
    if (!std::exchange(child.locked, true)) child.lock_children();
  }
}
/// They stay locked if they are locked by others, or were.
WEFT_DECL void tensordict_node::free_children() noexcept {
  for (entry& e : entries) {
    if (!e.value.is_tensor()) --of(e.value.dict()).locked_by;
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
  for (const auto& e : node().entries) {
    n += e.value.is_tensor() ? static_cast<std::int64_t>(e.value.tensor().nbytes())
                             : e.value.dict().bytes();
  }
  return n;
}
WEFT_DECL std::vector<std::string> tensordict::names() const {
  return node().names.empty() ? std::vector<std::string>(node().batch.size()) : node().names;
}
WEFT_DECL std::size_t tensordict::size() const noexcept { return node().entries.size(); }
WEFT_DECL bool tensordict::is_empty() const noexcept {
  return std::all_of(node().entries.begin(), node().entries.end(), [](const auto& e) {
    return !e.value.is_tensor() && e.value.dict().is_empty();
  });
}

WEFT_DECL const at::Tensor& tensordict_value::tensor() const {
  if (!dict_) return tensor_;
  throw tensordict_error(tensordict_errc::kind, "the entry is a tensordict, not a tensor");
}
WEFT_DECL const tensordict& tensordict_value::dict() const {
  if (dict_) return *dict_;
  throw tensordict_error(tensordict_errc::kind, "the entry is a tensor, not a tensordict");
}

// ── entries ──

WEFT_DECL bool tensordict::contains(const nested_key& key) const noexcept {
  const tensordict_node* at = &node();
  for (std::size_t i = 0; i < key.size(); ++i) {
    const std::size_t place = at->find(key[i]);
    if (place == tensordict_node::npos) return false;
    if (i + 1 == key.size()) return true;
    const tensordict_value& next = at->entries[place].value;
    if (next.is_tensor()) return false;
    at = &tensordict_node::of(next.dict());
  }
  return false;
}
WEFT_DECL const tensordict_value& tensordict::get(const nested_key& key) const {
  return detail::entry_at(node(), key).value;
}
WEFT_DECL const at::Tensor& tensordict::tensor(const nested_key& key) const {
  const tensordict_value& v = get(key);
  if (v.is_tensor()) return v.tensor();
  throw tensordict_error(tensordict_errc::kind,
                         "entry " + detail::words(key) + " is a tensordict, not a tensor");
}
WEFT_DECL tensordict tensordict::dict(const nested_key& key) const {
  const tensordict_value& v = get(key);
  if (!v.is_tensor()) return v.dict();
  throw tensordict_error(tensordict_errc::kind,
                         "entry " + detail::words(key) + " is a tensor, not a tensordict");
}
WEFT_DECL tensordict_entry tensordict::operator[](std::string_view key) const {
  return {*this, std::string(key)};
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
WEFT_DECL const tensordict_entry& tensordict_entry::operator=(const tensordict_entry& value) const {
  tensordict(in_).set(key_, value.in_.get(value.key_));
  return *this;
}

namespace detail {
WEFT_DECL void list_keys(const tensordict& td, tensordict::nested deep,
                         tensordict::leaves_only which, key_path& path,
                         std::vector<key_path>& out) {
  for (const auto& e : tensordict_node::of(td).entries) {
    path.push_back(e.key);
    const bool leaf = e.value.is_tensor();
    if (!leaf && deep == tensordict::nested::yes) list_keys(e.value.dict(), deep, which, path, out);
    if (leaf || which == tensordict::leaves_only::no) out.push_back(path);
    path.pop_back();
  }
}
WEFT_DECL void list_leaves(const tensordict& td, key_path& path,
                           std::vector<std::pair<key_path, at::Tensor>>& out) {
  for (const auto& e : tensordict_node::of(td).entries) {
    path.push_back(e.key);
    if (e.value.is_tensor()) {
      out.emplace_back(path, e.value.tensor());
    } else {
      list_leaves(e.value.dict(), path, out);
    }
    path.pop_back();
  }
}
}  // namespace detail

WEFT_DECL std::vector<key_path> tensordict::keys(nested deep, leaves_only which) const {
  std::vector<key_path> out;
  key_path path;
  detail::list_keys(*this, deep, which, path, out);
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
  const auto [at, depth] = detail::reach(node(), key);
  detail::require_unlocked(*at, key);
  tensordict_value fits = detail::fit(std::move(value), at->batch, key);
  if (!fits.is_tensor() && detail::has(fits.dict(), *at)) {
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
  detail::require_batch(value.sizes(), detail::parent_of(node(), key).batch, key);
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
  if (!moved.is_tensor() && detail::below(to, from)) {
    throw tensordict_error(tensordict_errc::kind,
                           "entry " + detail::words(from) + " would contain itself");
  }
  set(to, std::move(moved));
  // If `to` lies above `from`, that one is gone already.
  if (!detail::below(from, to)) erase(from);
  return *this;
}

// ── others of the same entries ──

WEFT_DECL tensordict tensordict::select(std::span<const nested_key> keys) const {
  tensordict out = tensordict_node::make(batch_size(), node().names);
  for (const nested_key& key : keys) detail::take_over(*this, out, key);
  return out;
}
WEFT_DECL tensordict tensordict::select(std::initializer_list<nested_key> keys) const {
  return select(std::span(keys.begin(), keys.size()));
}
WEFT_DECL tensordict tensordict::exclude(std::span<const nested_key> keys) const {
  tensordict out = clone(recurse::no);
  for (const nested_key& key : keys) {
    if (out.contains(key)) out.erase(key);
  }
  return out;
}
WEFT_DECL tensordict tensordict::exclude(std::initializer_list<nested_key> keys) const {
  return exclude(std::span(keys.begin(), keys.size()));
}
WEFT_DECL std::pair<tensordict, tensordict>
tensordict::split_keys(std::initializer_list<nested_key> keys) const {
  return {select(keys), exclude(keys)};
}

namespace detail {
/// Copies the entry `key` of `from` into `to`, with the tensordicts on the way.
WEFT_DECL void take_over(const tensordict& from, tensordict& to, const nested_key& key) {
  const tensordict_value& value = from.get(key);
  tensordict_node* source = &tensordict_node::of(from);
  tensordict_node* at = &tensordict_node::of(to);
  for (std::size_t i = 0; i + 1 < key.size(); ++i) {
    source = &tensordict_node::of(source->entries[source->find(key[i])].value.dict());
    std::size_t place = at->find(key[i]);
    if (place == tensordict_node::npos) {
      at->put(key[i], tensordict_node::make(source->batch, source->names));
      place = at->find(key[i]);
    }
    at = &tensordict_node::of(at->entries[place].value.dict());
  }
  // What is filled further stays apart from the source.
  at->put(key[key.size() - 1], value.is_tensor()
                                   ? value
                                   : tensordict_value(value.dict().clone(tensordict::recurse::no)));
}
}  // namespace detail

WEFT_DECL tensordict tensordict::flatten_keys(std::string_view separator) const {
  tensordict out = tensordict_node::make(batch_size(), node().names);
  for (const auto& [path, tensor] : leaves()) {
    std::string key = path.front();
    for (std::size_t i = 1; i < path.size(); ++i) key.append(separator).append(path[i]);
    if (out.contains(key)) {
      throw tensordict_error(tensordict_errc::key_exists,
                             "two entries would have the key '" + key + "'");
    }
    tensordict_node::of(out).put(key, tensor);
  }
  return out;
}
WEFT_DECL tensordict tensordict::unflatten_keys(std::string_view separator) const {
  if (separator.empty()) {
    throw tensordict_error(tensordict_errc::no_key, "an empty separator of keys");
  }
  tensordict out = tensordict_node::make(batch_size(), node().names);
  for (const auto& e : node().entries) {  // these keep their places
    if (e.key.find(separator) == std::string::npos) tensordict_node::of(out).put(e.key, e.value);
  }
  for (const auto& e : node().entries) {
    if (e.key.find(separator) == std::string::npos) continue;
    key_path path;
    for (std::size_t begin = 0;;) {
      const std::size_t end = e.key.find(separator, begin);
      path.push_back(e.key.substr(begin, end - begin));
      if (end == std::string::npos) break;
      begin = end + separator.size();
    }
    tensordict_value value = e.value;
    bool taken = out.contains(path);
    for (std::size_t n = 1; n < path.size() && !taken; ++n) {
      const std::span<const std::string> part(path.data(), n);
      const key_path before(part.begin(), part.end());
      taken = out.contains(before) && out.get(before).is_tensor();
    }
    if (taken) {
      throw tensordict_error(tensordict_errc::key_exists,
                             "two entries would have the key " + detail::words(path));
    }
    out.set(path, std::move(value));
  }
  return out;
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
  node().free_children();
  for (auto& e : node().entries) {
    if (!e.value.is_tensor() && tensordict_node::of(e.value.dict()).locked_by == 0) {
      tensordict(e.value.dict()).unlock_();
    }
  }
  return *this;
}
WEFT_DECL bool tensordict::is_locked() const noexcept { return node().locked; }

}  // namespace weft
