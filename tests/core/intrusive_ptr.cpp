// SPDX-License-Identifier: BSL-1.0
#include <weft/core/intrusive_ptr.hpp>

#include <doctest/doctest.h>

#include <thread>
#include <utility>
#include <vector>

namespace core_ref {

using weft::intrusive_ptr;
using weft::make_intrusive;

struct counted : weft::ref_counted {
  explicit counted(int& count) : alive(count) { ++alive; }
  ~counted() override { --alive; }
  int& alive;
};
struct derived final : counted {
  using counted::counted;
};

TEST_CASE("ref: the last handle destroys the object") {
  int alive = 0;
  {
    const intrusive_ptr<counted> a = make_intrusive<counted>(alive);
    CHECK(a->unique());
    {
      const intrusive_ptr<counted> b = a;  // NOLINT: a second handle is what is tested
      CHECK_FALSE(a->unique());
      CHECK(a == b);
    }
    CHECK(a->unique());
    CHECK(alive == 1);
  }
  CHECK(alive == 0);
}

TEST_CASE("ref: moving leaves nothing behind") {
  int alive = 0;
  intrusive_ptr<counted> a = make_intrusive<counted>(alive);
  intrusive_ptr<counted> b = std::move(a);
  CHECK_FALSE(a);  // NOLINT: a moved-from ref is null
  CHECK(b->unique());
  b = nullptr;
  CHECK(alive == 0);
}

TEST_CASE("ref: assignment to itself keeps the object") {
  int alive = 0;
  intrusive_ptr<counted> a = make_intrusive<counted>(alive);
  intrusive_ptr<counted>& same = a;
  a = same;
  CHECK(alive == 1);
  a = std::move(same);
  CHECK(alive == 1);
  CHECK(a->unique());
}

TEST_CASE("ref: a base handle destroys the derived object") {
  int alive = 0;
  {
    intrusive_ptr<counted> base = make_intrusive<derived>(alive);
    const intrusive_ptr<const counted> constant = base;
    CHECK(constant.get() == base.get());
  }
  CHECK(alive == 0);
}

TEST_CASE("ref: detach gives the count away, a plain pointer can be taken up again") {
  int alive = 0;
  intrusive_ptr<counted> a = make_intrusive<counted>(alive);
  counted* const raw = a.detach();
  CHECK_FALSE(a);
  CHECK(alive == 1);
  {
    const intrusive_ptr<counted> b(raw);
    CHECK_FALSE(raw->unique());
  }
  raw->release();
  CHECK(alive == 0);
}

TEST_CASE("ref: handles of several threads share one object") {
  int alive = 0;
  intrusive_ptr<counted> a = make_intrusive<counted>(alive);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([mine = a] {
      for (int i = 0; i < 2000; ++i) {
        const intrusive_ptr<counted> copy = mine;  // NOLINT: copying is what is tested
        if (!copy) return;
      }
    });
  }
  a = nullptr;
  for (std::thread& t : threads) t.join();
  threads.clear();
  CHECK(alive == 0);
}

}  // namespace core_ref
