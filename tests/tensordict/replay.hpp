// SPDX-License-Identifier: BSL-1.0
// What Python's tensordict made of random cases (differential.py), made again here.
#pragma once

#include <weft/tensordict/ops.hpp>
#include <weft/tensordict/tensordict.hpp>

#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace tensordicts {

using json = nlohmann::json;

inline at::ScalarType dtype_of(const std::string& name) {
  static const std::map<std::string, at::ScalarType> all{{"float32", at::kFloat},
                                                         {"float64", at::kDouble},
                                                         {"int64", at::kLong},
                                                         {"int32", at::kInt},
                                                         {"uint8", at::kByte},
                                                         {"bool", at::kBool},
                                                         {"bfloat16", at::kBFloat16},
                                                         {"complex64", at::kComplexFloat},
                                                         {"complex128", at::kComplexDouble},
                                                         {"float16", at::kHalf},
                                                         {"int16", at::kShort},
                                                         {"int8", at::kChar}};
  return all.at(name);
}
inline std::vector<std::int64_t> numbers_of(at::Tensor t) {
  if (t.is_complex()) t = at::view_as_real(t.resolve_conj());
  t = t.reshape({-1}).to(at::kDouble).contiguous();
  const double* p = t.data_ptr<double>();
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < t.numel(); ++i) out.push_back(static_cast<std::int64_t>(p[i]));
  return out;
}
inline at::Tensor tensor_of(const json& j) {
  const auto sizes = j["sizes"].get<std::vector<std::int64_t>>();
  const auto type = dtype_of(j["dtype"]);
  const auto values = j["values"].get<std::vector<double>>();
  at::Tensor flat = at::tensor(values, at::kDouble);
  if (at::isComplexType(type)) {
    auto with = sizes;
    with.push_back(2);
    return at::view_as_complex(flat.reshape(with)).to(type);
  }
  return flat.reshape(sizes).to(type);
}
inline weft::tensordict made(const json& j);
inline weft::tensordict_value made_value(const json& j) {
  if (j.contains("dtype")) return tensor_of(j);
  if (j.contains("data")) return weft::non_tensor::parse(j["data"].dump());
  if (!j.contains("parts")) return made(j);
  std::vector<weft::tensordict_value> parts;
  for (const json& part : j["parts"]) parts.push_back(made_value(part));
  return weft::lazy_stack(std::move(parts), j["dim"].get<std::int64_t>());
}
inline weft::tensordict made(const json& j) {
  weft::tensordict out({}, j["batch"].get<std::vector<std::int64_t>>(),
                       j["names"].get<std::vector<std::string>>());
  for (const auto& e : j["entries"]) {
    out.set(e[0].get<std::string>(), made_value(e[1]));
  }
  return out;
}

inline std::string difference(const weft::tensordict& td, const json& j, const std::string& at = "",
                              bool text = true);
/// Of what one element has.
inline std::string difference_of(const weft::tensordict_value& value, const json& elements,
                                 std::size_t dims, const std::string& at) {
  if (dims > 0) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const auto n = static_cast<std::int64_t>(i);
      auto d = difference_of(value.is_stack()  ? value.stack().index({n})
                             : value.is_dict() ? weft::tensordict_value(value.dict().index({n}))
                                               : value,
                             elements[i], dims - 1, at + "/" + std::to_string(i));
      if (!d.empty()) return d;
    }
    return "";
  }
  if (value.is_dict()) {
    const bool same = elements.is_object() && elements.contains("entries");
    return same ? difference(value.dict(), elements, at) : at + ": a tensordict";
  }
  const bool same = value.is_data() && json::parse(value.data().to_string()) == elements;
  return same ? "" : at + ": " + value.kind() + ", or other data";
}

/// How they differ; empty: not at all.
inline std::string difference(const weft::tensordict& td, const json& j, const std::string& at,
                              bool text) {
  const auto batch = j["batch"].get<std::vector<std::int64_t>>();
  if (td.batch_size() != at::IntArrayRef(batch)) return at + ": another batch size";
  if (td.size() != j["entries"].size()) return at + ": another number of entries";
  const auto keys = td.keys();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const json& e = j["entries"][i];
    const std::string here = at + "/" + e[0].get<std::string>();
    if (keys[i].front() != e[0].get<std::string>())
      return here + ": another key, " + keys[i].front();
    const auto& value = td.get(keys[i].front());
    if (value.is_tensor() != e[1].contains("dtype")) return here + ": tensor or tensordict";
    if (!value.is_tensor()) {
      if (e[1].contains("elements")) {
        const auto own_batch = e[1]["batch"].get<std::vector<std::int64_t>>();
        if ((value.is_stack() && value.stack().batch_size() != at::IntArrayRef(own_batch)) ||
            (value.is_dict() && value.dict().batch_size() != at::IntArrayRef(own_batch))) {
          return here + ": another batch size";
        }
        if (auto d = difference_of(value, e[1]["elements"], own_batch.size(), here); !d.empty()) {
          return d;
        }
      } else if (!value.is_dict() && !value.is_stack()) {
        return here + " is " + value.kind();
      } else {  // Python stacks what it can
        auto d = difference(value.is_dict() ? value.dict() : value.stack().dense(), e[1], here);
        if (!d.empty()) return d;
      }
      continue;
    }
    const at::Tensor& t = value.tensor();
    if (t.scalar_type() != dtype_of(e[1]["dtype"])) return here + ": another dtype";
    if (t.sizes() != at::IntArrayRef(e[1]["sizes"].get<std::vector<std::int64_t>>())) {
      return here + ": other sizes";
    }
    if (numbers_of(t) != e[1]["values"].get<std::vector<std::int64_t>>())
      return here + ": other values";
  }
  if (at.empty()) {
    std::vector<std::string> names = td.names();
    if (std::all_of(names.begin(), names.end(), [](const auto& n) { return n.empty(); }))
      names.clear();
    if (names != j["names"].get<std::vector<std::string>>()) {
      std::string said = "names";
      for (const auto& n : td.names()) said += " '" + n + "'";
      return said + ", not " + j["names"].dump();
    }
    if (text && td.to_string() != j["text"].get<std::string>()) return "prints " + td.to_string();
  }
  return {};
}

inline at::Tensor mask_of(const json& values) {
  std::vector<std::int64_t> mask;
  for (const auto& one : values) mask.push_back(one.get<bool>() ? 1 : 0);
  return at::tensor(mask, at::kLong).to(at::kBool);
}

inline std::vector<at::indexing::TensorIndex> index_of(const json& parts) {
  std::vector<at::indexing::TensorIndex> out;
  for (const auto& p : parts) {
    if (p.contains("none")) {
      out.emplace_back(at::indexing::None);
    } else if (p.contains("ellipsis")) {
      out.emplace_back(at::indexing::Ellipsis);
    } else if (p.contains("int")) {
      out.emplace_back(p["int"].get<std::int64_t>());
    } else if (p.contains("slice")) {
      const auto bound = [&](int i) -> std::optional<c10::SymInt> {
        if (p["slice"][i].is_null()) return std::nullopt;
        return c10::SymInt(p["slice"][i].get<std::int64_t>());
      };
      out.emplace_back(at::indexing::Slice(bound(0), bound(1), bound(2)));
    } else if (p.contains("long")) {
      out.emplace_back(at::tensor(p["long"].get<std::vector<std::int64_t>>(), at::kLong));
    } else {
      out.emplace_back(mask_of(p["mask"]));
    }
  }
  return out;
}

inline weft::tensordict done(const weft::tensordict& td, const json& s) {
  const std::string op = s["op"];
  const auto sizes = s.value("sizes", std::vector<std::int64_t>());
  const auto dims = s.value("dims", std::vector<std::int64_t>());
  const auto paths = s.value("keys", std::vector<weft::key_path>());
  const std::vector<weft::nested_key> keys(paths.begin(), paths.end());
  const auto one_of = [&](std::vector<weft::tensordict> parts) {
    return parts.empty() ? weft::tensordict() : parts[s["which"].get<std::size_t>() % parts.size()];
  };
  if (op == "view") return td.view(sizes);
  if (op == "reshape") return td.reshape(sizes);
  if (op == "expand") return td.expand(sizes);
  if (op == "permute") return td.permute(sizes);
  if (op == "transpose") return td.transpose(dims.at(0), dims.at(1));
  if (op == "unsqueeze") return td.unsqueeze(dims.at(0));
  if (op == "squeeze") return dims.empty() ? td.squeeze() : td.squeeze(dims[0]);
  if (op == "flatten") return td.flatten(dims.at(0), dims.at(1));
  if (op == "unbind") return one_of(td.unbind(dims.at(0)));
  if (op == "split") return one_of(td.split(s["size"].get<std::int64_t>(), dims.at(0)));
  if (op == "chunk") return one_of(td.chunk(s["size"].get<std::int64_t>(), dims.at(0)));
  if (op == "index") return td.index(index_of(s["index"]));
  if (op == "put") {
    const auto at = index_of(s["index"]);
    const auto zeros = td.index(at).apply([](const at::Tensor& t) { return t * 0; });
    return td.clone().index_put_(at, zeros);
  }
  const std::vector<weft::tensordict> two{td, td};
  if (op == "stack") return weft::stack(two, dims.at(0));
  if (op == "cat") return weft::cat(two, dims.at(0));
  if (op == "select") return td.select(keys);
  if (op == "exclude") return td.exclude(keys);
  if (op == "flatten_keys") return td.flatten_keys();
  if (op == "unflatten_keys") return td.unflatten_keys();
  if (op == "rename") return td.clone().rename_key_(keys.at(0), keys.at(1));
  if (op == "erase") return td.clone().erase(keys.at(0));
  if (op == "set") return td.clone().set(keys.at(0), at::ones(sizes));
  if (op == "set_") return td.clone().set_(keys.at(0), at::ones(sizes));
  if (op == "update") return td.clone().update(made(s["other"]).clone());
  if (op == "double") return td.to(at::kDouble);
  if (op == "empty") return td.empty(weft::tensordict::recurse::yes);
  if (op == "batch_size") return td.clone().batch_size_(sizes);
  if (op == "sum") return weft::sum(td, dims.at(0));
  if (op == "any") return weft::any(td, dims.at(0));
  if (op == "all") return weft::all(td, dims.at(0));
  if (s.contains("mask")) {
    const at::Tensor mask = mask_of(s["mask"]).reshape(td.batch_size());
    if (op == "masked_fill") return weft::masked_fill(td, mask, 3);
    if (op == "masked_select") return weft::masked_select(td, mask);
    return weft::where(mask, td, td.clone().zero_());
  }
  const std::string kind = s.value("kind", "");
  if (kind == "number") {
    const int by = s["number"];
    return op == "add"   ? td + by
           : op == "sub" ? td - by
           : op == "mul" ? td * by
           : op == "eq"  ? td == by
                         : td < by;
  }
  if (kind == "tensor") {
    const at::Tensor by = at::ones(sizes, at::kInt) * 2;
    return op == "add" ? td + by : td * by;
  }
  if (kind == "self" || kind == "other") {
    const weft::tensordict by = kind == "self" ? td : made(s["other"]);
    return op == "add"   ? td + by
           : op == "sub" ? td - by
           : op == "mul" ? td * by
           : op == "eq"  ? td == by
                         : td < by;
  }
  throw std::logic_error("no operation " + op);
}

/// The differences of a case, in words.
inline std::vector<std::string> differences(const json& c) {
  std::vector<std::string> out;
  const auto say = [&](const json& s, const std::string& what) {
    json brief = s;
    brief.erase("gives");
    brief.erase("other");
    out.push_back("seed " + c["seed"].dump() + ": " + brief.dump().substr(0, 200) + ": " + what);
  };
  weft::tensordict td = made(c["from"]);
  const bool text = !c.contains("rich");
  if (text) {
    if (auto d = difference(td, c["from"]); !d.empty()) say({{"op", "made"}}, d);
  }
  for (const json& s : c["chain"]) {
    const std::string before = td.to_string();
    try {
      weft::tensordict next = done(td, s);
      if (!s.contains("gives")) {
        say(s, "not refused: " + before);
        break;
      }
      if (auto d = difference(next, s["gives"], "", text); !d.empty()) {
        say(s, d + " of " + before + ", not " + s["gives"]["text"].get<std::string>());
        break;
      }
      td = std::move(next);
    } catch (const std::logic_error&) {
      throw;
    } catch (const std::exception& e) {
      if (s.contains("gives")) {
        say(s, "refused: " + std::string(e.what()).substr(0, 160) + ": " + before);
        break;
      }
    }
  }
  return out;
}

}  // namespace tensordicts
