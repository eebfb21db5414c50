// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/tensordict.hpp that are compiled once: copies and merging.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <cstddef>

namespace weft {

using detail::tensordict_node;

// ── copies ──

WEFT_DECL tensordict tensordict::clone(recurse deep) const {
  return detail::mapped(
      *this, [deep](const at::Tensor& t) { return deep == recurse::yes ? t.clone() : t; });
}
WEFT_DECL tensordict tensordict::empty(recurse deep) const {
  tensordict out = tensordict_node::make(batch_size(), node().names);
  if (deep == recurse::no) return out;
  for (const auto& e : node().entries) {
    if (e.value.is_dict()) tensordict_node::of(out).put(e.key, e.value.dict().empty(deep));
  }
  return out;
}

namespace detail {
/// Whether `from` can be merged into `into`: throws, and changes nothing.
WEFT_DECL void check_update(const tensordict& into, const tensordict& from, key_path& path) {
  const tensordict_node& to = tensordict_node::of(into);
  for (const auto& e : tensordict_node::of(from).entries) {
    path.push_back(e.key);
    const std::size_t place = to.find(e.key);
    const bool both =
        place != tensordict_node::npos && e.value.is_dict() && to.entries[place].value.is_dict();
    if (both) {
      check_update(to.entries[place].value.dict(), e.value.dict(), path);
    } else {
      require_unlocked(to, path);
      static_cast<void>(fit(e.value, to.batch, path));
      if (has(e.value, to)) {
        throw tensordict_error(tensordict_errc::kind,
                               "entry " + words(path) + " would contain itself");
      }
    }
    path.pop_back();
  }
}
WEFT_DECL void merge(tensordict into, const tensordict& from) {
  tensordict_node& to = tensordict_node::of(into);
  const tensordict_node& source = tensordict_node::of(from);
  if (&to == &source) return;
  for (const auto& e : source.entries) {
    const std::size_t place = to.find(e.key);
    if (place != tensordict_node::npos && e.value.is_dict() && to.entries[place].value.is_dict()) {
      merge(to.entries[place].value.dict(), e.value.dict());
    } else {
      to.put(e.key, fit(e.value, to.batch, e.key));
    }
  }
}
}  // namespace detail

WEFT_DECL tensordict& tensordict::update(const tensordict& other) {
  if (other.batch_size() != batch_size()) {
    throw tensordict_error(tensordict_errc::shape,
                           "the batch sizes differ: " + detail::words(batch_size()) + " and " +
                               detail::words(other.batch_size()));
  }
  key_path path;
  detail::check_update(*this, other, path);
  detail::merge(*this, other);
  return *this;
}

WEFT_DECL tensordict& tensordict::update_(const tensordict& other) {
  const auto from = other.leaves();
  for (const auto& [path, value] : from) {
    detail::require_broadcast(value.sizes(), tensor(path).sizes(), path);
  }
  for (const auto& [path, value] : from) tensor(path).copy_(value);
  return *this;
}
WEFT_DECL tensordict tensordict::replace(const tensordict& other) const {
  tensordict out = clone(recurse::no);
  out.update(other);
  return out;
}
WEFT_DECL tensordict& tensordict::zero_() {
  for (const auto& [path, value] : leaves()) value.zero_();
  return *this;
}
WEFT_DECL tensordict& tensordict::fill_(const nested_key& key, const at::Scalar& value) {
  tensor(key).fill_(value);
  return *this;
}

}  // namespace weft
