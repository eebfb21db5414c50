// SPDX-License-Identifier: BSL-1.0
// Links that are made when they are first asked for.
#include <weft/engine/link/link_table.hpp>
#include <weft/sim/world.hpp>

#include <asio/io_context.hpp>
#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace link_tables {

using weft::engine::link;
using weft::engine::link_table;

asio::awaitable<void> nothing(weft::worker&) { co_return; }

/// A worker to which nothing happens, and a table of links of its.
struct scene {
  explicit scene(std::uint32_t workers) : world(1, {.workers = workers}) { world.start(&nothing); }
  weft::sim::world world;
  asio::io_context io;
  std::atomic<int> made{0};
  link_table links{world.size(), [this](std::uint32_t rank) {
                     ++made;
                     return weft::make_intrusive<link>(world.at(0).worker(), rank, io);
                   }};
};

std::vector<std::uint32_t> ranks(const link_table& links) {
  std::vector<std::uint32_t> out;
  for (const link& l : links) out.push_back(l.rank());
  return out;
}

TEST_CASE("link_table: a link is made once, when it is asked for, and found by rank") {
  scene s(5);
  CHECK(ranks(s.links).empty());
  CHECK(s.links.find(3) == nullptr);
  link& third = s.links[3];
  CHECK(third.rank() == 3);
  CHECK(&s.links[3] == &third);
  CHECK(s.links.find(3) == &third);
  for (const std::uint32_t r : {0u, 4u, 2u}) CHECK(s.links[r].rank() == r);
  CHECK(ranks(s.links) == std::vector<std::uint32_t>{0, 2, 3, 4});
  CHECK(s.made == 4);
}

TEST_CASE("link_table: what was done to all is done to a later one before anybody has it") {
  scene s(3);
  CHECK(s.links[1].current_state() == link::state::idle);
  s.links.do_to_all([](link& l) { l.close(); });
  CHECK(s.links[1].current_state() == link::state::down);
  CHECK(s.links[2].current_state() == link::state::down);
  CHECK(s.links[2].reason() == weft::errc::shutting_down);
}

TEST_CASE("link_table: many threads that ask for the same links get the same ones") {
  constexpr std::uint32_t all = 40;
  scene s(all);
  std::vector<std::vector<link*>> got(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < got.size(); ++t) {
    threads.emplace_back([&s, &mine = got[t], t] {
      for (std::uint32_t i = 0; i < all; ++i) {
        const std::uint32_t rank = t % 2 == 0 ? i : all - 1 - i;
        link& l = s.links[rank];
        bool found = false;
        for (const link& other : s.links) found = found || &other == &l;
        mine.push_back(found && l.rank() == rank ? &l : nullptr);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(s.made == static_cast<int>(all));
  for (std::size_t t = 0; t < got.size(); ++t) {
    for (std::uint32_t i = 0; i < all; ++i) {
      CHECK(got[t][i] == s.links.find(t % 2 == 0 ? i : all - 1 - i));
    }
  }
  CHECK(ranks(s.links).size() == all);
}

}  // namespace link_tables
