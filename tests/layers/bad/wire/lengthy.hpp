// SPDX-License-Identifier: BSL-1.0
// A class that is not seen whole.
#pragma once

namespace weft {
namespace detail {
class lengthy_state;
struct other;
inline int g0() { return 0; }
inline int g1() { return 1; }
inline int g2() { return 2; }
inline int g3() { return 3; }
inline int g4() { return 4; }
inline int g5() { return 5; }
inline int g6() { return 6; }
inline int g7() { return 7; }
inline int g8() { return 8; }
inline int g9() { return 9; }
inline int g10() { return 10; }
inline int g11() { return 11; }
}  // namespace detail

/// A short one of another name.
struct brief {
};

/// Its own.
class lengthy {
 public:
  int m29();
  int m30();
  int m31();
  int m32();
  int m33();
  int m34();
  int m35();
  int m36();
  int m37();
  int m38();
  int m39();
  int m40();
  int m41();
  int m42();
  int m43();
  int m44();
  int m45();
  int m46();
  int m47();
  int m48();
  int m49();
  int m50();
  int m51();
  int m52();
  int m53();
  int m54();
  int m55();
  int m56();
  int m57();
  int m58();
  int m59();
  int m60();
  int m61();
  int m62();
  int m63();
  int m64();
  int m65();
  int m66();
  int m67();
  int m68();
  int m69();
  int m70();
  int m71();
  int m72();
  int m73();
  int m74();
  int m75();
  int m76();
  int m77();
  int m78();
  int m79();
  int m80();
  int m81();
  int m82();
  int m83();
  int m84();
  int m85();
  int m86();
  int m87();
  int m88();
  int m89();
  int m90();
  int m91();
  int m92();
  int m93();
  int m94();
  int m95();
  int m96();
  int m97();
  int m98();
  int m99();
  int m100();
  int m101();
  int m102();
  int m103();
  int m104();
  int m105();
  int m106();
  int m107();
  int m108();
  int m109();
};

/// Another, which may be anywhere.
struct behind {
};
}  // namespace weft
