// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/tensordict.hpp that are compiled once: stack and cat.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weft {

using detail::tensordict_node;

namespace detail {
using many_map = c10::function_ref<at::Tensor(const std::vector<at::Tensor>&, std::int64_t dim)>;

/// How tensordicts become one: of equal keys; the tensors have equal sizes, but for one dimension.
struct joining {
  const char* what;
  std::int64_t but;    // that dimension; -1: none
  std::int64_t dim;    // along which they are joined
  std::size_t before;  // so many dimensions have they all; the result has these sizes instead:
  at::IntArrayRef batch;
  many_map f;
};
WEFT_DECL tensordict joined_of(std::span<const tensordict> all, at::IntArrayRef batch,
                               const name_list& names, const joining& how, key_path& path);

WEFT_DECL void require_equal_sizes(at::IntArrayRef a, at::IntArrayRef b, const joining& how,
                                   const key_path& path) {
  bool fits = a.size() == b.size();
  for (std::size_t i = 0; fits && i < a.size(); ++i) {
    fits = a[i] == b[i] || static_cast<std::int64_t>(i) == how.but;
  }
  if (fits) return;
  throw tensordict_error(tensordict_errc::shape, std::string(how.what) + ": entry " + words(path) +
                                                     " has sizes " + words(a) + " and " + words(b));
}
WEFT_DECL tensordict_value joined_stacks(std::span<const tensordict_value> values,
                                         const joining& how, key_path& path);
/// Values of one entry, one of each tensordict (`owners`, whose batch sizes data have).
WEFT_DECL tensordict_value joined_values(std::span<const tensordict> owners,
                                         std::span<const tensordict_value> values,
                                         const joining& how, key_path& path) {
  const tensordict_value& first = values.front();
  for (const tensordict_value& v : values) {
    if (holds_data(v) ? holds_data(first) : v.kind() == first.kind() && !holds_data(first)) {
      continue;
    }
    throw tensordict_error(tensordict_errc::kind, std::string(how.what) + ": entry " + words(path) +
                                                      " is " + first.kind() + " here and " +
                                                      v.kind() + " there");
  }
  if (first.is_tensor()) {
    std::vector<at::Tensor> tensors;
    tensors.reserve(values.size());
    for (const tensordict_value& v : values) {
      require_equal_sizes(first.tensor().sizes(), v.tensor().sizes(), how, path);
      tensors.push_back(v.tensor());
    }
    return how.f(tensors, how.dim);
  }
  if (first.is_dict()) {
    std::vector<tensordict> dicts;
    for (const tensordict_value& v : values) {
      require_equal_sizes(first.dict().batch_size(), v.dict().batch_size(), how, path);
      dicts.push_back(v.dict());
    }
    return joined_of(dicts, with_rest(how.batch, first.dict().batch_size(), how.before), {}, how,
                     path);
  }
  if (holds_data(first)) {
    data_elements all;
    std::vector<at::Tensor> which;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const data_elements one = data_of(values[i], owners[i].batch_size());
      if (i > 0) require_equal_sizes(which.front().sizes(), one.which.sizes(), how, path);
      which.push_back(one.which.add(static_cast<std::int64_t>(all.items.size())));
      all.items.insert(all.items.end(), one.items.begin(), one.items.end());
    }
    all.which = how.f(which, how.dim);
    return stack_of(all);
  }
  return joined_stacks(values, how, path);
}
WEFT_DECL tensordict_value joined_stacks(std::span<const tensordict_value> values,
                                         const joining& how, key_path& path) {
  const lazy_stack& first = values.front().stack();
  const std::int64_t at = first.stack_dim();
  bool alike = true;
  bool as_many = true;
  for (const tensordict_value& v : values) {
    require_equal_sizes(first.batch_size(), v.stack().batch_size(), how, path);
    alike = alike && v.stack().stack_dim() == at;
    as_many = as_many && v.stack().size() == first.size();
  }
  const bool stacking = how.but < 0;
  if (!(alike && as_many) && stacking)
    return lazy_stack(std::vector(values.begin(), values.end()), how.dim);
  std::vector<tensordict_value> parts;
  if (!stacking && alike && at == how.dim) {  // one after the other
    for (const tensordict_value& v : values) {
      parts.insert(parts.end(), v.stack().parts().begin(), v.stack().parts().end());
    }
    return lazy_stack(std::move(parts), at, first.stack_dim_name(), part_batch(first));
  }
  if (!alike || !as_many) {
    for (const tensordict_value& v : values) parts.emplace_back(v.stack().dense());
    return joined_values({}, parts, how, path);
  }
  // Part by part: the dimension at which they are joined lies before the parts', or behind it.
  const bool before = stacking ? how.dim <= at : how.dim < at;
  const std::int64_t place = at + (stacking && before ? 1 : 0);  // of the stack dimension, then
  const std::int64_t dim = how.dim - (before ? 0 : 1);
  batch_sizes batch(how.batch.begin(), how.batch.end());
  if (place < static_cast<std::int64_t>(batch.size())) batch.erase(batch.begin() + place);
  const std::size_t dims = how.before - (at < static_cast<std::int64_t>(how.before) ? 1 : 0);
  const joining of_part{how.what, stacking ? -1 : dim, dim, dims, batch, how.f};
  for (std::size_t i = 0; i < first.size(); ++i) {
    std::vector<tensordict_value> same;
    for (const tensordict_value& v : values) same.push_back(v.stack()[i]);
    path.push_back(std::to_string(i));
    parts.push_back(joined_values({}, same, of_part, path));
    path.pop_back();
  }
  batch_sizes inner = part_batch(first);
  if (stacking) {
    inner.insert(inner.begin() + dim, static_cast<std::int64_t>(values.size()));
  } else {
    std::int64_t sum = 0;
    for (const tensordict_value& v : values) {
      sum += v.stack().batch_size()[static_cast<std::size_t>(how.dim)];
    }
    inner[static_cast<std::size_t>(dim)] = sum;
  }
  return lazy_stack(std::move(parts), place, first.stack_dim_name(), inner);
}

/// As many, and each of the first one's: so they are the same.
WEFT_DECL void require_same_keys(std::span<const tensordict> all, const joining& how,
                                 key_path& path) {
  const auto require = [&](const tensordict& in, const tensordict& of) {
    const tensordict_node& node = tensordict_node::of(in);
    const auto& entries = tensordict_node::of(of).entries;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i < node.entries.size() && node.entries[i].key == entries[i].key) continue;
      if (node.find(entries[i].key) != tensordict_node::npos) continue;
      path.push_back(entries[i].key);
      throw tensordict_error(tensordict_errc::no_key, std::string(how.what) + ": entry " +
                                                          words(path) +
                                                          " is not in all tensordicts");
    }
  };
  for (const tensordict& one : all) {
    require(one, all.front());
    if (one.size() != all.front().size()) require(all.front(), one);
  }
}

WEFT_DECL tensordict joined_of(std::span<const tensordict> all, at::IntArrayRef batch,
                               const name_list& names, const joining& how, key_path& path) {
  tensordict out = tensordict_node::make(batch, names);
  const tensordict_node& first = tensordict_node::of(all.front());
  tensordict_node& to = tensordict_node::of(out);
  to.entries.reserve(first.entries.size());
  require_same_keys(all, how, path);
  std::vector<tensordict_value> values;
  for (std::size_t i = 0; i < first.entries.size(); ++i) {
    const auto& e = first.entries[i];
    path.push_back(e.key);
    values.clear();
    for (const tensordict& one : all) {
      const tensordict_node& node = tensordict_node::of(one);
      // Mostly they stand in one order.
      const std::size_t at = node.entries[i].key == e.key ? i : node.find(e.key);
      values.push_back(node.entries[at].value);
    }
    to.append(e.key, joined_values(all, values, how, path));
    path.pop_back();
  }
  to.same_keys(first);
  return out;
}
WEFT_DECL void require_some(std::span<const tensordict> all, const char* what) {
  if (all.empty()) {
    throw tensordict_error(tensordict_errc::shape, std::string(what) + ": of no tensordicts");
  }
}
}  // namespace detail

WEFT_DECL tensordict stack(std::span<const tensordict> all, std::int64_t dim) {
  detail::require_some(all, "stack");
  const at::IntArrayRef batch = all.front().batch_size();
  const std::int64_t d = detail::wrap(dim, all.front().dim() + 1, "stack");
  for (const tensordict& one : all) {
    if (one.batch_size() == batch) continue;
    throw tensordict_error(tensordict_errc::shape,
                           "stack: the batch sizes differ: " + detail::words(batch) + " and " +
                               detail::words(one.batch_size()));
  }
  detail::batch_sizes sizes(batch.begin(), batch.end());
  sizes.insert(sizes.begin() + d, static_cast<std::int64_t>(all.size()));
  detail::name_list names = tensordict_node::of(all.front()).names;
  if (!names.empty()) names.insert(names.begin() + d, std::string());
  key_path path;
  return detail::joined_of(
      all, sizes, names,
      {"stack", -1, d, batch.size(), sizes,
       [](const auto& tensors, std::int64_t at) { return at::stack(tensors, at); }},
      path);
}
WEFT_DECL tensordict cat(std::span<const tensordict> all, std::int64_t dim) {
  detail::require_some(all, "cat");
  const std::int64_t d = detail::wrap(dim, all.front().dim(), "cat");
  detail::batch_sizes sizes(all.front().batch_size().begin(), all.front().batch_size().end());
  std::int64_t sum = 0;
  for (const tensordict& one : all) {
    detail::batch_sizes own(one.batch_size().begin(), one.batch_size().end());
    if (own.size() == sizes.size()) {
      sum += std::exchange(own[static_cast<std::size_t>(d)], sizes[static_cast<std::size_t>(d)]);
    }
    if (own == sizes) continue;
    throw tensordict_error(tensordict_errc::shape, "cat: the batch sizes differ: " +
                                                       detail::words(all.front().batch_size()) +
                                                       " and " + detail::words(one.batch_size()));
  }
  sizes[static_cast<std::size_t>(d)] = sum;
  key_path path;
  return detail::joined_of(
      all, sizes, tensordict_node::of(all.front()).names,
      {"cat", d, d, sizes.size(), sizes,
       [](const auto& tensors, std::int64_t at) { return at::cat(tensors, at); }},
      path);
}

}  // namespace weft
