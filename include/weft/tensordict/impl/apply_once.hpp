// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/tensordict.hpp that are compiled once: functions of all tensors, text.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <algorithm>
#include <ostream>

namespace weft {
namespace detail {

WEFT_DECL std::optional<tensordict> applied(const tensordict& td,
                                            const tensordict::named_function& f,
                                            std::optional<at::IntArrayRef> batch, key_path& path) {
  const tensordict_node& from = tensordict_node::of(td);
  tensordict out = batch && *batch != td.batch_size()
                       ? tensordict_node::make(*batch)
                       : tensordict_node::make(from.batch, from.names);
  for (const auto& e : from.entries) {
    path.push_back(e.key);
    if (!e.value.is_tensor()) {
      if (auto nested = applied(e.value.dict(), f, batch, path)) {
        tensordict_node::of(out).put(e.key, *std::move(nested));
      }
    } else if (at::Tensor t = f(path, e.value.tensor()); t.defined()) {
      require_batch(t.sizes(), tensordict_node::of(out).batch, path);
      tensordict_node::of(out).put(e.key, std::move(t));
    }
    path.pop_back();
  }
  if (!from.entries.empty() && out.size() == 0 && !path.empty()) return std::nullopt;
  return out;
}

// ── printing ──

struct printed {
  std::string text;  // a tensor's; the front of a tensordict
  bool nested = false;
  std::vector<std::pair<std::string, printed>> entries{};
};

WEFT_DECL std::string sizes_text(at::IntArrayRef sizes) {
  std::string out = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    out += (i == 0 ? "" : ",") + std::to_string(sizes[i]);
  }
  return out + "]";
}
WEFT_DECL std::string dtype_text(at::ScalarType type) {
  switch (type) {
  case at::kBool:
    return "bool";
  case at::kBFloat16:
    return "bf16";
  case at::kByte:
    return "u8";
  case at::kChar:
    return "i8";
  case at::kShort:
    return "i16";
  case at::kInt:
    return "i32";
  case at::kLong:
    return "i64";
  case at::kHalf:
    return "f16";
  case at::kFloat:
    return "f32";
  case at::kDouble:
    return "f64";
  case at::kComplexHalf:
    return "c32";
  case at::kComplexFloat:
    return "c64";
  case at::kComplexDouble:
    return "c128";
  default:
    return c10::toString(type);
  }
}
WEFT_DECL std::string flat(const printed& p) {
  if (!p.nested) return p.text;
  std::string out = p.text + "{";
  for (std::size_t i = 0; i < p.entries.size(); ++i) {
    out += (i == 0 ? "" : ", ") + p.entries[i].first + ": " + flat(p.entries[i].second);
  }
  return out + "}";
}
WEFT_DECL printed printed_of(const tensordict& td, std::string front) {
  printed out{std::move(front), true};
  const auto dims = static_cast<std::size_t>(td.dim());
  for (const auto& e : tensordict_node::of(td).entries) {
    if (e.value.is_tensor()) {
      const at::Tensor& t = e.value.tensor();
      out.entries.emplace_back(
          e.key, printed{dtype_text(t.scalar_type()) + sizes_text(rest_of(t.sizes(), dims))});
    } else {
      const at::IntArrayRef further = rest_of(e.value.dict().batch_size(), dims);
      out.entries.emplace_back(
          e.key, printed_of(e.value.dict(), further.empty() ? "" : sizes_text(further)));
    }
  }
  std::stable_sort(out.entries.begin(), out.entries.end(), [](const auto& a, const auto& b) {
    return a.first + ": " + flat(a.second) < b.first + ": " + flat(b.second);
  });
  return out;
}
/// In one line if that has room behind `used` columns; else an entry in each.
WEFT_DECL std::string laid_out(const printed& p, const std::string& indent, std::size_t used,
                               std::size_t tail) {
  constexpr std::size_t width = 80;
  std::string line = flat(p);
  if (!p.nested || p.entries.empty() || used + line.size() + tail <= width) return line;
  const std::string further = indent + "    ";
  std::string out = p.text + "{\n";
  for (std::size_t i = 0; i < p.entries.size(); ++i) {
    const auto& [key, value] = p.entries[i];
    const bool last = i + 1 == p.entries.size();
    out += (i == 0 ? "" : ",\n") + further + key + ": " +
           laid_out(value, further, further.size() + key.size() + 2, last ? tail + 1 : 1);
  }
  return out + "}";
}

}  // namespace detail

WEFT_DECL tensordict tensordict::named_apply(const named_function& f,
                                             std::optional<at::IntArrayRef> batch_size) const {
  key_path path;
  return *detail::applied(*this, f, batch_size, path);
}
WEFT_DECL tensordict tensordict::apply(const leaf_function& f,
                                       std::optional<at::IntArrayRef> batch_size) const {
  return named_apply([&f](const key_path&, const at::Tensor& t) { return f(t); }, batch_size);
}
WEFT_DECL tensordict tensordict::to(at::ScalarType dtype) const {
  return detail::reshaped(*this, batch_size(), node().names,
                          [&](const at::Tensor& t) { return t.to(dtype); });
}
WEFT_DECL tensordict tensordict::to(at::Device device) const {
  return detail::reshaped(*this, batch_size(), node().names,
                          [&](const at::Tensor& t) { return t.to(device); });
}
WEFT_DECL tensordict tensordict::contiguous() const {
  return detail::reshaped(*this, batch_size(), node().names,
                          [&](const at::Tensor& t) { return t.contiguous(); });
}
WEFT_DECL tensordict tensordict::detach() const {
  return detail::reshaped(*this, batch_size(), node().names,
                          [&](const at::Tensor& t) { return t.detach(); });
}

WEFT_DECL std::string tensordict::to_string() const {
  const std::string head =
      "TensorDict(batch_size=" + detail::sizes_text(batch_size()) + ", fields=";
  return head + detail::laid_out(detail::printed_of(*this, ""), "", head.size(), 1) + ")";
}
WEFT_DECL std::ostream& operator<<(std::ostream& out, const tensordict& td) {
  return out << td.to_string();
}

}  // namespace weft
