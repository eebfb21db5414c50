// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/files.hpp that are compiled once: files of torch.save.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/buffer_plan.hpp>
#include <weft/tensordict/detail/file.hpp>
#include <weft/tensordict/detail/words.hpp>
#include <weft/tensordict/files.hpp>

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace detail {

/// Tensors, and dictionaries of tensors, at their keys; what else there is has no place.
WEFT_DECL void take_tensors(const c10::IValue& value, key_path& path, tensordict& out) {
  if (value.isTensor()) {
    if (!path.empty() && value.toTensor().defined()) out.set(path, value.toTensor());
    return;
  }
  if (!value.isGenericDict()) return;
  for (const auto& entry : value.toGenericDict()) {
    if (!entry.key().isString()) continue;
    const std::size_t before = path.size();
    const std::string& key = entry.key().toStringRef();
    require_level(static_cast<int>(path.size()) +
                  static_cast<int>(std::min<std::ptrdiff_t>(std::count(key.begin(), key.end(), '.'),
                                                            most_levels + 1)));
    for (std::string& name : split_name(key)) path.push_back(std::move(name));
    take_tensors(entry.value(), path, out);
    path.resize(before);
  }
}

}  // namespace detail

WEFT_DECL tensordict from_torch_save(const std::filesystem::path& path) {
  const detail::descriptor file = detail::open_file(detail::at_path(path));
  std::vector<char> bytes(detail::size_of(file, path));
  detail::read_at(file, bytes.data(), bytes.size(), 0, path);
  c10::IValue value;
  try {
    value = torch::jit::pickle_load(bytes);
  } catch (const c10::Error& e) {
    detail::refuse_format(
        path, std::string("libtorch cannot read it (of an OrderedDict, save dict(…) of it): ") +
                  e.what_without_backtrace());
  }
  if (!value.isGenericDict()) detail::refuse_format(path, "it holds no dictionary");
  tensordict out;
  key_path path_in;
  detail::take_tensors(value, path_in, out);
  return out;
}

}  // namespace weft
