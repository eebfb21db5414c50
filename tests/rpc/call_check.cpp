// SPDX-License-Identifier: BSL-1.0
#include <weft/rpc/detail/call_check.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace call_checks {

using namespace weft::detail;
using namespace std::chrono_literals;

double scale(double x, int by);
void none();
asio::awaitable<int> greet(weft::worker&, const std::string&, std::vector<int>);
weft::immediate<int> quick(const weft::caller&, int);
int takes_owner(std::unique_ptr<int>);

class stage {
 public:
  stage(int, std::string) {}
  int width() const;
  asio::awaitable<int> forward(weft::worker&, double);
};
class wide_stage : public stage {};
int widen(weft::worker&, stage&, int);
stage make_stage(int);

// What may be called is accepted.
static_assert(check_call<&scale, double, int>());
static_assert(check_call<&scale, int&, const long&>());
static_assert(check_call<&scale, double, int, weft::within>());
static_assert(check_call<&scale, double, int, weft::within&, const weft::as_expected_t&>());
static_assert(check_call<&none>());
static_assert(check_call<&none, weft::within>());
static_assert(check_call<&greet, const char (&)[6], std::vector<int>>());
static_assert(check_call<weft::named<"q", &quick>, int>());
static_assert(check_call<&takes_owner, std::unique_ptr<int>>());
static_assert(check_object_call<&stage::width, stage>());
static_assert(check_object_call<&stage::width, wide_stage>());
static_assert(check_object_call<&stage::forward, stage, double, weft::within>());
static_assert(check_object_call<&widen, stage, int>());
static_assert(check_make<stage, int, const char (&)[3]>());
static_assert(check_result<&scale>() && check_result<&none>() && check_result<&greet>());

TEST_CASE("call check: options are told from arguments, and come last") {
  CHECK(options_come_last<>);
  CHECK(options_come_last<false, false>);
  CHECK(options_come_last<false, true, true>);
  CHECK(options_come_last<true>);
  CHECK_FALSE(options_come_last<true, false>);
  CHECK_FALSE(options_come_last<false, true, false>);
  CHECK(arguments_before_options<false, false, true>() == 2);
  CHECK(arguments_before_options<true>() == 0);
}

TEST_CASE("call check: the types of arguments") {
  CHECK(argument_converts<&scale, 1, int, double>);
  CHECK_FALSE(argument_converts<&scale, 1, std::string, double>);
  CHECK_FALSE(argument_converts<&takes_owner, 1, std::unique_ptr<int>&, std::unique_ptr<int>>);
}

TEST_CASE("call check: what a function is called on") {
  CHECK(called_on_a_peer<&scale>);
  CHECK_FALSE(called_on_a_peer<&stage::width>);
  CHECK_FALSE(called_on_a_peer<&widen>);
  CHECK_FALSE(called_on_an_object<&scale, stage>);
  CHECK_FALSE(called_on_an_object<&stage::width, std::string>);
  CHECK_FALSE(called_on_an_object<&widen, wide_stage>);
}

TEST_CASE("call check: parameters that cannot cross to another process") {
  CHECK_FALSE(no_mutable_reference<&scale, 1, int&>);
  CHECK(no_mutable_reference<&scale, 1, const int&>);
  CHECK_FALSE(no_rvalue_reference<&scale, 1, int&&>);
  CHECK_FALSE(no_pointer<&scale, 1, const char*>);
  CHECK_FALSE(no_pointer<&scale, 1, int* const&>);
  CHECK_FALSE(no_pointer<&scale, 1, int stage::*>);
  CHECK_FALSE(no_view<&scale, 1, std::string_view>);
  CHECK_FALSE(no_view<&scale, 1, const std::span<int, 3>&>);
  CHECK_FALSE(no_view<&scale, 1, std::initializer_list<int>>);
  CHECK_FALSE(can_be_sent<&scale, 1, std::vector<std::string_view>>);
  CHECK_FALSE(can_be_sent<&scale, 1, stage>);
  CHECK_FALSE(injected_type_comes_first<&scale, 2, weft::worker&>);
  CHECK_FALSE(injected_type_comes_first<&scale, 1, weft::caller>);
  CHECK_FALSE(result_can_be_sent<&make_stage, stage>);
}

TEST_CASE("call check: positions are those of the declaration") {
  CHECK(first_position<&scale> == 1);
  CHECK(first_position<&greet> == 2);
  CHECK(first_position<&widen> == 3);
  CHECK(first_position<&stage::forward> == 2);
}

}  // namespace call_checks
