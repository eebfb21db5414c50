// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/tensordict.hpp that are compiled once: shapes.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <c10/util/FunctionRef.h>

#include <algorithm>
#include <numeric>

namespace weft {
namespace detail {

using leaf_map = c10::function_ref<at::Tensor(const at::Tensor&)>;

// ── every tensor anew ──

struct reshaping;
WEFT_DECL tensordict reshaped(const tensordict& td, const reshaping& how, at::IntArrayRef batch,
                              const name_list& names);

/// Further dimensions of an entry, after the first `before`, keep their names.
WEFT_DECL name_list with_names(const name_list& names, std::size_t dims, const name_list& own,
                               std::size_t own_dims, std::size_t before) {
  if (names.empty() && own.empty()) return {};
  name_list all = names.empty() ? name_list(dims) : names;
  for (std::size_t i = before; i < own_dims; ++i) {
    all.push_back(own.empty() ? std::string() : own[i]);
  }
  return all;
}

/// How the first `before` dimensions change.
struct reshaping {
  std::size_t before;
  at::IntArrayRef batch;
  const name_list& names;
  leaf_map f;
  std::optional<stack_map> on_stack;
  bool computes = false;
};
WEFT_DECL tensordict_value reshaped_value(const tensordict_value& value, const reshaping& how) {
  if (value.is_tensor()) return how.f(value.tensor());
  if (value.is_dict()) {
    const tensordict_node& nested = tensordict_node::of(value.dict());
    return reshaped(
        value.dict(), how, with_rest(how.batch, nested.batch, how.before),
        with_names(how.names, how.batch.size(), nested.names, nested.batch.size(), how.before));
  }
  if (value.is_data()) return value;
  const lazy_stack& stack = value.stack();
  if (stack.is_data() && how.computes) {
    if (how.batch.size() == how.before && begins_with(stack.batch_size(), how.batch)) return value;
    refuse_kind(value, "what can be reduced", "an entry, of non-tensor data,");
  }
  if (stack.is_data()) {
    data_elements elements = data_of(stack, stack.batch_size());
    elements.which = how.f(elements.which);
    return stack_of(elements);
  }
  const auto dim = static_cast<std::size_t>(stack.stack_dim());
  if (dim >= how.before) {
    std::vector<tensordict_value> parts;
    for (const tensordict_value& part : stack.parts()) parts.push_back(reshaped_value(part, how));
    const batch_sizes inner = with_rest(how.batch, part_batch(stack), how.before);
    return lazy_stack(std::move(parts),
                      static_cast<std::int64_t>(dim - how.before + how.batch.size()),
                      stack.stack_dim_name(), inner);
  }
  return how.on_stack ? (*how.on_stack)(stack) : reshaped_value(stack.dense(), how);
}
WEFT_DECL tensordict reshaped(const tensordict& td, const reshaping& how, at::IntArrayRef batch,
                              const name_list& names) {
  tensordict out = tensordict_node::make(batch, names);
  const tensordict_node& from = tensordict_node::of(td);
  tensordict_node& to = tensordict_node::of(out);
  to.entries.reserve(from.entries.size());
  for (const auto& e : from.entries) to.append(e.key, reshaped_value(e.value, how));
  to.same_keys(from);
  return out;
}
WEFT_DECL tensordict reshaped(const tensordict& td, at::IntArrayRef batch, const name_list& names,
                              leaf_map f, std::optional<stack_map> on_stack) {
  return reshaped(td, {static_cast<std::size_t>(td.dim()), batch, names, f, on_stack}, batch,
                  names);
}
WEFT_DECL tensordict computed(const tensordict& td, at::IntArrayRef batch, const name_list& names,
                              leaf_map f) {
  return reshaped(td, {static_cast<std::size_t>(td.dim()), batch, names, f, std::nullopt, true},
                  batch, names);
}
WEFT_DECL tensordict without_stacks(const tensordict& td) {
  const tensordict_node& from = tensordict_node::of(td);
  return computed(td, from.batch, from.names, [](const at::Tensor& t) { return t; });
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

namespace detail {
WEFT_DECL void require_all_unlocked(const tensordict& td, key_path& path) {
  path.emplace_back("batch_size");
  require_unlocked(tensordict_node::of(td), path);
  for (const auto& e : tensordict_node::of(td).entries) {
    path.back() = e.key;
    if (e.value.is_dict()) require_all_unlocked(e.value.dict(), path);
  }
  path.pop_back();
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
    if (e.value.is_dict() && !detail::begins_with(e.value.dict().batch_size(), batch_size)) {
      tensordict(e.value.dict()).batch_size_(batch_size);
    }
  }
  if (!node().names.empty()) node().names.resize(batch_size.size());
  node().batch.assign(batch_size.begin(), batch_size.end());
  return *this;
}

WEFT_DECL tensordict& tensordict::auto_batch_size_(std::size_t dims) {
  key_path path;
  detail::require_all_unlocked(*this, path);
  std::optional<detail::batch_sizes> common;
  const auto meet = [&](at::IntArrayRef sizes) {
    if (!common) common.emplace(sizes.begin(), sizes.end());
    std::size_t same = 0;
    while (same < std::min(common->size(), sizes.size()) && (*common)[same] == sizes[same]) ++same;
    common->resize(same);
  };
  for (const auto& e : node().entries) {
    if (e.value.is_tensor()) meet(e.value.tensor().sizes());
    if (e.value.is_dict()) meet(tensordict(e.value.dict()).auto_batch_size_(dims).batch_size());
    if (e.value.is_stack()) meet(e.value.stack().batch_size());
  }
  if (!common) return *this;
  common->resize(std::min(common->size(), dims));
  return batch_size_(*common);
}
WEFT_DECL tensordict& tensordict::names_(std::vector<std::string> names) {
  node().names =
      std::move(tensordict_node::of(tensordict_node::make(batch_size(), std::move(names))).names);
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
  tensordict out = reshape(sizes);
  if (node().names.empty() || parts.empty() || out.node_ == node_) return out;
  detail::name_list names = node().names;  // the last of the new ones has the old one's name
  names.insert(names.begin() + static_cast<std::ptrdiff_t>(d), parts.size() - 1, std::string());
  return out.names_(std::move(names));
}

WEFT_DECL std::vector<tensordict> tensordict::unbind(std::int64_t at) const {
  const std::int64_t d = detail::wrap(at, dim(), "unbind");
  std::vector<tensordict> out;
  detail::batch_sizes sizes = node().batch;
  sizes.erase(sizes.begin() + d);
  detail::name_list names = node().names;
  if (!names.empty()) names.erase(names.begin() + d);
  for (std::int64_t i = 0; i < node().batch[static_cast<std::size_t>(d)]; ++i) {
    out.push_back(detail::reshaped(
        *this, sizes, names, [&](const at::Tensor& t) { return t.select(d, i); },
        [&](const lazy_stack& stack) {
          std::vector<at::indexing::TensorIndex> at(static_cast<std::size_t>(d),
                                                    at::indexing::Slice());
          at.emplace_back(i);
          return stack.index(at);
        }));
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
    out.push_back(detail::reshaped(
        *this, part, node().names, [&](const at::Tensor& t) { return t.narrow(d, begin, size); },
        [&](const lazy_stack& stack) {
          std::vector<at::indexing::TensorIndex> at(static_cast<std::size_t>(d),
                                                    at::indexing::Slice());
          at.emplace_back(at::indexing::Slice(begin, begin + size));
          return stack.index(at);
        }));
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

}  // namespace weft
