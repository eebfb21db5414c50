// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/tensordict.hpp that are compiled once: functions of all tensors, text.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <ostream>

namespace weft {
namespace detail {

WEFT_DECL std::optional<tensordict> applied(const tensordict& td,
                                            const tensordict::named_function& f,
                                            std::optional<at::IntArrayRef> batch, key_path& path);
WEFT_DECL std::optional<tensordict_value> applied_value(const tensordict_value& value,
                                                        const tensordict::named_function& f,
                                                        std::optional<at::IntArrayRef> batch,
                                                        key_path& path) {
  if (value.is_dict()) return applied(value.dict(), f, batch, path);
  if (value.is_data()) return value;
  if (value.is_tensor()) {
    at::Tensor t = f(path, value.tensor());
    if (t.defined()) return t;
    return std::nullopt;
  }
  if (batch) {
    throw tensordict_error(
        tensordict_errc::kind,
        "entry " + words(path) +
            " is a lazy stack, which has no other batch size: make it dense() before");
  }
  std::vector<tensordict_value> parts;
  std::size_t number = 0;
  for (const tensordict_value& part : value.stack().parts()) {
    path.push_back(std::to_string(number++));
    if (auto made = applied_value(part, f, batch, path)) {
      parts.push_back(*std::move(made));
    } else if (part.is_dict()) {
      parts.emplace_back(part.dict().empty());  // a stack keeps its size
    }
    path.pop_back();
  }
  if (parts.empty() && value.stack().size() > 0) return std::nullopt;
  if (parts.size() < value.stack().size()) {
    throw tensordict_error(tensordict_errc::kind,
                           "entry " + words(path) +
                               " is a lazy stack, of which some parts would be left out");
  }
  return same_stack(value.stack(), std::move(parts));
}
WEFT_DECL std::optional<tensordict> applied(const tensordict& td,
                                            const tensordict::named_function& f,
                                            std::optional<at::IntArrayRef> batch, key_path& path) {
  const tensordict_node& from = tensordict_node::of(td);
  tensordict out = batch && *batch != td.batch_size()
                       ? tensordict_node::make(*batch)
                       : tensordict_node::make(from.batch, from.names);
  for (const auto& e : from.entries) {
    path.push_back(e.key);
    if (auto made = applied_value(e.value, f, batch, path)) {
      if (made->is_tensor()) {
        require_batch(made->tensor().sizes(), tensordict_node::of(out).batch, path);
      }
      tensordict_node::of(out).put(e.key, *std::move(made));
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
WEFT_DECL void sort_entries(printed& out) {
  std::stable_sort(out.entries.begin(), out.entries.end(), [](const auto& a, const auto& b) {
    return a.first + ": " + flat(a.second) < b.first + ": " + flat(b.second);
  });
}
WEFT_DECL const char* type_text(const non_tensor& data) {
  const auto& value = data.json();
  return value.is_null()             ? "NoneType"
         : value.is_boolean()        ? "bool"
         : value.is_number_integer() ? "int"
         : value.is_number()         ? "float"
         : value.is_string()         ? "str"
         : value.is_array()          ? "list"
                                     : "dict";
}
WEFT_DECL printed printed_value(const tensordict_value& value, std::size_t dims);
/// What all parts have; a size that differs is -1.
WEFT_DECL printed printed_stack(const lazy_stack& stack, std::size_t dims) {
  if (stack.is_data()) return {"NonTensorStack"};
  const at::IntArrayRef further = rest_of(stack.batch_size(), dims);
  if (is_ragged(stack)) {
    batch_sizes sizes(further.begin(), further.end());
    const at::Tensor& first = stack[0].tensor();
    const std::size_t inner = stack.batch_size().size() - 1;
    for (std::size_t i = inner; i < first.sizes().size(); ++i) {
      const bool same = std::all_of(stack.parts().begin(), stack.parts().end(), [&](const auto& p) {
        return p.tensor().sizes().size() > i && p.tensor().sizes()[i] == first.sizes()[i];
      });
      sizes.push_back(same ? first.sizes()[i] : -1);
    }
    return {dtype_text(first.scalar_type()) + sizes_text(sizes)};
  }
  printed out{"LazyStackedTensorDict" + (further.empty() ? "" : sizes_text(further)), true};
  for (const std::string& key : stack.keys()) {
    std::vector<std::pair<const tensordict_value*, std::size_t>> all;
    const auto collect = [&](const auto& self, const tensordict_value& part) -> void {
      if (part.is_dict()) {
        all.emplace_back(&part.dict().get(key), part.dict().batch_size().size());
      } else if (part.is_stack()) {
        for (const auto& inner : part.stack().parts()) self(self, inner);
      }
    };
    collect(collect, stack);
    const auto& [first, batch] = all.front();
    if (!first->is_tensor()) {
      out.entries.emplace_back(key, printed_value(*first, first->is_dict() ? batch : 0));
      continue;
    }
    batch_sizes sizes(rest_of(first->tensor().sizes(), batch).vec());
    for (const auto& [other, n] : all) {
      if (!other->is_tensor()) continue;
      const at::IntArrayRef own = rest_of(other->tensor().sizes(), n);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (i >= own.size() || own[i] != sizes[i]) sizes[i] = -1;
      }
    }
    out.entries.emplace_back(
        key, printed{dtype_text(first->tensor().scalar_type()) + sizes_text(sizes)});
  }
  sort_entries(out);
  return out;
}
WEFT_DECL printed printed_of(const tensordict& td, std::string front);
WEFT_DECL printed printed_value(const tensordict_value& value, std::size_t dims) {
  if (value.is_tensor()) {
    const at::Tensor& t = value.tensor();
    return {dtype_text(t.scalar_type()) + sizes_text(rest_of(t.sizes(), dims))};
  }
  if (value.is_dict()) {
    const at::IntArrayRef further = rest_of(value.dict().batch_size(), dims);
    return printed_of(value.dict(), further.empty() ? "" : sizes_text(further));
  }
  return value.is_data() ? printed{type_text(value.data())} : printed_stack(value.stack(), dims);
}
WEFT_DECL printed printed_of(const tensordict& td, std::string front) {
  printed out{std::move(front), true};
  const auto dims = static_cast<std::size_t>(td.dim());
  for (const auto& e : tensordict_node::of(td).entries) {
    out.entries.emplace_back(e.key, printed_value(e.value, dims));
  }
  sort_entries(out);
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
WEFT_DECL tensordict& tensordict::apply_(const leaf_function& f) {
  for (const auto& [key, t] : leaves()) {
    const at::Tensor made = f(t);
    detail::require_broadcast(made.sizes(), t.sizes(), key);
    t.copy_(made);
  }
  return *this;
}
WEFT_DECL tensordict tensordict::to(at::ScalarType dtype) const {
  return detail::mapped(*this, [&](const at::Tensor& t) { return t.to(dtype); });
}
WEFT_DECL tensordict tensordict::to(at::Device device) const {
  return detail::mapped(*this, [&](const at::Tensor& t) { return t.to(device); });
}
WEFT_DECL tensordict tensordict::contiguous() const {
  return detail::mapped(*this, [&](const at::Tensor& t) { return t.contiguous(); });
}
WEFT_DECL tensordict tensordict::detach() const {
  return detail::mapped(*this, [&](const at::Tensor& t) { return t.detach(); });
}

WEFT_DECL std::string tensordict::to_string() const {
  const std::string head =
      "TensorDict(batch_size=" + detail::sizes_text(batch_size()) + ", fields=";
  return head + detail::laid_out(detail::printed_of(*this, ""), "", head.size(), 1) + ")";
}
WEFT_DECL std::string lazy_stack::to_string() const {
  return detail::laid_out(detail::printed_stack(*this, 0), "", 0, 0);
}
WEFT_DECL std::ostream& operator<<(std::ostream& out, const lazy_stack& stack) {
  return out << stack.to_string();
}
WEFT_DECL std::ostream& operator<<(std::ostream& out, const non_tensor& data) {
  return out << data.to_string();
}
WEFT_DECL std::ostream& operator<<(std::ostream& out, const tensordict& td) {
  return out << td.to_string();
}

}  // namespace weft
