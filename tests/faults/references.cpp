// SPDX-License-Identifier: BSL-1.0
// Memory lacks wherever a reference is made, used, handed on or dropped: whoever asked is told, no
// book keeps anything, and the next use works.
#include "boxes.hpp"
#include <weft/rpc/peer.hpp>
#include <weft/rref/published.hpp>

#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace poor_references {

using namespace weft::testing;
using weft::rref;
using weft::worker;

box boxed(std::string text) { return {std::move(text)}; }
asio::awaitable<int> look(rref<box> r) { return r.call<&box::size>(); }
int add(int a, int b) { return a + b; }

enum class way : std::uint8_t {
  make,
  remote,
  call,
  start,
  to_here,
  remote_of_it,
  hand_on,
  hand_on_by_post,
  share,
  drop,
  last
};

/// What a way leaves behind that must be awaited or used.
struct begun {
  std::optional<weft::future<int>> number;
  std::optional<weft::future<box>> copy;
  rref<box> made;
  rref<std::string> spelled;
};

/// Under the shortage of its caller.
void begin(worker& me, way how, int rank, const std::string& text, rref<box>& r, begun& out) {
  switch (how) {
  case way::make:
    out.made = me.peer(rank).make<box>(text);
    break;
  case way::remote:
    out.made = me.peer(rank).remote<&boxed>(text);
    break;
  case way::call:
    out.number = me.spawn(r.call<&box::size>());
    break;
  case way::start:
    out.number = r.start<&box::size_later>();
    break;
  case way::to_here:
    out.copy = me.spawn(r.to_here());
    break;
  case way::remote_of_it:
    out.spelled = r.remote<&box::spell>();
    break;
  case way::hand_on:
    out.number = me.peer(2).start<&look>(r);
    break;
  case way::hand_on_by_post:
    me.peer(2).post<&look>(r);
    break;
  case way::share:
    out.made = me.share(box{text});
    break;
  case way::drop:
    r = {};
    break;
  case way::last:
    break;
  }
}

/// What the way's work, or the first use of what it made, ended with.
asio::awaitable<std::exception_ptr> end(begun& b) {
  if (b.number) co_return co_await end_of(std::move(*b.number).get());
  if (b.copy) co_return co_await end_of(std::move(*b.copy).get());
  if (b.made) co_return co_await end_of(b.made.call<&box::size>());
  if (b.spelled) co_return co_await end_of(b.spelled.to_here());
  co_return nullptr;
}

asio::awaitable<bool> all_points(pure_cluster& all, worker& me, way how, int rank, long further) {
  bool well = true;
  const std::string text(large, 'x');
  const points met = co_await at_every_point(400, [&](int n) -> asio::awaitable<outcome> {
    rref<box> r = me.peer(rank).make<box>(text);
    CHECK(co_await r.call<&box::size>() == static_cast<int>(large));
    begun b;
    outcome now;
    std::exception_ptr thrown;
    {
      const shortage lack(n, further);
      try {
        begin(me, how, rank, text, r, b);
      } catch (...) {
        thrown = std::current_exception();
      }
      now.struck = shortage::struck();
    }
    if (!thrown) thrown = co_await end(b);
    if (thrown) {
      now.failed = true;
      CHECK(not_a_shortage(thrown) == "");
    }
    if (r) CHECK(co_await r.call<&box::size_later>() == static_cast<int>(large));
    r = {};
    b = {};
    CHECK(co_await me.peer(rank).call<&add>(20, 22) == 42);
    // What a step could not do for want of memory is done by the next one.
    static_cast<void>(me.share(box{text}));
    well = co_await all_is_well(all, me);
    if (!well) now.struck = false;
    co_return now;
  });
  if (how != way::drop) CHECK(met.failed > 0);  // that needs no memory
  co_return well;
}

void with_each_way(over medium, unsigned io_threads) {
  CAPTURE(name_of(medium));
  CAPTURE(io_threads);
  run_pure(3, medium, io_threads, [](pure_cluster& all, worker& me) -> asio::awaitable<void> {
    CHECK(co_await me.peer(2).call<&add>(1, 2) == 3);
    for (const int rank : {1, 0}) {
      for (int i = 0; i < static_cast<int>(way::last); ++i) {
        for (const long further : {0L, 40L, all_of_them}) {
          CAPTURE(rank);
          CAPTURE(i);
          CAPTURE(further);
          if (!co_await all_points(all, me, static_cast<way>(i), rank, further)) co_return;
        }
      }
    }
  });
}

TEST_CASE(
    "shortage: wherever memory lacks for a reference, its user is told, and no book keeps it") {
  with_each_way(over::tcp, 0);
  with_each_way(over::tcp, 1);
  with_each_way(over::inproc, 0);
}

void show(worker& me, std::string name) { me.publish(std::move(name), me.share(box{"shown"})); }

bool hide(worker& me, std::string name) { return me.unpublish(name); }

TEST_CASE("shortage: a lookup that delivers errors delivers its want of memory") {
  run_pure(2, over::tcp, 1, [](pure_cluster&, worker& me) -> asio::awaitable<void> {
    const std::string name = "shown under a name that is kept elsewhere";
    co_await me.peer(1).call<&show>(name);
    const points met = co_await at_every_point(200, [&](int n) -> asio::awaitable<outcome> {
      outcome now;
      auto looking = me.peer(1).lookup<box>(name, weft::as_expected);
      weft::expected<rref<box>> found = weft::unexpected(weft::error(weft::errc::cancelled));
      shortage::arm(n, 0);
      try {
        found = co_await std::move(looking);
        now.struck = shortage::struck();
        now.failed = !found;
      } catch (const std::exception& e) {
        FAIL_CHECK(e.what());
      }
      shortage::disarm();
      if (!found) CHECK(found.error() == weft::errc::resource_exhausted);
      co_return now;
    });
    CHECK(met.failed >= 3);
    CHECK(co_await me.peer(1).call<&hide>(name));
  });
}

}  // namespace poor_references
