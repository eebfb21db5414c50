// SPDX-License-Identifier: BSL-1.0
// A dictionary of tensors that behaves like one tensor, after PyTorch's tensordict.
//
//   weft::tensordict td({{"obs", at::zeros({32, 4})}, {"next", {{"reward", at::zeros({32})}}}},
//                       {32});
//   td.set("done", at::zeros({32}, at::kBool));
//   at::Tensor reward = td["next"]["reward"];        // or td.get({"next", "reward"})
//   weft::tensordict first = td.index({at::indexing::Slice(0, 16)});   // views
#pragma once

#include <weft/core/intrusive_ptr.hpp>
#include <weft/tensordict/error.hpp>
#include <weft/tensordict/key.hpp>
#include <weft/tensordict/lazy_stack.hpp>
#include <weft/tensordict/non_tensor.hpp>

#include <ATen/TensorIndexing.h>
#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace weft {

class tensordict_entry;
class tensordict_item;
class tensordict_value;
namespace detail {
struct tensordict_node;
}

/// A handle, as at::Tensor is: copies refer to the same entries; `clone` makes others. The leading
/// sizes of each entry are the batch size; operations on shapes and indexing work on these alone.
/// Entries keep the order in which they were set. One thread at a time, as for a tensor. Dimensions
/// may be negative, and count from the end of the batch size then. Throws tensordict_error.
class tensordict {
 public:
  /// No entries, batch size [].
  tensordict();
  explicit tensordict(at::IntArrayRef batch_size);
  /// Nested braces are tensordicts of the same batch size. `names` are those of the dimensions:
  /// none, or one for each, empty where a dimension has none.
  tensordict(std::initializer_list<tensordict_item> items, at::IntArrayRef batch_size = {},
             std::vector<std::string> names = {});
  tensordict(const tensordict&) noexcept = default;
  tensordict(tensordict&&) noexcept = default;
  // A variable becomes another handle. `td[0] = other` would change nothing, so it does not
  // compile: td.index_put_({0}, other).
  tensordict& operator=(const tensordict&) & noexcept = default;
  tensordict& operator=(tensordict&&) & noexcept = default;
  ~tensordict() = default;

  // ── what it is ──
  [[nodiscard]] at::IntArrayRef batch_size() const noexcept;
  [[nodiscard]] std::int64_t dim() const noexcept;
  /// The product of the batch size; 1 if that is [].
  [[nodiscard]] std::int64_t numel() const noexcept;
  /// Of all tensors, in bytes; views count their elements.
  [[nodiscard]] std::int64_t bytes() const;
  /// One for each dimension, empty where it has none.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Of entries, nested ones not counted.
  [[nodiscard]] std::size_t size() const noexcept;
  /// No tensor and no other data, at any depth.
  [[nodiscard]] bool is_empty() const noexcept;
  /// As Python prints it: TensorDict(batch_size=[32], fields={obs: f32[4], next: {reward: f32[]}}).
  [[nodiscard]] std::string to_string() const;
  /// Both handles refer to the same entries.
  [[nodiscard]] bool is_same(const tensordict& other) const noexcept {
    return node_ == other.node_;
  }

  // ── entries ──
  [[nodiscard]] bool contains(const nested_key& key) const noexcept;
  [[nodiscard]] const tensordict_value& get(const nested_key& key) const;
  [[nodiscard]] const at::Tensor& tensor(const nested_key& key) const;
  [[nodiscard]] tensordict dict(const nested_key& key) const;
  [[nodiscard]] const non_tensor& data(const nested_key& key) const;
  [[nodiscard]] const lazy_stack& stack(const nested_key& key) const;
  /// An entry to read, or to set by `=`: td["obs"] = t. Of a temporary one (td[0]), to read.
  [[nodiscard]] tensordict_entry operator[](std::string_view key) const&;
  [[nodiscard]] tensordict_value operator[](std::string_view key) const&&;
  enum class nested : bool { no, yes };
  enum class leaves_only : bool { no, yes };
  /// In their order; with `nested`, entries of a tensordict come before itself, as in Python.
  /// Leaves are tensors.
  [[nodiscard]] std::vector<key_path> keys(nested deep = nested::no,
                                           leaves_only which = leaves_only::no) const;
  /// All tensors, at any depth, in the order of their keys; in lazy stacks, by the part's number.
  [[nodiscard]] std::vector<std::pair<key_path, at::Tensor>> leaves() const;
  /// The same by one name, "next.reward", as a module's state has them.
  using state_type = std::vector<std::pair<std::string, at::Tensor>>;
  [[nodiscard]] state_type state_dict() const;
  /// Writes them into the tensors that are there (copy_). Throws `no_key` unless the names are the
  /// same, and `shape`, before it writes.
  tensordict& load_state_dict(const state_type& state);
  /// Makes or replaces an entry, and the tensordicts on the way to it.
  tensordict& set(const nested_key& key, tensordict_value value);
  /// Writes into a tensor that is there (copy_: broadcasts, converts). A locked one may be written.
  tensordict& set_(const nested_key& key, const at::Tensor& value);
  tensordict& set_at_(const nested_key& key, const at::Tensor& value,
                      at::ArrayRef<at::indexing::TensorIndex> index);
  tensordict& erase(const nested_key& key);
  tensordict_value pop(const nested_key& key);
  tensordict& rename_key_(const nested_key& from, const nested_key& to);

  /// Others of the same entries, which are not copied. `exclude` takes keys that are not there.
  [[nodiscard]] tensordict select(std::span<const nested_key> keys) const;
  [[nodiscard]] tensordict select(std::initializer_list<nested_key> keys) const;
  [[nodiscard]] tensordict exclude(std::span<const nested_key> keys) const;
  [[nodiscard]] tensordict exclude(std::initializer_list<nested_key> keys) const;
  /// {those entries, the others}.
  [[nodiscard]] std::pair<tensordict, tensordict>
  split_keys(std::initializer_list<nested_key> keys) const;
  /// "next", "reward" becomes "next.reward", and back. Equal keys: key_exists.
  [[nodiscard]] tensordict flatten_keys(std::string_view separator = ".") const;
  [[nodiscard]] tensordict unflatten_keys(std::string_view separator = ".") const;

  /// Takes over the entries of `other`, which are not copied, and merges nested ones. All or
  /// nothing.
  tensordict& update(const tensordict& other);
  /// Writes them into the tensors that are there. All keys and shapes are checked before.
  tensordict& update_(const tensordict& other);
  /// Another one, with the entries of `other` in place of its own; tensors are shared.
  [[nodiscard]] tensordict replace(const tensordict& other) const;
  tensordict& copy_(const tensordict& other) { return update_(other); }
  tensordict& zero_();
  tensordict& fill_(const nested_key& key, const at::Scalar& value);
  /// A copy: of the tensors, too, or of the dictionary alone.
  enum class recurse : bool { no, yes };
  [[nodiscard]] tensordict clone(recurse deep = recurse::yes) const;
  /// Without entries, or with the nested tensordicts and no tensors.
  [[nodiscard]] tensordict empty(recurse deep = recurse::no) const;

  /// A copy whose tensors are views of one buffer, each at a multiple of 64 bytes. It is locked:
  /// `unlock_` makes it a tensordict like others. As a value of calls it is one tensor. Throws
  /// `history` if a tensor requires gradients (but under at::NoGradGuard), `kind` for what is not
  /// dense on the CPU. At most so many of libtorch's threads copy. `into`: a contiguous uint8
  /// tensor at a multiple of 64 bytes, whose first bytes become the buffer; none of the tensors is
  /// in its memory.
  [[nodiscard]] tensordict consolidate(unsigned threads = 1, const at::Tensor& into = {}) const;
  [[nodiscard]] bool is_consolidated() const noexcept;
  /// The buffer of a consolidated one; else undefined.
  [[nodiscard]] const at::Tensor& buffer() const noexcept;

  // ── lock ──
  /// No entries are made, replaced or removed, here and in nested ones; tensors may be written.
  tensordict& lock_();
  /// Throws `locked` if a tensordict that has this one is locked. It is not consolidated, nor
  /// memory-mapped, any more.
  tensordict& unlock_();
  [[nodiscard]] bool is_locked() const noexcept;

  // ── indexing, as of a tensor of the batch size ──
  [[nodiscard]] tensordict index(at::ArrayRef<at::indexing::TensorIndex> index) const;
  [[nodiscard]] tensordict index(std::initializer_list<at::indexing::TensorIndex> index) const;
  template <std::integral Int>
  [[nodiscard]] tensordict operator[](Int at) const {
    return index({at::indexing::TensorIndex(static_cast<std::int64_t>(at))});
  }
  /// `value` has the batch size of what the index selects. Entries that are new here get zeros
  /// elsewhere, as in Python, and data null. Data that differ become a lazy stack of data. Keys and
  /// shapes are checked before anything is written.
  tensordict& index_put_(at::ArrayRef<at::indexing::TensorIndex> index, const tensordict& value);
  tensordict& index_put_(std::initializer_list<at::indexing::TensorIndex> index,
                         const tensordict& value);
  tensordict& index_put_(std::initializer_list<at::indexing::TensorIndex> index,
                         const at::Scalar& value);

  // ── shape: views where libtorch gives views ──
  tensordict& batch_size_(at::IntArrayRef batch_size);
  /// The leading sizes that all entries have, at most `dims` of them.
  tensordict& auto_batch_size_(std::size_t dims = 64);
  /// One for each dimension, empty for none; or none at all.
  tensordict& names_(std::vector<std::string> names);
  [[nodiscard]] tensordict view(at::IntArrayRef shape) const;
  [[nodiscard]] tensordict reshape(at::IntArrayRef shape) const;
  [[nodiscard]] tensordict expand(at::IntArrayRef shape) const;
  [[nodiscard]] tensordict permute(at::IntArrayRef dims) const;
  [[nodiscard]] tensordict transpose(std::int64_t a, std::int64_t b) const;
  [[nodiscard]] tensordict unsqueeze(std::int64_t dim) const;
  [[nodiscard]] tensordict squeeze(std::int64_t dim) const;
  [[nodiscard]] tensordict squeeze() const;
  [[nodiscard]] tensordict flatten(std::int64_t first = 0, std::int64_t last = -1) const;
  [[nodiscard]] tensordict unflatten(std::int64_t dim, at::IntArrayRef sizes) const;
  [[nodiscard]] std::vector<tensordict> unbind(std::int64_t dim = 0) const;
  [[nodiscard]] std::vector<tensordict> split(std::int64_t size, std::int64_t dim = 0) const;
  [[nodiscard]] std::vector<tensordict> split(at::IntArrayRef sizes, std::int64_t dim = 0) const;
  [[nodiscard]] std::vector<tensordict> chunk(std::int64_t chunks, std::int64_t dim = 0) const;
  /// `index`: int64, of as many dimensions as the batch size: as at::gather, on the batch size.
  [[nodiscard]] tensordict gather(std::int64_t dim, const at::Tensor& index) const;

  // ── all tensors ──
  /// f(tensor), or f(key, tensor), for each; a result that is undefined leaves the entry out. The
  /// results have `batch_size` if that is given.
  using leaf_function = std::function<at::Tensor(const at::Tensor&)>;
  using named_function = std::function<at::Tensor(const key_path&, const at::Tensor&)>;
  [[nodiscard]] tensordict apply(const leaf_function& f,
                                 std::optional<at::IntArrayRef> batch_size = std::nullopt) const;
  [[nodiscard]] tensordict
  named_apply(const named_function& f,
              std::optional<at::IntArrayRef> batch_size = std::nullopt) const;
  /// Writes f(tensor) into each tensor, one after the other.
  tensordict& apply_(const leaf_function& f);
  [[nodiscard]] tensordict to(at::ScalarType dtype) const;
  [[nodiscard]] tensordict to(at::Device device) const;
  [[nodiscard]] tensordict cpu() const { return to(at::Device(at::kCPU)); }
  [[nodiscard]] tensordict contiguous() const;
  [[nodiscard]] tensordict detach() const;

 private:
  friend struct detail::tensordict_node;
  explicit tensordict(intrusive_ptr<ref_counted> node) noexcept;
  [[nodiscard]] detail::tensordict_node& node() const noexcept;
  void add(const tensordict_item& item);
  intrusive_ptr<ref_counted> node_;  // a detail::tensordict_node
};

/// What an entry is: a tensor, a tensordict, other data, or a lazy stack.
class tensordict_value {
 public:
  tensordict_value(at::Tensor tensor) noexcept : value_(std::move(tensor)) {}
  tensordict_value(tensordict dict) noexcept : value_(std::move(dict)) {}
  tensordict_value(non_tensor data) noexcept : value_(std::move(data)) {}
  tensordict_value(lazy_stack stack) noexcept : value_(std::move(stack)) {}
  tensordict_value(const tensordict_value&) noexcept = default;
  tensordict_value(tensordict_value&&) noexcept = default;
  tensordict_value& operator=(const tensordict_value&) & noexcept = default;
  tensordict_value& operator=(tensordict_value&&) & noexcept = default;
  ~tensordict_value() = default;
  [[nodiscard]] bool is_tensor() const noexcept { return value_.index() == 0; }
  [[nodiscard]] bool is_dict() const noexcept { return value_.index() == 1; }
  [[nodiscard]] bool is_data() const noexcept { return value_.index() == 2; }
  [[nodiscard]] bool is_stack() const noexcept { return value_.index() == 3; }
  // These throw tensordict_error `kind`.
  [[nodiscard]] const at::Tensor& tensor() const;
  [[nodiscard]] const tensordict& dict() const;
  [[nodiscard]] const non_tensor& data() const;
  [[nodiscard]] const lazy_stack& stack() const;
  operator const at::Tensor&() const { return tensor(); }
  operator const tensordict&() const { return dict(); }
  const at::Tensor* operator->() const { return &tensor(); }
  const at::Tensor& operator*() const { return tensor(); }
  /// An entry of the tensordict that it is.
  [[nodiscard]] tensordict_value operator[](std::string_view key) const;
  /// "a tensor", "a tensordict", …
  [[nodiscard]] const char* kind() const noexcept;

 private:
  std::variant<at::Tensor, tensordict, non_tensor, lazy_stack> value_;
};

/// A key and its value: what a tensordict is made of.
class tensordict_item {
 public:
  tensordict_item(std::string key, at::Tensor value);
  tensordict_item(std::string key, tensordict value);
  tensordict_item(std::string key, non_tensor value);
  tensordict_item(std::string key, lazy_stack value);
  tensordict_item(std::string key, std::initializer_list<tensordict_item> nested);

 private:
  friend class tensordict;
  std::string key_;
  std::optional<tensordict_value> value_;
  std::vector<tensordict_item> nested_;
};

/// An entry, by its key: td["obs"]. Reads and sets it when it is used.
class tensordict_entry {
 public:
  tensordict_entry(const tensordict_entry&) = default;
  [[nodiscard]] const at::Tensor& tensor() const;
  [[nodiscard]] tensordict dict() const;
  operator const at::Tensor&() const { return tensor(); }
  operator tensordict() const { return dict(); }
  const at::Tensor* operator->() const { return &tensor(); }
  const at::Tensor& operator*() const { return tensor(); }
  tensordict_entry operator[](std::string_view key) const;
  const tensordict_entry& operator=(const at::Tensor& value) const;
  const tensordict_entry& operator=(const tensordict& value) const;
  const tensordict_entry& operator=(const non_tensor& value) const;
  const tensordict_entry& operator=(const lazy_stack& value) const;
  const tensordict_entry& operator=(const tensordict_entry& value) const;

 private:
  friend class tensordict;
  tensordict_entry(tensordict in, std::string key) : in_(std::move(in)), key_{std::move(key)} {}
  tensordict in_;
  key_path key_;
};

/// Unlocks a tensordict, and locks it again at the end of a block, if it was locked.
class unlock_scope {
 public:
  explicit unlock_scope(const tensordict& td) : td_(td), locked_(td.is_locked()) { td_.unlock_(); }
  unlock_scope(const unlock_scope&) = delete;
  unlock_scope& operator=(const unlock_scope&) = delete;
  ~unlock_scope() {
    if (locked_) td_.lock_();
  }

 private:
  tensordict td_;
  bool locked_;
};

/// Dense: all have the same keys and batch sizes.
[[nodiscard]] tensordict stack(std::span<const tensordict> all, std::int64_t dim = 0);
[[nodiscard]] tensordict cat(std::span<const tensordict> all, std::int64_t dim = 0);
[[nodiscard]] inline tensordict stack(std::initializer_list<tensordict> all, std::int64_t dim = 0) {
  return stack(std::span(all.begin(), all.size()), dim);
}
[[nodiscard]] inline tensordict cat(std::initializer_list<tensordict> all, std::int64_t dim = 0) {
  return cat(std::span(all.begin(), all.size()), dim);
}

std::ostream& operator<<(std::ostream& out, const tensordict& td);
std::ostream& operator<<(std::ostream& out, const lazy_stack& stack);
std::ostream& operator<<(std::ostream& out, const non_tensor& data);  ///< as JSON

inline lazy_stack lazy_stack::of(const std::vector<tensordict>& parts, std::int64_t dim,
                                 std::string name) {
  return lazy_stack(std::vector<tensordict_value>(parts.begin(), parts.end()), dim,
                    std::move(name));
}

}  // namespace weft

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/tensordict/impl/apply_once.hpp>
#include <weft/tensordict/impl/checks_once.hpp>
#include <weft/tensordict/impl/consolidate_once.hpp>
#include <weft/tensordict/impl/index_once.hpp>
#include <weft/tensordict/impl/join_once.hpp>
#include <weft/tensordict/impl/lazy_stack_once.hpp>
#include <weft/tensordict/impl/select_once.hpp>
#include <weft/tensordict/impl/shape_once.hpp>
#include <weft/tensordict/impl/tensordict_once.hpp>
#include <weft/tensordict/impl/update_once.hpp>
#endif
