// SPDX-License-Identifier: BSL-1.0
// Reads a function's or a class's name out of a mangled one (Itanium C++ ABI), template arguments
// included, and spells it in one way whatever compiler or standard library made it:
//
//   N2ns7genericIiEET_S1_                        ns::generic<int>
//   N2ns3valITnDaLj3EEEiv  (N2ns3valILj3EEEiv)   ns::val<(unsigned int)3>
//   N2ns3boxINSt7__cxx1112basic_stringIcSt11...  ns::box<std::basic_string<char, ...>>
//
// What compilers mangle differently is left out: the declared kinds of template parameters (Tn, Tk,
// Tt), constraints of the function itself (Q), inline namespaces of the standard library, ABI tags.
// What has no name elsewhere gives none: lambdas, local and unnamed classes, operators, arguments
// that are expressions or strings.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::detail {

class mangled_name {
 public:
  /// Reads from where `mangled` begins; `before` are the substitutions that its context has made.
  mangled_name(std::string_view mangled, std::vector<std::string> before)
      : in_(mangled), seen_(std::move(before)) {}

  /// The function whose encoding this is, or empty; its parameters are not read.
  [[nodiscard]] std::string function() {
    std::string out = name(outermost::yes);
    return failed_ ? std::string() : out;
  }
  /// The type, or empty.
  [[nodiscard]] std::string type_name() {
    std::string out = type();
    return failed_ ? std::string() : out;
  }

 private:
  enum class outermost : bool { no, yes };

  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0';
  }
  bool take(std::string_view text) {
    if (failed_ || !in_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  std::string fail() {
    failed_ = true;
    at_ = in_.size();
    return {};
  }
  [[nodiscard]] static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  std::string digits() {
    const std::size_t begin = at_;
    while (is_digit(peek())) ++at_;
    return std::string(in_.substr(begin, at_ - begin));
  }
  const std::string& remember(const std::string& text) {
    seen_.push_back(text);
    return seen_.back();
  }
  [[nodiscard]] static std::string joined(const std::string& scope, const std::string& part) {
    if (scope == "std" && part.starts_with("__")) return scope;  // an inline namespace, mostly
    return scope.empty() ? part : scope + "::" + part;
  }

  // <source-name> <abi-tags>, internal linkage or not
  std::string identifier() {
    take("L");
    if (!is_digit(peek())) return fail();  // operators, constructors, lambdas
    std::size_t size = 0;
    for (const char c : digits()) size = size * 10 + static_cast<std::size_t>(c - '0');
    if (size == 0 || size > in_.size() - at_) return fail();
    std::string out(in_.substr(at_, size));
    at_ += size;
    while (take("B")) static_cast<void>(identifier());
    return out.starts_with("_GLOBAL__N") ? "(anonymous namespace)" : out;
  }

  // S_, S0_, …, and the names that have letters of their own, but for St
  std::string substitution() {
    if (take("Sa")) return "std::allocator";
    if (take("Sb")) return "std::basic_string";
    if (take("Ss")) {
      return "std::basic_string<char, std::char_traits<char>, std::allocator<char>>";
    }
    if (!take("S")) return fail();
    std::size_t index = 0;
    while (peek() != '_') {
      const char c = peek();
      if (!is_digit(c) && (c < 'A' || c > 'Z')) return fail();
      index = index * 36 + static_cast<std::size_t>(is_digit(c) ? c - '0' : c - 'A' + 10);
      if (index >= seen_.size()) return fail();
      if (++at_; peek() == '_') ++index;
    }
    ++at_;
    return index < seen_.size() ? seen_[index] : fail();
  }

  // Not remembered as a whole: only types are, by type().
  std::string name(outermost place = outermost::no) {
    if (take("N")) return nested(place);
    std::string out;
    if (take("St")) {
      out = joined("std", identifier());
    } else if (peek() == 'S') {
      out = substitution();
      if (peek() == 'I') return out + arguments(place);
      return out;
    } else {
      out = identifier();
    }
    if (peek() != 'I') return out;
    remember(out);
    return out + arguments(place);
  }

  std::string nested(outermost place) {
    while (take("r") || take("V") || take("K")) {
    }
    if (!take("R")) take("O");
    std::string out;
    bool fresh = false;  // a prefix that is remembered if another component follows
    while (!failed_ && !take("E")) {
      if (fresh) remember(out);
      fresh = true;
      if (take("St")) {
        out = "std";
        fresh = false;
      } else if (peek() == 'S') {
        out = substitution();
        fresh = false;
      } else if (peek() == 'T') {
        out = parameter();
      } else if (peek() == 'I') {
        out += arguments(place);
        if (stopped_) return out;
      } else {
        out = joined(out, identifier());
      }
    }
    return out;
  }

  // A template parameter, as it stands in the signature of a template.
  std::string parameter() {
    if (!take("T")) return fail();
    std::string out = "$" + digits();
    return take("_") ? out : fail();
  }

  std::string arguments(outermost place = outermost::no) {
    if (!take("I")) return fail();
    std::string out;
    while (!failed_ && !take("E")) {
      if (peek() == 'Q' && place == outermost::yes) {
        stopped_ = true;  // nothing but the constraint and the signature is left
        break;
      }
      const bool pack = peek() == 'J';
      const std::string one = argument();
      if (pack && one.empty()) continue;
      if (!out.empty()) out += ", ";
      out += one;
    }
    return "<" + out + ">";
  }

  std::string argument() {
    while (peek() == 'T' && std::string_view("yntpk").find(peek(1)) != std::string_view::npos) {
      declared_kind();
    }
    if (take("J")) {
      std::string out;
      while (!failed_ && !take("E")) {
        if (!out.empty()) out += ", ";
        out += argument();
      }
      return out;
    }
    if (peek() == 'L') return literal();
    if (take("X")) {
      std::string out = take("ad") ? "&" + literal() : literal();
      return take("E") ? out : fail();
    }
    return type();
  }

  void declared_kind() {
    if (take("Tn")) {
      static_cast<void>(type());
    } else if (take("Tk")) {
      static_cast<void>(name());
    } else if (take("Tp")) {
      declared_kind();
    } else if (take("Tt")) {
      while (!failed_ && !take("E")) declared_kind();
    } else if (!take("Ty")) {
      static_cast<void>(fail());
    }
  }

  std::string literal() {
    if (!take("L")) return fail();
    if (take("_Z")) {
      std::string out = name();
      while (!failed_ && !take("E")) static_cast<void>(type());
      return out;
    }
    if (take("DnE") || take("Dn0E")) return "nullptr";
    if (take("b0E")) return "false";
    if (take("b1E")) return "true";
    std::string of = type();
    std::string value = take("n") ? "-" : "";
    while (!failed_ && !take("E")) {
      const char c = peek();
      if (!is_digit(c) && (c < 'a' || c > 'f')) return fail();  // strings among them
      value += c;
      ++at_;
    }
    return of == "int" ? value : "(" + of + ")" + value;
  }

  [[nodiscard]] static std::string_view builtin(char c) {
    switch (c) {
    case 'v':
      return "void";
    case 'b':
      return "bool";
    case 'c':
      return "char";
    case 'a':
      return "signed char";
    case 'h':
      return "unsigned char";
    case 's':
      return "short";
    case 't':
      return "unsigned short";
    case 'i':
      return "int";
    case 'j':
      return "unsigned int";
    case 'l':
      return "long";
    case 'm':
      return "unsigned long";
    case 'x':
      return "long long";
    case 'y':
      return "unsigned long long";
    case 'n':
      return "__int128";
    case 'o':
      return "unsigned __int128";
    case 'f':
      return "float";
    case 'd':
      return "double";
    case 'e':
      return "long double";
    case 'w':
      return "wchar_t";
    case 'z':
      return "...";
    default:
      return {};
    }
  }

  std::string type() {
    if (failed_) return {};
    if (const std::string_view known = builtin(peek()); !known.empty()) {
      ++at_;
      return std::string(known);
    }
    switch (peek()) {
    case 'r':
    case 'V':
    case 'K': {
      std::string qualifiers;
      while (take("r")) qualifiers += " restrict";
      while (take("V")) qualifiers += " volatile";
      while (take("K")) qualifiers += " const";
      return remember(type() + qualifiers);
    }
    case 'P':
      ++at_;
      return remember(type() + "*");
    case 'R':
      ++at_;
      return remember(type() + "&");
    case 'O':
      ++at_;
      return remember(type() + "&&");
    case 'D':
      return other_type();
    case 'F':
      return remember(function_type());
    case 'A': {
      ++at_;
      const std::string size = digits();
      if (!take("_")) return fail();
      return remember(type() + "[" + size + "]");
    }
    case 'M': {
      ++at_;
      const std::string of = type();
      return remember(type() + " " + of + "::*");
    }
    case 'T': {
      const std::string out = remember(parameter());
      return peek() == 'I' ? remember(out + arguments()) : out;
    }
    case 'S':
      if (peek(1) != 't') {
        const std::string out = substitution();
        return peek() == 'I' ? remember(out + arguments()) : out;
      }
      return remember(name());
    case 'N':
      return remember(name());
    default:
      return is_digit(peek()) ? remember(name()) : fail();
    }
  }

  std::string function_type() {
    if (!take("F")) return fail();
    take("Y");
    const std::string result = type();
    std::string of;
    std::string qualifier;
    while (!failed_ && !take("E")) {
      if (peek(1) == 'E' && (peek() == 'R' || peek() == 'O')) {
        qualifier = take("R") ? " &" : (static_cast<void>(take("O")), " &&");
        continue;
      }
      const std::string one = type();
      if (one != "void") of += (of.empty() ? "" : ", ") + one;
    }
    return result + "(" + of + ")" + qualifier;
  }

  std::string other_type() {
    if (take("Di")) return "char32_t";
    if (take("Ds")) return "char16_t";
    if (take("Du")) return "char8_t";
    if (take("Dn")) return "std::nullptr_t";
    if (take("Da")) return "auto";
    if (take("Dc")) return "decltype(auto)";
    if (take("Dp")) return remember(type() + "...");
    if (take("DF")) {
      const std::string bits = digits();
      if (take("b")) return "std::bfloat" + bits + "_t";
      return take("_") ? "_Float" + bits : fail();
    }
    if (take("Do")) return remember(function_type() + " noexcept");
    return fail();
  }

  std::string_view in_;
  std::size_t at_ = 0;
  std::vector<std::string> seen_;
  bool failed_ = false;
  bool stopped_ = false;
};

}  // namespace weft::detail
