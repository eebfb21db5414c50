// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/files.hpp that are compiled once: folders of mapped files.
//
//   meta.json of a tensordict: {leaf: {device, shape, dtype, is_nested}, child: {type}, and shape,
//     device, _type, _format_version, _class, _names}; a leaf is the bytes of leaf.memmap, a child
//     a folder. Keys are percent-encoded. No file for a tensor without elements.
//   of a lazy stack: {_type, stack_dim, stack_dim_name}, and folders 0, 1, …
//   of data: {_type, data}; of a lazy stack of data: {_type, stack_dim, data: lists}
//   of a tensorclass: {_type, its fields that are data}, and a folder _tensordict
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

namespace weft {
namespace detail {

WEFT_DECL std::string encoded_key(std::string_view key) {
  if (key.empty()) return "%";
  if (key == ".") return "%2E";
  if (key == "..") return "%2E%2E";
  constexpr std::string_view unsafe = "/<>:\"|?*\\ %\x7f";
  constexpr char digits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : key) {
    const auto code = static_cast<unsigned char>(c);
    if (code >= 32 && unsafe.find(c) == std::string_view::npos) {
      out += c;
    } else {
      out.append({'%', digits[code / 16], digits[code % 16]});
    }
  }
  return out;
}
WEFT_DECL place inside(const descriptor& folder, const std::filesystem::path& shown,
                       std::string name) {
  std::filesystem::path full = shown / name;
  return {folder.get(), std::move(name), std::move(full)};
}
WEFT_DECL bool is_there(const place& at) {
  struct stat is{};
  return ::fstatat(at.folder, at.name.c_str(), &is, AT_SYMLINK_NOFOLLOW) == 0;
}
WEFT_DECL bool is_of_format(std::string_view key) noexcept {
  return key == "shape" || key == "device" || key == "_type" || key == "_format_version" ||
         key == "_class" || key == "_names";
}

// ── writing ──

WEFT_DECL nlohmann::ordered_json about_leaf(const at::Tensor& t) {
  return {{"device", "cpu"},
          {"shape", t.sizes().vec()},
          {"dtype", torch_name(t.scalar_type())},
          {"is_nested", false}};
}
/// `like`: zeros of its sizes.
WEFT_DECL at::Tensor write_leaf(const place& at, const at::Tensor& t, bool like) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(*bytes_of(t.sizes(), t.scalar_type()));
  if (bytes == 0) {
    ::unlinkat(at.folder, at.name.c_str(), 0);  // of a tensor that was there before
    return at::empty(t.sizes(), t.scalar_type());
  }
  replacement file(at);
  file.resize(bytes);
  if (!like) {
    const at::Tensor plain = plain_of(t);
    file.write(plain.const_data_ptr(), bytes);
  }
  const at::Tensor mapped = map_file(file.file(), bytes, true, at.shown);
  file.commit(replacement::durable::no);
  return view_of(mapped, 0, t.scalar_type(), t.sizes());
}

WEFT_DECL nlohmann::ordered_json nested_lists(const std::vector<non_tensor>& items,
                                              const at::Tensor& which) {
  if (which.dim() == 0) return items[static_cast<std::size_t>(which.item<std::int64_t>())].json();
  auto out = nlohmann::ordered_json::array();
  for (std::int64_t i = 0; i < which.size(0); ++i) {
    out.push_back(nested_lists(items, which.select(0, i)));
  }
  return out;
}

/// That `value` can be written at `at`. What it throws has changed nothing.
WEFT_DECL void require_writable(const tensordict_value& value, const std::filesystem::path& at,
                                int depth) {
  require_level(depth);
  if (value.is_dict()) {
    for (const auto& e : tensordict_node::of(value.dict()).entries) {
      if (is_of_format(e.key)) refuse_reserved(e.key);
      if (e.value.is_tensor()) {
        require_plain(e.value.tensor(), e.key);
      } else if (is_ragged(e.value)) {
        throw tensordict_error(tensordict_errc::kind,
                               "entry '" + e.key +
                                   "' is a ragged tensor, which has no place in a folder of "
                                   "mapped files: to_consolidated writes it");
      } else {
        require_writable(e.value, at / encoded_key(e.key), depth + 1);
      }
    }
  } else if (value.is_stack() && !holds_data(value)) {
    const std::size_t size = value.stack().size();
    for (std::size_t i = 0; i < size; ++i) {
      if (value.stack()[i].is_tensor()) refuse_kind(value.stack()[i], "a tensordict", "a part");
      require_writable(value.stack()[i], at / std::to_string(i), depth + 1);
    }
    if (const place next = at_path(at / std::to_string(size)); is_there(next)) {
      refuse_format(next.shown, "it is a part of a longer lazy stack that was here before: remove "
                                "it first");
    }
  }
}

/// Of what require_writable has looked at.
class memmap_writer {
 public:
  using json = nlohmann::ordered_json;
  explicit memmap_writer(bool like) : like_(like) {}

  [[nodiscard]] tensordict_value write(const tensordict_value& value, const place& at) {
    const descriptor folder = open_folder(at, true);
    // From now on it is not complete: a folder that is half old and half new opens nowhere.
    if (::unlinkat(folder.get(), "meta.json", 0) != 0 && errno != ENOENT) {
      refuse_file(at.shown / "meta.json", "remove", errno);
    }
    if (value.is_dict()) return write_dict(value.dict(), folder, at.shown);
    if (value.is_stack()) return write_stack(value.stack(), folder, at.shown);
    json meta = {{"_type", "<class 'tensordict.tensorclass.NonTensorData'>"},
                 {"data", value.data().json()},
                 {"_metadata", nullptr},
                 {"_is_non_tensor", true}};
    replace_text(inside(folder, at.shown, "meta.json"), write_json(meta));
    return value;
  }

 private:
  static const char* type_of(const tensordict_value& value) {
    if (value.is_dict()) return "TensorDict";
    if (value.is_data()) return "NonTensorData";
    return value.stack().is_data() ? "NonTensorStack" : "LazyStackedTensorDict";
  }

  tensordict write_dict(const tensordict& td, const descriptor& folder,
                        const std::filesystem::path& shown) {
    const tensordict_node& node = tensordict_node::of(td);
    tensordict out = tensordict_node::make(node.batch, node.names);
    json meta = json::object();
    for (const auto& e : node.entries) {
      const std::string name = encoded_key(e.key);
      if (e.value.is_tensor()) {
        const at::Tensor& t = e.value.tensor();
        add_member(meta, e.key, about_leaf(t));
        tensordict_node::of(out).put(e.key,
                                     write_leaf(inside(folder, shown, name + ".memmap"), t, like_));
      } else {
        add_member(meta, e.key, {{"type", type_of(e.value)}});
        tensordict_node::of(out).put(e.key, write(e.value, inside(folder, shown, name)));
      }
    }
    add_member(meta, "shape", std::vector<std::int64_t>(node.batch.begin(), node.batch.end()));
    add_member(meta, "device", "cpu");
    add_member(meta, "_type", "<class 'tensordict._td.TensorDict'>");
    add_member(meta, "_format_version", 1);
    add_member(meta, "_class", "tensordict:TensorDict");
    if (!node.names.empty()) add_member(meta, "_names", names_for(node));
    // The last one: a folder without it is not complete.
    replace_text(inside(folder, shown, "meta.json"), write_json(meta));
    tensordict_node::of(out).folder = std::make_unique<const std::filesystem::path>(shown);
    return out;
  }

  lazy_stack write_stack(const lazy_stack& stack, const descriptor& folder,
                         const std::filesystem::path& shown) {
    const place meta_at = inside(folder, shown, "meta.json");
    if (stack.is_data()) {
      const data_elements elements = data_of(stack, stack.batch_size());
      json meta = {
          {"_type", "<class 'tensordict.tensorclass.NonTensorStack'>"},
          {"_format_version", 1},
          {"_class", "tensordict:NonTensorStack"},
          {"stack_dim", stack.stack_dim()},
          {"device", nullptr},
          {"shape", stack.batch_size().vec()},  // for weft: an element may be a list itself
          {"data", nested_lists(elements.items, elements.which)}};
      replace_text(meta_at, write_json(meta));
      return stack;
    }
    std::vector<tensordict_value> parts;
    for (const tensordict_value& part : stack.parts()) {
      parts.push_back(write(part, inside(folder, shown, std::to_string(parts.size()))));
    }
    json meta = {
        {"_type", "<class 'tensordict._lazy.LazyStackedTensorDict'>"},
        {"_format_version", 1},
        {"_class", "tensordict:LazyStackedTensorDict"},
        {"stack_dim", stack.stack_dim()},
        {"stack_dim_name", stack.stack_dim_name().empty() ? json() : json(stack.stack_dim_name())}};
    replace_text(meta_at, write_json(meta));
    return same_stack(stack, std::move(parts));
  }

  bool like_;
};

WEFT_DECL tensordict_value write_memmap(const tensordict_value& value,
                                        const std::filesystem::path& folder, bool like) {
  const place at = at_absolute(folder);
  require_writable(value, at.shown, 0);
  if (like && is_there(at_path(at.shown / "meta.json"))) {
    refuse_file(at.shown / "meta.json", "replace by zeros", EEXIST);
  }
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) refuse_file(folder, "make the folder", failed.value());
  tensordict_value out = memmap_writer(like).write(value, at);
  each_dict(out, [](const tensordict& td) { tensordict(td).lock_(); });
  return out;
}

WEFT_DECL const std::filesystem::path& folder_of(const tensordict_node& node) {
  if (node.folder) return *node.folder;
  throw tensordict_error(tensordict_errc::kind,
                         "the tensordict is not memory-mapped (any more): it comes neither from "
                         "memmap nor from load_memmap");
}
/// What is new there takes its place here.
WEFT_DECL void merge_refreshed(tensordict_node& into, const tensordict& from, bool locked) {
  for (const auto& e : tensordict_node::of(from).entries) {
    const std::size_t place = into.find(e.key);
    if (place != tensordict_node::npos && e.value.is_dict() &&
        into.entries[place].value.is_dict() &&
        into.entries[place].value.dict().batch_size() == e.value.dict().batch_size()) {
      merge_refreshed(tensordict_node::of(into.entries[place].value.dict()), e.value.dict(),
                      locked);
      continue;
    }
    if (locked) {  // as lock_children and free_children have counted
      if (place != tensordict_node::npos) {
        each_dict(into.entries[place].value,
                  [](const tensordict& td) { --tensordict_node::of(td).locked_by; });
      }
      each_dict(e.value, [](const tensordict& td) {
        ++tensordict_node::of(td).locked_by;
        tensordict(td).lock_();
      });
    }
    into.put(e.key, e.value);
  }
}

}  // namespace detail

WEFT_DECL tensordict memmap(const tensordict& td, const std::filesystem::path& folder) {
  return detail::write_memmap(td, folder, false).dict();
}
WEFT_DECL lazy_stack memmap(const lazy_stack& stack, const std::filesystem::path& folder) {
  return detail::write_memmap(stack, folder, false).stack();
}
WEFT_DECL tensordict memmap_like(const tensordict& like, const std::filesystem::path& folder) {
  return detail::write_memmap(like, folder, true).dict();
}

WEFT_DECL tensordict& make_memmap(tensordict& td, const nested_key& key, at::IntArrayRef shape,
                                  at::ScalarType dtype) {
  using namespace detail;
  tensordict_node& in = parent_of(tensordict_node::of(td), key);
  const std::filesystem::path& shown = folder_of(in);
  const std::string name(key[key.size() - 1]);
  if (in.find(name) != tensordict_node::npos || is_of_format(name)) {
    throw tensordict_error(tensordict_errc::key_exists,
                           "there is an entry " + words(key) + ", or the format uses that name");
  }
  require_batch(shape, in.batch, key);
  if (torch_name(dtype).empty() || !bytes_of(shape, dtype)) {
    throw tensordict_error(tensordict_errc::shape, "entry " + words(key) + ": sizes " +
                                                       words(shape) + " of " +
                                                       c10::toString(dtype));
  }
  const descriptor folder = open_folder(at_path(shown), false);
  const place meta_at = inside(folder, shown, "meta.json");
  nlohmann::ordered_json meta = read_json(read_text(meta_at, most_meta_bytes));
  if (meta.contains(name)) {
    throw tensordict_error(tensordict_errc::key_exists, "another process has made the entry " +
                                                            words(key) +
                                                            ": refresh_memmap finds it");
  }
  const at::Tensor like =
      at::empty({1}, dtype).as_strided(shape, std::vector<std::int64_t>(shape.size(), 0));
  const at::Tensor made =
      write_leaf(inside(folder, shown, encoded_key(name) + ".memmap"), like, true);
  add_member(meta, name, about_leaf(made));
  replace_text(meta_at, write_json(meta));
  in.put(name, made);
  return td;
}

WEFT_DECL tensordict& refresh_memmap(tensordict& td) {
  detail::tensordict_node& node = detail::tensordict_node::of(td);
  const tensordict now = load_memmap(detail::folder_of(node));
  if (now.batch_size() != td.batch_size()) {
    throw tensordict_error(tensordict_errc::shape, "the folder has another batch size now: " +
                                                       detail::words(now.batch_size()) + ", not " +
                                                       detail::words(td.batch_size()));
  }
  detail::merge_refreshed(node, now, node.locked);
  return td;
}

WEFT_DECL void flush_memmap(const tensordict& td) {
  using namespace detail;
  const std::filesystem::path& folder = folder_of(tensordict_node::of(td));
  each_tensor(td, [&](const at::Tensor& t) {  // each is a mapping of its own
    if (t.nbytes() > 0 && ::msync(t.storage().mutable_data(), t.storage().nbytes(), MS_SYNC) != 0) {
      refuse_file(folder, "flush", errno);
    }
  });
  std::error_code failed;
  std::filesystem::recursive_directory_iterator entry(folder, failed);
  for (; !failed && entry != std::filesystem::recursive_directory_iterator();
       entry.increment(failed)) {
    if (entry->path().filename() != "meta.json") continue;
    for (const std::filesystem::path& path : {entry->path(), entry->path().parent_path()}) {
      const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
      if (!file || ::fsync(file.get()) != 0) refuse_file(path, "flush", errno);
    }
  }
  if (failed) refuse_file(folder, "look into", failed.value());
}

}  // namespace weft
