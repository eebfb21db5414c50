// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/files.hpp that are compiled once: reading a folder of mapped
// files (memmap_once.hpp).
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/buffer_plan.hpp>
#include <weft/tensordict/detail/file.hpp>
#include <weft/tensordict/detail/json.hpp>
#include <weft/tensordict/detail/memmap.hpp>
#include <weft/tensordict/files.hpp>

#include <nlohmann/json.hpp>

#include <ATen/ops/empty.h>

#include <cerrno>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace weft::detail {

class memmap_reader {
 public:
  using json = nlohmann::ordered_json;
  explicit memmap_reader(bool shared) : shared_(shared) {}

  /// `batch`: of what has it as an entry, for data.
  [[nodiscard]] tensordict_value read(const place& at, at::IntArrayRef batch, int depth) {
    require_level(depth);
    const descriptor folder = open_folder(at, false);
    const place meta_at = inside(folder, at.shown, "meta.json");
    const std::string text = read_text(meta_at, most_meta_bytes);
    try {
      return read_as(read_json(text), folder, at.shown, batch, depth);
    } catch (const tensordict_error& e) {
      rethrow_with(meta_at.shown, e, at.shown);
    }
  }

 private:
  tensordict_value read_as(const json& meta, const descriptor& folder,
                           const std::filesystem::path& shown, at::IntArrayRef batch, int depth) {
    if (!meta.is_object()) refuse_format(shown, "its meta.json is no object");
    if (const auto v = meta.find("_format_version");
        v != meta.end() && v->is_number_integer() && v->get<std::int64_t>() > 1) {
      refuse_format(shown, "its format version is newer than 1");
    }
    const auto found = meta.find("_type");
    const std::string type =
        found != meta.end() && found->is_string() ? found->get<std::string>() : "";
    if (type.ends_with("NonTensorStack'>")) return data_stack(meta, batch);
    if (type.ends_with("LazyStackedTensorDict'>")) return stack_in(meta, folder, shown, depth);
    if (type.ends_with("NonTensorData'>") ||
        (meta.contains("_is_non_tensor") && !type.ends_with(".TensorDict'>"))) {
      if (const auto data = meta.find("data"); data != meta.end()) return non_tensor(*data);
      refuse_format(shown, "data that Python has pickled, which are not read");
    }
    if (const place inner = inside(folder, shown, "_tensordict");
        !type.ends_with(".TensorDict'>") && !meta.contains("_tensordict") && is_there(inner)) {
      return tensorclass_in(meta, folder, shown, read(inner, batch, depth + 1));
    }
    return dict_in(meta, folder, shown, depth);
  }

  tensordict dict_in(const json& meta, const descriptor& folder, const std::filesystem::path& shown,
                     int depth) {
    const auto names = meta.find("_names");
    tensordict out = tensordict_node::make(
        sizes_in(json_member(meta, "shape")),
        names != meta.end() && names->is_array() ? names_in(*names) : name_list());
    for (const auto& [key, about] : meta.items()) {
      if (!about.is_object()) continue;
      if (about.contains("type")) {
        set_read(out, key, read(child_place(folder, shown, key, ""), out.batch_size(), depth + 1));
      } else {
        set_read(out, key, leaf_in(about, folder, shown, key));
      }
    }
    if (shared_) {
      tensordict_node::of(out).folder = std::make_unique<const std::filesystem::path>(shown);
    }
    return out;
  }

  at::Tensor leaf_in(const json& about, const descriptor& folder,
                     const std::filesystem::path& shown, const std::string& key) {
    const json& dtype = json_member(about, "dtype");
    const auto type =
        dtype.is_string() ? from_torch_name(dtype.get_ref<const std::string&>()) : std::nullopt;
    const auto sizes = sizes_in(json_member(about, "shape"));
    const auto bytes = type ? bytes_of(sizes, *type) : std::nullopt;
    const auto nested = about.find("is_nested");
    if (!type || !bytes || (nested != about.end() && *nested != false)) {
      throw tensordict_error(
          tensordict_errc::format,
          "entry '" + key + "' has the dtype " + write_json(dtype) + " and sizes " + words(sizes) +
              (type && bytes ? ", and is a nested tensor" : "") + ": it cannot be read");
    }
    if (*bytes == 0) return at::empty(sizes, *type);
    const place at = child_place(folder, shown, key, ".memmap");
    const descriptor file = open_file(at, shared_ ? access::write : access::read);
    const std::uint64_t there = size_of(file, at.shown);
    if (there < static_cast<std::uint64_t>(*bytes)) {
      refuse_format(at.shown, "it has " + std::to_string(there) + " bytes, and its tensor " +
                                  std::to_string(*bytes));
    }
    return view_of(map_file(file, static_cast<std::uint64_t>(*bytes), shared_, at.shown), 0, *type,
                   sizes);
  }

  /// Encoded, or as older versions wrote it.
  static place child_place(const descriptor& folder, const std::filesystem::path& shown,
                           const std::string& key, const char* suffix) {
    place at = inside(folder, shown, encoded_key(key) + suffix);
    const std::string plain = key + suffix;
    if (plain == at.name || is_there(at)) return at;
    if (plain.empty() || plain == "." || plain == ".." || plain.find('/') != std::string::npos ||
        plain.find('\0') != std::string::npos) {
      return at;
    }
    place old = inside(folder, shown, plain);
    return is_there(old) ? old : at;
  }

  tensordict_value stack_in(const json& meta, const descriptor& folder,
                            const std::filesystem::path& shown, int depth) {
    stack_place place = stack_place_in(meta);
    std::vector<tensordict_value> parts;
    for (;;) {
      const auto part = inside(folder, shown, std::to_string(parts.size()));
      if (!is_there(part)) break;
      parts.push_back(read(part, {}, depth + 1));
    }
    return lazy_stack(std::move(parts), place.dim, std::move(place.name));
  }

  /// `list` has a list for each dimension of `batch`.
  static void collect(const json& list, at::IntArrayRef batch, data_elements& out,
                      std::vector<std::int64_t>& which) {
    if (batch.empty()) {
      which.push_back(static_cast<std::int64_t>(out.items.size()));
      out.items.emplace_back(list);
      return;
    }
    if (!list.is_array() || static_cast<std::int64_t>(list.size()) != batch[0]) {
      throw tensordict_error(tensordict_errc::format,
                             "a lazy stack of data that has not the batch size of its place");
    }
    for (const json& inner : list) collect(inner, batch.slice(1), out, which);
  }
  static tensordict_value data_stack(const json& meta, at::IntArrayRef batch) {
    const json& data = json_member(meta, "data");
    if (!data.is_array()) {
      throw tensordict_error(tensordict_errc::format,
                             "data that Python has pickled, which are not read");
    }
    const auto shape = meta.find("shape");
    std::vector<std::int64_t> own(batch.begin(), batch.end());
    if (shape != meta.end()) own = sizes_in(*shape);
    if (own.empty()) own.push_back(static_cast<std::int64_t>(data.size()));
    data_elements out;
    std::vector<std::int64_t> which;
    collect(data, own, out, which);
    out.which = at::empty(own, at::kLong);
    std::copy(which.begin(), which.end(), static_cast<std::int64_t*>(out.which.mutable_data_ptr()));
    return stack_of(out);
  }

  /// As a tensordict: its tensors, and the fields that are data.
  static tensordict_value tensorclass_in(const json& meta, const descriptor& folder,
                                         const std::filesystem::path& shown,
                                         tensordict_value inner) {
    if (is_there(inside(folder, shown, "other.pickle"))) {
      refuse_format(shown, "fields that Python has pickled (other.pickle), which are not read");
    }
    if (!inner.is_dict()) return inner;
    tensordict out = inner.dict();
    for (const auto& [key, value] : meta.items()) {
      if (!key.starts_with("_") && !out.contains(key)) out.set(key, non_tensor(value));
    }
    return out;
  }

  bool shared_;
};

WEFT_DECL tensordict_value read_memmap(const std::filesystem::path& folder, bool shared) {
  tensordict_value out = memmap_reader(shared).read(at_absolute(folder), {}, 0);
  each_dict(out, [](const tensordict& td) { tensordict(td).lock_(); });
  return out;
}

}  // namespace weft::detail
