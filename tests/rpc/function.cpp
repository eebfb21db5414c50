// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/function.hpp>

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <complex>
#include <concepts>
#include <cstdarg>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace functions {

using weft::function;
using weft::function_style;
using weft::injection;
using weft::named;

template <class T>
using awaitable = asio::awaitable<T, asio::any_io_executor>;

// Declared only: this file needs neither Asio nor the bodies.
double scale(double x, int by);
double scale_too(const double& column, const int& factor);
float scale_float(float x, int by);
void quiet() noexcept;
awaitable<std::string> greet(weft::worker&, const std::string&, std::vector<int>);
awaitable<void> nothing();
weft::immediate<int> quick(const weft::caller&, int);
const std::string& reference(const std::string& s);
std::unique_ptr<int> move_only(std::unique_ptr<int> p);
int ellipsis(const char*, ...);
int worker_in_second_place(int, weft::worker&);

class stage {
 public:
  explicit stage(int width) : width_(width) {}
  int width() const;
  int grow(int by) &;
  static int count(int x);
  awaitable<double> forward(weft::worker&, double);
  int merge(stage&, int) noexcept;

 private:
  [[maybe_unused]] int width_;
};
stage make_stage(int width);
int widen(stage& s, int by);

enum class axis : std::uint8_t { x, y };
struct tree {
  axis along;
  std::vector<tree> below;
  std::variant<std::monostate, std::pair<bool, char>> mark;
};
class with_format {
 public:
  static constexpr std::string_view weft_structure = "functions::with_format 3";
};
std::map<std::string, tree> everything(std::tuple<float, std::int64_t>,
                                       std::optional<std::complex<double>>,
                                       std::array<std::uint16_t, 3>, std::set<int>,
                                       std::unordered_multimap<int, with_format>,
                                       std::chrono::duration<std::int64_t, std::milli>,
                                       std::chrono::sys_time<std::chrono::duration<std::int64_t>>);
int widen_with(weft::worker&, stage& s, int by);

template <auto F, class... P>
constexpr bool takes = std::same_as<typename function<F>::parameters, std::tuple<P...>>;
template <auto F, class... P>
constexpr bool holds = std::same_as<typename function<F>::arguments, std::tuple<P...>>;
template <auto F, class R>
constexpr bool gives = std::same_as<typename function<F>::result, R>;

static_assert(takes<&scale, double, int> && holds<&scale, double, int> && gives<&scale, double>);
static_assert(takes<&scale_too, const double&, const int&> && holds<&scale_too, double, int>);
static_assert(takes<&quiet> && gives<&quiet, void>);
static_assert(takes<&greet, const std::string&, std::vector<int>> &&
              holds<&greet, std::string, std::vector<int>> && gives<&greet, std::string>);
static_assert(gives<&reference, std::string> && gives<&nothing, void> && gives<&quick, int>);
static_assert(holds<&move_only, std::unique_ptr<int>>);
static_assert(takes<&stage::forward, double> && gives<&stage::forward, double>);
static_assert(takes<&widen, int> && takes<&widen_with, int>);
static_assert(takes<&worker_in_second_place, int, weft::worker&>);
static_assert(takes<&stage::merge, stage&, int>);

TEST_CASE("function: where it runs stands in the return type") {
  CHECK(function<&scale>::style == function_style::plain);
  CHECK(function<&greet>::style == function_style::coroutine);
  CHECK(function<&nothing>::style == function_style::coroutine);
  CHECK(function<&quick>::style == function_style::immediate);
  CHECK(function<&stage::forward>::style == function_style::coroutine);
  CHECK(function<&stage::width>::style == function_style::plain);
}

TEST_CASE("function: a first parameter worker& or const caller& is injected") {
  CHECK(function<&scale>::injects == injection::none);
  CHECK(function<&greet>::injects == injection::worker);
  CHECK(function<&quick>::injects == injection::caller);
  CHECK(function<&widen_with>::injects == injection::worker);
  CHECK(function<&stage::forward>::injects == injection::worker);
  CHECK(function<&worker_in_second_place>::injects == injection::none);
}

TEST_CASE("function: the object is the class of a member, or T of a first T&") {
  CHECK(std::same_as<function<&scale>::object, void>);
  CHECK(std::same_as<function<&scale_too>::object, void>);
  CHECK(std::same_as<function<&stage::width>::object, stage>);
  CHECK(std::same_as<function<&stage::grow>::object, stage>);
  CHECK(std::same_as<function<&stage::merge>::object, stage>);
  CHECK(std::same_as<function<&stage::count>::object, void>);
  CHECK(std::same_as<function<&widen>::object, stage>);
  CHECK(std::same_as<function<&widen_with>::object, stage>);
  CHECK(function<&stage::grow>::is_member);
  CHECK_FALSE(function<&stage::count>::is_member);
  CHECK_FALSE(function<&widen>::is_member);
}

TEST_CASE("function: an ellipsis is seen") {
  CHECK(function<&ellipsis>::is_variadic);
  CHECK_FALSE(function<&scale>::is_variadic);
}

TEST_CASE("function: named keeps everything but the name") {
  using plain = function<&scale>;
  using renamed = function<named<"scale/2", &scale>>;
  CHECK(renamed::name() == "scale/2");
  CHECK(plain::name() == "functions::scale");
  CHECK(renamed::id() != plain::id());
  CHECK(renamed::signature == plain::signature);
  CHECK((renamed::pointer == plain::pointer));
  CHECK(std::same_as<renamed::parameters, plain::parameters>);
  CHECK(function<named<"width", &stage::width>>::is_member);
}

TEST_CASE("function: the signature is of values, result and style apart") {
  CHECK(function<&scale>::signature == function<&scale_too>::signature);
  CHECK(function<&scale>::signature != function<&scale_float>::signature);
  CHECK(function<&quiet>::signature == function<&nothing>::signature);
  CHECK(function<&widen>::signature == function<&widen_with>::signature);
  CHECK(function<&quick>::signature == function<&stage::count>::signature);
}

TEST_CASE("function: a result that cannot be described may stay at its owner") {
  CHECK(function<&make_stage>::signature != function<&stage::count>::signature);
  CHECK(std::same_as<function<&make_stage>::result, stage>);
}

TEST_CASE("function: a constructor makes a T of decayed arguments") {
  using made = function<weft::constructor<stage, const int&>>;
  CHECK(made::name() == "functions::stage::stage");
  CHECK(made::is_constructor);
  CHECK_FALSE(function<&make_stage>::is_constructor);
  CHECK(std::same_as<made::result, stage>);
  CHECK(std::same_as<made::arguments, std::tuple<int>>);
  CHECK(made::signature == function<&make_stage>::signature);
  using from_text = function<weft::constructor<stage, const char(&)[4], const char*>>;
  CHECK(std::same_as<from_text::arguments, std::tuple<std::string, std::string>>);
}

// These numbers are part of the protocol: every compiler must find them.
TEST_CASE("function: every compiler computes these very signatures") {
  CHECK(function<&scale>::signature == 0xd4446dd7u);
  CHECK(function<&quiet>::signature == 0x29620a93u);
  CHECK(function<&greet>::signature == 0x7b0680d2u);
  CHECK(function<&make_stage>::signature == 0xeb4235ddu);
  CHECK(function<&stage::forward>::signature == 0x1b9366f3u);
  CHECK(function<&move_only>::signature == 0xb98d8244u);
  CHECK(function<weft::constructor<stage, const int&>>::signature == 0xeb4235ddu);
  CHECK(function<&everything>::signature == 0x79a7cbebu);
}

}  // namespace functions
