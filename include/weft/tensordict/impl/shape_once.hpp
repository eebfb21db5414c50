// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/tensordict.hpp that are compiled once: shapes.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <c10/util/FunctionRef.h>

#include <algorithm>
#include <numeric>

namespace weft {
namespace detail {

using leaf_map = c10::function_ref<at::Tensor(const at::Tensor&)>;

// ── every tensor anew ──

WEFT_DECL tensordict reshaped(const tensordict& td, at::IntArrayRef batch, const name_list& names,
                              leaf_map f) {
  tensordict out = tensordict_node::make(batch, names);
  tensordict_node& to = tensordict_node::of(out);
  const auto before = static_cast<std::size_t>(td.dim());
  for (const auto& e : tensordict_node::of(td).entries) {
    if (e.value.is_tensor()) {
      to.put(e.key, f(e.value.tensor()));
      continue;
    }
    const tensordict& nested = e.value.dict();
    const batch_sizes sizes = with_rest(batch, nested.batch_size(), before);
    name_list all;
    const name_list& own = tensordict_node::of(nested).names;
    if (!names.empty() || !own.empty()) {
      all = names.empty() ? name_list(batch.size()) : names;
      for (std::size_t i = before; i < nested.batch_size().size(); ++i) {
        all.push_back(own.empty() ? std::string() : own[i]);
      }
    }
    to.put(e.key, reshaped(nested, sizes, all, f));
  }
  return out;
}

/// With its -1, if there is one, in numbers.
WEFT_DECL batch_sizes inferred(at::IntArrayRef shape, std::int64_t numel, const char* what) {
  batch_sizes out(shape.begin(), shape.end());
  std::int64_t known = 1;
  std::int64_t* open = nullptr;
  bool bad = false;
  for (std::int64_t& size : out) {
    if (size == -1 && !open) {
      open = &size;
    } else {
      bad = bad || size < 0 || __builtin_mul_overflow(known, size, &known);
    }
  }
  if (open && !bad) {
    bad = known == 0 || numel % known != 0;
    if (!bad) *open = numel / known;
  }
  if (bad || (!open && known != numel)) {
    throw tensordict_error(tensordict_errc::shape, std::string(what) + ": " + words(shape) +
                                                       " does not fit a batch of " +
                                                       std::to_string(numel));
  }
  return out;
}

}  // namespace detail

using detail::tensordict_node;

// ── shapes ──

WEFT_DECL tensordict& tensordict::batch_size_(at::IntArrayRef batch_size) {
  detail::require_unlocked(node(), "batch_size");
  detail::require_sizes(batch_size);
  key_path path;
  detail::require_batch_of_all(*this, batch_size, path);
  // Nested ones whose own batch size does not begin with it take it.
  for (auto& e : node().entries) {
    if (!e.value.is_tensor() && !detail::begins_with(e.value.dict().batch_size(), batch_size)) {
      tensordict(e.value.dict()).batch_size_(batch_size);
    }
  }
  if (!node().names.empty()) node().names.resize(batch_size.size());
  node().batch.assign(batch_size.begin(), batch_size.end());
  return *this;
}

WEFT_DECL tensordict tensordict::view(at::IntArrayRef shape) const {
  const auto sizes = detail::inferred(shape, numel(), "view");
  if (sizes == node().batch) return *this;
  return detail::reshaped(*this, sizes, {}, [&](const at::Tensor& t) {
    return t.view(detail::with_rest(sizes, t.sizes(), node().batch.size()));
  });
}
WEFT_DECL tensordict tensordict::reshape(at::IntArrayRef shape) const {
  const auto sizes = detail::inferred(shape, numel(), "reshape");
  if (sizes == node().batch) return *this;
  return detail::reshaped(*this, sizes, {}, [&](const at::Tensor& t) {
    return t.reshape(detail::with_rest(sizes, t.sizes(), node().batch.size()));
  });
}
WEFT_DECL tensordict tensordict::expand(at::IntArrayRef shape) const {
  detail::batch_sizes sizes(shape.begin(), shape.end());
  const std::size_t more = sizes.size() - std::min(sizes.size(), node().batch.size());
  bool fits = sizes.size() >= node().batch.size();
  for (std::size_t i = 0; fits && i < sizes.size(); ++i) {
    const bool own = i >= more;
    const std::int64_t before = own ? node().batch[i - more] : 1;
    if (sizes[i] == -1 && own) sizes[i] = before;
    fits = sizes[i] >= 0 && (before == 1 || before == sizes[i]);
  }
  if (!fits) {
    throw tensordict_error(tensordict_errc::shape,
                           "expand: a batch size of " + detail::words(node().batch) +
                               " does not expand to " + detail::words(shape));
  }
  detail::name_list names;
  if (!node().names.empty()) {
    names.resize(more);
    names.insert(names.end(), node().names.begin(), node().names.end());
  }
  return detail::reshaped(*this, sizes, names, [&](const at::Tensor& t) {
    return t.expand(detail::with_rest(sizes, t.sizes(), node().batch.size()));
  });
}
WEFT_DECL tensordict tensordict::permute(at::IntArrayRef dims) const {
  detail::batch_sizes order;
  for (const std::int64_t d : dims) order.push_back(detail::wrap(d, dim(), "permute"));
  detail::batch_sizes sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool all = sorted.size() == node().batch.size();
  for (std::size_t i = 0; all && i < sorted.size(); ++i) {
    all = sorted[i] == static_cast<std::int64_t>(i);
  }
  if (!all) {
    throw tensordict_error(tensordict_errc::dimension, "permute: " + detail::words(dims) +
                                                           " is no order of " +
                                                           std::to_string(dim()) + " dimensions");
  }
  detail::batch_sizes sizes;
  detail::name_list names;
  for (const std::int64_t d : order) {
    sizes.push_back(node().batch[static_cast<std::size_t>(d)]);
    if (!node().names.empty()) names.push_back(node().names[static_cast<std::size_t>(d)]);
  }
  return detail::reshaped(*this, sizes, names, [&](const at::Tensor& t) {
    detail::batch_sizes whole = order;
    for (std::int64_t d = dim(); d < t.dim(); ++d) whole.push_back(d);
    return t.permute(whole);
  });
}
WEFT_DECL tensordict tensordict::transpose(std::int64_t a, std::int64_t b) const {
  detail::batch_sizes order(node().batch.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::swap(order[static_cast<std::size_t>(detail::wrap(a, dim(), "transpose"))],
            order[static_cast<std::size_t>(detail::wrap(b, dim(), "transpose"))]);
  return permute(order);
}
WEFT_DECL tensordict tensordict::unsqueeze(std::int64_t at) const {
  const std::int64_t d = detail::wrap(at, dim() + 1, "unsqueeze");
  detail::batch_sizes sizes = node().batch;
  sizes.insert(sizes.begin() + d, 1);
  detail::name_list names = node().names;
  if (!names.empty()) names.insert(names.begin() + d, std::string());
  return detail::reshaped(*this, sizes, names, [&](const at::Tensor& t) { return t.unsqueeze(d); });
}
WEFT_DECL tensordict tensordict::squeeze(std::int64_t at) const {
  const std::int64_t d = detail::wrap(at, dim(), "squeeze");
  if (node().batch[static_cast<std::size_t>(d)] != 1) return *this;
  detail::batch_sizes sizes = node().batch;
  sizes.erase(sizes.begin() + d);
  detail::name_list names = node().names;
  if (!names.empty()) names.erase(names.begin() + d);
  return detail::reshaped(*this, sizes, names, [&](const at::Tensor& t) { return t.squeeze(d); });
}
WEFT_DECL tensordict tensordict::squeeze() const {
  tensordict out = *this;
  for (std::int64_t d = dim(); d-- > 0;) out = out.squeeze(d);
  return out;
}
WEFT_DECL tensordict tensordict::flatten(std::int64_t first, std::int64_t last) const {
  const std::int64_t dims = std::max<std::int64_t>(dim(), 1);  // as of a tensor
  const auto from = static_cast<std::size_t>(detail::wrap(first, dims, "flatten"));
  const auto to = static_cast<std::size_t>(detail::wrap(last, dims, "flatten"));
  if (dim() == 0) return unsqueeze(0);
  if (from > to) {
    throw tensordict_error(tensordict_errc::dimension,
                           "flatten: the first dimension stands behind the last one");
  }
  detail::batch_sizes sizes(node().batch.begin(), node().batch.begin() + from);
  std::int64_t product = 1;
  for (std::size_t i = from; i <= to; ++i) product *= node().batch[i];
  sizes.push_back(product);
  sizes.append(node().batch.begin() + to + 1, node().batch.end());
  detail::name_list names;
  if (!node().names.empty() && from != to) {
    names.assign(node().names.begin(), node().names.begin() + from);
    names.emplace_back();
    names.insert(names.end(), node().names.begin() + to + 1, node().names.end());
  } else {
    names = node().names;
  }
  return detail::reshaped(*this, sizes, names, [&](const at::Tensor& t) {
    return t.reshape(detail::with_rest(sizes, t.sizes(), node().batch.size()));
  });
}
WEFT_DECL tensordict tensordict::unflatten(std::int64_t at, at::IntArrayRef into) const {
  const auto d = static_cast<std::size_t>(detail::wrap(at, dim(), "unflatten"));
  const auto parts = detail::inferred(into, node().batch[d], "unflatten");
  detail::batch_sizes sizes(node().batch.begin(), node().batch.begin() + d);
  sizes.append(parts.begin(), parts.end());
  sizes.append(node().batch.begin() + d + 1, node().batch.end());
  return reshape(sizes);
}

WEFT_DECL std::vector<tensordict> tensordict::unbind(std::int64_t at) const {
  const std::int64_t d = detail::wrap(at, dim(), "unbind");
  std::vector<tensordict> out;
  detail::batch_sizes sizes = node().batch;
  sizes.erase(sizes.begin() + d);
  detail::name_list names = node().names;
  if (!names.empty()) names.erase(names.begin() + d);
  for (std::int64_t i = 0; i < node().batch[static_cast<std::size_t>(d)]; ++i) {
    out.push_back(
        detail::reshaped(*this, sizes, names, [&](const at::Tensor& t) { return t.select(d, i); }));
  }
  return out;
}
WEFT_DECL std::vector<tensordict> tensordict::split(at::IntArrayRef sizes, std::int64_t at) const {
  const std::int64_t d = detail::wrap(at, dim(), "split");
  const std::int64_t whole = node().batch[static_cast<std::size_t>(d)];
  std::int64_t sum = 0;
  for (const std::int64_t size : sizes)
    sum = size < 0 || sum < 0 || size > whole - sum ? -1 : sum + size;
  if (sum != whole) {
    throw tensordict_error(tensordict_errc::shape, "split: " + detail::words(sizes) +
                                                       " are not the parts of " +
                                                       std::to_string(whole));
  }
  std::vector<tensordict> out;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    detail::batch_sizes part = node().batch;
    part[static_cast<std::size_t>(d)] = size;
    out.push_back(detail::reshaped(*this, part, node().names,
                                   [&](const at::Tensor& t) { return t.narrow(d, begin, size); }));
    begin += size;
  }
  return out;
}
WEFT_DECL std::vector<tensordict> tensordict::split(std::int64_t size, std::int64_t at) const {
  const std::int64_t d = detail::wrap(at, dim(), "split");
  if (size <= 0) {
    throw tensordict_error(tensordict_errc::shape, "split: parts of " + std::to_string(size));
  }
  const std::int64_t whole = node().batch[static_cast<std::size_t>(d)];
  std::vector<std::int64_t> sizes;
  for (std::int64_t begin = 0; begin < whole || sizes.empty(); begin += size) {
    sizes.push_back(std::min(size, whole - begin));
    if (size > whole - begin) break;
  }
  return split(sizes, d);
}
WEFT_DECL std::vector<tensordict> tensordict::chunk(std::int64_t chunks, std::int64_t at) const {
  const std::int64_t d = detail::wrap(at, dim(), "chunk");
  if (chunks <= 0) {
    throw tensordict_error(tensordict_errc::shape,
                           "chunk: into " + std::to_string(chunks) + " parts");
  }
  const std::int64_t whole = node().batch[static_cast<std::size_t>(d)];
  return split(std::max<std::int64_t>(1, whole / chunks + (whole % chunks != 0 ? 1 : 0)), d);
}
WEFT_DECL tensordict tensordict::gather(std::int64_t at, const at::Tensor& index) const {
  const std::int64_t d = detail::wrap(at, dim(), "gather");
  if (!index.defined() || index.scalar_type() != at::kLong || index.dim() != dim()) {
    throw tensordict_error(tensordict_errc::index, "gather: the index is an int64 tensor of " +
                                                       std::to_string(dim()) + " dimensions");
  }
  try {
    return detail::reshaped(*this, index.sizes(), node().names, [&](const at::Tensor& t) {
      detail::batch_sizes ones(index.sizes().begin(), index.sizes().end());
      ones.resize(static_cast<std::size_t>(t.dim()), 1);
      return t.gather(d, index.view(ones).expand(
                             detail::with_rest(index.sizes(), t.sizes(), node().batch.size())));
    });
  } catch (const c10::Error& e) {
    throw tensordict_error(tensordict_errc::index, e.what_without_backtrace());
  }
}

// ── several ──

namespace detail {
using many_map = c10::function_ref<at::Tensor(const std::vector<at::Tensor>&)>;

/// Of equal keys; the tensors have equal sizes, but for dimension `but` (-1: none).
WEFT_DECL tensordict joined_of(std::span<const tensordict> all, at::IntArrayRef batch,
                               const name_list& names, const char* what, std::int64_t but,
                               many_map f, key_path& path) {
  tensordict out = tensordict_node::make(batch, names);
  const tensordict_node& first = tensordict_node::of(all.front());
  for (const tensordict& one : all) {
    for (const auto& e : tensordict_node::of(one).entries) {
      path.push_back(e.key);
      for (const tensordict& other : all) {
        if (other.contains(e.key)) continue;
        throw tensordict_error(tensordict_errc::no_key, std::string(what) + ": entry " +
                                                            words(path) +
                                                            " is not in all tensordicts");
      }
      path.pop_back();
    }
  }
  for (const auto& e : first.entries) {
    path.push_back(e.key);
    std::vector<at::Tensor> tensors;
    std::vector<tensordict> dicts;
    for (const tensordict& one : all) {
      const tensordict_value& v = one.get(e.key);
      if (v.is_tensor() != e.value.is_tensor()) {
        throw tensordict_error(tensordict_errc::kind,
                               std::string(what) + ": entry " + words(path) +
                                   " is a tensor here and a tensordict there");
      }
      const at::IntArrayRef own = v.is_tensor() ? v.tensor().sizes() : v.dict().batch_size();
      const at::IntArrayRef theirs =
          v.is_tensor() ? e.value.tensor().sizes() : e.value.dict().batch_size();
      bool fits = own.size() == theirs.size();
      for (std::size_t i = 0; fits && i < own.size(); ++i) {
        fits = own[i] == theirs[i] || static_cast<std::int64_t>(i) == but;
      }
      if (!fits) {
        throw tensordict_error(tensordict_errc::shape, std::string(what) + ": entry " +
                                                           words(path) + " has sizes " +
                                                           words(theirs) + " and " + words(own));
      }
      if (v.is_tensor()) {
        tensors.push_back(v.tensor());
      } else {
        dicts.push_back(v.dict());
      }
    }
    if (e.value.is_tensor()) {
      tensordict_node::of(out).put(e.key, f(tensors));
    } else {
      const batch_sizes sizes =
          with_rest(batch, e.value.dict().batch_size(), all.front().batch_size().size());
      tensordict_node::of(out).put(e.key, joined_of(dicts, sizes, {}, what, but, f, path));
    }
    path.pop_back();
  }
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
      all, sizes, names, "stack", -1,
      [&](const std::vector<at::Tensor>& tensors) { return at::stack(tensors, d); }, path);
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
      all, sizes, tensordict_node::of(all.front()).names, "cat", d,
      [&](const std::vector<at::Tensor>& tensors) { return at::cat(tensors, d); }, path);
}

}  // namespace weft
