// SPDX-License-Identifier: BSL-1.0
// What stands behind a weft::tensordict.
#pragma once

#include <weft/core/intrusive_ptr.hpp>
#include <weft/tensordict/tensordict.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft::detail {

using batch_sizes = c10::SmallVector<std::int64_t, 5>;

struct tensordict_node final : ref_counted {
  struct entry {
    std::string key;
    tensordict_value value;
  };

  ~tensordict_node() override {
    if (locked) free_children();
  }

  [[nodiscard]] static tensordict_node& of(const tensordict& td) noexcept { return td.node(); }
  [[nodiscard]] static tensordict make(at::IntArrayRef batch, std::vector<std::string> names = {});

  [[nodiscard]] std::size_t find(std::string_view key) const noexcept;
  void put(std::string_view key, tensordict_value value);
  void remove(std::size_t at);

  void lock_children();
  void free_children() noexcept;

  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
  batch_sizes batch;
  std::vector<std::string> names;  // none, or one for each dimension
  std::vector<entry> entries;
  bool locked = false;
  std::size_t locked_by = 0;  // so many locked ones have this one
  at::Tensor buffer;          // uint8, of a consolidated one: all its tensors are in it
  std::unique_ptr<const std::filesystem::path> folder;  // of a memory-mapped one

 private:
  struct hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>()(text);
    }
  };
  void index_all();
  static constexpr std::size_t most_searched = 12;  // more entries have an index
  std::unordered_map<std::string, std::size_t, hash, std::equal_to<>> index_;
};

struct lazy_node final : ref_counted {
  [[nodiscard]] static lazy_node& of(const lazy_stack& stack) noexcept {
    return static_cast<lazy_node&>(*stack.node_);
  }
  std::vector<tensordict_value> parts;
  std::size_t dim = 0;
  std::string name;
  batch_sizes batch;
};

/// f(tensordict), for each tensordict that `value` is, or that is a part of it.
template <class F>
void each_dict(const tensordict_value& value, const F& f) {
  if (value.is_dict()) {
    f(value.dict());
  } else if (value.is_stack()) {
    for (const tensordict_value& part : lazy_node::of(value.stack()).parts) each_dict(part, f);
  }
}

}  // namespace weft::detail

namespace weft {

inline detail::tensordict_node& tensordict::node() const noexcept {
  return static_cast<detail::tensordict_node&>(*node_);
}

}  // namespace weft
