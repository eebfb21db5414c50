// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/detail/words.hpp that are compiled once.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace weft::detail {

// ── words ──

WEFT_DECL std::string words(at::IntArrayRef sizes) {
  std::string out = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  }
  return out + "]";
}
WEFT_DECL std::string words(const nested_key& key) {
  std::string out;
  for (std::size_t i = 0; i < key.size(); ++i) {
    out += (i == 0 ? "'" : "', '") + std::string(key[i]);
  }
  return key.size() == 1 ? out + "'" : "(" + out + "')";
}

[[noreturn]] WEFT_DECL void refuse_key(const tensordict_node& in, const nested_key& key) {
  std::string there;
  constexpr std::size_t most = 16;
  for (std::size_t i = 0; i < std::min(in.entries.size(), most); ++i) {
    there += (i == 0 ? "'" : ", '") + in.entries[i].key + "'";
  }
  if (in.entries.size() > most) {
    there += " and " + std::to_string(in.entries.size() - most) + " more";
  }
  throw tensordict_error(tensordict_errc::no_key,
                         "no entry " + words(key) + "; there " +
                             (there.empty() ? std::string("are none") : "are: " + there));
}

WEFT_DECL void require_unlocked(const tensordict_node& node, const nested_key& key) {
  if (!node.locked) return;
  throw tensordict_error(tensordict_errc::locked,
                         "the tensordict is locked, so its entry " + words(key) +
                             " cannot be made, replaced or removed; set_ writes into it");
}

/// The node that has the last name of `key`.
WEFT_DECL tensordict_node& parent_of(tensordict_node& root, const nested_key& key) {
  if (key.size() == 0) throw tensordict_error(tensordict_errc::no_key, "the key has no names");
  tensordict_node* at = &root;
  for (std::size_t i = 0; i + 1 < key.size(); ++i) {
    const std::size_t place = at->find(key[i]);
    if (place == tensordict_node::npos) refuse_key(*at, key);
    const tensordict_value& next = at->entries[place].value;
    if (next.is_tensor()) {
      throw tensordict_error(tensordict_errc::kind, "'" + std::string(key[i]) + "' of " +
                                                        words(key) +
                                                        " is a tensor, and has no entries");
    }
    at = &tensordict_node::of(next.dict());
  }
  return *at;
}

WEFT_DECL tensordict_node::entry& entry_at(tensordict_node& root, const nested_key& key) {
  tensordict_node& in = parent_of(root, key);
  const std::size_t place = in.find(key[key.size() - 1]);
  if (place == tensordict_node::npos) refuse_key(in, key);
  return in.entries[place];
}

WEFT_DECL bool begins_with(at::IntArrayRef sizes, at::IntArrayRef batch) noexcept {
  return sizes.size() >= batch.size() && sizes.slice(0, batch.size()) == batch;
}

WEFT_DECL void require_batch(at::IntArrayRef sizes, at::IntArrayRef batch, const nested_key& key) {
  if (begins_with(sizes, batch)) return;
  throw tensordict_error(tensordict_errc::shape,
                         "entry " + words(key) + " has the sizes " + words(sizes) +
                             ", which do not begin with the batch size " + words(batch));
}

/// Whether `td` can have this batch size, deeply; throws.
WEFT_DECL void require_batch_of_all(const tensordict& td, at::IntArrayRef batch, key_path& path) {
  for (const auto& e : tensordict_node::of(td).entries) {
    path.push_back(e.key);
    if (e.value.is_tensor()) {
      require_batch(e.value.tensor().sizes(), batch, path);
    } else if (!begins_with(e.value.dict().batch_size(), batch)) {
      require_batch_of_all(e.value.dict(), batch, path);
    }
    path.pop_back();
  }
}

WEFT_DECL bool same(const nested_key& a, const nested_key& b) noexcept {
  return a.size() == b.size() && !below(a, b) && [&] {
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }();
}
WEFT_DECL bool below(const nested_key& key, const nested_key& above) noexcept {
  if (key.size() <= above.size()) return false;
  for (std::size_t i = 0; i < above.size(); ++i) {
    if (key[i] != above[i]) return false;
  }
  return true;
}
WEFT_DECL bool has(const tensordict& td, const tensordict_node& node) noexcept {
  const tensordict_node& top = tensordict_node::of(td);
  return &top == &node || std::any_of(top.entries.begin(), top.entries.end(), [&](const auto& e) {
    return !e.value.is_tensor() && has(e.value.dict(), node);
  });
}
WEFT_DECL std::int64_t wrap(std::int64_t dim, std::int64_t of, const char* what) {
  if (dim >= -of && dim < of) return dim < 0 ? dim + of : dim;
  throw tensordict_error(tensordict_errc::dimension,
                         std::string(what) + ": there is no dimension " + std::to_string(dim) +
                             " among " + std::to_string(of));
}
WEFT_DECL bool broadcasts(at::IntArrayRef from, at::IntArrayRef into) noexcept {
  if (from.size() > into.size()) {  // copy_ takes leading ones
    const std::size_t more = from.size() - into.size();
    if (std::any_of(from.begin(), from.begin() + more, [](auto n) { return n != 1; })) return false;
    from = from.slice(more);
  }
  const std::size_t more = into.size() - from.size();
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1 && from[i] != into[more + i]) return false;
  }
  return true;
}
WEFT_DECL void require_broadcast(at::IntArrayRef from, at::IntArrayRef into,
                                 const nested_key& key) {
  if (broadcasts(from, into)) return;
  throw tensordict_error(tensordict_errc::shape, "entry " + words(key) + ": a value of sizes " +
                                                     words(from) + " does not fit sizes " +
                                                     words(into));
}

}  // namespace weft::detail
