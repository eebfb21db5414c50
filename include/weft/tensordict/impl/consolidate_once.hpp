// SPDX-License-Identifier: BSL-1.0
// Bodies of consolidate, and of weft/tensordict/detail/buffer_plan.hpp, that are compiled once.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/buffer_plan.hpp>
#include <weft/tensordict/detail/json.hpp>

#include <nlohmann/json.hpp>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace weft {
namespace detail {

struct dtype_names {
  at::ScalarType type;
  std::string_view torch;
  std::string_view safetensors;
};
inline constexpr dtype_names all_dtypes[] = {
    {at::kBool, "torch.bool", "BOOL"},
    {at::kByte, "torch.uint8", "U8"},
    {at::kChar, "torch.int8", "I8"},
    {at::kUInt16, "torch.uint16", "U16"},
    {at::kShort, "torch.int16", "I16"},
    {at::kUInt32, "torch.uint32", "U32"},
    {at::kInt, "torch.int32", "I32"},
    {at::kUInt64, "torch.uint64", "U64"},
    {at::kLong, "torch.int64", "I64"},
    {at::kHalf, "torch.float16", "F16"},
    {at::kBFloat16, "torch.bfloat16", "BF16"},
    {at::kFloat, "torch.float32", "F32"},
    {at::kDouble, "torch.float64", "F64"},
    {at::kComplexHalf, "torch.complex32", ""},
    {at::kComplexFloat, "torch.complex64", "C64"},
    {at::kComplexDouble, "torch.complex128", ""},
    {at::kFloat8_e4m3fn, "torch.float8_e4m3fn", "F8_E4M3"},
    {at::kFloat8_e5m2, "torch.float8_e5m2", "F8_E5M2"},
};
/// One of its names.
using dtype_name = std::string_view dtype_names::*;
WEFT_DECL std::string_view dtype_spelled(at::ScalarType type, dtype_name which) noexcept {
  for (const dtype_names& d : all_dtypes) {
    if (d.type == type) return d.*which;
  }
  return {};
}
WEFT_DECL std::optional<at::ScalarType> dtype_parsed(std::string_view name,
                                                     dtype_name which) noexcept {
  for (const dtype_names& d : all_dtypes) {
    if (!name.empty() && d.*which == name) return d.type;
  }
  return std::nullopt;
}
WEFT_DECL std::string_view torch_name(at::ScalarType type) noexcept {
  return dtype_spelled(type, &dtype_names::torch);
}
WEFT_DECL std::optional<at::ScalarType> from_torch_name(std::string_view name) noexcept {
  return dtype_parsed(name, &dtype_names::torch);
}
WEFT_DECL std::string_view safetensors_name(at::ScalarType type) noexcept {
  return dtype_spelled(type, &dtype_names::safetensors);
}
WEFT_DECL std::optional<at::ScalarType> from_safetensors_name(std::string_view name) noexcept {
  return dtype_parsed(name, &dtype_names::safetensors);
}

// ── a buffer ──

WEFT_DECL void require_plain(const at::Tensor& tensor, const nested_key& key) {
  const bool plain = tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
                     !tensor.is_quantized() && !torch_name(tensor.scalar_type()).empty();
  if (plain) return;
  throw tensordict_error(tensordict_errc::kind,
                         "entry " + words(key) + " is not dense on the CPU, or of a dtype (" +
                             std::string(c10::toString(tensor.scalar_type())) +
                             ") that has no place in a buffer or a file");
}

WEFT_DECL at::Tensor plain_of(const at::Tensor& tensor) {
  return tensor.detach().contiguous().resolve_conj().resolve_neg();
}

WEFT_DECL void require_bools(const at::Tensor& tensor, const nested_key& key) {
  if (tensor.scalar_type() != at::kBool || tensor.numel() == 0) return;
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  if (std::all_of(bytes, bytes + tensor.numel(), [](unsigned char b) { return b <= 1; })) return;
  throw tensordict_error(tensordict_errc::format,
                         "entry " + words(key) + " is a bool tensor with other bytes than 0 and 1");
}

WEFT_DECL buffer_plan plan_buffer(const tensordict_value& value, history gradients) {
  buffer_plan out;
  key_path path;
  std::vector<std::pair<key_path, at::Tensor>> leaves;
  list_leaves(value, path, leaves);
  out.leaves.reserve(leaves.size());
  for (auto& [key, tensor] : leaves) {
    require_plain(tensor, key);
    if (gradients == history::refused && tensor.requires_grad()) {
      throw tensordict_error(tensordict_errc::history,
                             "entry " + words(key) +
                                 " requires gradients, and a buffer keeps values: detach it, or "
                                 "consolidate under at::NoGradGuard");
    }
    plain_leaf leaf{std::move(key), plain_of(tensor)};
    leaf.begin = out.total;
    const auto bytes = static_cast<std::int64_t>(leaf.tensor.nbytes());
    const std::int64_t padded = (bytes + leaf_alignment - 1) / leaf_alignment * leaf_alignment;
    if (__builtin_add_overflow(out.total, padded, &leaf.end)) {
      throw tensordict_error(tensordict_errc::shape, "the tensors have too many bytes together");
    }
    out.total = leaf.end;
    out.leaves.push_back(std::move(leaf));
  }
  return out;
}

WEFT_DECL at::Tensor view_of(const at::Tensor& buffer, std::int64_t begin, at::ScalarType type,
                             at::IntArrayRef sizes) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(buffer.storage()),
                                                   buffer.unsafeGetTensorImpl()->key_set(),
                                                   c10::scalarTypeToTypeMeta(type));
  impl->set_sizes_contiguous(sizes);
  impl->set_storage_offset((buffer.storage_offset() + begin) /
                           static_cast<std::int64_t>(c10::elementSize(type)));
  return at::Tensor(std::move(impl));
}
WEFT_DECL bool is_aligned(std::int64_t begin, at::ScalarType type) noexcept {
  return begin % static_cast<std::int64_t>(c10::elementSize(type)) == 0;
}
WEFT_DECL at::Tensor tensor_in(const at::Tensor& buffer, std::int64_t begin, at::ScalarType type,
                               at::IntArrayRef sizes, const nested_key& key) {
  at::Tensor out;
  if (is_aligned(begin, type)) {
    out = view_of(buffer, begin, type, sizes);
  } else {
    out = at::empty(sizes, type);
    std::memcpy(out.mutable_data_ptr(), static_cast<const char*>(buffer.const_data_ptr()) + begin,
                out.nbytes());
  }
  require_bools(out, key);
  return out;
}
WEFT_DECL std::optional<std::int64_t> bytes_of(at::IntArrayRef sizes,
                                               at::ScalarType type) noexcept {
  auto bytes = static_cast<std::int64_t>(c10::elementSize(type));
  bool none = false;
  for (const std::int64_t size : sizes) {
    if (size < 0) return std::nullopt;
    none = none || size == 0;
    if (size > 0 && __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return none ? 0 : bytes;
}

// ── what files say ──

WEFT_DECL std::vector<std::int64_t> sizes_in(const nlohmann::ordered_json& list) {
  std::vector<std::int64_t> out;
  bool good = list.is_array();
  for (std::size_t i = 0; good && i < list.size(); ++i) {
    good = list[i].is_number_integer();
    if (good) out.push_back(list[i].get<std::int64_t>());
    good = good && out.back() >= 0;
  }
  if (good) return out;
  throw tensordict_error(tensordict_errc::format, "no list of sizes: " + write_json(list));
}
WEFT_DECL name_list names_in(const nlohmann::ordered_json& list) {
  if (list.is_null()) return {};
  name_list out;
  bool any = false;
  for (const auto& name : list) {
    if (!list.is_array() || (!name.is_null() && !name.is_string())) {
      throw tensordict_error(tensordict_errc::format,
                             "no list of names of dimensions: " + write_json(list));
    }
    out.push_back(name.is_null() ? std::string() : name.get<std::string>());
    any = any || !name.is_null();
  }
  return any ? out : name_list();
}
WEFT_DECL nlohmann::ordered_json names_for(const tensordict_node& node) {
  auto out = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < node.batch.size(); ++i) {
    const bool named = !node.names.empty() && !node.names[i].empty();
    out.push_back(named ? nlohmann::ordered_json(node.names[i]) : nlohmann::ordered_json());
  }
  return out;
}
WEFT_DECL const nlohmann::ordered_json& json_member(const nlohmann::ordered_json& object,
                                                    const char* name) {
  const auto found = object.find(name);
  if (object.is_object() && found != object.end()) return *found;
  throw tensordict_error(tensordict_errc::format, std::string("there is no \"") + name + "\"");
}
WEFT_DECL stack_place stack_place_in(const nlohmann::ordered_json& about) {
  const nlohmann::ordered_json& dim = json_member(about, "stack_dim");
  const auto name = about.find("stack_dim_name");
  const bool named = name != about.end() && !name->is_null();
  if (!dim.is_number_integer() || (named && !name->is_string())) {
    throw tensordict_error(tensordict_errc::format, "a lazy stack without stack_dim");
  }
  return {dim.get<std::int64_t>(), named ? name->get<std::string>() : std::string()};
}
WEFT_DECL void set_read(tensordict& td, const std::string& key, tensordict_value value) {
  if (td.contains(key)) {
    throw tensordict_error(tensordict_errc::format, "the key '" + key + "' twice");
  }
  if (value.is_dict()) require_batch(value.dict().batch_size(), td.batch_size(), key);
  td.set(key, std::move(value));
}
[[noreturn]] WEFT_DECL void refuse_reserved(const std::string& key) {
  throw tensordict_error(tensordict_errc::key_exists,
                         "the key '" + key +
                             "' has no place in this format, which uses that name itself");
}
WEFT_DECL void require_level(int level) {
  if (level <= most_levels) return;
  throw tensordict_error(tensordict_errc::format,
                         "over " + std::to_string(most_levels) + " tensordicts in one another");
}

/// Copies all leaves; each part has about as many bytes.
WEFT_DECL void fill_buffer(char* into, const buffer_plan& plan, unsigned threads) {
  const auto copy = [&](std::int64_t begin, std::int64_t end) {
    auto leaf = std::upper_bound(plan.leaves.begin(), plan.leaves.end(), begin,
                                 [](std::int64_t at, const plain_leaf& l) { return at < l.end; });
    for (; leaf != plan.leaves.end() && leaf->begin < end; ++leaf) {
      const auto bytes = static_cast<std::int64_t>(leaf->tensor.nbytes());
      const std::int64_t from = std::max(begin, leaf->begin);
      const std::int64_t to = std::min(end, leaf->begin + bytes);
      if (from < to) {
        std::memcpy(into + from,
                    static_cast<const char*>(leaf->tensor.const_data_ptr()) + (from - leaf->begin),
                    static_cast<std::size_t>(to - from));
      }
      const std::int64_t rest = std::max(begin, leaf->begin + bytes);
      if (const std::int64_t last = std::min(end, leaf->end); rest < last) {
        std::memset(into + rest, 0, static_cast<std::size_t>(last - rest));  // nothing old leaves
      }
    }
  };
  constexpr std::int64_t least = std::int64_t{1} << 20;  // less is not worth a thread
  const std::int64_t parts = std::clamp<std::int64_t>(plan.total / least, 1, std::max(threads, 1U));
  const std::int64_t each = (plan.total + parts - 1) / parts;
  if (parts == 1) {
    copy(0, plan.total);
    return;
  }
  at::parallel_for(0, parts, 1, [&](std::int64_t first, std::int64_t last) {
    copy(first * each, std::min(plan.total, last * each));
  });
}

/// Whether the tensors can be copied into that one.
WEFT_DECL bool has_room(const at::Tensor& into, const buffer_plan& plan) {
  if (into.scalar_type() != at::kByte || into.layout() != at::kStrided || !into.is_cpu() ||
      !into.is_contiguous() || into.requires_grad() || into.numel() < plan.total) {
    return false;
  }
  // Views count in elements, from where the storage begins.
  void* begin = into.numel() > 0 ? into.mutable_data_ptr() : nullptr;
  std::size_t room = leaf_alignment;
  void* const aligned = std::align(leaf_alignment, 1, begin, room);
  const bool fits = into.storage_offset() % leaf_alignment == 0 && room == leaf_alignment &&
                    (aligned != nullptr || into.numel() == 0);
  return fits && std::none_of(plan.leaves.begin(), plan.leaves.end(), [&](const plain_leaf& l) {
           return l.tensor.numel() > 0 && l.tensor.storage().is_alias_of(into.storage());
         });
}

}  // namespace detail

WEFT_DECL tensordict tensordict::consolidate(unsigned threads, const at::Tensor& into) const {
  using detail::history;
  const detail::buffer_plan plan =
      detail::plan_buffer(*this, at::GradMode::is_enabled() ? history::refused : history::dropped);
  at::Tensor buffer;
  if (!into.defined()) {
    buffer = at::empty({plan.total}, at::kByte);
  } else if (detail::has_room(into, plan)) {
    buffer = into.flatten().narrow(0, 0, plan.total);
  } else {
    throw tensordict_error(tensordict_errc::shape,
                           "consolidate: `into` is no aligned uint8 tensor of " +
                               std::to_string(plan.total) +
                               " bytes, or has some of the tensors itself");
  }
  detail::fill_buffer(static_cast<char*>(buffer.mutable_data_ptr()), plan, threads);
  std::size_t next = 0;
  tensordict out = detail::mapped(*this, [&](const at::Tensor& t) {
    return detail::view_of(buffer, plan.leaves[next++].begin, t.scalar_type(), t.sizes());
  });
  out.lock_();
  detail::tensordict_node::of(out).buffer = std::move(buffer);
  return out;
}
WEFT_DECL bool tensordict::is_consolidated() const noexcept { return node().buffer.defined(); }
WEFT_DECL const at::Tensor& tensordict::buffer() const noexcept { return node().buffer; }

}  // namespace weft
