// SPDX-License-Identifier: BSL-1.0
// For tensordict/exchange.py. Reads lines "change FROM TO" and "compare A B", where each is a file or a folder
// in the format that its name says, and answers each by a line: "ok", or what is wrong.
#include <weft/tensordict/files.hpp>

#include <ATen/ATen.h>

#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>

namespace {

using weft::lazy_stack;
using weft::tensordict;
using weft::tensordict_value;

template <class Root>
Root read_as(const std::filesystem::path& path) {
  if (path.extension() == ".td") return weft::from_consolidated<Root>(path);
  if (path.extension() == ".safetensors") return weft::from_safetensors<Root>(path);
  return weft::load_memmap<Root>(path, weft::memmap_mode::copied);
}
tensordict_value read(const std::filesystem::path& path) {
  try {
    return read_as<tensordict>(path);
  } catch (const weft::tensordict_error& e) {
    if (e.code() != weft::tensordict_errc::kind) throw;
    return read_as<lazy_stack>(path);
  }
}
void write(const tensordict_value& value, const std::filesystem::path& path) {
  if (path.extension() == ".td") {
    value.is_dict() ? weft::to_consolidated(value.dict(), path)
                    : weft::to_consolidated(value.stack(), path);
  } else if (path.extension() == ".safetensors") {
    weft::to_safetensors(value.dict(), path);
  } else if (value.is_dict()) {
    static_cast<void>(weft::memmap(value.dict(), path));
  } else {
    static_cast<void>(weft::memmap(value.stack(), path));
  }
}

/// The same as in exchange.py.
tensordict_value change(const tensordict_value& value) {
  if (value.is_stack()) {
    std::vector<tensordict_value> parts;
    for (const tensordict_value& part : value.stack().parts()) {
      parts.push_back(part.is_data() ? part : change(part));
    }
    return lazy_stack(std::move(parts), value.stack().stack_dim(), value.stack().stack_dim_name());
  }
  tensordict out = value.dict().apply(
      [](const at::Tensor& t) { return t.scalar_type() == at::kBool ? t.logical_not() : t + 1; });
  out.set("from weft", at::arange(out.numel()).reshape(out.batch_size()));
  out.set("said/%", weft::non_tensor("weft \xc3\xbc"));
  return out;
}

std::string difference(const tensordict_value& a, const tensordict_value& b,
                       const std::string& where) {
  if (std::string(a.kind()) != b.kind()) return where + " is " + a.kind() + " and " + b.kind();
  if (a.is_data()) {
    const bool same = a.data().to_string() == b.data().to_string();  // NaN, too
    return same ? "" : where + ": " + a.data().to_string() + " and " + b.data().to_string();
  }
  if (a.is_tensor()) {
    const at::Tensor& x = a.tensor();
    const at::Tensor& y = b.tensor();
    const bool same = x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
                      at::allclose(x.to(at::kComplexDouble), y.to(at::kComplexDouble), 0, 0, true);
    return same ? "" : where + " differs";
  }
  if (a.is_stack()) {
    const lazy_stack& x = a.stack();
    const lazy_stack& y = b.stack();
    if (x.batch_size() != y.batch_size() || x.stack_dim() != y.stack_dim()) return where;
    for (std::size_t i = 0; i < x.size(); ++i) {
      auto d = difference(x[i], y[i], where + "/" + std::to_string(i));
      if (!d.empty()) return d;
    }
    return "";
  }
  const tensordict& x = a.dict();
  const tensordict& y = b.dict();
  if (x.batch_size() != y.batch_size() || x.size() != y.size()) return where + " differs";
  for (const weft::key_path& key : x.keys()) {
    if (!y.contains(key)) return where + " lacks " + key.front();
    auto d = difference(x.get(key), y.get(key), where + "/" + key.front());
    if (!d.empty()) return d;
  }
  return "";
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what, from, to;
    words >> what >> from >> to;
    try {
      if (what == "change") {
        write(change(read(from)), to);
        std::cout << "ok" << std::endl;
      } else {
        const std::string d = difference(read(from), read(to), "root");
        std::cout << (d.empty() ? "ok" : d) << std::endl;
      }
    } catch (const std::exception& e) {
      std::cout << e.what() << std::endl;
    }
  }
}
