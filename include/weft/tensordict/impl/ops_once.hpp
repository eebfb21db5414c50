// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/ops.hpp that are compiled once.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>
#include <weft/tensordict/ops.hpp>

#include <ATen/ops/all.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/any.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft {
namespace detail {

using pair_map = c10::function_ref<at::Tensor(const at::Tensor&, const at::Tensor&)>;

WEFT_DECL tensordict pairwise(const tensordict& a, const tensordict& b, pair_map f, key_path& path);
/// Data are those of `a`.
WEFT_DECL tensordict_value paired(const tensordict_value& a, const tensordict_value& b,
                                  at::IntArrayRef batch, pair_map f, key_path& path) {
  if (a.kind() != b.kind()) {
    throw tensordict_error(tensordict_errc::kind, "entry " + words(path) + " is " + a.kind() +
                                                      " here and " + b.kind() + " there");
  }
  if (a.is_tensor()) {
    at::Tensor t = f(a.tensor(), b.tensor());
    require_batch(t.sizes(), batch, path);
    return t;
  }
  if (a.is_dict()) return pairwise(a.dict(), b.dict(), f, path);
  if (a.is_data()) return a;
  if (a.stack().batch_size() != b.stack().batch_size() ||
      a.stack().stack_dim() != b.stack().stack_dim()) {
    throw tensordict_error(tensordict_errc::shape,
                           "entry " + words(path) + " is a lazy stack of " +
                               words(a.stack().batch_size()) + " here and of " +
                               words(b.stack().batch_size()) + " there, or stacked elsewhere");
  }
  std::vector<tensordict_value> parts;
  for (std::size_t i = 0; i < a.stack().size(); ++i) {
    path.push_back(std::to_string(i));
    parts.push_back(paired(a.stack()[i], b.stack()[i], {}, f, path));
    path.pop_back();
  }
  return same_stack(a.stack(), std::move(parts));
}
WEFT_DECL tensordict pairwise(const tensordict& a, const tensordict& b, pair_map f,
                              key_path& path) {
  if (a.batch_size() != b.batch_size()) {
    throw tensordict_error(tensordict_errc::shape,
                           "the batch sizes differ: " + words(a.batch_size()) + " and " +
                               words(b.batch_size()) +
                               (path.empty() ? std::string() : " of entry " + words(path)));
  }
  const tensordict_node& left = tensordict_node::of(a);
  for (const auto& e : tensordict_node::of(b).entries) {
    if (left.find(e.key) != tensordict_node::npos) continue;
    path.push_back(e.key);
    throw tensordict_error(tensordict_errc::no_key,
                           "entry " + words(path) + " is in one tensordict only");
  }
  tensordict out = tensordict_node::make(left.batch, left.names);
  for (const auto& e : left.entries) {
    path.push_back(e.key);
    if (!b.contains(e.key)) {
      throw tensordict_error(tensordict_errc::no_key,
                             "entry " + words(path) + " is in one tensordict only");
    }
    tensordict_node::of(out).put(e.key, paired(e.value, b.get(e.key), left.batch, f, path));
    path.pop_back();
  }
  return out;
}
WEFT_DECL tensordict pairwise(const tensordict& a, const tensordict& b, pair_map f) {
  key_path path;
  return pairwise(a, b, f, path);
}

/// `t`, broadcast to the batch size of `td`, as a tensor that goes with one of its tensors.
WEFT_DECL at::Tensor along(const tensordict& td, const at::Tensor& t, const at::Tensor& leaf) {
  if (t.dim() == 0) return t;
  batch_sizes sizes(td.batch_size().begin(), td.batch_size().end());
  const at::Tensor whole = t.expand(sizes);
  sizes.resize(static_cast<std::size_t>(leaf.dim()), 1);
  return whole.reshape(sizes);
}
WEFT_DECL tensordict with_tensor(const tensordict& td, const at::Tensor& t, pair_map f) {
  if (t.dim() > td.dim() || !can_broadcast(t.sizes(), td.batch_size())) {
    throw tensordict_error(tensordict_errc::shape, "sizes " + words(t.sizes()) +
                                                       " do not broadcast to the batch size " +
                                                       words(td.batch_size()));
  }
  return computed(td, td.batch_size(), tensordict_node::of(td).names,
                  [&](const at::Tensor& leaf) { return f(leaf, along(td, t, leaf)); });
}
WEFT_DECL tensordict each(const tensordict& td,
                          c10::function_ref<at::Tensor(const at::Tensor&)> f) {
  return mapped(td, f);
}
WEFT_DECL void require_mask(const tensordict& td, const at::Tensor& mask) {
  if (mask.defined() && mask.scalar_type() == at::kBool && mask.sizes() == td.batch_size()) return;
  throw tensordict_error(tensordict_errc::shape,
                         "a mask is a bool tensor of the batch size " + words(td.batch_size()));
}

WEFT_DECL tensordict reduced(const tensordict& td, std::int64_t dim, const char* what,
                             c10::function_ref<at::Tensor(const at::Tensor&, std::int64_t)> f) {
  const std::int64_t d = wrap(dim, td.dim(), what);
  batch_sizes sizes(td.batch_size().begin(), td.batch_size().end());
  sizes.erase(sizes.begin() + d);
  name_list names = tensordict_node::of(td).names;
  if (!names.empty()) names.erase(names.begin() + d);
  return computed(td, sizes, names, [&](const at::Tensor& t) { return f(t, d); });
}
WEFT_DECL tensordict reduced_whole(const tensordict& td,
                                   c10::function_ref<at::Tensor(const at::Tensor&)> f) {
  return td.apply([&](const at::Tensor& t) { return f(t); }, at::IntArrayRef());
}

}  // namespace detail

WEFT_DECL tensordict operator+(const tensordict& a, const tensordict& b) {
  return detail::pairwise(a, b, [](const auto& x, const auto& y) { return x.add(y); });
}
WEFT_DECL tensordict operator-(const tensordict& a, const tensordict& b) {
  return detail::pairwise(a, b, [](const auto& x, const auto& y) { return x.sub(y); });
}
WEFT_DECL tensordict operator*(const tensordict& a, const tensordict& b) {
  return detail::pairwise(a, b, [](const auto& x, const auto& y) { return x.mul(y); });
}
WEFT_DECL tensordict operator/(const tensordict& a, const tensordict& b) {
  return detail::pairwise(a, b, [](const auto& x, const auto& y) { return x.div(y); });
}
WEFT_DECL tensordict operator==(const tensordict& a, const tensordict& b) {
  return detail::pairwise(a, b, [](const auto& x, const auto& y) { return x.eq(y); });
}
WEFT_DECL tensordict operator!=(const tensordict& a, const tensordict& b) {
  return detail::pairwise(a, b, [](const auto& x, const auto& y) { return x.ne(y); });
}
WEFT_DECL tensordict operator<(const tensordict& a, const tensordict& b) {
  return detail::pairwise(a, b, [](const auto& x, const auto& y) { return x.lt(y); });
}
WEFT_DECL tensordict operator<=(const tensordict& a, const tensordict& b) {
  return detail::pairwise(a, b, [](const auto& x, const auto& y) { return x.le(y); });
}
WEFT_DECL tensordict operator>(const tensordict& a, const tensordict& b) {
  return detail::pairwise(a, b, [](const auto& x, const auto& y) { return x.gt(y); });
}
WEFT_DECL tensordict operator>=(const tensordict& a, const tensordict& b) {
  return detail::pairwise(a, b, [](const auto& x, const auto& y) { return x.ge(y); });
}

WEFT_DECL tensordict operator+(const tensordict& a, const at::Tensor& b) {
  return detail::with_tensor(a, b, [](const auto& x, const auto& y) { return x.add(y); });
}
WEFT_DECL tensordict operator-(const tensordict& a, const at::Tensor& b) {
  return detail::with_tensor(a, b, [](const auto& x, const auto& y) { return x.sub(y); });
}
WEFT_DECL tensordict operator*(const tensordict& a, const at::Tensor& b) {
  return detail::with_tensor(a, b, [](const auto& x, const auto& y) { return x.mul(y); });
}
WEFT_DECL tensordict operator/(const tensordict& a, const at::Tensor& b) {
  return detail::with_tensor(a, b, [](const auto& x, const auto& y) { return x.div(y); });
}

WEFT_DECL tensordict operator+(const tensordict& a, const at::Scalar& b) {
  return detail::each(a, [&](const auto& x) { return x.add(b); });
}
WEFT_DECL tensordict operator-(const tensordict& a, const at::Scalar& b) {
  return detail::each(a, [&](const auto& x) { return x.sub(b); });
}
WEFT_DECL tensordict operator*(const tensordict& a, const at::Scalar& b) {
  return detail::each(a, [&](const auto& x) { return x.mul(b); });
}
WEFT_DECL tensordict operator/(const tensordict& a, const at::Scalar& b) {
  return detail::each(a, [&](const auto& x) { return x.div(b); });
}
WEFT_DECL tensordict operator==(const tensordict& a, const at::Scalar& b) {
  return detail::each(a, [&](const auto& x) { return x.eq(b); });
}
WEFT_DECL tensordict operator!=(const tensordict& a, const at::Scalar& b) {
  return detail::each(a, [&](const auto& x) { return x.ne(b); });
}
WEFT_DECL tensordict operator<(const tensordict& a, const at::Scalar& b) {
  return detail::each(a, [&](const auto& x) { return x.lt(b); });
}
WEFT_DECL tensordict operator<=(const tensordict& a, const at::Scalar& b) {
  return detail::each(a, [&](const auto& x) { return x.le(b); });
}
WEFT_DECL tensordict operator>(const tensordict& a, const at::Scalar& b) {
  return detail::each(a, [&](const auto& x) { return x.gt(b); });
}
WEFT_DECL tensordict operator>=(const tensordict& a, const at::Scalar& b) {
  return detail::each(a, [&](const auto& x) { return x.ge(b); });
}
WEFT_DECL tensordict operator-(const tensordict& a) {
  return detail::each(a, [](const auto& x) { return x.neg(); });
}

WEFT_DECL tensordict sum(const tensordict& td, std::int64_t dim) {
  return detail::reduced(td, dim, "sum", [](const auto& t, auto d) { return t.sum(d); });
}
WEFT_DECL tensordict mean(const tensordict& td, std::int64_t dim) {
  return detail::reduced(td, dim, "mean", [](const auto& t, auto d) { return t.mean(d); });
}
WEFT_DECL tensordict all(const tensordict& td, std::int64_t dim) {
  return detail::reduced(td, dim, "all", [](const auto& t, auto d) { return t.all(d); });
}
WEFT_DECL tensordict any(const tensordict& td, std::int64_t dim) {
  return detail::reduced(td, dim, "any", [](const auto& t, auto d) { return t.any(d); });
}
WEFT_DECL tensordict sum(const tensordict& td) {
  return detail::reduced_whole(td, [](const auto& t) { return t.sum(); });
}
WEFT_DECL tensordict mean(const tensordict& td) {
  return detail::reduced_whole(td, [](const auto& t) { return t.mean(); });
}
WEFT_DECL tensordict norm(const tensordict& td) {
  return detail::reduced_whole(td, [](const auto& t) { return t.norm(); });
}
WEFT_DECL bool all(const tensordict& td) {
  for (const auto& [key, t] : td.leaves()) {
    if (!t.to(at::kBool).all().item<bool>()) return false;
  }
  return true;
}
WEFT_DECL bool any(const tensordict& td) {
  for (const auto& [key, t] : td.leaves()) {
    if (t.to(at::kBool).any().item<bool>()) return true;
  }
  return false;
}
namespace detail {
WEFT_DECL bool all_close(const tensordict_value& a, const tensordict_value& b, double relative,
                         double absolute) {
  if (a.kind() != b.kind()) return false;
  if (a.is_tensor()) {
    return a.tensor().sizes() == b.tensor().sizes() &&
           at::allclose(a.tensor(), b.tensor(), relative, absolute);
  }
  if (a.is_data()) return a.data() == b.data();
  if (a.is_stack()) {
    const lazy_stack& x = a.stack();
    const lazy_stack& y = b.stack();
    bool close = x.batch_size() == y.batch_size() && x.stack_dim() == y.stack_dim();
    for (std::size_t i = 0; close && i < x.size(); ++i) {
      close = all_close(x[i], y[i], relative, absolute);
    }
    return close;
  }
  const tensordict_node& x = tensordict_node::of(a.dict());
  const tensordict_node& y = tensordict_node::of(b.dict());
  if (x.batch != y.batch || x.entries.size() != y.entries.size()) return false;
  for (const auto& e : x.entries) {
    const std::size_t at = y.find(e.key);
    if (at == tensordict_node::npos) return false;
    if (!all_close(e.value, y.entries[at].value, relative, absolute)) return false;
  }
  return true;
}
}  // namespace detail
WEFT_DECL bool allclose(const tensordict& a, const tensordict& b, double relative,
                        double absolute) {
  return detail::all_close(a, b, relative, absolute);
}

WEFT_DECL tensordict where(const at::Tensor& mask, const tensordict& a, const tensordict& b) {
  detail::require_mask(a, mask);
  return detail::pairwise(detail::without_stacks(a), detail::without_stacks(b),
                          [&](const at::Tensor& x, const at::Tensor& y) {
                            return at::where(detail::along(a, mask, x), x, y);
                          });
}
WEFT_DECL tensordict masked_fill(const tensordict& td, const at::Tensor& mask,
                                 const at::Scalar& value) {
  detail::require_mask(td, mask);
  return detail::computed(
      td, td.batch_size(), detail::tensordict_node::of(td).names,
      [&](const at::Tensor& t) { return t.masked_fill(detail::along(td, mask, t), value); });
}
WEFT_DECL tensordict masked_select(const tensordict& td, const at::Tensor& mask) {
  detail::require_mask(td, mask);
  return td.index({mask});
}

}  // namespace weft
