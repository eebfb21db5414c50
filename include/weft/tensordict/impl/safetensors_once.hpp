// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/files.hpp that are compiled once: safetensors.
//
//   u64: bytes of the JSON | JSON: {name: {dtype, shape, data_offsets: [begin, end]},
//   "__metadata__": {"tensordict": JSON as a string}} | the tensors, without gaps
//   that JSON: {version: 1, root: level}; a level: {batch_size, names, stack_dim of a lazy stack,
//   keys: {key: {tensor: name} or {non_tensor: value} or {td: level}}}
#pragma once

#include <weft/config.hpp>
#include <weft/core/detail/little_endian.hpp>
#include <weft/tensordict/detail/buffer_plan.hpp>
#include <weft/tensordict/detail/file.hpp>
#include <weft/tensordict/detail/json.hpp>
#include <weft/tensordict/files.hpp>

#include <nlohmann/json.hpp>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

namespace weft {
namespace detail {

class safetensors_schema {
 public:
  using json = nlohmann::ordered_json;
  std::map<std::string, at::Tensor, std::less<>> tensors;

  [[nodiscard]] json of(const tensordict& td, const std::string& before, int level = 0) {
    require_level(level);
    const tensordict_node& node = tensordict_node::of(td);
    json keys = json::object();
    for (const auto& e : node.entries) {
      const std::string name = before + e.key;
      if (e.value.is_tensor()) {
        add(name, e.value.tensor());
        add_member(keys, e.key, {{"tensor", name}});
      } else if (e.value.is_data()) {
        add_member(keys, e.key, {{"non_tensor", e.value.data().json()}});
      } else if (e.value.is_dict()) {
        add_member(keys, e.key, {{"td", of(e.value.dict(), name + ".", level + 1)}});
      } else {
        const lazy_stack& stack = e.value.stack();
        if (stack.is_data()) {
          throw tensordict_error(tensordict_errc::kind,
                                 "entry '" + name +
                                     "' is a lazy stack of data, and safetensors "
                                     "has single values alone");
        }
        json dense = of(stack.dense(), name + ".", level + 1);
        dense["stack_dim"] = stack.stack_dim();
        add_member(keys, e.key, {{"td", std::move(dense)}});
      }
    }
    return {{"batch_size", std::vector<std::int64_t>(node.batch.begin(), node.batch.end())},
            {"names", node.names.empty() ? json() : names_for(node)},
            {"keys", std::move(keys)}};
  }

 private:
  void add(const std::string& name, const at::Tensor& t) {
    require_plain(t, name);
    if (safetensors_name(t.scalar_type()).empty()) {
      throw tensordict_error(tensordict_errc::kind, "entry '" + name + "': safetensors has no " +
                                                        std::string(torch_name(t.scalar_type())));
    }
    if (!tensors.emplace(name, plain_of(t)).second || name == "__metadata__") {
      throw tensordict_error(tensordict_errc::key_exists, "two entries would have the name '" +
                                                              name + "', or the format uses it");
    }
  }
};

struct safetensors_file {
  std::map<std::string, at::Tensor, std::less<>> tensors;
  std::vector<std::string> order;  // their names, as in the file
  std::optional<nlohmann::ordered_json> about;
  std::uint64_t bytes = 0;
};
WEFT_DECL safetensors_file open_safetensors(const std::filesystem::path& path) {
  const descriptor file = open_file(at_path(path));
  const std::uint64_t size = size_of(file, path);
  constexpr std::uint64_t head = sizeof(std::uint64_t);
  constexpr std::uint64_t most = 100'000'000;  // of the JSON, as the format says
  std::byte begin[head];
  if (size < head) refuse_format(path, "it is too short for safetensors");
  read_at(file, begin, head, 0, path);
  const auto length = load<std::uint64_t>(begin);
  if (length > size - head || length > most) {
    refuse_format(path, "it is cut off, or no safetensors file: its first eight bytes are no "
                        "length of what follows");
  }
  std::string text(length, '\0');
  read_at(file, text.data(), length, head, path);
  const nlohmann::ordered_json header = read_json(text);
  if (!header.is_object()) refuse_format(path, "its header is no object");
  const auto data = static_cast<std::int64_t>(size - head - length);
  at::Tensor buffer = at::empty({data}, at::kByte);
  read_at(file, buffer.mutable_data_ptr(), static_cast<std::size_t>(data), head + length, path);
  safetensors_file out;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  struct tensor_at {
    std::string name;
    at::ScalarType type;
    std::vector<std::int64_t> sizes;
    std::int64_t begin;
  };
  std::vector<tensor_at> found;
  for (const auto& [name, about] : header.items()) {
    if (name == "__metadata__") {
      const auto own = about.find("tensordict");
      if (!about.is_object() || own == about.end()) continue;
      if (!own->is_string()) refuse_format(path, "metadata that are no text");
      out.about = read_json(own->get_ref<const std::string&>());
      continue;
    }
    const nlohmann::ordered_json& dtype = json_member(about, "dtype");
    const auto type = dtype.is_string() ? from_safetensors_name(dtype.get_ref<const std::string&>())
                                        : std::nullopt;
    const auto sizes = sizes_in(json_member(about, "shape"));
    const auto where = sizes_in(json_member(about, "data_offsets"));
    const auto bytes = type ? bytes_of(sizes, *type) : std::nullopt;
    if (!bytes || where.size() != 2 || where[1] < where[0] || where[1] > data ||
        where[1] - where[0] != *bytes) {
      refuse_format(path, "tensor '" + name + "' has the dtype " + write_json(dtype) + ", sizes " +
                              words(sizes) + " and offsets " + words(where) +
                              ", which do not fit one another, or " + std::to_string(data) +
                              " bytes of data");
    }
    ranges.emplace_back(where[0], where[1]);
    found.push_back({name, *type, sizes, where[0]});
  }
  std::sort(ranges.begin(), ranges.end());
  std::int64_t at = 0;
  for (const auto& [from, to] : ranges) {
    if (from != at) refuse_format(path, "its tensors overlap, or have gaps between them");
    at = to;
  }
  if (at != data) refuse_format(path, "it has data behind its tensors");
  for (const tensor_at& t : found) {  // no byte is of two of them
    out.order.push_back(t.name);
    out.tensors.emplace(t.name, tensor_in(buffer, t.begin, t.type, t.sizes, t.name));
  }
  out.bytes = size;
  return out;
}

WEFT_DECL tensordict_value level_of(const nlohmann::ordered_json& level, safetensors_file& file,
                                    int depth) {
  require_level(depth);
  const auto names = level.find("names");
  tensordict out = tensordict_node::make(sizes_in(json_member(level, "batch_size")),
                                         names == level.end() ? name_list() : names_in(*names));
  for (const auto& [key, entry] : json_member(level, "keys").items()) {
    if (const auto name = entry.find("tensor"); entry.is_object() && name != entry.end()) {
      const auto found = name->is_string() ? file.tensors.find(name->get_ref<const std::string&>())
                                           : file.tensors.end();
      if (found == file.tensors.end()) {
        throw tensordict_error(tensordict_errc::format,
                               "entry '" + key + "' is a tensor that is not there, or twice");
      }
      set_read(out, key, std::move(found->second));
      file.tensors.erase(found);
    } else if (const auto data = entry.find("non_tensor");
               entry.is_object() && data != entry.end()) {
      set_read(out, key, non_tensor(*data));
    } else {
      set_read(out, key, level_of(json_member(entry, "td"), file, depth + 1));
    }
  }
  const auto dim = level.find("stack_dim");
  if (dim == level.end() || dim->is_null()) return out;
  const std::int64_t d = wrap(stack_place_in(level).dim, out.dim(), "stack_dim");
  const auto parts_there =
      static_cast<std::uint64_t>(out.batch_size()[static_cast<std::size_t>(d)]);
  if (parts_there > file.bytes / (out.leaves().size() + 1)) {  // its parts would be larger than it
    throw tensordict_error(tensordict_errc::format,
                           "a lazy stack of " + std::to_string(parts_there) + " parts");
  }
  return lazy_stack::of(out.unbind(d), d, out.names()[static_cast<std::size_t>(d)]);
}

WEFT_DECL tensordict_value read_safetensors(const std::filesystem::path& path) {
  try {
    safetensors_file file = open_safetensors(path);
    if (!file.about) {
      tensordict flat;
      for (const std::string& name : file.order) {
        require_level(static_cast<int>(
            std::min<std::ptrdiff_t>(std::count(name.begin(), name.end(), '.'), most_levels + 1)));
        flat.set(name, file.tensors.find(name)->second);
      }
      return flat.unflatten_keys(".");
    }
    if (const auto& version = json_member(*file.about, "version"); version != 1) {
      refuse_format(path, "its tensordict has the version " + write_json(version) + ", not 1");
    }
    tensordict_value out = level_of(json_member(*file.about, "root"), file, 0);
    if (!file.tensors.empty()) {
      refuse_format(path, "its tensordict does not have the tensor '" +
                              file.tensors.begin()->first + "'");
    }
    return out;
  } catch (const tensordict_error& e) {
    rethrow_with(path, e, path);
  }
}

}  // namespace detail

WEFT_DECL void to_safetensors(const tensordict& td, const std::filesystem::path& path) {
  using namespace detail;
  safetensors_schema schema;
  nlohmann::ordered_json about = {{"version", 1}, {"root", schema.of(td, "")}};
  // The widest first, so that all are aligned without gaps.
  std::vector<std::pair<std::string, at::Tensor>> tensors(schema.tensors.begin(),
                                                          schema.tensors.end());
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return a.second.element_size() > b.second.element_size();
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  add_member(header, "__metadata__", {{"tensordict", write_json(about)}});
  std::int64_t at = 0;
  for (const auto& [name, t] : tensors) {
    const auto bytes = static_cast<std::int64_t>(t.nbytes());
    add_member(header, name,
               {{"dtype", safetensors_name(t.scalar_type())},
                {"shape", t.sizes().vec()},
                {"data_offsets", {at, at + bytes}}});
    at += bytes;
  }
  std::string text = write_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  replacement out(at_path(path));
  std::byte size[sizeof(std::uint64_t)];
  store(size, static_cast<std::uint64_t>(text.size()));
  out.write(size, sizeof size);
  out.write(text.data(), text.size());
  for (const auto& [name, t] : tensors) out.write(t.const_data_ptr(), t.nbytes());
  out.commit(replacement::durable::yes);
}

}  // namespace weft
