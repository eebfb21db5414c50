// SPDX-License-Identifier: BSL-1.0
// A pass that ends while memory lacks: until its end is told it is not over, and ends anew.
#include "shortage.hpp"
#include <weft/autograd/wave.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace poor_waves {

using namespace weft::autograd;
using weft::testing::shortage;

constexpr pass_id first_pass{1, 0, 1};

/// One node, which left with message 1 to worker 1.
struct one_send {
  template <class F>
  void next(node_index, F&&) {}
  std::optional<peer_message> receive(node_index) { return std::nullopt; }
  std::optional<send_point> send(message_id m) {
    return m == 1 ? std::optional(send_point{0, 1}) : std::nullopt;
  }
  std::size_t messages(worker_rank) { return 1; }
  template <class F>
  void each_send(F&& meet) {
    meet(send_point{0, 1});
  }
  void freeze() {}
};

/// One node, which came with message 1 of worker 1.
struct one_receive {
  template <class F>
  void next(node_index, F&&) {}
  std::optional<peer_message> receive(node_index) { return {{1, 1, first_pass.context}}; }
  std::optional<send_point> send(message_id) { return std::nullopt; }
  std::size_t messages(worker_rank) { return 0; }
  template <class F>
  void each_send(F&&) {}
  void freeze() {}
};

template <class T>
std::size_t count(const outputs& all) {
  return static_cast<std::size_t>(std::count_if(
      all.begin(), all.end(), [](const output& o) { return std::holds_alternative<T>(o); }));
}

/// Begins a pass, ends it by `last`, each of whose allocations fails once.
void at_every_point(const std::vector<input>& before, const input& last,
                    const std::function<void(const outputs&)>& check) {
  int failed = 0;
  bool struck = true;
  for (long n = 1; struck && n < 50; ++n) {
    CAPTURE(n);
    one_receive g;
    wave w(first_pass, 0, 2);
    static_cast<void>(w.step(begin{{0}}, g));
    for (const input& i : before) static_cast<void>(w.step(i, g));
    REQUIRE_FALSE(w.over());
    outputs out;
    try {
      const shortage now(n, 0);
      out = w.step(last, g);
      struck = shortage::struck();
    } catch (const std::bad_alloc&) {
      ++failed;
      CHECK_FALSE(w.over());
      out = w.step(weft::autograd::failed{abort_reason::failed, "no memory"}, g);
      CHECK(count<transmit>(out) == 1);
      CHECK(count<aborted>(out) == 1);
      CHECK(w.over());
      continue;
    }
    CHECK(w.over());
    check(out);
  }
  CHECK_FALSE(struck);
  CHECK(failed > 0);
}

TEST_CASE("shortage: a pass that could not be given up is not over, and can be given up again") {
  at_every_point({}, weft::autograd::failed{abort_reason::failed, std::string(100, 'x')},
                 [](const outputs& out) {
                   CHECK(count<transmit>(out) == 1);
                   CHECK(count<aborted>(out) == 1);
                 });
}

TEST_CASE("shortage: a pass whose success could not be told has not ended") {
  at_every_point({drained{}, arrived{1, ack_message{0, {1}}}}, arrived{1, done_message{}},
                 [](const outputs& out) {
                   CHECK(count<transmit>(out) == 1);
                   CHECK(count<commit>(out) == 1);
                   CHECK(count<finished>(out) == 1);
                 });
}

TEST_CASE("shortage: whoever could not say done has not promised, and can give the pass up") {
  const pass_id of_another{1, 1, 1};
  bool struck = true;
  int failed = 0;
  for (long n = 1; struck && n < 50; ++n) {
    CAPTURE(n);
    one_send g;
    wave w(of_another, 0, 2);
    const need_message need{0, graph_retention::release, {1}, need_reply::own};
    REQUIRE(count<launch>(w.step(arrived{1, need}, g)) == 1);
    outputs said;
    try {
      const shortage now(n, 0);
      said = w.step(drained{}, g);
      struck = shortage::struck();
    } catch (const std::bad_alloc&) {
      ++failed;
      CHECK_FALSE(w.promised());
      const outputs out = w.step(weft::autograd::failed{abort_reason::failed, "no memory"}, g);
      CHECK(count<transmit>(out) == 1);
      CHECK(count<aborted>(out) == 1);
      CHECK(w.over());
      continue;
    }
    CHECK(count<transmit>(said) == 1);
    CHECK(w.promised());
  }
  CHECK_FALSE(struck);
  CHECK(failed > 0);
}

}  // namespace poor_waves
