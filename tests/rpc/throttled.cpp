// SPDX-License-Identifier: BSL-1.0
// Requests that wait until replies are written begin in order, and wait for no thread of the pool.
#include <weft/rpc/expose.hpp>
#include <weft/rpc/peer.hpp>

#include <asio/post.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <core/bounded_wait.hpp>
#include <core/for_ever.hpp>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <rpc/cluster.hpp>
#include <rpc/raw_peer.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace throttled_requests {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::immediate;
using weft::worker;

/// More than the kernel takes for who does not read.
constexpr std::size_t much = std::size_t{64} << 20;

std::shared_future<void> opened;  // of the scene's door
std::atomic<int> begun{0};
immediate<std::string> big() { return std::string(much, 'x'); }
void at_door() {
  ++begun;
  opened.wait_for(30s);  // not for ever, so that a failed test ends
}
void plain() { ++begun; }
asio::awaitable<void> coroutine() {
  ++begun;
  co_return;
}
immediate<void> last() { return {}; }
std::mutex notes_mutex;
std::vector<std::uint64_t> notes;
immediate<void> note(std::uint64_t i) {
  const std::lock_guard lock(notes_mutex);
  notes.push_back(i);
  return {};
}
[[maybe_unused]] void known_here() {
  weft::expose<&big>();
  weft::expose<&at_door>();
  weft::expose<&plain>();
  weft::expose<&coroutine>();
  weft::expose<&last>();
  weft::expose<&note>();
}

asio::awaitable<void> serve(worker&) { co_await for_ever(); }

/// Worker 0, which is to end also when the test fails; the test plays worker 1.
class scene {
 public:
  explicit scene(const weft::options& o) : workers_(1, over::tcp, o, 1) {
    opened = door_.get_future().share();
    begun = 0;
    workers_.start(serve);
  }
  ~scene() {
    open();
    workers_.stop();
    static_cast<void>(workers_.join());
  }
  [[nodiscard]] raw_peer connect() {
    raw_peer p(workers_.members().members[0].addresses[0].endpoint);
    REQUIRE(p.greet(workers_.members(), 1, 0));
    return p;
  }
  void open() {
    if (!std::exchange(open_, true)) door_.set_value();
  }
  [[nodiscard]] worker& me() { return workers_.at(0); }

 private:
  std::promise<void> door_;
  bool open_ = false;
  cluster workers_;
};

template <auto& F>
weft::frame request(std::uint64_t call) {
  using f = weft::function<&F>;
  weft::frame_header h;
  h.call = call;
  h.function = f::id();
  h.signature = f::signature;
  return weft::message().finish(h);
}

/// What had been posted to `where` has run.
template <class Where>
void catch_up(Where& where) {
  const auto done = std::make_shared<std::promise<void>>();
  asio::post(where, [done] { done->set_value(); });
  REQUIRE(done->get_future().wait_for(wait_patience) == std::future_status::ready);
}

TEST_CASE(
    "throttled: a coroutine function does not wait behind a plain one for the pool's thread") {
  for (const unsigned io_threads : io_ways()) {
    CAPTURE(io_threads);
    weft::options o = with_io_threads(io_threads);
    o.compute_threads = 1;
    o.window_bytes = 64 * 1024;
    o.lost_after = {};  // the raw peer gives no signs of life
    scene s(o);
    raw_peer p = s.connect();
    // When a request has arrived, those before it are where they begin, or do not.
    const auto arrive = [&](std::uint64_t all) {
      REQUIRE(p.send(request<last>(all)));
      for (bounded_wait until("all have arrived"); until.not_yet(s.me().stats().served == all);) {
        std::this_thread::sleep_for(1ms);
      }
    };
    enum : std::uint64_t { the_big = 1, at_the_door, behind, of_coroutine = 5, all = 6 };
    REQUIRE(p.send(request<big>(the_big)));
    REQUIRE(p.send(request<at_door>(at_the_door)));
    REQUIRE(p.send(request<plain>(behind)));
    arrive(behind + 1);
    catch_up(s.me().compute_pool());  // both have asked there whether they may begin
    REQUIRE(p.send(request<coroutine>(of_coroutine)));
    arrive(all);
    catch_up(weft::detail::context_of(s.me()));
    CHECK(begun == 0);

    std::vector<std::uint64_t> replies;
    for (int frames = 0; frames < 100 && replies.size() < all; ++frames) {
      const auto f = p.read();
      REQUIRE(f);
      if (f->header.kind != weft::frame_kind::reply) continue;
      replies.push_back(f->header.call);
      if (f->header.call == of_coroutine) s.open();
    }
    REQUIRE(replies.size() == all);
    const auto place = [&](std::uint64_t call) { return std::ranges::find(replies, call); };
    CHECK(place(the_big) == replies.begin());
    CHECK(place(of_coroutine) < place(at_the_door));
    CHECK(place(at_the_door) < place(behind));
    CHECK(begun == 3);
  }
}

TEST_CASE("throttled: immediate functions run in the order in which they came, each once") {
  for (const unsigned io_threads : io_ways()) {
    CAPTURE(io_threads);
    notes.clear();
    weft::options o = with_io_threads(io_threads);
    o.compute_threads = 4;
    o.window_bytes = 256 * 1024;
    o.lost_after = {};
    scene s(o);
    raw_peer p = s.connect();
    const auto send_note = [&](std::uint64_t i) {
      weft::message m;
      weft::codec<std::uint64_t>::encode(m.payload(), i);
      weft::frame_header h;
      h.call = 100 + i;
      h.function = weft::function<&note>::id();
      h.signature = weft::function<&note>::signature;
      REQUIRE(p.send(std::move(m).finish(h)));
    };
    REQUIRE(p.send(request<big>(1)));
    constexpr std::uint64_t before = 40, all = 120;
    for (std::uint64_t i = 0; i < before; ++i) send_note(i);
    for (bounded_wait until("they wait"); until.not_yet(s.me().stats().served == 1 + before);) {
      std::this_thread::sleep_for(1ms);
    }
    std::uint64_t sent = before, answered = 0;
    for (int frames = 0; frames < 1000 && answered < 1 + all; ++frames) {
      const auto f = p.read();
      REQUIRE(f);
      if (f->header.kind == weft::frame_kind::reply) ++answered;
      if (sent < all) send_note(sent++);  // some while those before are being released
    }
    REQUIRE(answered == 1 + all);
    const std::lock_guard lock(notes_mutex);
    REQUIRE(notes.size() == all);
    CHECK(std::ranges::is_sorted(notes));
  }
}

}  // namespace throttled_requests
