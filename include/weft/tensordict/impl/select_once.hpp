// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/tensordict.hpp that are compiled once: others of the same entries.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace weft {

using detail::tensordict_node;

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
  at->put(key[key.size() - 1],
          value.is_dict() ? tensordict_value(value.dict().clone(tensordict::recurse::no)) : value);
}
}  // namespace detail

namespace detail {
/// Lazy stacks and data stay as they are.
WEFT_DECL void flatten_into(tensordict_node& out, const tensordict& td, std::string_view separator,
                            const std::string& before) {
  for (const auto& e : tensordict_node::of(td).entries) {
    const std::string key = before + e.key;
    if (e.value.is_dict()) {
      flatten_into(out, e.value.dict(), separator, key + std::string(separator));
    } else if (out.find(key) != tensordict_node::npos) {
      throw tensordict_error(tensordict_errc::key_exists,
                             "two entries would have the key '" + key + "'");
    } else {
      out.put(key, e.value);
    }
  }
}
}  // namespace detail

WEFT_DECL tensordict tensordict::flatten_keys(std::string_view separator) const {
  tensordict out = tensordict_node::make(batch_size(), node().names);
  detail::flatten_into(tensordict_node::of(out), *this, separator, "");
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
    const key_path path = detail::split_name(e.key, separator);
    tensordict_value value = e.value;
    bool taken = out.contains(path);
    for (std::size_t n = 1; n < path.size() && !taken; ++n) {
      const std::span<const std::string> part(path.data(), n);
      const key_path before(part.begin(), part.end());
      taken = out.contains(before) && !out.get(before).is_dict();
    }
    if (taken) {
      throw tensordict_error(tensordict_errc::key_exists,
                             "two entries would have the key " + detail::words(path));
    }
    out.set(path, std::move(value));
  }
  return out;
}

}  // namespace weft
