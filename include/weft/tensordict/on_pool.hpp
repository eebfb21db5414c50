// SPDX-License-Identifier: BSL-1.0
// A function of each tensor of a tensordict, on the worker's compute pool.
//
//   weft::tensordict sharp = co_await weft::apply_on_pool(td, [](const at::Tensor& t) {
//     return t.softmax(-1);
//   });
#pragma once

#include <weft/core/gather.hpp>
#include <weft/core/on_pool.hpp>
#include <weft/tensordict/tensordict.hpp>

#include <asio/awaitable.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace weft {

/// As td.apply(f): the tensors are divided into `parts`, of about as many bytes, and each part is a
/// task of the pool (see weft::on_pool, whose errors these are). Each has a copy of `f`, which runs
/// on one thread at a time. Gives `f`'s exception if one throws.
template <class F>
[[nodiscard]] asio::awaitable<tensordict> apply_on_pool(tensordict td, F f, std::size_t parts = 4) {
  td = td.clone(tensordict::recurse::no);  // as it is now
  std::vector<at::Tensor> all;
  for (auto& [key, tensor] : td.leaves()) all.push_back(std::move(tensor));
  const auto each = static_cast<std::size_t>(td.bytes()) / std::max<std::size_t>(parts, 1) + 1;
  std::vector<asio::awaitable<std::vector<at::Tensor>>> tasks;
  for (std::size_t begin = 0; begin < all.size();) {
    std::vector<at::Tensor> mine;
    for (std::size_t bytes = 0; begin < all.size() && bytes < each; ++begin) {
      bytes += all[begin].nbytes();
      mine.push_back(std::move(all[begin]));
    }
    tasks.push_back(on_pool(
        [f](std::vector<at::Tensor> tensors) mutable {
          for (at::Tensor& t : tensors) t = f(std::as_const(t));
          return tensors;
        },
        std::move(mine)));
  }
  std::vector<at::Tensor> done;
  auto made = co_await gather(std::move(tasks));
  for (std::vector<at::Tensor>& part : made)
    std::move(part.begin(), part.end(), std::back_inserter(done));
  std::size_t next = 0;
  co_return td.apply([&](const at::Tensor&) { return std::move(done[next++]); });
}

}  // namespace weft
