// SPDX-License-Identifier: BSL-1.0
// Names the members of an aggregate by structured binding, one case for each count up to 32.
// Only weft/wire/detail/aggregate.hpp includes this.
#pragma once

#include <cstddef>
#include <tuple>

namespace weft::detail {

// What one structured binding gave: the members as declared (arrays and references kept as they
// are, cv of the object added) and references to them.
template <class... Members>
struct bound_members {
  using types = std::tuple<Members...>;
  std::tuple<Members&...> references;
};

// The lists m0, m1, ... are written by the preprocessor, because a structured binding cannot
// introduce a pack before C++26. All of these macros are gone at the end of this file.
#define WEFT_LIST_1(X) X(0)
#define WEFT_LIST_2(X) WEFT_LIST_1(X), X(1)
#define WEFT_LIST_3(X) WEFT_LIST_2(X), X(2)
#define WEFT_LIST_4(X) WEFT_LIST_3(X), X(3)
#define WEFT_LIST_5(X) WEFT_LIST_4(X), X(4)
#define WEFT_LIST_6(X) WEFT_LIST_5(X), X(5)
#define WEFT_LIST_7(X) WEFT_LIST_6(X), X(6)
#define WEFT_LIST_8(X) WEFT_LIST_7(X), X(7)
#define WEFT_LIST_9(X) WEFT_LIST_8(X), X(8)
#define WEFT_LIST_10(X) WEFT_LIST_9(X), X(9)
#define WEFT_LIST_11(X) WEFT_LIST_10(X), X(10)
#define WEFT_LIST_12(X) WEFT_LIST_11(X), X(11)
#define WEFT_LIST_13(X) WEFT_LIST_12(X), X(12)
#define WEFT_LIST_14(X) WEFT_LIST_13(X), X(13)
#define WEFT_LIST_15(X) WEFT_LIST_14(X), X(14)
#define WEFT_LIST_16(X) WEFT_LIST_15(X), X(15)
#define WEFT_LIST_17(X) WEFT_LIST_16(X), X(16)
#define WEFT_LIST_18(X) WEFT_LIST_17(X), X(17)
#define WEFT_LIST_19(X) WEFT_LIST_18(X), X(18)
#define WEFT_LIST_20(X) WEFT_LIST_19(X), X(19)
#define WEFT_LIST_21(X) WEFT_LIST_20(X), X(20)
#define WEFT_LIST_22(X) WEFT_LIST_21(X), X(21)
#define WEFT_LIST_23(X) WEFT_LIST_22(X), X(22)
#define WEFT_LIST_24(X) WEFT_LIST_23(X), X(23)
#define WEFT_LIST_25(X) WEFT_LIST_24(X), X(24)
#define WEFT_LIST_26(X) WEFT_LIST_25(X), X(25)
#define WEFT_LIST_27(X) WEFT_LIST_26(X), X(26)
#define WEFT_LIST_28(X) WEFT_LIST_27(X), X(27)
#define WEFT_LIST_29(X) WEFT_LIST_28(X), X(28)
#define WEFT_LIST_30(X) WEFT_LIST_29(X), X(29)
#define WEFT_LIST_31(X) WEFT_LIST_30(X), X(30)
#define WEFT_LIST_32(X) WEFT_LIST_31(X), X(31)
#define WEFT_NAME(i) m##i
#define WEFT_TYPE(i) decltype(m##i)
#define WEFT_CASE(n)                                                                               \
  else if constexpr (Count == n) {                                                                 \
    auto& [WEFT_LIST_##n(WEFT_NAME)] = object;                                                     \
    return bound_members<WEFT_LIST_##n(WEFT_TYPE)>{{WEFT_LIST_##n(WEFT_NAME)}};                    \
  }

// clang-format off
template <std::size_t Count, class T>
constexpr auto bind_members([[maybe_unused]] T& object) noexcept {
  if constexpr (Count == 0) {
    return bound_members<>{};
  }
  WEFT_CASE(1) WEFT_CASE(2) WEFT_CASE(3) WEFT_CASE(4)
  WEFT_CASE(5) WEFT_CASE(6) WEFT_CASE(7) WEFT_CASE(8)
  WEFT_CASE(9) WEFT_CASE(10) WEFT_CASE(11) WEFT_CASE(12)
  WEFT_CASE(13) WEFT_CASE(14) WEFT_CASE(15) WEFT_CASE(16)
  WEFT_CASE(17) WEFT_CASE(18) WEFT_CASE(19) WEFT_CASE(20)
  WEFT_CASE(21) WEFT_CASE(22) WEFT_CASE(23) WEFT_CASE(24)
  WEFT_CASE(25) WEFT_CASE(26) WEFT_CASE(27) WEFT_CASE(28)
  WEFT_CASE(29) WEFT_CASE(30) WEFT_CASE(31) WEFT_CASE(32)
}
// clang-format on

#undef WEFT_CASE
#undef WEFT_TYPE
#undef WEFT_NAME
#undef WEFT_LIST_32
#undef WEFT_LIST_31
#undef WEFT_LIST_30
#undef WEFT_LIST_29
#undef WEFT_LIST_28
#undef WEFT_LIST_27
#undef WEFT_LIST_26
#undef WEFT_LIST_25
#undef WEFT_LIST_24
#undef WEFT_LIST_23
#undef WEFT_LIST_22
#undef WEFT_LIST_21
#undef WEFT_LIST_20
#undef WEFT_LIST_19
#undef WEFT_LIST_18
#undef WEFT_LIST_17
#undef WEFT_LIST_16
#undef WEFT_LIST_15
#undef WEFT_LIST_14
#undef WEFT_LIST_13
#undef WEFT_LIST_12
#undef WEFT_LIST_11
#undef WEFT_LIST_10
#undef WEFT_LIST_9
#undef WEFT_LIST_8
#undef WEFT_LIST_7
#undef WEFT_LIST_6
#undef WEFT_LIST_5
#undef WEFT_LIST_4
#undef WEFT_LIST_3
#undef WEFT_LIST_2
#undef WEFT_LIST_1

}  // namespace weft::detail
