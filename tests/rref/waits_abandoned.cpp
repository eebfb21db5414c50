// SPDX-License-Identifier: BSL-1.0
// The waits of references, abandoned: calls and copies of an object that is still being made.
#include "pure.hpp"

#include <rpc/live_abandoned.hpp>

namespace abandoned_references {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::call_progress;
using weft::duration;
using weft::errc;
using weft::options;
using weft::rref;
using weft::within;

/// What the constructors and functions of one way wait for.
struct entrance {
  gate door;
  std::atomic<int> made{0};
};
std::atomic<entrance*> the_entrance{nullptr};

struct late {
  int value;
  explicit late(int v) : value((the_entrance.load()->door.pass(), v)) {
    ++the_entrance.load()->made;
  }
  int plain(int x) { return value + x; }
  asio::awaitable<int> coroutine(int x) { co_return value + x; }
  weft::immediate<int> light(int x) { return value + x; }
};
int late_number(int v) {
  the_entrance.load()->door.pass();
  ++the_entrance.load()->made;
  return v;
}
/// A CHECK would take what the call throws.
void check_is(int wanted, int result) { CHECK(result == wanted); }

/// What is made late, and how.
struct by_constructor {
  using made = late;
  static rref<late> at(const weft::peer& there) { return there.make<late>(5); }
};
struct by_function {
  using made = int;
  static rref<int> at(const weft::peer& there) { return there.remote<&late_number>(5); }
};

/// Member `At` makes the object; worker 1 waits for it.
template <class How, std::uint32_t At>
class with_object : public live_scene<weft::rref_service> {
 public:
  static constexpr bool of_a_link = At == there;
  static constexpr errc lost = errc::rref_owner_died;
  /// Its function has not begun; whether the call was heard of, the caller does not know.
  static constexpr got_as_far_as went{call_progress::not_executed, call_progress::maybe_executed};
  with_object(over how, unsigned io_threads) : live_scene(how, two_at_once(io_threads)) {
    the_entrance = &entrance_;
  }
  ~with_object() { entrance_.door.open(); }
  void prepare() {
    on(me(), [this] { object_ = How::at(me().peer(At)); });
    until("it is being made", [this] { return entrance_.door.arrived() == 1; });
  }
  [[nodiscard]] bool waits() { return waiting(all(), At) > 0; }
  void complete() { entrance_.door.open(); }
  [[nodiscard]] bool arrives() const { return entrance_.made > 0; }
  void check_nothing_left() {
    until("no call waits for an object", [this] { return waiting(all(), At) == 0; });
    on(me(), [this] { object_ = {}; });
    until("no reference is left", [this] {
      for (std::uint32_t r = 0; r < all().size(); ++r) {
        if (!rrefs(all(), r).idle()) return false;
      }
      return true;
    });
  }

 protected:
  rref<typename How::made> object_;

 private:
  static options two_at_once(unsigned io_threads) {
    options o = with_io_threads(io_threads);
    o.compute_threads = 2;
    return o;
  }
  entrance entrance_;
};

/// Waits for the reply of a member function, which waits for its object.
template <auto M, std::uint32_t At>
struct for_object : with_object<by_constructor, At> {
  using with_object<by_constructor, At>::with_object;
  asio::awaitable<void> wait(duration limit) {
    check_is(6, co_await this->object_.template call<M>(1, within(limit)));
  }
  asio::awaitable<void> again() {
    check_is(6, co_await this->object_.template call<&late::plain>(1));
  }
};
using for_plain = for_object<&late::plain, 2>;
using for_coroutine = for_object<&late::coroutine, 2>;
using for_light = for_object<&late::light, 2>;
using for_own_plain = for_object<&late::plain, 1>;
using for_own_coroutine = for_object<&late::coroutine, 1>;

/// Waits for the future of such a call.
template <std::uint32_t At>
struct for_started : for_object<&late::plain, At> {
  using for_object<&late::plain, At>::for_object;
  asio::awaitable<void> wait(duration limit) {
    auto started = this->object_.template start<&late::plain>(1, within(limit));
    check_is(6, co_await std::move(started));
  }
};

/// Waits for a copy of what is made of the object, and waits for it first.
template <std::uint32_t At>
struct for_chain : with_object<by_constructor, At> {
  using with_object<by_constructor, At>::with_object;
  asio::awaitable<void> wait(duration limit) {
    const rref<int> sum = this->object_.template remote<&late::plain>(1);
    check_is(6, co_await sum.to_here(within(limit)));
  }
  [[nodiscard]] bool waits() { return waiting(this->all(), At) == 2; }
  asio::awaitable<void> again() { return wait(1h); }
};

/// Waits for a copy of what a function returns.
template <std::uint32_t At>
struct for_copy : with_object<by_function, At> {
  using with_object<by_function, At>::with_object;
  asio::awaitable<void> wait(duration limit) {
    check_is(5, co_await this->object_.to_here(within(limit)));
  }
  asio::awaitable<void> again() { check_is(5, co_await this->object_.to_here()); }
};

TEST_CASE_TEMPLATE("abandoned: a call of an object that is being made", W, for_plain, for_coroutine,
                   for_light, for_own_plain, for_own_coroutine, elsewhere<for_plain>) {
  abandon_live<W>();
}
TEST_CASE_TEMPLATE("abandoned: the future of such a call", W, for_started<2>, for_started<1>) {
  abandon_live<W>();
}
TEST_CASE_TEMPLATE("abandoned: a copy of an object that is being made", W, for_copy<2>, for_copy<1>,
                   elsewhere<for_copy<2>>) {
  abandon_live<W>();
}
TEST_CASE_TEMPLATE("abandoned: a copy of what is made of such an object", W, for_chain<2>,
                   for_chain<1>) {
  abandon_live<W>();
}

}  // namespace abandoned_references
