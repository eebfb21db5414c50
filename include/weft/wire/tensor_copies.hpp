// SPDX-License-Identifier: BSL-1.0
// Copies of tensors, for results that others go on to change.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <vector>

namespace weft {

/// A copy in memory of its own, with the autograd history of `t`. It has the strides of `t` if they
/// leave no gaps. Use it to return a tensor that others go on to change (a parameter, a buffer of a
/// replay): a result is sent from where it is, after the function has returned.
///
///   asio::awaitable<at::Tensor> server::weight() { co_return weft::copied(weight_); }
[[nodiscard]] inline at::Tensor copied(const at::Tensor& t) {
  return t.defined() ? t.clone() : at::Tensor();
}
/// Copies of all tensors inside, at any depth.
template <class T>
[[nodiscard]] std::vector<T> copied(const std::vector<T>& all);
template <class T>
[[nodiscard]] std::optional<T> copied(const std::optional<T>& t);
template <class Key, class T>
[[nodiscard]] std::map<Key, T> copied(const std::map<Key, T>& all);

// ── bodies ──

template <class T>
std::vector<T> copied(const std::vector<T>& all) {
  std::vector<T> out;
  out.reserve(all.size());
  for (const T& each : all) out.push_back(copied(each));
  return out;
}
template <class T>
std::optional<T> copied(const std::optional<T>& t) {
  if (!t) return std::nullopt;
  return copied(*t);
}
template <class Key, class T>
std::map<Key, T> copied(const std::map<Key, T>& all) {
  std::map<Key, T> out;
  for (const auto& [key, each] : all) out.emplace(key, copied(each));
  return out;
}

}  // namespace weft
