// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/services/rref_service.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <sim/references.hpp>
#include <string>

namespace weft::testing {

// ── what is known of objects ──

std::uint64_t object_witness::expect(worker& me, std::uint32_t owner, const char* maker,
                                     bool sure) {
  seen_object& o = objects.emplace_back();
  o.owner = owner;
  o.maker = maker;
  o.sure = sure;
  o.holders.resize(me.world_size());
  const std::uint64_t number = objects.size() - 1;
  calls.world.tell(me.rank(), std::string("wants an object, ") + maker + ", number", number);
  return number;
}

void object_witness::made(std::uint64_t number) {
  sim::world& w = calls.world;
  seen_object& o = objects.at(number);
  o.free_since = w.now();
  if (++o.made > 1) calls.complain("object " + std::to_string(number) + " was made twice");
  if (o.owner != w.runs_now()) calls.complain("an object was made on another worker");
  w.tell(o.owner, "object is made, number", number);
}

void object_witness::died(std::uint64_t number) {
  sim::world& w = calls.world;
  seen_object& o = objects.at(number);
  const std::string name = "object " + std::to_string(number) + " (" + o.maker + ") of worker " +
                           std::to_string(o.owner);
  if (++o.dead > o.made) calls.complain(name + " died twice");
  w.tell(o.owner, "object dies, number", number);
  if (w.runs_now() != o.owner) {
    return calls.complain(name + " died on worker " + std::to_string(w.runs_now()));
  }
  // With its process everything goes.
  if (!w.at(o.owner).alive() || w.crashed(o.owner) || w.at(o.owner).ended()) return;
  if (!w.worker_at(o.owner).on_thread() && o.seen) {
    calls.complain(name + " died on another thread than its worker's");
  }
  // Once the last main has returned, workers leave with what they still have.
  if (mains_over == w.size()) return;
  if (is_held(number)) {
    std::string who;
    for (std::uint32_t r = 0; r < o.holders.size(); ++r) {
      if (o.holders[r] == 0 || !w.at(r).alive()) continue;
      who += " worker " + std::to_string(r) + " (" + std::to_string(o.holders[r]) + ")";
      who += ", where is\n" + w.worker_at(r).use<rref_service>().describe();
    }
    if (!w.faulty()) calls.complain(name + " died though these have it:" + who);
    if (w.faulty() && has_good_holder(number)) {
      calls.complain(name + " died, and who has it knows of nothing wrong:" + who);
    }
    return;
  }
  const duration lived = w.now() - o.free_since;
  if (lived > longest_life()) {
    calls.complain(name + " lived for " + std::to_string(lived / std::chrono::milliseconds(1)) +
                   " ms after its last holder had let go");
  }
}

void object_witness::has(std::uint64_t number, std::uint32_t where, int more) {
  seen_object& o = objects.at(number);
  o.holders.at(where) += more;
  if (more < 0 && o.holders[where] == 0) o.free_since = calls.world.now();
}

bool object_witness::has_good_holder(std::uint64_t number) const {
  const seen_object& o = objects[number];
  sim::world& w = calls.world;
  if (o.id.serial == 0) return false;
  // What dies before its owner has it in place was not made; news of that may be on its way.
  const std::string owned = w.worker_at(o.owner).use<rref_service>().describe();
  for (const char* value : {"pending", "failed"}) {
    if (owned.find("owned " + to_string(o.id) + ": " + value) != std::string::npos) return false;
  }
  for (std::uint32_t r = 0; r < o.holders.size(); ++r) {
    if (o.holders[r] == 0 || !w.at(r).alive() || w.crashed(r)) continue;
    if (r != o.owner && w.worker_at(o.owner).link_to(r).current_state() != weft::link::state::up)
      continue;
    const std::string says = w.worker_at(r).use<rref_service>().describe();
    const std::string mine = r == o.owner ? "owned " + to_string(o.id) + ": ready"
                                          : "imported " + to_string(o.id) + ": ok";
    if (says.find(mine) != std::string::npos) return true;
  }
  return false;
}
bool object_witness::is_held(std::uint64_t number) const {
  const std::vector<int>& by = objects[number].holders;
  for (std::uint32_t r = 0; r < by.size(); ++r) {
    if (by[r] > 0 && calls.world.at(r).alive()) return true;
  }
  return false;
}
bool object_witness::all_let_go() const {
  for (std::uint64_t number = 0; number < objects.size(); ++number) {
    if (is_held(number)) return false;
  }
  return true;
}
int object_witness::forgotten(std::uint32_t owner) const {
  int n = 0;
  for (std::uint64_t number = 0; number < objects.size(); ++number) {
    const seen_object& o = objects[number];
    if (o.owner == owner && !is_held(number)) n += o.made - o.dead;
  }
  return n;
}
std::uint64_t object_witness::unmet(std::uint32_t owner) const {
  return static_cast<std::uint64_t>(
      std::count_if(objects.begin(), objects.end(), [owner](const seen_object& o) {
        return o.owner == owner && o.threw && !o.met;
      }));
}
duration object_witness::longest_life() const {
  const sim::world& w = calls.world;
  const options& o = calls.world.worker_at(calls.world.runs_now()).settings();
  duration most = o.lost_after + std::chrono::seconds(1);
  // Whom it was handed on to may first have to reach the owner, which refused.
  if (calls.may_miss_each_other) most += o.rendezvous_deadline;
  if (w.faulty()) most += o.call_deadline + std::chrono::seconds(1);
  if (w.was_cut()) most += o.call_deadline + o.stall_limit + std::chrono::seconds(17);
  return most;
}

namespace {

/// One use of an object, and how it may end.
class attempt {
 public:
  /// `has_time`: the default deadline, and nothing that it is part of ends before.
  attempt(worker& me, std::uint64_t number, bool has_time, duration limit = duration::zero())
      : me_(me),
        by_then_(me, "a use of an object", limit),
        number_(number),
        has_time_(has_time),
        was_seen_(object().seen),
        began_(world().now()) {
    object().met = true;
  }

  void succeeds(std::uint64_t seen) const {
    if (seen != number_) complain("led to another object");
    object().seen = true;
    world().tell(me_.rank(), "has used object", number_);
  }
  void fails(const error& why) const {
    world().tell(me_.rank(), "could not use object: " + why.code().message(), number_);
    const std::string words = "failed: " + why.message();
    const bool given_up = why == errc::timed_out || why == errc::cancelled;
    const bool unmade = given_up || why == errc::remote_exception || why == errc::rref_lost;
    if (!world().faulty()) {
      const bool is_there = object().sure || was_seen_;
      const bool never_met = all().calls.may_be_missed(why);
      if (is_there ? (has_time_ && !never_met) || !given_up : !unmade) complain(words);
      const bool must_say_why =
          has_time_ && !never_met && std::string_view(object().maker) == "make_nothing";
      if (must_say_why && why == errc::timed_out) complain(words);
      if (why == errc::remote_exception && words.find(object().maker) == std::string::npos) {
        complain("does not say what failed: " + words);
      }
      return;
    }
    const bool of_a_loss = why == errc::peer_died || why == errc::rref_owner_died ||
                           why == errc::shutting_down || why == errc::resource_exhausted ||
                           why == errc::worker_failed;
    if (!unmade && !of_a_loss) complain(words);
    // Its creator's words of a request that was not sent are as they are.
    const bool unsent = words.find("the object was not made") != std::string::npos;
    if (why == errc::peer_died && !unsent)
      complain("does not say that its owner is gone: " + words);
    if (!world().was_cut()) is_in_time(why, words);
  }

 private:
  [[nodiscard]] static object_witness& all() { return *object_witness::current; }
  [[nodiscard]] static sim::world& world() { return all().calls.world; }
  [[nodiscard]] seen_object& object() const { return all().objects[number_]; }

  /// Where nothing but crashes went wrong nobody waits for a deadline.
  void is_in_time(const error& why, const std::string& words) const {
    const std::uint32_t owner = object().owner;
    if (!world().crashed(owner)) return;
    // Who was never met is missed at the rendezvous deadline only.
    const duration known_after =
        all().calls.lost_limit(me_.rank()) + me_.settings().rendezvous_deadline;
    const duration waited = world().now() - std::max(began_, world().crashed_at(owner));
    if (waited > known_after) {
      complain("waited for " + std::to_string(waited / std::chrono::milliseconds(1)) +
               " ms for an owner that was lost");
    }
    const bool ends = why == errc::shutting_down || why == errc::cancelled;
    const bool was_known = began_ - world().crashed_at(owner) > known_after;
    if (has_time_ && was_known && !ends && why != errc::rref_owner_died) {
      complain("does not say that its owner is gone: " + words);
    }
  }
  void complain(const std::string& what) const {
    all().calls.complain("a use of object " + std::to_string(number_) + " (" + object().maker +
                         ") on worker " + std::to_string(me_.rank()) + " " + what);
  }

  worker& me_;
  must_end by_then_;
  std::uint64_t number_;
  bool has_time_, was_seen_;
  time_point began_;
};

object_witness& objects() { return *object_witness::current; }

/// Who knows that an owner is lost does not hand on what it owned.
asio::awaitable<void> must_not_travel(worker& me, const held<thing>& it) {
  co_await sleep_for(me, std::chrono::milliseconds(100));  // all of that worker have heard of it
  try {
    static_cast<void>(co_await me.peer(draw(me.world_size())).call<&keep>(it));
  } catch (const rpc_error&) {
    co_return;
  }
  // A run that ends because another one is lost takes leave of all, and looks at nobody any more:
  // only the owner itself may be who was lost.
  const sim::world& w = objects().calls.world;
  std::uint32_t crashed = 0;
  for (std::uint32_t r = 0; r < w.size(); ++r) crashed += w.crashed(r) ? 1 : 0;
  if (w.was_cut() || crashed != 1 || !w.crashed(objects().objects[it.number].owner)) co_return;
  objects().calls.complain("object " + std::to_string(it.number) +
                           " of a lost owner was handed on");
}

asio::awaitable<void> use(worker& me, const held<thing>& it, bool of_main) {
  bool is_lost = false;
  const std::uint32_t how = draw(6);
  const bool within_time = how >= 3;
  const duration limit = within_time ? draw_duration() : duration::zero();
  {
    const attempt a(me, it.number, of_main && !within_time, limit);
    try {
      std::uint64_t seen = 0;
      if (within_time) {
        seen = co_await it.it.call<&thing::number>(within(limit));
      } else if (how == 0) {
        seen = co_await it.it.call<&thing::number>();
      } else if (how == 1) {
        seen = co_await it.it.call<&thing::number_at_once>();
      } else {
        seen = (co_await it.it.to_here()).number();
      }
      a.succeeds(seen);
    } catch (const rpc_error& e) {
      a.fails(e.error());
      is_lost = e.error() == errc::rref_owner_died;
    }
  }
  if (is_lost) co_await must_not_travel(me, it);
}

/// The object itself, for a while; elsewhere as any other use.
asio::awaitable<void> use_here(worker& me, held<thing> it, bool of_main) {
  if (!it.it.is_owner()) co_return co_await use(me, it, of_main);
  const attempt a(me, it.number, false);
  const holds stays(it.number);
  std::shared_ptr<thing> object;
  try {
    object = it.it.local();
  } catch (const rpc_error& e) {
    if (!(e.error() == errc::invalid_argument)) a.fails(e.error());
    co_return;
  }
  it = held<thing>();
  if (draw(2) == 1) co_await sleep_for(me, draw_duration());
  a.succeeds(object->number());
}

/// A call that goes on without the reference by which it was begun, or is given up.
asio::awaitable<void> use_last(worker& me, held<thing> it, bool of_main) {
  const attempt a(me, it.number, of_main);
  future<std::uint64_t> seen;
  try {
    seen = it.it.start<&thing::number>();
  } catch (const rpc_error& e) {
    if (!(e.error() == errc::too_many_calls)) a.fails(e.error());
    co_return;
  }
  it = held<thing>();
  if (draw(4) == 3) co_return;
  try {
    a.succeeds(co_await std::move(seen));
  } catch (const rpc_error& e) {
    a.fails(e.error());
  }
}

/// By a reference that leads to it on another worker, and by one that leads to that one.
asio::awaitable<void> use_by_way_of(worker& me, std::uint32_t first, const held<thing>& it,
                                    bool of_main) {
  const std::uint32_t last = draw(me.world_size());
  const std::uint32_t how = draw(8);
  const bool slowly = draw(2) == 1;
  const duration limit = how < 6 ? duration::zero() : draw_duration();
  const attempt a(me, it.number, of_main && how < 6, limit);
  try {
    const rref<thing> near =
        slowly ? me.peer(last).remote<&refer_slowly_to>(it) : me.peer(last).remote<&refer_to>(it);
    const rref<thing> led = how % 2 == 0 ? near : me.peer(first).remote<&pass_reference>(near);
    std::uint64_t seen = 0;
    if (how < 2) {
      seen = co_await led.call<&thing::number>();
    } else if (how < 4) {
      const rref<std::uint64_t> stays = led.remote<&thing::number>();
      seen = co_await stays.to_here();
    } else if (how < 6) {
      seen = (co_await led.to_here()).number();
    } else {
      seen = co_await led.call<&thing::number_at_once>(within(limit));
    }
    a.succeeds(seen);
  } catch (const rpc_error& e) {
    a.fails(e.error());
  }
}

/// Fills what there is of room towards a worker, and then some of what must wait for it.
void flood(worker& me, std::uint32_t to) {
  const std::vector<std::uint64_t> much(128 + draw(512));
  try {
    for (std::uint32_t n = 1 + draw(6); n > 0; --n) me.peer(to).post<&swallow>(much);
  } catch (const rpc_error&) {  // it is full
  }
}

/// One that is made in a way that is drawn; none if it was refused.
std::optional<held<thing>> make_some(worker& me, bool of_main) {
  object_witness& w = objects();
  const std::uint32_t to = draw(me.world_size());
  const auto there = [&](const char* maker, bool sure) {
    return w.expect(me, to, maker, sure && of_main);
  };
  try {
    switch (draw(8)) {
    case 0: {
      const std::uint64_t n = there("thing", true);
      return held<thing>(n, me.peer(to).make<thing>(n));
    }
    case 1: {
      const std::uint64_t n = there("make_thing", true);
      return held<thing>(n, me.peer(to).remote<&make_thing>(n));
    }
    case 2: {
      const std::uint64_t n = there("make_slowly", true);
      return held<thing>(n, me.peer(to).remote<&make_slowly>(n));
    }
    case 3: {
      const std::uint64_t n = there("make_at_once", true);
      return held<thing>(n, me.peer(to).remote<&make_at_once>(n));
    }
    case 4: {
      const std::uint64_t n = w.expect(me, me.rank(), "share", true);
      return held<thing>(n, me.share(thing(n)));
    }
    case 5: {
      const std::uint64_t n = there("make_slowly", false);
      return held<thing>(n, me.peer(to).remote<&make_slowly>(n, within(draw_duration())));
    }
    case 6: {
      flood(me, to);
      const std::uint64_t n = there("make_thing", false);
      return held<thing>(n, me.peer(to).remote<&make_thing>(n, within(draw_duration())));
    }
    default: {
      const std::uint64_t n = there("make_nothing", false);
      return held<thing>(n, me.peer(to).remote<&make_nothing>(n));
    }
    }
  } catch (const rpc_error&) {
    return std::nullopt;
  }
}

/// This one, and some of those that functions have stored here; some more than once.
std::vector<held<thing>> some_more(worker& me, const held<thing>& it) {
  const auto& stored = objects().stored[me.rank()];
  std::vector<held<thing>> all{it};
  for (std::uint32_t n = draw(4); n > 0; --n) {
    const std::uint32_t at = draw(static_cast<std::uint32_t>(stored.size() + 1));
    all.push_back(at == stored.size() ? it : stored[at]);
  }
  return all;
}

void must_be(const held<thing>& back, std::uint64_t number, const char* what) {
  if (back.number != number) objects().calls.complain(std::string("another object ") + what);
}

asio::awaitable<void> some_sharing(worker& me, held<thing> it, std::uint32_t depth, bool of_main) {
  object_witness& w = objects();
  const std::uint32_t to = draw(me.world_size());
  const std::uint64_t number = it.number;
  w.objects[number].met = true;
  // What it takes nothing but time to do, and that is there.
  bool must = false;
  const auto is_there = [&] {
    return of_main && (w.objects[number].sure || w.objects[number].seen);
  };
  const auto shared = [&me]<class T>(duration limit, asio::awaitable<T> call) {
    return in_time(me, "a call with references", limit, std::move(call));
  };
  try {
    switch (draw(15)) {
    case 0:
      co_await use(me, it, of_main);
      break;
    case 1:
      must = is_there();
      static_cast<void>(co_await shared({}, me.peer(to).call<&look>(it)));
      break;
    case 2: {
      const duration limit = draw_duration();
      static_cast<void>(co_await shared(limit, me.peer(to).call<&keep>(it, within(limit))));
      break;
    }
    case 3: {
      must = is_there();
      const held<thing> back = co_await shared({}, me.peer(to).call<&pass_back>(it));
      must = false;
      must_be(back, number, "came back");
      if (!(back.it == it.it)) w.calls.complain("a reference came back as another one");
      it = held<thing>();
      co_await use(me, back, of_main);
      break;
    }
    case 4: {
      if (depth == 0) break;
      const duration limit = draw_duration();
      static_cast<void>(
          co_await shared(limit, me.peer(to).call<&pass_on>(it, depth - 1, within(limit))));
      break;
    }
    case 5:
      me.peer(to).post<&keep>(it);
      break;
    case 6: {
      const auto all = some_more(me, it);
      const duration limit = draw_duration();
      static_cast<void>(co_await shared(limit, me.peer(to).call<&keep_all>(all, within(limit))));
      break;
    }
    case 7: {
      const auto back = co_await shared({}, me.peer(to).call<&pass_back_all>(some_more(me, it)));
      it = held<thing>();
      for (const auto& [n, one] : back) {
        must_be(one, n, "came back");
        co_await use(me, one, of_main);
      }
      break;
    }
    case 8: {  // inside another object, which somebody else may have then
      const std::uint64_t n = w.expect(me, to, "make_nest", of_main);
      const held<nest> outer(n, me.peer(to).remote<&make_nest>(n, it));
      it = held<thing>();
      if (draw(2) == 1) co_await sleep_for(me, draw_duration());
      must = is_there();
      const held<thing> inner = co_await shared({}, outer.it.call<&nest::open>());
      must = false;
      must_be(inner, number, "was inside");
      co_await use(me, inner, of_main);
      break;
    }
    case 9: {  // made by somebody else for us
      const std::uint32_t owner = draw(me.world_size());
      const std::uint64_t n = w.expect(me, owner, "make_", false);
      const bool slowly = draw(2) == 1;
      const held<thing> made = co_await shared({}, me.peer(to).call<&let_make>(n, owner, slowly));
      co_await use(me, made, false);
      break;
    }
    case 10: {  // made of one that may not be made yet
      const bool sure = of_main && w.objects[number].sure;
      const std::uint64_t n = w.expect(me, w.objects[number].owner, "make_", sure);
      const held<thing> another(n, it.it.remote<&make_another>(n, number));
      it = held<thing>();
      if (draw(2) == 1) me.peer(to).post<&keep>(another);
      if (draw(4) == 3) break;
      co_await use(me, another, of_main);
      break;
    }
    case 11:
      me.peer(draw(2) == 1 ? to : w.objects[number].owner).post<&let_go_on_pool>(it);
      break;
    case 12:
      co_await use_here(me, std::move(it), of_main);
      break;
    case 13:
      co_await use_by_way_of(me, to, it, of_main);
      break;
    default:
      co_await use_last(me, std::move(it), of_main);
    }
  } catch (const rpc_error& e) {
    w.calls.world.tell(me.rank(), "could not share: " + e.error().code().message(), number);
    if (must && !w.calls.may_be_missed(e.error()) && !w.calls.world.faulty()) {
      w.calls.complain("object " + std::to_string(number) +
                       " could not be shared, though nothing was wrong: " + e.what());
    }
  }
}

}  // namespace

// ── the functions ──

thing make_thing(worker&, std::uint64_t number) { return thing(number); }
immediate<thing> make_at_once(std::uint64_t number) { return thing(number); }
asio::awaitable<thing> make_slowly(worker& me, std::uint64_t number) {
  const inside_now lives;
  co_await sleep_for(me, draw_duration());
  co_return thing(number);
}
thing make_nothing(worker&, std::uint64_t number) {
  objects().objects[number].threw = true;
  throw std::runtime_error("nothing is made");
}
thing make_another(thing& of, std::uint64_t number, std::uint64_t number_of_first) {
  if (of.number() != number_of_first) objects().calls.complain("made of another object");
  return thing(number);
}
nest make_nest(worker&, std::uint64_t number, held<thing> inside) {
  return {thing(number), std::move(inside)};
}
asio::awaitable<held<thing>> let_make(worker& me, std::uint64_t number, std::uint32_t owner,
                                      bool slowly) {
  const inside_now lives;
  co_return held<thing>(number, slowly ? me.peer(owner).remote<&make_slowly>(number)
                                       : me.peer(owner).remote<&make_thing>(number));
}

rref<thing> refer_to(const held<thing>& it) { return it.it; }
asio::awaitable<rref<thing>> refer_slowly_to(worker& me, held<thing> it) {
  const inside_now lives;
  co_await sleep_for(me, draw_duration());
  co_return it.it;
}
immediate<rref<thing>> pass_reference(rref<thing> r) { return r; }

asio::awaitable<std::uint64_t> look(worker& me, held<thing> it) {
  const inside_now lives;
  co_await use(me, it, false);
  co_return it.number;
}
asio::awaitable<std::uint64_t> keep(worker& me, held<thing> it) {
  const inside_now lives;
  if (draw(2) == 1) co_await sleep_for(me, draw_duration());
  const std::uint64_t number = it.number;
  objects().stored[me.rank()].push_back(std::move(it));
  co_return number;
}
asio::awaitable<std::uint64_t> keep_all(worker& me, std::vector<held<thing>> all) {
  const inside_now lives;
  if (draw(2) == 1) co_await sleep_for(me, draw_duration());
  for (held<thing>& each : all) objects().stored[me.rank()].push_back(std::move(each));
  co_return all.size();
}
asio::awaitable<held<thing>> pass_back(worker& me, held<thing> it) {
  const inside_now lives;
  if (draw(2) == 1) co_await sleep_for(me, draw_duration());
  co_return it;
}
asio::awaitable<std::map<std::uint64_t, held<thing>>> pass_back_all(worker& me,
                                                                    std::vector<held<thing>> all) {
  const inside_now lives;
  if (draw(2) == 1) co_await sleep_for(me, draw_duration());
  std::map<std::uint64_t, held<thing>> named;
  for (held<thing>& each : all) named.try_emplace(each.number, std::move(each));
  co_return named;
}
asio::awaitable<std::uint64_t> pass_on(worker& me, held<thing> it, std::uint32_t depth) {
  const inside_now lives;
  const std::uint64_t number = it.number;
  co_await some_sharing(me, std::move(it), depth, false);
  co_return number;
}
void let_go_on_pool(worker&, held<thing> it) {
  if (!it.it.is_owner()) return;
  std::shared_ptr<thing> object;
  try {
    object = it.it.local();
  } catch (const rpc_error&) {
  }
  it = held<thing>();
}
void swallow(worker&, const std::vector<std::uint64_t>&) {}

asio::awaitable<void> some_references(worker& me, std::uint32_t steps) {
  const inside_now lives;
  object_witness& w = objects();
  witness& calls = w.calls;
  try {
    std::vector<held<thing>> mine;
    for (std::uint32_t i = 0; i < steps; ++i) {
      if (draw(4) == 3) co_await sleep_for(me, draw_duration());
      const std::uint32_t what = draw(8);
      if (what < 3 || mine.empty()) {
        // One in eight is let go while it is on its way to be made.
        auto made = make_some(me, true);
        if (made && draw(8) != 7) mine.push_back(*std::move(made));
        continue;
      }
      const auto at = mine.begin() + draw(static_cast<std::uint32_t>(mine.size()));
      if (what == 3) {
        mine.erase(at);
      } else if (what == 4) {
        auto& stored = w.stored[me.rank()];
        if (stored.empty()) continue;
        held<thing> one = std::move(stored.back());
        stored.pop_back();
        co_await some_sharing(me, std::move(one), 1, true);
      } else {
        // What is given away is not had any more.
        held<thing> one = what == 5 ? std::move(*at) : *at;
        if (what == 5) mine.erase(at);
        co_await some_sharing(me, std::move(one), 2, true);
      }
    }
    mine.clear();
    calls.mains_done.push_back(me.rank());
    // Its objects stay, and what it has stored.
    if (draw(16) == 15) {
      ++w.mains_over;
      co_return;
    }
    // All that is stored goes, until nobody can store anything more; then every object dies.
    sim::world& world = calls.world;
    const auto clean = [&](std::uint32_t r) {
      return w.forgotten(r) == 0 &&
             (!w.all_let_go() || world.worker_at(r).use<rref_service>().idle());
    };
    const auto tidy = [&]() -> asio::awaitable<void> {
      for (auto& [r, stored] : w.stored) {
        if (r == me.rank() || !world.at(r).alive()) stored.clear();
      }
      co_await sleep_for(me, std::chrono::milliseconds(20));
    };
    // bounded: by the world's time
    while (!calls.all_mains_done()) co_await tidy();
    const time_point began = me.time().now();
    const auto has_time = [&] {
      const duration most =
          w.longest_life() + me.settings().call_deadline + std::chrono::seconds(3);
      return me.time().now() - began < most;
    };
    // bounded: by has_time
    while (has_time() && !calls.all_living(clean)) co_await tidy();
    if (!clean(me.rank())) {
      calls.complain(std::to_string(w.forgotten(me.rank())) + " objects of worker " +
                     std::to_string(me.rank()) + " live though nobody has them; " +
                     me.use<rref_service>().describe());
    }
    if (!world.faulty() && w.all_let_go() && me.stats().creations_failed < w.unmet(me.rank())) {
      calls.complain("worker " + std::to_string(me.rank()) +
                     " does not count objects that could not be made and that nobody asked for");
    }
    if (calls.is_quiet_at_the_end) {
      co_await sleep_for(me, std::chrono::seconds(1));
      co_await must_be_quiet(me);
    }
    ++w.mains_over;
  } catch (const std::exception& e) {
    calls.mains_threw.push_back(me.rank());
    throw;
  }
}

}  // namespace weft::testing
