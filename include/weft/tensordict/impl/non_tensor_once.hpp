// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/non_tensor.hpp and detail/json.hpp that are compiled once.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/json.hpp>
#include <weft/tensordict/non_tensor.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace detail {

// JSON has no NaN and no infinities. For the parser they are empty strings, told apart from others
// by their places: so many strings come before.
struct json_word {
  std::string_view word;
  double value;
};
inline constexpr json_word json_words[] = {
    {"-Infinity", -std::numeric_limits<double>::infinity()},
    {"Infinity", std::numeric_limits<double>::infinity()},
    {"NaN", std::numeric_limits<double>::quiet_NaN()},
};
struct placed_word {
  std::size_t place;
  double value;
};

/// `text` with those words as empty strings.
WEFT_DECL std::string without_words(std::string_view text, std::vector<placed_word>& words) {
  std::string out;
  out.reserve(text.size());
  std::size_t strings = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      out += c;
      if (c == '\\' && i + 1 < text.size()) out += text[++i];
      in_string = c != '"';
      continue;
    }
    in_string = c == '"';
    strings += in_string ? 1 : 0;
    const json_word* found = nullptr;
    if (c == 'N' || c == 'I' || c == '-') {
      for (const json_word& w : json_words) {
        if (!found && text.substr(i, w.word.size()) == w.word) found = &w;
      }
    }
    if (!found) {
      out += c;
      continue;
    }
    words.push_back({strings++, found->value});
    out += "\"\"";
    i += found->word.size() - 1;
  }
  return out;
}

inline constexpr std::size_t deepest_json = 500;
[[noreturn]] WEFT_DECL void refuse_deep_json() {
  throw tensordict_error(tensordict_errc::format,
                         "JSON with more than 500 lists and objects within one another");
}
/// The words that stand where the text has null; none: a null.
WEFT_DECL void list_nulls(const nlohmann::ordered_json& value, std::size_t depth,
                          std::vector<std::string_view>& nulls, bool& any) {
  if (depth > deepest_json) refuse_deep_json();
  if (value.is_structured()) {
    for (const auto& inner : value) list_nulls(inner, depth + 1, nulls, any);
  } else if (value.is_null()) {
    nulls.emplace_back();
  } else if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double d = value.get<double>();
    nulls.emplace_back(std::isnan(d) ? "NaN" : d > 0 ? "Infinity" : "-Infinity");
    any = true;
  }
}

/// Makes the value that a document is. nlohmann's own reader looks through all members of an object
/// for each new one: a hostile file could keep it busy for hours.
class json_reader {
 public:
  using json = nlohmann::ordered_json;
  explicit json_reader(const std::vector<placed_word>& words) : words_(words) {}
  bool null() { return add(json()); }
  bool boolean(bool value) { return add(json(value)); }
  bool number_integer(json::number_integer_t value) { return add(json(value)); }
  bool number_unsigned(json::number_unsigned_t value) { return add(json(value)); }
  bool number_float(json::number_float_t value, const std::string&) { return add(json(value)); }
  bool string(std::string& value) {
    if (is_word()) return add(json(words_[next_word_++].value));
    return add(json(std::move(value)));
  }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(json::object()); }
  bool start_array(std::size_t) { return open(json::array()); }
  bool key(std::string& name) {
    if (is_word()) throw tensordict_error(tensordict_errc::format, "no JSON: a number as a key");
    key_ = std::move(name);
    return true;
  }
  bool end_object() {
    const auto& members = open_.back()->get_ref<const json::object_t&>();
    std::vector<const std::string*> names;
    for (const auto& [name, value] : members) names.push_back(&name);
    std::sort(names.begin(), names.end(), [](const auto* a, const auto* b) { return *a < *b; });
    const auto twice = std::adjacent_find(names.begin(), names.end(),
                                          [](const auto* a, const auto* b) { return *a == *b; });
    if (twice != names.end()) {
      throw tensordict_error(tensordict_errc::format,
                             "JSON with the key \"" + **twice + "\" twice in one object");
    }
    return close();
  }
  bool end_array() { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& e) {
    throw tensordict_error(tensordict_errc::format, std::string("no JSON: ") + e.what());
  }
  [[nodiscard]] json take() { return std::move(root_); }

 private:
  /// Of the string that has come now.
  bool is_word() {
    const std::size_t place = strings_++;
    return next_word_ < words_.size() && words_[next_word_].place == place;
  }
  json& put(json value) {
    if (open_.empty()) return root_ = std::move(value);
    json& in = *open_.back();
    if (in.is_array()) {
      in.get_ref<json::array_t&>().push_back(std::move(value));
      return in.back();
    }
    add_member(in, key_, std::move(value));
    return in.get_ref<json::object_t&>().back().second;
  }
  bool add(json value) {
    put(std::move(value));
    return true;
  }
  bool open(json value) {
    if (open_.size() == deepest_json) refuse_deep_json();
    open_.push_back(&put(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  json root_;
  std::vector<json*> open_;  // none of them moves while one within it is open
  std::string key_;
  const std::vector<placed_word>& words_;
  std::size_t next_word_ = 0;
  std::size_t strings_ = 0;
};

WEFT_DECL void add_member(nlohmann::ordered_json& object, const std::string& key,
                          nlohmann::ordered_json value) {
  object.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(key, std::move(value));
}

WEFT_DECL nlohmann::ordered_json read_json(std::string_view text) {
  std::vector<placed_word> words;
  const std::string plain = without_words(text, words);
  json_reader reader(words);
  nlohmann::ordered_json::sax_parse(plain, &reader);
  return reader.take();
}

WEFT_DECL std::string write_json(const nlohmann::ordered_json& value) {
  std::vector<std::string_view> nulls;
  bool any = false;
  list_nulls(value, 0, nulls, any);
  try {
    const std::string plain = value.dump();
    if (!any) return plain;
    std::string out;
    out.reserve(plain.size());
    bool in_string = false;
    std::size_t next = 0;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const char c = plain[i];
      if (in_string) {
        out += c;
        if (c == '\\') out += plain[++i];
        in_string = c != '"';
        continue;
      }
      in_string = c == '"';
      if (c != 'n') {
        out += c;
        continue;
      }
      out += nulls[next].empty() ? "null" : nulls[next];
      ++next;
      i += 3;
    }
    return out;
  } catch (const nlohmann::json::exception& e) {
    throw tensordict_error(tensordict_errc::format, std::string("not to be JSON: ") + e.what());
  }
}

}  // namespace detail

WEFT_DECL non_tensor::non_tensor() : non_tensor(nlohmann::ordered_json()) {}
WEFT_DECL non_tensor::non_tensor(const nlohmann::ordered_json& value)
    : value_(std::make_shared<const nlohmann::ordered_json>(value)) {}
WEFT_DECL non_tensor::non_tensor(const char* text) : non_tensor(std::string_view(text)) {}
WEFT_DECL non_tensor::non_tensor(std::string_view text)
    : non_tensor(nlohmann::ordered_json(std::string(text))) {}
WEFT_DECL non_tensor non_tensor::from_bool(bool value) {
  return non_tensor(nlohmann::ordered_json(value));
}
WEFT_DECL non_tensor non_tensor::from_int(std::int64_t value) {
  return non_tensor(nlohmann::ordered_json(value));
}
WEFT_DECL non_tensor non_tensor::from_uint(std::uint64_t value) {
  return non_tensor(nlohmann::ordered_json(value));
}
WEFT_DECL non_tensor non_tensor::from_double(double value) {
  return non_tensor(nlohmann::ordered_json(value));
}
WEFT_DECL non_tensor non_tensor::parse(std::string_view text) {
  return non_tensor(detail::read_json(text));
}
WEFT_DECL std::string non_tensor::to_string() const { return detail::write_json(*value_); }
WEFT_DECL bool non_tensor::equals(const non_tensor& other) const {
  return value_ == other.value_ || *value_ == *other.value_;
}

namespace detail {
[[noreturn]] WEFT_DECL void refuse_data(const nlohmann::ordered_json& value, const char* wanted) {
  throw tensordict_error(tensordict_errc::kind, std::string("the value is a JSON ") +
                                                    value.type_name() + ", not " + wanted);
}
}  // namespace detail

WEFT_DECL bool non_tensor::as_bool() const {
  if (!value_->is_boolean()) detail::refuse_data(*value_, "a bool");
  return value_->get<bool>();
}
WEFT_DECL std::int64_t non_tensor::as_int() const {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value_->is_number_integer() ||
      (value_->is_number_unsigned() && value_->get<std::uint64_t>() > most)) {
    detail::refuse_data(*value_, "an int64");
  }
  return value_->get<std::int64_t>();
}
WEFT_DECL std::uint64_t non_tensor::as_uint() const {
  if (!value_->is_number_integer() ||
      (!value_->is_number_unsigned() && value_->get<std::int64_t>() < 0)) {
    detail::refuse_data(*value_, "a uint64");
  }
  return value_->get<std::uint64_t>();
}
WEFT_DECL double non_tensor::as_double() const {
  if (!value_->is_number()) detail::refuse_data(*value_, "a number");
  return value_->get<double>();
}
WEFT_DECL const std::string& non_tensor::as_string() const {
  if (!value_->is_string()) detail::refuse_data(*value_, "a string");
  return value_->get_ref<const std::string&>();
}

}  // namespace weft
