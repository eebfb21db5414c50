// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/detail/words.hpp that are compiled once.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <system_error>

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
                             " cannot be made, replaced or removed: unlock_() it, or clone() it");
}

WEFT_DECL std::size_t part_number(const lazy_stack& stack, std::string_view name) noexcept {
  std::size_t number = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data(), end, number);
  return error == std::errc() && rest == end && number < stack.size() ? number
                                                                      : tensordict_node::npos;
}

WEFT_DECL reached reach(tensordict_node& root, const nested_key& key) {
  if (key.size() == 0) throw tensordict_error(tensordict_errc::no_key, "the key has no names");
  reached at{&root, 0};
  for (; at.depth + 1 < key.size(); ++at.depth) {
    const std::size_t place = at.in->find(key[at.depth]);
    if (place == tensordict_node::npos) break;
    const tensordict_value* next = &at.in->entries[place].value;
    std::size_t parts = 0;
    while (next->is_stack() && at.depth + parts + 2 < key.size()) {
      const std::size_t part = part_number(next->stack(), key[at.depth + parts + 1]);
      if (part == tensordict_node::npos) break;
      next = &next->stack().parts()[part];
      ++parts;
    }
    if (!next->is_dict()) {
      throw tensordict_error(
          tensordict_errc::kind,
          "'" + std::string(key[at.depth + parts]) + "' of " + words(key) + " is " + next->kind() +
              (next->is_stack() ? ": the number of a part follows, then a key of that part"
                                : ", and has no entries"));
    }
    at.depth += parts;
    at.in = &tensordict_node::of(next->dict());
  }
  return at;
}

/// The node that has the last name of `key`.
WEFT_DECL tensordict_node& parent_of(tensordict_node& root, const nested_key& key) {
  const reached at = reach(root, key);
  if (at.depth + 1 < key.size()) refuse_key(*at.in, key);
  return *at.in;
}

WEFT_DECL walked walk(const tensordict_node& root, const nested_key& key) noexcept {
  walked out;
  const tensordict_node* in = &root;
  for (std::size_t i = 0; i < key.size(); ++i) {
    if (out.value && out.value->is_stack()) {
      out.through_stack = true;
      out.stack = &out.value->stack();
      const std::size_t part = part_number(*out.stack, key[i]);
      out.value = part == tensordict_node::npos ? nullptr : &out.stack->parts()[part];
    } else {
      out.stack = nullptr;
      if (out.value) in = out.value->is_dict() ? &tensordict_node::of(out.value->dict()) : nullptr;
      const std::size_t place = in ? in->find(key[i]) : tensordict_node::npos;
      out.value = place == tensordict_node::npos ? nullptr : &in->entries[place].value;
    }
    out.name = i;
    if (!out.value) break;
  }
  return out;
}
WEFT_DECL const tensordict_value& value_at(tensordict_node& root, const nested_key& key) {
  const walked at = walk(root, key);
  if (at.value) return *at.value;
  const std::string_view name = key.size() > 0 ? key[at.name] : std::string_view();
  if (at.stack && !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos) {
    throw tensordict_error(tensordict_errc::no_key,
                           "no entry " + words(key) + ": the lazy stack has " +
                               std::to_string(at.stack->size()) + " parts");
  }
  refuse_key(parent_of(root, key), key);  // which may say more
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

WEFT_DECL void require_sizes(at::IntArrayRef batch) {
  if (batch.size() > most_dims) {
    throw tensordict_error(tensordict_errc::dimension, "a batch size of " +
                                                           std::to_string(batch.size()) +
                                                           " dimensions: there are at most 64");
  }
  std::int64_t product = 1;  // without zeros
  for (const std::int64_t size : batch) {
    if (size < 0 || (size > 0 && __builtin_mul_overflow(product, size, &product))) {
      throw tensordict_error(tensordict_errc::shape, "a batch size of " + words(batch));
    }
  }
}

WEFT_DECL at::IntArrayRef rest_of(at::IntArrayRef sizes, std::size_t n) {
  if (n <= sizes.size()) return sizes.slice(n);
  throw tensordict_error(tensordict_errc::shape, "an entry with the sizes " + words(sizes) +
                                                     " in a batch size of " + std::to_string(n) +
                                                     " dimensions: it was changed in place");
}
WEFT_DECL batch_sizes with_rest(at::IntArrayRef shape, at::IntArrayRef sizes, std::size_t n) {
  batch_sizes out(shape.begin(), shape.end());
  const at::IntArrayRef rest = rest_of(sizes, n);
  out.append(rest.begin(), rest.end());
  return out;
}

/// Whether `td` can have this batch size, deeply; throws.
WEFT_DECL void require_batch_of_all(const tensordict& td, at::IntArrayRef batch, key_path& path) {
  for (const auto& e : tensordict_node::of(td).entries) {
    path.push_back(e.key);
    if (e.value.is_tensor()) {
      require_batch(e.value.tensor().sizes(), batch, path);
    } else if (e.value.is_stack()) {
      require_batch(e.value.stack().batch_size(), batch, path);
    } else if (e.value.is_dict() && !begins_with(e.value.dict().batch_size(), batch)) {
      require_unlocked(tensordict_node::of(e.value.dict()), path);
      require_batch_of_all(e.value.dict(), batch, path);
    }
    path.pop_back();
  }
}

WEFT_DECL key_path split_name(std::string_view name, std::string_view separator) {
  key_path out;
  for (std::size_t begin = 0;;) {
    const std::size_t end = name.find(separator, begin);
    out.emplace_back(name.substr(begin, end - begin));
    if (end == std::string_view::npos) return out;
    begin = end + separator.size();
  }
}
WEFT_DECL std::string joined_name(const key_path& key, std::string_view separator) {
  std::string out = key.front();
  for (std::size_t i = 1; i < key.size(); ++i) out.append(separator).append(key[i]);
  return out;
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
WEFT_DECL bool has(const tensordict_value& value, const tensordict_node& node) noexcept {
  bool found = false;
  each_dict(value, [&](const tensordict& td) {
    const tensordict_node& top = tensordict_node::of(td);
    found = found || &top == &node ||
            std::any_of(top.entries.begin(), top.entries.end(),
                        [&](const auto& e) { return has(e.value, node); });
  });
  return found;
}
WEFT_DECL std::int64_t wrap(std::int64_t dim, std::int64_t of, const char* what) {
  if (dim >= -of && dim < of) return dim < 0 ? dim + of : dim;
  throw tensordict_error(tensordict_errc::dimension,
                         std::string(what) + ": there is no dimension " + std::to_string(dim) +
                             " among " + std::to_string(of));
}
WEFT_DECL bool can_broadcast(at::IntArrayRef from, at::IntArrayRef into) noexcept {
  if (from.size() > into.size()) return false;  // copy_ does not take leading ones, either
  const std::size_t more = into.size() - from.size();
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1 && from[i] != into[more + i]) return false;
  }
  return true;
}
WEFT_DECL void require_broadcast(at::IntArrayRef from, at::IntArrayRef into,
                                 const nested_key& key) {
  if (can_broadcast(from, into)) return;
  throw tensordict_error(tensordict_errc::shape, "entry " + words(key) + ": a value of sizes " +
                                                     words(from) + " does not fit sizes " +
                                                     words(into));
}

}  // namespace weft::detail
