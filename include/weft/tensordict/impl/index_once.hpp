// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/tensordict.hpp that are compiled once: indexing.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/batch_index.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace weft {
namespace detail {

// ── indexing ──

/// The names of the dimensions that an index gives. One that comes from one dimension has its name;
/// so has one of the block that index tensors and masks give together, if only such of one
/// dimension vary along it.
class index_names {
 public:
  explicit index_names(const name_list& before) : before_(before) {}
  [[nodiscard]] std::size_t next() const noexcept { return next_; }
  void keep() { out_.push_back(name(next_++)); }
  void drop() { ++next_; }
  void add() { out_.emplace_back(); }
  /// An index tensor of these sizes, or a mask; it takes so many dimensions.
  void select(at::IntArrayRef sizes, std::int64_t takes) {
    blocks_.push_back({{sizes.begin(), sizes.end()}, next_, static_cast<std::size_t>(takes)});
    apart_ = apart_ || (blocks_.size() > 1 && position_ != out_.size());
    position_ = blocks_.size() == 1 ? out_.size() : position_;
    next_ += static_cast<std::size_t>(takes);
  }
  [[nodiscard]] name_list all(std::size_t dims) {
    if (before_.empty()) return {};
    while (next_ < dims) keep();
    if (!blocks_.empty()) {
      const name_list block = names_of_block();
      out_.insert(out_.begin() + static_cast<std::ptrdiff_t>(apart_ ? 0 : position_), block.begin(),
                  block.end());
    }
    const bool none =
        std::all_of(out_.begin(), out_.end(), [](const auto& n) { return n.empty(); });
    return none ? name_list() : out_;
  }

 private:
  struct part {
    batch_sizes sizes;
    std::size_t first;
    std::size_t takes;
  };
  [[nodiscard]] std::string name(std::size_t dim) const {
    return before_.empty() ? std::string() : before_[dim];
  }
  [[nodiscard]] name_list names_of_block() const {
    std::size_t dims = 0;
    for (const part& b : blocks_) dims = std::max(dims, b.sizes.size());
    name_list names(dims);
    std::vector<bool> varies(dims, false);
    for (std::size_t d = 1; d <= dims; ++d) {  // from the end
      std::set<std::size_t> varying;
      std::set<std::size_t> having;
      for (const part& b : blocks_) {
        if (b.takes == 0 || b.sizes.size() < d) continue;
        for (std::size_t used = b.first; used < b.first + b.takes; ++used) {
          having.insert(used);
          if (b.sizes[b.sizes.size() - d] != 1) varying.insert(used);
        }
        varies[dims - d] = varies[dims - d] || b.sizes[b.sizes.size() - d] != 1;
      }
      const auto& from = varying.empty() ? having : varying;
      if (from.size() == 1) names[dims - d] = name(*from.begin());
    }
    name_list out = names;
    for (std::size_t i = 0; i < dims; ++i) {
      if (names[i].empty() || std::count(names.begin(), names.end(), names[i]) == 1) continue;
      std::size_t along = 0;
      for (std::size_t k = 0; k < dims; ++k) along += names[k] == names[i] && varies[k] ? 1 : 0;
      if (!varies[i] || along != 1) out[i].clear();
    }
    return out;
  }

  const name_list& before_;
  name_list out_;
  std::size_t next_ = 0;
  std::vector<part> blocks_;
  std::size_t position_ = 0;
  bool apart_ = false;
};

WEFT_DECL std::size_t dims_taken(const at::indexing::TensorIndex& i) noexcept {
  if (i.is_none() || i.is_ellipsis() || i.is_boolean()) return 0;
  if (!i.is_tensor()) return 1;
  const bool mask = i.tensor().scalar_type() == at::kBool || i.tensor().scalar_type() == at::kByte;
  return mask ? static_cast<std::size_t>(i.tensor().dim()) : 1;
}

WEFT_DECL batch_index understood(at::IntArrayRef batch, const name_list& before,
                                 at::ArrayRef<at::indexing::TensorIndex> index) {
  const auto dims = static_cast<std::int64_t>(batch.size());
  const auto takes = [](const at::indexing::TensorIndex& i) {
    return static_cast<std::int64_t>(dims_taken(i));
  };
  std::int64_t taken = 0;
  std::size_t ellipses = 0;
  std::vector<at::indexing::TensorIndex> all(index.begin(), index.end());
  for (at::indexing::TensorIndex& i : all) {
    if (!i.is_tensor() || !i.tensor().defined() || i.tensor().dim() != 0) continue;
    const at::ScalarType type = i.tensor().scalar_type();
    const bool mask = type == at::kBool || type == at::kByte;
    if (!mask && at::isIntegralType(type, false)) i = i.tensor().item<std::int64_t>();
  }
  for (const auto& i : all) {
    if (i.is_tensor() && !i.tensor().defined()) {
      throw tensordict_error(tensordict_errc::index, "an index that is an undefined tensor");
    }
    taken += takes(i);
    ellipses += i.is_ellipsis() ? 1 : 0;
  }
  if (taken > dims) {
    throw tensordict_error(tensordict_errc::index, "an index of " + std::to_string(taken) +
                                                       " dimensions for a batch size of " +
                                                       words(batch));
  }
  if (ellipses > 1) throw tensordict_error(tensordict_errc::index, "an index with two ellipses");
  batch_index out;
  index_names named(before);
  for (const auto& i : all) {
    if (i.is_ellipsis()) {
      for (std::int64_t n = taken; n < dims; ++n) {
        out.index.emplace_back(at::indexing::Slice());
        named.keep();
      }
      continue;
    }
    if (i.is_integer()) {
      const std::int64_t size = batch[named.next()];
      const std::int64_t at = i.integer().guard_int(__FILE__, __LINE__);
      if (at < -size || at >= size) {
        throw tensordict_error(tensordict_errc::index, "index " + std::to_string(at) +
                                                           " of dimension " +
                                                           std::to_string(named.next()) +
                                                           " of the batch size " + words(batch));
      }
      named.drop();
    } else if (i.is_slice()) {
      named.keep();
    } else if (i.is_none()) {
      named.add();
    } else if (i.is_boolean()) {
      named.select({1}, 0);
    } else if (takes(i) == 1 && i.tensor().scalar_type() != at::kBool &&
               i.tensor().scalar_type() != at::kByte) {
      named.select(i.tensor().sizes(), 1);
    } else {
      named.select({-1}, takes(i));  // as many as the mask has
    }
    out.index.push_back(i);
  }
  try {
    const at::Tensor shape = at::zeros({}, at::kByte).expand(batch);
    std::vector<at::indexing::TensorIndex> here = out.index;  // the shape is on the CPU
    for (at::indexing::TensorIndex& i : here) {
      if (i.is_tensor()) i = i.tensor().cpu();
    }
    const at::Tensor selected = at::indexing::get_item(shape, here);
    out.batch.assign(selected.sizes().begin(), selected.sizes().end());
  } catch (const c10::Error& e) {
    throw tensordict_error(tensordict_errc::index, std::string(e.what_without_backtrace()) +
                                                       " (batch size " + words(batch) + ")");
  }
  out.names = named.all(batch.size());
  return out;
}

/// Where a value is put.
struct put_at {
  const batch_index& where;
  const batch_sizes& batch;  // that is indexed
};

/// What an entry of data becomes if `value` is put into it. `before`: none, if it is new.
WEFT_DECL tensordict_value with_data(const tensordict_value* before, at::IntArrayRef batch,
                                     const tensordict_value& value, at::IntArrayRef value_batch,
                                     const put_at& at, const nested_key& key) {
  if (before && before->is_data() && value.is_data() && before->data() == value.data()) {
    return *before;
  }
  const data_elements added = data_of(value, value_batch);
  data_elements all = data_of(before ? *before : tensordict_value(non_tensor()), batch);
  if (all.which.sizes() !=
      at::IntArrayRef(with_rest(at.batch, added.which.sizes(), at.where.batch.size()))) {
    throw tensordict_error(tensordict_errc::shape,
                           "entry " + words(key) + ": data of sizes " + words(added.which.sizes()) +
                               " do not fit data of sizes " + words(all.which.sizes()));
  }
  const auto count = static_cast<std::int64_t>(all.items.size());
  all.which = all.which.clone();
  at::indexing::set_item(all.which, at.where.index, added.which.add(count));
  all.items.insert(all.items.end(), added.items.begin(), added.items.end());
  return stack_of(all);
}

/// Throws if `value` cannot be written; changes nothing.
WEFT_DECL void check_put(const tensordict& into, const tensordict& value, const put_at& at,
                         key_path& path) {
  const tensordict_node& to = tensordict_node::of(into);
  for (const auto& e : tensordict_node::of(value).entries) {
    path.push_back(e.key);
    const std::size_t place = to.find(e.key);
    if (holds_data(e.value)) {
      const tensordict_value* before =
          place == tensordict_node::npos ? nullptr : &to.entries[place].value;
      if (before && !holds_data(*before)) {
        refuse_kind(*before, "non-tensor data", "entry " + words(path));
      }
      const bool same =
          before && before->is_data() && e.value.is_data() && before->data() == e.value.data();
      if (!same) require_unlocked(to, path);
      static_cast<void>(with_data(before, to.batch, e.value, value.batch_size(), at, path));
    } else if (place == tensordict_node::npos) {
      require_unlocked(to, path);
      if (e.value.is_dict())
        check_put(tensordict_node::make(
                      with_rest(at.batch, e.value.dict().batch_size(), at.where.batch.size())),
                  e.value.dict(), at, path);
    } else if (e.value.is_tensor() && to.entries[place].value.is_tensor()) {
      const at::Tensor& t = to.entries[place].value.tensor();
      require_broadcast(e.value.tensor().sizes(),
                        with_rest(at.where.batch, t.sizes(), at.batch.size()), path);
    } else if (e.value.is_dict() && to.entries[place].value.is_dict()) {
      check_put(to.entries[place].value.dict(), e.value.dict(), at, path);
    } else if (e.value.is_tensor() || e.value.is_dict()) {
      refuse_kind(to.entries[place].value, e.value.kind(), "entry " + words(path));
    }
    if (e.value.is_stack() && !holds_data(e.value)) {
      refuse_kind(e.value, "what can be put at an index", "entry " + words(path));
    }
    path.pop_back();
  }
}

WEFT_DECL void put(const tensordict& into, const tensordict& value, const put_at& at) {
  tensordict_node& to = tensordict_node::of(into);
  for (const auto& e : tensordict_node::of(value).entries) {
    std::size_t place = to.find(e.key);
    if (holds_data(e.value)) {
      const tensordict_value* before =
          place == tensordict_node::npos ? nullptr : &to.entries[place].value;
      to.put(e.key, with_data(before, to.batch, e.value, value.batch_size(), at, e.key));
      continue;
    }
    if (place == tensordict_node::npos) {
      if (e.value.is_tensor()) {
        const at::Tensor& t = e.value.tensor();
        to.put(e.key, at::zeros(with_rest(at.batch, t.sizes(), at.where.batch.size()),
                                t.options().requires_grad(false)));
      } else {
        to.put(e.key, tensordict_node::make(
                          with_rest(at.batch, e.value.dict().batch_size(), at.where.batch.size())));
      }
      place = to.find(e.key);
    }
    if (e.value.is_tensor()) {
      at::indexing::set_item(to.entries[place].value.tensor(), at.where.index, e.value.tensor());
    } else {
      put(to.entries[place].value.dict(), e.value.dict(), at);
    }
  }
}

/// Of a value whose first `dims` dimensions are indexed. Without `write` it only refuses.
WEFT_DECL void put_scalar(const tensordict_value& into, const batch_index& where, std::size_t dims,
                          const at::Scalar& value, bool write, key_path& path) {
  if (into.is_tensor()) {
    const at::Tensor& t = into.tensor();
    static_cast<void>(rest_of(t.sizes(), dims));
    if (!write) return;
    at::indexing::set_item(t, where.index,
                           at::scalar_tensor(value, t.options().requires_grad(false)));
  } else if (into.is_dict()) {
    for (const auto& e : tensordict_node::of(into.dict()).entries) {
      path.push_back(e.key);
      put_scalar(e.value, where, dims, value, write, path);
      path.pop_back();
    }
  } else if (into.is_stack() && !holds_data(into)) {
    const lazy_stack& stack = into.stack();
    if (static_cast<std::size_t>(stack.stack_dim()) >= dims) {
      for (const tensordict_value& part : stack.parts()) {
        put_scalar(part, where, dims, value, write, path);
      }
      return;
    }
    const bool views = std::none_of(where.index.begin(), where.index.end(),
                                    [](const auto& i) { return i.is_tensor() || i.is_boolean(); });
    if (!views) refuse_kind(into, "what takes a number at index tensors", "entry " + words(path));
    if (!write) return;
    each_tensor(index_stack(stack, with_rest(where.batch, stack.batch_size(), dims), where.index),
                [&](const at::Tensor& t) { t.fill_(value); });
  }
}

}  // namespace detail

WEFT_DECL tensordict tensordict::index(at::ArrayRef<at::indexing::TensorIndex> index) const {
  const detail::batch_index at = detail::understood(node().batch, node().names, index);
  return detail::reshaped(
      *this, at.batch, at.names,
      [&](const at::Tensor& t) { return at::indexing::get_item(t, at.index); },
      [&](const lazy_stack& stack) {
        return detail::index_stack(
            stack, detail::with_rest(at.batch, stack.batch_size(), node().batch.size()), at.index);
      });
}
WEFT_DECL tensordict
tensordict::index(std::initializer_list<at::indexing::TensorIndex> index) const {
  return this->index(at::ArrayRef<at::indexing::TensorIndex>(index));
}
WEFT_DECL tensordict& tensordict::index_put_(at::ArrayRef<at::indexing::TensorIndex> index,
                                             const tensordict& value) {
  const detail::batch_index where = detail::understood(node().batch, node().names, index);
  if (value.batch_size() != at::IntArrayRef(where.batch)) {
    throw tensordict_error(tensordict_errc::shape,
                           "the index selects a batch size of " + detail::words(where.batch) +
                               ", and the value has " + detail::words(value.batch_size()));
  }
  const detail::put_at at{where, node().batch};
  key_path path;
  detail::check_put(*this, value, at, path);
  detail::put(*this, value, at);
  return *this;
}
WEFT_DECL tensordict& tensordict::index_put_(std::initializer_list<at::indexing::TensorIndex> index,
                                             const tensordict& value) {
  return index_put_(at::ArrayRef<at::indexing::TensorIndex>(index), value);
}
WEFT_DECL tensordict& tensordict::index_put_(std::initializer_list<at::indexing::TensorIndex> index,
                                             const at::Scalar& value) {
  const detail::batch_index where = detail::understood(
      node().batch, node().names, at::ArrayRef<at::indexing::TensorIndex>(index));
  key_path path;
  for (const bool write : {false, true}) {
    for (const auto& e : node().entries) {
      path.assign(1, e.key);
      detail::put_scalar(e.value, where, node().batch.size(), value, write, path);
    }
  }
  return *this;
}
WEFT_DECL tensordict& tensordict::set_at_(const nested_key& key, const at::Tensor& value,
                                          at::ArrayRef<at::indexing::TensorIndex> index) {
  const detail::batch_index where = detail::understood(node().batch, node().names, index);
  const at::Tensor& into = tensor(key);
  if (detail::walk(node(), key).through_stack) {
    throw tensordict_error(tensordict_errc::kind,
                           "entry " + detail::words(key) +
                               " is within a lazy stack, which an index of the whole does not fit");
  }
  detail::require_broadcast(value.sizes(),
                            detail::with_rest(where.batch, into.sizes(), node().batch.size()), key);
  at::indexing::set_item(into, where.index, value);
  return *this;
}

}  // namespace weft
