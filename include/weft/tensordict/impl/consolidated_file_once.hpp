// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/files.hpp that are compiled once: one file.
//
//   the buffer | JSON, UTF-8 | int64: bytes of the JSON
//   a level: {cls, non_tensors: {key: [value, batch_size, device]},
//             leaves: {key: [dtype, sizes, begin, end, padding]},
//             cls_metadata: {device, names, batch_size, is_locked}, and each child}
//   a ragged tensor: leaves <NJT_VALUES>key (its rows, one after the other), <NJT_LENGTHS>key (not
//   always), <NJT_OFFSETS>key, which has one more member: the dimension of the rows, from 1
//   a lazy stack: cls_metadata: {stack_dim, stack_dim_name, is_locked}, children "0", "1", …
#pragma once

#include <weft/config.hpp>
#include <weft/core/detail/little_endian.hpp>
#include <weft/tensordict/detail/buffer_plan.hpp>
#include <weft/tensordict/detail/file.hpp>
#include <weft/tensordict/detail/json.hpp>
#include <weft/tensordict/files.hpp>

#include <nlohmann/json.hpp>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {
namespace detail {

// ── writing ──

inline constexpr std::string_view jagged_values = "<NJT_VALUES>";
inline constexpr std::string_view jagged_lengths = "<NJT_LENGTHS>";
inline constexpr std::string_view jagged_offsets = "<NJT_OFFSETS>";

/// The dimension of the rows in which they differ; the first one if they do not.
WEFT_DECL std::int64_t ragged_dim(const lazy_stack& rows, const nested_key& key) {
  const at::Tensor& first = rows[0].tensor();
  std::int64_t dim = -1;
  bool one = first.dim() > 0 && rows.dim() == 1;
  for (const tensordict_value& row : rows.parts()) {
    const at::Tensor& t = row.tensor();
    one = one && t.dim() == first.dim() && t.scalar_type() == first.scalar_type();
    for (std::int64_t d = 0; one && d < t.dim(); ++d) {
      if (t.size(d) == first.size(d)) continue;
      one = dim == -1 || dim == d;
      dim = d;
    }
  }
  if (one) return std::max<std::int64_t>(dim, 0);
  throw tensordict_error(tensordict_errc::kind,
                         "entry " + words(key) +
                             " is a ragged tensor whose rows differ in more than one dimension, or "
                             "in their dtypes: files have none such");
}
WEFT_DECL tensordict_value without_ragged(const tensordict_value& value,
                                          std::vector<std::int64_t>& dims);
/// Ragged tensors as the leaves that files have for them; `dims` gets the dimension of each.
WEFT_DECL tensordict without_ragged(const tensordict& td, std::vector<std::int64_t>& dims) {
  const tensordict_node& from = tensordict_node::of(td);
  tensordict out = tensordict_node::make(from.batch, from.names);
  tensordict_node& to = tensordict_node::of(out);
  for (const auto& e : from.entries) {
    if (e.key.starts_with("<NJT")) refuse_reserved(e.key);
    if (!is_ragged(e.value)) {
      to.put(e.key, without_ragged(e.value, dims));
      continue;
    }
    const lazy_stack& rows = e.value.stack();
    const std::int64_t dim = ragged_dim(rows, e.key);
    dims.push_back(dim);
    std::vector<at::Tensor> all;
    std::vector<std::int64_t> offsets{0};
    for (const tensordict_value& row : rows.parts()) {
      all.push_back(row.tensor().detach());
      offsets.push_back(offsets.back() + row.tensor().size(dim));
    }
    to.put(std::string(jagged_values) + e.key, at::cat(all, dim));
    at::Tensor ends = at::empty({static_cast<std::int64_t>(offsets.size())}, at::kLong);
    std::copy(offsets.begin(), offsets.end(), static_cast<std::int64_t*>(ends.mutable_data_ptr()));
    to.put(std::string(jagged_offsets) + e.key, std::move(ends));
  }
  return out;
}
WEFT_DECL tensordict_value without_ragged(const tensordict_value& value,
                                          std::vector<std::int64_t>& dims) {
  if (value.is_dict()) return without_ragged(value.dict(), dims);
  if (!value.is_stack()) return value;
  std::vector<tensordict_value> parts;
  for (const tensordict_value& part : value.stack().parts()) {
    if (is_ragged(part)) refuse_kind(part, "what files have in a lazy stack", "a ragged tensor");
    parts.push_back(without_ragged(part, dims));
  }
  return same_stack(value.stack(), std::move(parts));
}

class consolidated_schema {
 public:
  using json = nlohmann::ordered_json;
  /// `dims`: of the ragged tensors.
  consolidated_schema(const buffer_plan& plan, std::vector<std::int64_t> dims)
      : plan_(plan), dims_(std::move(dims)) {}

  [[nodiscard]] json of(const tensordict& td, int depth = 0) {
    require_level(depth);
    const tensordict_node& node = tensordict_node::of(td);
    json data = json::object();
    json leaves = json::object();
    json children = json::object();
    for (const auto& e : node.entries) {
      if (e.value.is_tensor()) {
        add_member(leaves, e.key, leaf());
        if (e.key.starts_with(jagged_offsets)) {
          leaves.get_ref<json::object_t&>().back().second.push_back(1 + dims_[next_dim_++]);
        }
      } else if (e.value.is_data()) {
        add_member(data, e.key, datum(e.value.data(), node.batch));
      } else {
        for (const char* reserved : {"cls", "non_tensors", "leaves", "cls_metadata", "size"}) {
          if (e.key == reserved) refuse_reserved(e.key);
        }
        add_member(children, e.key,
                   e.value.is_dict() ? of(e.value.dict(), depth + 1)
                                     : of(e.value.stack(), depth + 1));
      }
    }
    json about = {{"device", nullptr},
                  {"names", names_for(node)},
                  {"batch_size", std::vector<std::int64_t>(node.batch.begin(), node.batch.end())},
                  {"is_locked", false}};
    return level("TensorDict", std::move(data), std::move(leaves), std::move(about),
                 std::move(children));
  }
  [[nodiscard]] json of(const lazy_stack& stack, int depth = 0) {
    require_level(depth);
    json data = json::object();
    json children = json::object();
    const lazy_node& node = lazy_node::of(stack);
    const batch_sizes inner = part_batch(stack);
    std::size_t number = 0;
    for (const tensordict_value& part : node.parts) {
      const std::string key = std::to_string(number++);
      if (part.is_data()) {
        add_member(data, key, datum(part.data(), inner));
      } else {
        add_member(children, key,
                   part.is_dict() ? of(part.dict(), depth + 1) : of(part.stack(), depth + 1));
      }
    }
    json about = {{"stack_dim", node.dim},
                  {"stack_dim_name", node.name.empty() ? json() : json(node.name)},
                  {"is_locked", false}};
    return level(stack.is_data() ? "NonTensorStack" : "LazyStackedTensorDict", std::move(data),
                 json::object(), std::move(about), std::move(children));
  }

 private:
  static json datum(const non_tensor& data, const batch_sizes& batch) {
    return json::array(
        {data.json(), std::vector<std::int64_t>(batch.begin(), batch.end()), nullptr});
  }
  json leaf() {
    const plain_leaf& l = plan_.leaves[next_++];
    return json::array({torch_name(l.tensor.scalar_type()), l.tensor.sizes().vec(), l.begin, l.end,
                        l.end - l.begin - static_cast<std::int64_t>(l.tensor.nbytes())});
  }
  static json level(const char* type, json data, json leaves, json about, json children) {
    json out = json::object();
    add_member(out, "cls", type);
    add_member(out, "non_tensors", std::move(data));
    add_member(out, "leaves", std::move(leaves));
    add_member(out, "cls_metadata", std::move(about));
    for (auto& [key, child] : children.get_ref<json::object_t&>()) {
      add_member(out, key, std::move(child));
    }
    return out;
  }

  const buffer_plan& plan_;
  std::size_t next_ = 0;
  std::vector<std::int64_t> dims_;
  std::size_t next_dim_ = 0;
};

WEFT_DECL void write_consolidated(const tensordict_value& value,
                                  const std::filesystem::path& file) {
  std::vector<std::int64_t> dims;
  const tensordict_value plain = without_ragged(value, dims);
  const buffer_plan plan = plan_buffer(plain);
  consolidated_schema schema(plan, std::move(dims));
  const std::string text =
      write_json(plain.is_dict() ? schema.of(plain.dict()) : schema.of(plain.stack()));
  replacement out(at_path(file));
  constexpr char zeros[leaf_alignment] = {};
  for (const plain_leaf& l : plan.leaves) {
    out.write(l.tensor.const_data_ptr(), l.tensor.nbytes());
    out.write(zeros, static_cast<std::size_t>(l.end - l.begin) - l.tensor.nbytes());
  }
  out.write(text.data(), text.size());
  std::byte size[sizeof(std::int64_t)];
  store(size, static_cast<std::int64_t>(text.size()));
  out.write(size, sizeof size);
  out.commit(replacement::durable::yes);
}

// ── reading ──

class consolidated_reader {
 public:
  using json = nlohmann::ordered_json;
  explicit consolidated_reader(at::Tensor buffer) : buffer_(std::move(buffer)) {}

  [[nodiscard]] tensordict_value value_of(const json& level, int depth) {
    require_level(depth);
    const json& type = json_member(level, "cls");
    if (!type.is_string()) throw tensordict_error(tensordict_errc::format, "a class without name");
    const auto& name = type.get_ref<const std::string&>();
    if (name == "LazyStackedTensorDict" || name == "NonTensorStack") return stack_of(level, depth);
    const json& about = json_member(level, "cls_metadata");
    tensordict out =
        tensordict_node::make(sizes_in(json_member(about, "batch_size")),
                              about.contains("names") ? names_in(about["names"]) : name_list());
    for (const auto& [key, data] : json_member(level, "non_tensors").items()) {
      set_read(out, key, datum(data).first);
    }
    ragged open;
    for (const auto& [key, leaf] : json_member(level, "leaves").items()) {
      at::Tensor tensor = tensor_of(key, leaf);
      if (!key.starts_with("<NJT")) {
        set_read(out, key, std::move(tensor));
      } else if (auto rows = ragged_part(open, key, std::move(tensor), leaf)) {
        set_read(out, key.substr(jagged_offsets.size()), *std::move(rows));
      }
    }
    if (open.values.defined()) refuse_ragged("there are no offsets behind the values");
    for (const auto& [key, child] : level.items()) {
      if (is_child(key, child)) set_read(out, key, value_of(child, depth + 1));
    }
    return out;
  }

 private:
  static bool is_child(const std::string& key, const json& child) {
    return child.is_object() && key != "non_tensors" && key != "leaves" && key != "cls_metadata";
  }
  static std::pair<non_tensor, std::vector<std::int64_t>> datum(const json& data) {
    if (data.is_array() && data.size() >= 2) return {non_tensor(data[0]), sizes_in(data[1])};
    throw tensordict_error(tensordict_errc::format, "non-tensor data without their batch size");
  }

  /// What came of one so far.
  struct ragged {
    at::Tensor values, lengths;
  };
  [[noreturn]] static void refuse_ragged(const std::string& why) {
    throw tensordict_error(tensordict_errc::format, "a ragged tensor: " + why);
  }
  /// Its rows, once all has come; they are views of the values.
  static std::optional<lazy_stack> ragged_part(ragged& open, const std::string& key,
                                               at::Tensor tensor, const json& leaf) {
    if (key.starts_with(jagged_values)) {
      open = {std::move(tensor), {}};
      return std::nullopt;
    }
    if (tensor.scalar_type() != at::kLong || tensor.dim() != 1 || !open.values.defined()) {
      refuse_ragged("lengths and offsets follow the values, as int64 of one dimension");
    }
    if (key.starts_with(jagged_lengths)) {
      open.lengths = std::move(tensor);
      return std::nullopt;
    }
    const bool named = leaf.size() > 5 && leaf[5].is_number_integer();
    const std::int64_t dim = named ? leaf[5].get<std::int64_t>() - 1 : 0;
    const std::int64_t rows = tensor.numel() - 1;
    const auto& [values, lengths] = open;
    if (!key.starts_with(jagged_offsets) || rows < 0 || dim < 0 || dim >= values.dim() ||
        (lengths.defined() && lengths.numel() != rows)) {
      refuse_ragged("its parts do not fit one another");
    }
    const auto* at = static_cast<const std::int64_t*>(tensor.const_data_ptr());
    const auto* size =
        lengths.defined() ? static_cast<const std::int64_t*>(lengths.const_data_ptr()) : nullptr;
    std::vector<tensordict_value> parts;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t end = values.size(dim);
      if (at[i] < 0 || at[i] > end || at[i + 1] < at[i] || at[i + 1] > end ||
          (size && (size[i] < 0 || size[i] > end - at[i]))) {
        refuse_ragged("an offset or a length that its values do not have");
      }
      parts.emplace_back(values.narrow(dim, at[i], size ? size[i] : at[i + 1] - at[i]));
    }
    open = {};
    return lazy_stack(std::move(parts));
  }

  [[nodiscard]] tensordict_value stack_of(const json& level, int depth) {
    stack_place place = stack_place_in(json_member(level, "cls_metadata"));
    std::vector<tensordict_value> parts;
    std::vector<std::int64_t> batch;
    const auto take = [&](const std::string& key, tensordict_value part) {
      if (key != std::to_string(parts.size())) {
        throw tensordict_error(tensordict_errc::format, "parts of a lazy stack out of order");
      }
      parts.push_back(std::move(part));
    };
    for (const auto& [key, data] : json_member(level, "non_tensors").items()) {
      auto [value, own] = datum(data);
      if (!parts.empty() && own != batch) {
        throw tensordict_error(tensordict_errc::format, "non-tensor data of different batch sizes");
      }
      batch = std::move(own);
      take(key, std::move(value));
    }
    for (const auto& [key, child] : level.items()) {
      if (is_child(key, child)) take(key, value_of(child, depth + 1));
    }
    return lazy_stack(std::move(parts), place.dim, std::move(place.name), batch);
  }

  [[nodiscard]] at::Tensor tensor_of(const std::string& key, const json& leaf) {
    const auto refuse = [&](const std::string& why) {
      throw tensordict_error(tensordict_errc::format, "entry '" + key + "': " + why);
    };
    if (!leaf.is_array() || leaf.size() < 5 || !leaf[0].is_string() ||
        !leaf[2].is_number_integer() || !leaf[3].is_number_integer()) {
      refuse("no dtype, sizes, begin, end and padding");
    }
    const auto type = from_torch_name(leaf[0].get_ref<const std::string&>());
    if (!type) refuse("a dtype that is not known: " + leaf[0].get<std::string>());
    const auto sizes = sizes_in(leaf[1]);
    const auto bytes = bytes_of(sizes, *type);
    const auto begin = leaf[2].get<std::int64_t>();
    const auto end = leaf[3].get<std::int64_t>();
    if (!bytes || begin < 0 || end < begin || end > buffer_.numel() || *bytes > end - begin) {
      refuse("sizes " + words(sizes) + ", which are not in the bytes " + std::to_string(begin) +
             " to " + std::to_string(end) + " of a buffer of " + std::to_string(buffer_.numel()));
    }
    if (!is_aligned(begin, *type)) {  // Python aligns to 8 bytes alone
      if ((copied_ += *bytes) > buffer_.numel()) refuse("tensors that overlap");
      alone_ = true;
    }
    return tensor_in(buffer_, begin, *type, sizes, key);
  }

  at::Tensor buffer_;
  std::int64_t copied_ = 0;  // out of the buffer

 public:
  bool alone_ = false;  // a tensor is not in the buffer
};

WEFT_DECL tensordict_value read_consolidated(const std::filesystem::path& path) {
  const descriptor file = open_file(at_path(path));
  const std::uint64_t size = size_of(file, path);
  try {
    constexpr std::uint64_t tail = sizeof(std::int64_t);
    std::byte end[tail];
    if (size < tail) refuse_format(path, "it is too short for a consolidated tensordict");
    read_at(file, end, tail, size - tail, path);
    const auto length = load<std::int64_t>(end);
    if (length < 2 || static_cast<std::uint64_t>(length) > size - tail) {
      refuse_format(path, "it is cut off, or no consolidated tensordict: its last eight bytes are "
                          "no length of what is before them");
    }
    const std::uint64_t before = size - tail - static_cast<std::uint64_t>(length);
    std::string text(static_cast<std::size_t>(length), '\0');
    read_at(file, text.data(), text.size(), before, path);
    const nlohmann::ordered_json schema = read_json(text);
    at::Tensor buffer = at::empty({static_cast<std::int64_t>(before)}, at::kByte);
    read_at(file, buffer.mutable_data_ptr(), before, 0, path);
    consolidated_reader reader(buffer);
    tensordict_value out = reader.value_of(schema, 0);
    if (out.is_dict() && !reader.alone_) {
      tensordict root = out.dict();
      root.lock_();
      tensordict_node::of(root).buffer = std::move(buffer);
    }
    return out;
  } catch (const tensordict_error& e) {
    rethrow_with(path, e, path);
  }
}

}  // namespace detail

WEFT_DECL void to_consolidated(const tensordict& td, const std::filesystem::path& file) {
  detail::write_consolidated(td, file);
}
WEFT_DECL void to_consolidated(const lazy_stack& stack, const std::filesystem::path& file) {
  detail::write_consolidated(stack, file);
}

}  // namespace weft
