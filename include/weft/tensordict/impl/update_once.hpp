// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/tensordict.hpp that are compiled once: copies and merging.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
/// What is put where.
struct placed_entry {
  tensordict_node* into;
  std::string key;
  tensordict_value value;
};
/// Whether `from` can be merged into `to`: throws, and changes nothing. Lists what is to be put.
WEFT_DECL void plan_update(tensordict_node& to, const tensordict_node& from, key_path& path,
                           std::vector<placed_entry>& plan) {
  if (&to == &from) return;
  for (const auto& e : from.entries) {
    path.push_back(e.key);
    const std::size_t place = to.find(e.key);
    if (place != tensordict_node::npos && e.value.is_dict() && to.entries[place].value.is_dict()) {
      plan_update(tensordict_node::of(to.entries[place].value.dict()),
                  tensordict_node::of(e.value.dict()), path, plan);
    } else {
      require_unlocked(to, path);
      plan.push_back({&to, e.key, fit(e.value, to.batch, path)});
    }
    path.pop_back();
  }
}
/// Nothing that gets entries may be in what is put anywhere: it could come to contain itself.
WEFT_DECL void require_no_cycle(const std::vector<placed_entry>& plan) {
  std::vector<const tensordict_node*> changed;
  for (const placed_entry& p : plan) {
    if (changed.empty() || changed.back() != p.into) changed.push_back(p.into);
  }
  for (const placed_entry& p : plan) {
    for (const tensordict_node* node : changed) {
      if (!has(p.value, *node)) continue;
      throw tensordict_error(tensordict_errc::kind, "entry '" + p.key + "' would contain itself");
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
  std::vector<detail::placed_entry> plan;
  detail::plan_update(node(), tensordict_node::of(other), path, plan);
  detail::require_no_cycle(plan);
  for (detail::placed_entry& p : plan) p.into->put(p.key, std::move(p.value));
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
WEFT_DECL tensordict::state_type tensordict::state_dict() const {
  state_type out;
  for (const auto& [key, tensor] : leaves()) {
    out.emplace_back(detail::joined_name(key), tensor);
  }
  return out;
}
WEFT_DECL tensordict& tensordict::load_state_dict(const state_type& state) {
  const state_type own = state_dict();
  std::map<std::string_view, const at::Tensor*> given;
  for (const auto& [name, tensor] : state) given.emplace(name, &tensor);
  for (const auto& [name, tensor] : own) {
    const auto found = given.find(name);
    if (found == given.end() || !found->second->defined()) {
      throw tensordict_error(tensordict_errc::no_key, "the state has no '" + name + "'");
    }
    detail::require_broadcast(found->second->sizes(), tensor.sizes(), name);
  }
  if (state.size() != own.size()) {
    throw tensordict_error(tensordict_errc::no_key,
                           "the state has " + std::to_string(state.size()) +
                               " tensors, and the tensordict " + std::to_string(own.size()));
  }
  for (const auto& [name, tensor] : own) tensor.copy_(*given.at(name));
  return *this;
}
WEFT_DECL tensordict& tensordict::zero_() {
  detail::each_tensor(*this, [](const at::Tensor& t) { t.zero_(); });
  return *this;
}
WEFT_DECL tensordict& tensordict::fill_(const nested_key& key, const at::Scalar& value) {
  tensor(key).fill_(value);
  return *this;
}

}  // namespace weft
