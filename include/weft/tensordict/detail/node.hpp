// SPDX-License-Identifier: BSL-1.0
// What stands behind a weft::tensordict.
#pragma once

#include <weft/core/intrusive_ptr.hpp>
#include <weft/tensordict/tensordict.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
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
  /// The keys of `like`, one after the other: values only are new. Before it, `entries` is empty;
  /// behind it, call `same_keys`.
  void append(const std::string& key, tensordict_value value) {
    entries.push_back({key, std::move(value)});
  }
  void same_keys(const tensordict_node& like) { index_ = like.index_; }
  /// `entries` were filled by hand. False: two have one key, or were chosen to fall together.
  [[nodiscard]] bool index_new();
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
  /// Where `key` stands in the index, or would; npos: keys that were chosen to fall together.
  [[nodiscard]] std::size_t slot(std::string_view key) const noexcept;
  static constexpr std::size_t most_searched = 12;  // more entries have an index
  /// Places of entries by the hashes of their keys: open addressing, a power of two, none is 0xff….
  std::vector<std::uint32_t> index_;
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

/// Data, or a lazy stack of data.
[[nodiscard]] inline bool holds_data(const tensordict_value& value) noexcept {
  return value.is_data() || (value.is_stack() && value.stack().is_data());
}
/// A lazy stack of tensors.
[[nodiscard]] inline bool is_ragged(const tensordict_value& value) noexcept {
  return value.is_stack() && value.stack().size() > 0 && value.stack().parts().front().is_tensor();
}
/// f(tensordict), for each tensordict that `value` is, or that is a part of it.
template <class F>
void each_dict(const tensordict_value& value, const F& f) {
  if (value.is_dict()) {
    f(value.dict());
  } else if (value.is_stack()) {
    for (const tensordict_value& part : lazy_node::of(value.stack()).parts) each_dict(part, f);
  }
}

/// f(tensor), for each tensor that `value` is, or has at any depth.
template <class F>
void each_tensor(const tensordict_value& value, const F& f) {
  if (value.is_tensor()) {
    f(value.tensor());
  } else if (value.is_dict()) {
    for (const auto& e : tensordict_node::of(value.dict()).entries) each_tensor(e.value, f);
  } else if (value.is_stack()) {
    for (const tensordict_value& part : lazy_node::of(value.stack()).parts) each_tensor(part, f);
  }
}

}  // namespace weft::detail

namespace weft {

inline detail::tensordict_node& tensordict::node() const noexcept {
  return static_cast<detail::tensordict_node&>(*node_);
}

}  // namespace weft
