// SPDX-License-Identifier: BSL-1.0
#include <weft/autograd/context.hpp>
#include <weft/autograd/grad_mode.hpp>
#include <weft/engine/services/autograd_service.hpp>
#include <weft/engine/services/rref_service.hpp>
#include <weft/optim/distributed.hpp>
#include <weft/wire/detail/tensor_table.hpp>

#include <asio/error.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <sim/learning.hpp>
#include <sim/play.hpp>

namespace weft::testing {

using namespace std::chrono_literals;

namespace {

using autograd::graph_retention;
using sgd = optim::distributed<torch::optim::SGD>;

learning_witness& seen() { return *learning_witness::current; }

at::Tensor matrix(std::uint32_t key) {
  const auto n = static_cast<std::int64_t>(seen().size);
  at::Tensor t = at::empty({n, n}, at::kDouble);
  for (std::int64_t i = 0; i < n * n; ++i) {
    t.data_ptr<double>()[i] =
        static_cast<double>((key * 7 + static_cast<std::uint32_t>(i) * 5) % 5) - 2;
  }
  return t;
}
at::Tensor drawn_matrix() { return matrix(draw(5)); }
at::Tensor leaf(const at::Tensor& value) { return value.detach().clone().set_requires_grad(true); }

bool same(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return at::equal(a, b);
}

// ── graphs ──

using kind = operation::kind;
bool is_local(kind k) { return k < kind::call; }

/// Factors stay small, whatever the weights become; the gradient passes as if they did not.
at::Tensor small(const at::Tensor& t, double below) { return t.remainder(below); }

at::Tensor compute(const operation& o, const tensors& values, const at::Tensor& weight) {
  const at::Tensor &a = values[o.left], &b = values[o.right];
  switch (o.what) {
  case kind::through_weight:
    return small(a, 4).matmul(small(weight, 4));
  case kind::subtract:
    return a - b;
  case kind::multiply:
    return small(a, 3) * small(b, 3);
  case kind::matmul:
    return small(a, 4).matmul(small(b, 4));
  case kind::transpose:
    return a.t();
  case kind::spread:
    return a.sum(0).expand_as(a);
  case kind::cut:
    return a.detach();
  default:
    return a + b;
  }
}
tensors results_of(const plan& p, const tensors& values) {
  return {values[p.result], values.back()};
}
tensors compute_all(std::uint64_t which, tensors values, const at::Tensor& weight) {
  const plan& p = seen().plans[which];
  for (const operation& o : p.operations) values.push_back(compute(o, values, weight));
  return results_of(p, values);
}

/// The weights that one process would have.
struct twins {
  tensors layers, shared;
};
tensors compute_here(std::uint64_t which, tensors values, const at::Tensor& weight,
                     const twins& with) {
  const plan& p = seen().plans[which];
  for (const operation& o : p.operations) {
    const auto ask = [&](const callee& to) {
      return compute_here(to.plan, {values[o.left], values[o.right]},
                          to.layer ? with.layers[*to.layer] : with.shared[to.worker], with);
    };
    if (is_local(o.what)) {
      values.push_back(compute(o, values, weight));
    } else if (o.what == kind::call) {
      for (at::Tensor& t : ask(o.first)) values.push_back(std::move(t));
    } else if (o.what == kind::call_two) {
      const tensors one = ask(o.first), two = ask(o.second);
      values.push_back(one[0] + two[1]);
      values.push_back(one[1] + two[0]);
    } else if (o.what == kind::unrecorded) {
      for (const at::Tensor& t : ask(o.first)) values.push_back(t.detach());
    }
  }
  return results_of(p, values);
}

/// A plan that calls itself at most so deep, and of these layers at most one unless `is_first`.
std::size_t draw_plan(std::uint32_t workers, std::uint32_t depth, std::uint32_t layers,
                      std::optional<std::uint32_t> only, bool is_first) {
  plan p;
  p.layer = only;
  std::uint32_t values = 2;
  bool calls = false;
  const auto draw_callee = [&] {
    callee to;
    to.worker = draw(workers);
    if (is_first) {
      if (draw(4) != 3) to.layer = draw(layers);
    } else if (only && draw(2) == 1) {
      to.layer = only;
    }
    std::optional<std::uint32_t> below = only;
    if (is_first && draw(2) == 1) below = draw(layers);
    to.plan = draw_plan(workers, depth - 1, layers, below, false);
    return to;
  };
  const std::uint32_t count = 1 + draw(is_first ? 4 : 2);
  for (std::uint32_t i = 0; i < count; ++i) {
    operation o;
    o.left = draw(values);
    o.right = draw(values);
    if (depth > 0 && (is_first ? draw(4) != 3 : draw(3) == 2)) {
      static constexpr std::array kinds{kind::call,    kind::call,     kind::call_two,
                                        kind::call,    kind::call_two, kind::unrecorded,
                                        kind::given_up};
      o.what = kinds[draw(kinds.size())];
      o.first = draw_callee();
      if (o.what == kind::call_two) o.second = draw_callee();
      calls = true;
      values += o.what == kind::given_up ? 0 : 2;
    } else {
      o.what = static_cast<kind>(draw(static_cast<std::uint32_t>(kind::call)));
      ++values;
    }
    p.operations.push_back(o);
  }
  p.result = draw(values);
  p.how = static_cast<plan::style>(draw(4));
  const bool waits = p.how == plan::style::at_once || p.how == plan::style::takes_time;
  if (calls && !waits) p.how = plan::style::at_once;
  seen().plans.push_back(std::move(p));
  return seen().plans.size() - 1;
}

// ── the functions ──

asio::awaitable<tensors> carry_out(worker& me, std::uint64_t which, std::vector<rref<layer>> known,
                                   tensors values, at::Tensor weight);

}  // namespace

asio::awaitable<tensors> run_shared(worker& me, std::uint64_t which, rref<layer> next, tensors in) {
  const inside_now lives;
  std::vector<rref<layer>> known;
  if (const auto at = seen().plans[which].layer) {
    known.resize(*at + 1);
    known[*at] = std::move(next);
  }
  co_return co_await carry_out(me, which, std::move(known), std::move(in),
                               seen().shared[me.rank()]);
}
tensors run_shared_on_pool(worker& me, std::uint64_t which, const tensors& in) {
  return compute_all(which, in, seen().shared[me.rank()]);
}
immediate<tensors> run_shared_in_place(const caller& by, std::uint64_t which, const tensors& in) {
  return compute_all(which, in, seen().shared[by.self().rank()]);
}

namespace {

asio::awaitable<tensors> ask(worker& me, callee to, std::vector<rref<layer>> known, tensors in) {
  const plan& below = seen().plans[to.plan];
  const std::uint64_t which = to.plan;
  const rref<layer> next = below.layer ? known[*below.layer] : rref<layer>();
  if (to.layer) {
    const rref<layer>& it = known[*to.layer];
    switch (below.how) {
    case plan::style::on_pool:
      co_return co_await it.call<&layer::run_on_pool>(which, in);
    case plan::style::immediate:
      co_return co_await it.call<&layer::run_in_place>(which, in);
    default:
      co_return co_await it.call<&layer::run>(which, next, in);
    }
  }
  const peer there = me.peer(to.worker);
  switch (below.how) {
  case plan::style::on_pool:
    co_return co_await there.call<&run_shared_on_pool>(which, in);
  case plan::style::immediate:
    co_return co_await there.call<&run_shared_in_place>(which, in);
  default:
    co_return co_await there.call<&run_shared>(which, next, in);
  }
}

asio::awaitable<void> give_up(worker& me, callee to, std::vector<rref<layer>> known, tensors in) {
  const future<tensors> dropped = me.spawn(ask(me, to, std::move(known), std::move(in)));
  if (draw(2) == 1) co_await sleep_for(me, draw_duration() / 16);
}

/// `known` has a reference to each layer that the plan calls, at its place.
asio::awaitable<tensors> carry_out(worker& me, std::uint64_t which, std::vector<rref<layer>> known,
                                   tensors values, at::Tensor weight) {
  const plan& p = seen().plans[which];
  if (p.how == plan::style::takes_time) co_await sleep_for(me, draw_duration() / 16);
  for (const operation& o : p.operations) {
    const auto with = [&] { return tensors{values[o.left], values[o.right]}; };
    if (is_local(o.what)) {
      values.push_back(compute(o, values, weight));
    } else if (o.what == kind::call) {
      for (at::Tensor& t : co_await ask(me, o.first, known, with())) values.push_back(std::move(t));
    } else if (o.what == kind::call_two) {
      future<tensors> first = me.spawn(ask(me, o.first, known, with()));
      future<tensors> second = me.spawn(ask(me, o.second, known, with()));
      const tensors one = co_await std::move(first);
      const tensors two = co_await std::move(second);
      values.push_back(one[0] + two[1]);
      values.push_back(one[1] + two[0]);
    } else if (o.what == kind::unrecorded) {
      const tensors got =
          co_await with_grad_mode(me, grad_mode::off, ask(me, o.first, known, with()));
      for (const at::Tensor& t : got) {
        if (t.requires_grad()) seen().calls.complain("a result has a history that nobody recorded");
        values.push_back(t);
      }
    } else {
      co_await give_up(me, o.first, known, with());
    }
  }
  co_return results_of(p, values);
}

template <class T>
asio::awaitable<expected<T>> outcome_of(asio::awaitable<T> work) {
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(work);
      co_return expected<void>();
    } else {
      co_return co_await std::move(work);
    }
  } catch (const rpc_error& e) {
    co_return unexpected(e.error());
  } catch (const std::system_error& e) {
    if (e.code() != asio::error::operation_aborted) throw;
    co_return unexpected(error(errc::cancelled, e.what(), call_progress::maybe_executed));
  }
}
/// As above, of what is weft's alone: it throws rpc_error, and nothing else.
asio::awaitable<expected<void>> outcome_of_step(asio::awaitable<void> step) {
  try {
    co_await std::move(step);
    co_return expected<void>();
  } catch (const rpc_error& e) {
    co_return unexpected(e.error());
  } catch (const std::exception& e) {
    seen().calls.complain(std::string("a step throws what is no rpc_error: ") + e.what());
    throw;
  }
}

}  // namespace

asio::awaitable<tensors> gradients_here(worker& me, std::vector<std::uint64_t> layers) {
  const inside_now lives;
  const autograd::gradient_map all = co_await autograd::this_context(me).gradients();
  tensors out;
  std::vector<const void*> memory;
  const auto note = [&](const at::Tensor& t) {
    const void* at = t.storage().data();
    if (std::find(memory.begin(), memory.end(), at) != memory.end()) {
      seen().calls.complain("a gradient shares its memory");
    }
    memory.push_back(at);
  };
  for (const std::uint64_t n : layers) {
    if (!seen().layers[n].weight.defined()) {
      seen().calls.complain("a layer is gone that is referred to");
      co_return out;
    }
    note(seen().layers[n].weight);
    out.push_back(all.find(seen().layers[n].weight));
  }
  out.push_back(all.find(seen().shared[me.rank()]));
  for (const auto& each : all.entries()) note(each.gradient);
  co_return out;
}
tensors values_here(worker&, const std::vector<std::uint64_t>& layers) {
  tensors out;
  for (const std::uint64_t n : layers) out.push_back(seen().layers[n].weight.detach().clone());
  return out;
}
asio::awaitable<void> steps_for_another(worker& me, sgd optimizer) {
  const inside_now lives;
  co_await optimizer.step(autograd::this_context(me));
}
asio::awaitable<void> begins_a_pass(worker& me, std::uint64_t which, tensors roots) {
  const inside_now lives;
  seen_pass& pass = seen().passes[which];
  pass.outcome = co_await outcome_of(autograd::this_context(me).backward(
      std::move(roots),
      {.retention = graph_retention::retain, .gradients = pass.given, .then = pass.then}));
}
layer make_layer(worker& me, std::uint64_t number) { return {number, me.rank()}; }

namespace {

// ── the program ──

/// A worker that trains, and what it knows of its layers.
struct trainer {
  worker& me;
  std::vector<std::uint64_t> numbers{};  // of its layers
  std::vector<rref<layer>> layers{};
  tensors values{};  // what one process would have
  at::Tensor own = leaf(drawn_matrix());
  at::Tensor own_value = own.detach().clone();
  std::optional<sgd> optimizer{};
  double rate = 1;
  bool sure = true;  // nothing failed whose end is not known
  struct ridden {
    tensors total;  // what one process would step with
    bool passed = false;
  };
  std::optional<ridden> rode{};  // on a pass of the last lesson

  [[nodiscard]] std::vector<std::size_t> owned_by(std::uint32_t rank) const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (seen().layers[numbers[i]].owner == rank) out.push_back(i);
    }
    return out;
  }
  [[nodiscard]] std::vector<std::uint64_t> numbers_of(const std::vector<std::size_t>& some) const {
    std::vector<std::uint64_t> out;
    for (const std::size_t i : some) out.push_back(numbers[i]);
    return out;
  }
};

/// Whether nothing can be said any more. `allowed`: it failed as it was asked to.
bool judge(worker& me, const char* what, const error& e, bool allowed) {
  witness& w = seen().calls;
  w.world.tell(me.rank(), std::string(what) + " failed: " + e.code().message());
  allowed = allowed || w.may_be_missed(e);
  if (!w.world.faulty()) {
    if (!allowed)
      w.complain(std::string(what) + " failed, though nothing was wrong: " + e.message());
    return !allowed;
  }
  static constexpr std::array kinds{errc::timed_out,
                                    errc::cancelled,
                                    errc::peer_died,
                                    errc::remote_exception,
                                    errc::shutting_down,
                                    errc::resource_exhausted,
                                    errc::worker_failed,
                                    errc::rref_owner_died,
                                    errc::rref_lost,
                                    errc::autograd_context_gone,
                                    errc::autograd_pass_aborted};
  // A peer may be paused in the middle of a frame for longer than the stall limit.
  const bool known = std::any_of(kinds.begin(), kinds.end(), [&](errc k) { return e == k; }) ||
                     e.detail().text == "the peer began a frame and stopped sending";
  if (!known) w.complain(std::string(what) + " failed in an unexpected way: " + e.message());
  return true;
}

/// What the weights are after a step with these gradients. `nowhere`: it surely did not run.
asio::awaitable<void> look_at_weights(trainer& of, const tensors& total, const expected<void>& done,
                                      bool nowhere, bool may_be_cancelled) {
  worker& me = of.me;
  constexpr std::size_t leaves = 3;
  const auto after = [&of](const at::Tensor& value, const at::Tensor& gradient) {
    return gradient.defined() ? value - gradient * of.rate : value;
  };
  const auto complain = [&me](const std::string& what) {
    seen().calls.complain(what + ", for worker " + std::to_string(me.rank()));
  };
  if (done) ++seen().stepped;
  for (std::uint32_t r = 0; r < me.world_size(); ++r) {
    const auto owned = of.owned_by(r);
    const auto there = co_await outcome_of(me.peer(r).call<&values_here>(of.numbers_of(owned)));
    if (!there) {
      judge(me, "a look at weights", there.error(), may_be_cancelled);
      of.sure = false;
      co_return;
    }
    tensors before, later, got = *there;
    for (const std::size_t i : owned) {
      before.push_back(of.values[i]);
      later.push_back(after(of.values[i], total[leaves + i]));
    }
    if (r == me.rank()) {
      got.push_back(of.own.detach().clone());
      before.push_back(of.own_value);
      later.push_back(after(of.own_value, total[2]));
    }
    const bool as_before = std::equal(got.begin(), got.end(), before.begin(), before.end(), same);
    const bool as_later = std::equal(got.begin(), got.end(), later.begin(), later.end(), same);
    const std::string where = " on worker " + std::to_string(r);
    if (done && !as_later) complain("after a step, weights" + where + " are others");
    if (!done && !as_later && !as_before) complain("a failed step left half of a step" + where);
    if (nowhere && !as_before) complain("a step that did not run has changed weights" + where);
    for (std::size_t i = 0; i < owned.size(); ++i) of.values[owned[i]] = got[i];
    if (r == me.rank()) of.own_value = got.back();
  }
}

/// One context, from the first call to the last look at its gradients.
class lesson {
 public:
  lesson(trainer& of, autograd::context ctx, bool may_be_cancelled)
      : of_(of), me_(of.me), context_(std::move(ctx)), may_be_cancelled_(may_be_cancelled) {}

  asio::awaitable<void> run(bool steps) {
    ++seen().lessons;
    const auto top = draw_plan(me_.world_size(), 2, static_cast<std::uint32_t>(of_.layers.size()),
                               std::nullopt, true);
    const at::Tensor first = leaf(drawn_matrix());
    const tensors in{first, drawn_matrix()};
    if (draw(2) == 1) in[1].set_requires_grad(true);
    tensors in_twins;
    for (const at::Tensor& t : in) {
      in_twins.push_back(t.detach().clone().set_requires_grad(t.requires_grad()));
    }
    leaves_ = {in[0], in[1], of_.own};
    twins here;
    for (const at::Tensor& t : of_.values) here.layers.push_back(leaf(t));
    for (const at::Tensor& t : seen().shared) here.shared.push_back(leaf(t));
    const at::Tensor own = leaf(of_.own_value);
    twins_ = {in_twins[0], in_twins[1], own};
    twins_.insert(twins_.end(), here.layers.begin(), here.layers.end());
    twins_.insert(twins_.end(), here.shared.begin(), here.shared.end());
    totals_ = {tensors(twins_.size())};

    const auto got = co_await outcome_of(carry_out(me_, top, of_.layers, in, of_.own));
    if (!got) {
      judge(me_, "a graph", got.error(), may_be_cancelled_);
      co_return;
    }
    roots_ = *got;
    root_twins_ = compute_here(top, in_twins, own, here);
    for (std::size_t i = 0; i < 2; ++i) {
      if (!same(roots_[i], root_twins_[i])) complain("a result differs from that of one process");
      if (roots_[i].requires_grad() != root_twins_[i].requires_grad()) {
        complain("a result requires grad, or not, other than in one process");
        co_return;
      }
    }
    if (!roots_[0].requires_grad() && !roots_[1].requires_grad()) co_return;
    const bool rides = steps && of_.optimizer && draw(4) == 0;
    const std::uint32_t passes = rides ? draw(2) : 1 + draw(3);
    if (draw(8) == 0) co_await second_derivatives();
    for (std::uint32_t i = 0; i < passes && !lost_; ++i) {
      const bool retain = rides || (i + 1 < passes && draw(8) != 7);
      co_await some_pass(retain ? graph_retention::retain : graph_retention::release);
      if (!lost_ && draw(2) == 1) co_await check();
    }
    const bool known = totals_.size() == 1;  // then a step need not wait for a look
    if (!lost_ && (!steps || !known || draw(3) == 0)) co_await check();
    if (!steps || lost_) co_return;
    if (rides) co_return co_await ride();
    co_await step();
    if (of_.sure) co_await check();
  }

 private:
  struct attempt {
    tensors roots, given, gradients;  // the latter of one process
  };
  attempt draw_attempt() {
    const std::uint32_t which = draw(3);  // the last, the first, both
    tensors roots, here, given;
    for (std::size_t i = 0; i < 2; ++i) {
      const bool wanted = which == 2 || which != i;
      if (!roots_[i].requires_grad() || (!wanted && roots_[1 - i].requires_grad())) continue;
      roots.push_back(roots_[i]);
      here.push_back(root_twins_[i]);
      given.push_back(drawn_matrix());
    }
    return attempt_of(std::move(roots), here, std::move(given));
  }
  attempt attempt_of(tensors roots, const tensors& here, tensors given) {
    attempt out{std::move(roots), std::move(given), {}};
    tensors wanted;
    for (const at::Tensor& t : twins_) {
      if (t.requires_grad()) wanted.push_back(t);
    }
    const tensors got = torch::autograd::grad(here, wanted, out.given, /*retain_graph=*/true,
                                              /*create_graph=*/false, /*allow_unused=*/true);
    std::size_t next = 0;
    for (const at::Tensor& t : twins_) {
      out.gradients.push_back(t.requires_grad() ? got[next++] : at::Tensor());
    }
    for (const at::Tensor& g : out.gradients) {
      if (g.defined() && g.abs().max().item<double>() > 1e13) complain("sums may be inexact");
    }
    return out;
  }

  asio::awaitable<expected<void>> pass_of(const attempt& a, graph_retention retention,
                                          std::optional<duration> limit = {},
                                          std::vector<autograd::riding_step> then = {}) {
    return outcome_of(in_time(me_, "a pass", limit.value_or(duration::zero()),
                              context_.backward(a.roots, {.retention = retention,
                                                          .gradients = a.given,
                                                          .limit = limit,
                                                          .then = std::move(then)})));
  }

  /// The gradients of the first root with respect to the first leaf, and theirs.
  asio::awaitable<void> second_derivatives() {
    const std::size_t i = roots_[0].requires_grad() ? 0 : 1;
    const at::Tensor given = drawn_matrix();
    const at::Tensor twin = torch::autograd::grad({root_twins_[i]}, {twins_[0]}, {given}, true,
                                                  /*create_graph=*/true, /*allow_unused=*/true)[0];
    const auto got = co_await outcome_of(
        in_time(me_, "a gradient", {},
                context_.grad({roots_[i]}, {leaves_[0]},
                              {.gradients = {given}, .graph = autograd::gradient_graph::create})));
    if (!got) {
      judge(me_, "a gradient", got.error(), may_be_cancelled_ || fast());
      lost_ = true;
      co_return;
    }
    const at::Tensor& mine = got->front();
    if (!same(mine, twin)) complain("a gradient with a history differs from that of one process");
    if (!twin.defined() || !twin.requires_grad()) co_return;
    if (!mine.defined() || !mine.requires_grad()) co_return complain("a gradient has no history");
    const attempt a = attempt_of({mine}, {twin}, {drawn_matrix()});
    ++seen().twice;
    heard(a, co_await pass_of(a, graph_retention::retain), false);
  }

  /// A pass with a step at its end. What the step came to is looked at behind the release.
  asio::awaitable<void> ride() {
    const attempt a = draw_attempt();
    const auto then = of_.optimizer->step_at_end();
    expected<void> outcome;
    if (draw(3) == 2) {
      const std::uint64_t which = seen().passes.size();
      seen().passes.push_back({a.given, then, {}});
      const auto asked = co_await outcome_of(
          me_.peer(draw(me_.world_size())).call<&begins_a_pass>(which, a.roots));
      if (!asked) {
        const bool waited = fast() && asked.error() == errc::timed_out;
        judge(me_, "a call that begins a pass", asked.error(), may_be_cancelled_ || waited);
        of_.sure = false;
        co_return;
      }
      outcome = *seen().passes[which].outcome;
    } else {
      outcome = co_await pass_of(a, graph_retention::retain, {}, then);
    }
    heard(a, outcome, false);
    // Elsewhere it may have succeeded.
    const bool nowhere =
        !outcome && (outcome.error() == errc::timed_out || !seen().calls.world.faulty());
    if (!outcome && !nowhere) {
      of_.sure = false;
      co_return;
    }
    of_.rode = trainer::ridden{totals_.front(), outcome.has_value()};
    if (!lost_ && draw(2) == 1) co_await check();
  }

  asio::awaitable<void> some_pass(graph_retention retention) {
    const attempt a = draw_attempt();
    switch (draw(9)) {
    case 4: {
      const attempt b = draw_attempt();
      auto one = me_.spawn(pass_of(a, graph_retention::retain));
      auto two = me_.spawn(pass_of(b, graph_retention::retain));
      const auto first = co_await std::move(one);
      const auto second = co_await std::move(two);
      heard(a, first, false);
      heard(b, second, false);
      break;
    }
    case 5:
      heard(a, co_await pass_of(a, retention, draw_duration() / 16), true);
      break;
    case 6: {
      auto stopped = me_.spawn(pass_of(a, retention));
      co_await sleep_for(me_, draw_duration() / 16);
      stopped.request_stop();
      heard(a, co_await std::move(stopped), true);
      break;
    }
    case 7:
    case 8:
      co_await pass_elsewhere(a);
      co_return;
    default:
      heard(a, co_await pass_of(a, retention), false);
    }
    if (retention == graph_retention::release) released_ = true;
  }

  asio::awaitable<void> pass_elsewhere(const attempt& a) {
    const std::uint64_t which = seen().passes.size();
    seen().passes.push_back({a.given, {}, {}});
    const auto asked =
        co_await outcome_of(me_.peer(draw(me_.world_size())).call<&begins_a_pass>(which, a.roots));
    if (!asked) {
      const bool waited = fast() && asked.error() == errc::timed_out;
      judge(me_, "a call that begins a pass", asked.error(), may_be_cancelled_ || waited);
      lost_ = true;
    } else if (const auto& outcome = seen().passes[which].outcome) {
      heard(a, *outcome, false);
    } else {
      complain("a function that has returned did not");
    }
  }

  /// What the totals may be after a pass with that outcome.
  void heard(const attempt& a, const expected<void>& outcome, bool may_fail) {
    if (outcome) {
      ++seen().passed;
      for (tensors& t : totals_) add(t, a.gradients);
      return;
    }
    ++seen().failed;
    const error& e = outcome.error();
    may_fail = may_fail || fast();
    const bool of_released = released_ && e == errc::autograd_pass_aborted;
    const bool short_of_time = may_fail && (e == errc::timed_out || e == errc::cancelled);
    judge(me_, "a pass", e, of_released || short_of_time || may_be_cancelled_);
    // What failed shows nothing, but it may have succeeded when it was cancelled, or the run ended.
    const bool surely = e == errc::timed_out || e == errc::autograd_pass_aborted;
    if (surely || (!seen().calls.world.faulty() && e != errc::cancelled)) return;
    for (std::size_t i = 0, n = totals_.size(); i < n; ++i) {
      totals_.push_back(totals_[i]);
      add(totals_.back(), a.gradients);
    }
  }

  [[nodiscard]] bool fast() const { return context_.state()->how == autograd::mode::fast; }

  static void add(tensors& to, const tensors& more) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (more[i].defined()) to[i] = to[i].defined() ? to[i] + more[i] : more[i];
    }
  }

  /// Leaves no totals but those that have these gradients at these places.
  void compare(const std::vector<std::size_t>& places, const tensors& got, std::uint32_t where) {
    const auto fits = [&](const tensors& total) {
      for (std::size_t i = 0; i < places.size(); ++i) {
        if (!same(total[places[i]], got[i])) return false;
      }
      return true;
    };
    if (got.size() != places.size()) {
      lost_ = true;
      return complain("gradients are missing");
    }
    if (std::none_of(totals_.begin(), totals_.end(), fits)) {
      complain("gradients on worker " + std::to_string(where) + " are not those of one process");
      lost_ = true;
      return;
    }
    std::erase_if(totals_, [&](const tensors& t) { return !fits(t); });
  }

  asio::awaitable<void> check() {
    const auto mine =
        co_await outcome_of(in_time(me_, "a look at gradients", {}, context_.gradients()));
    if (!mine) {
      judge(me_, "a look at gradients", mine.error(), may_be_cancelled_);
      lost_ = true;
      co_return;
    }
    tensors got;
    for (const at::Tensor& t : leaves_) got.push_back(mine->find(t));
    compare({0, 1, 2}, got, me_.rank());
    for (std::uint32_t r = 0; r < me_.world_size() && !lost_; ++r) {
      const auto owned = of_.owned_by(r);
      if (owned.empty() && draw(2) == 1) continue;  // it may never hear of this context
      const auto there =
          co_await outcome_of(me_.peer(r).call<&gradients_here>(of_.numbers_of(owned)));
      if (!there) {
        judge(me_, "a look at gradients elsewhere", there.error(), may_be_cancelled_);
        lost_ = true;
        co_return;
      }
      std::vector<std::size_t> places;
      for (const std::size_t i : owned) places.push_back(leaves_.size() + i);
      places.push_back(leaves_.size() + of_.layers.size() + r);
      compare(places, *there, r);
    }
  }

  asio::awaitable<void> step() {
    if (!of_.optimizer) co_return;
    const tensors& total = totals_.front();
    const std::uint32_t how = draw(8);
    expected<void> done;
    if (how >= 6) {
      // It may come to an owner before the outcome of the pass does.
      const std::uint32_t to = draw(me_.world_size());
      done = co_await outcome_of(me_.peer(to).call<&steps_for_another>(*of_.optimizer));
    } else if (how == 4) {
      const duration limit = draw_duration() / 16;
      done = co_await outcome_of_step(
          in_time(me_, "a step", limit, of_.optimizer->step(context_, within(limit))));
    } else if (how == 5) {
      auto stopped =
          me_.spawn(outcome_of_step(in_time(me_, "a step", {}, of_.optimizer->step(context_))));
      co_await sleep_for(me_, draw_duration() / 16);
      stopped.request_stop();
      done = co_await std::move(stopped);
    } else {
      done = co_await outcome_of_step(in_time(me_, "a step", {}, of_.optimizer->step(context_)));
    }
    bool nowhere = false;
    if (!done) {
      const bool lost =
          judge(me_, "a step", done.error(), how == 4 || how == 5 || may_be_cancelled_);
      nowhere = done.error().ran() == call_progress::not_sent ||
                done.error().ran() == call_progress::not_executed;
      if (lost) of_.sure = false;
      if (how >= 6) co_return;      // it may go on there
      co_await sleep_for(me_, 1s);  // until what has begun has ended
    }
    co_await look_at_weights(of_, total, done, nowhere, may_be_cancelled_);
  }

  void complain(const std::string& what) {
    seen().calls.complain(what + ", for worker " + std::to_string(me_.rank()) + " in context " +
                          std::to_string(context_.id()));
  }

  trainer& of_;
  worker& me_;
  autograd::context context_;
  bool may_be_cancelled_;
  bool released_ = false;  // what some nodes saved
  bool lost_ = false;      // nothing can be said any more
  tensors leaves_, twins_, roots_, root_twins_;
  std::vector<tensors> totals_;  // which the gradients may be
};

asio::awaitable<void> some_lesson(trainer& of, bool steps, bool may_be_cancelled) {
  const inside_now lives;
  // FAST passes that nobody ends wait until their deadline.
  const auto how = draw(4) == 3 ? autograd::mode::fast : autograd::mode::smart;
  const auto body = [&](autograd::context ctx) -> asio::awaitable<void> {
    lesson l(of, std::move(ctx), may_be_cancelled);
    co_await l.run(steps);
  };
  co_await autograd::with_context(of.me, body, {.mode = how});
  if (!steps) co_return;  // it may have been stopped, and its trainer be gone
  if (const auto rode = std::exchange(of.rode, std::nullopt)) {
    const auto done =
        co_await outcome_of_step(in_time(of.me, "a finish", {}, of.optimizer->finish()));
    if (!done) {
      if (judge(of.me, "a finish", done.error(), may_be_cancelled)) of.sure = false;
      co_await sleep_for(of.me, 1s);
    }
    ++seen().rode;
    const expected<void> failed = unexpected(error(errc::autograd_pass_aborted, ""));
    co_await look_at_weights(of, rode->total, rode->passed ? done : failed, !rode->passed,
                             may_be_cancelled);
  }
}

asio::awaitable<bool> prepare(trainer& t) {
  worker& me = t.me;
  const std::uint32_t count = 1 + draw(3);
  std::vector<rref<at::Tensor>> weights;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t to = draw(me.world_size());
    t.numbers.push_back(seen().layers.size());
    t.values.push_back(drawn_matrix());
    seen().layers.push_back({to, t.values.back(), {}});
    t.layers.push_back(me.peer(to).remote<&make_layer>(t.numbers.back()));
  }
  for (const rref<layer>& l : t.layers) weights.push_back(co_await l.call<&layer::share>());
  if (draw(4) == 3) co_return true;
  weights.push_back(me.share(t.own));
  t.rate = static_cast<double>(1 << draw(3));
  t.optimizer = co_await sgd::create(me, std::move(weights), torch::optim::SGDOptions(t.rate));
  co_return true;
}

asio::awaitable<void> train(worker& me) {
  trainer t{.me = me};
  const auto ready = co_await outcome_of(prepare(t));
  if (!ready) {
    judge(me, "preparing", ready.error(), false);
    co_return;
  }
  const std::uint32_t rounds = 1 + draw(2);
  for (std::uint32_t i = 0; i < rounds && t.sure; ++i) {
    const std::uint32_t how = draw(8);
    expected<void> done;
    if (how == 6) {
      auto one = me.spawn(outcome_of(some_lesson(t, false, false)));
      auto two = me.spawn(outcome_of(some_lesson(t, false, false)));
      done = co_await std::move(one);
      const auto other = co_await std::move(two);
      if (done) done = other;
    } else if (how == 7) {
      auto stopped = me.spawn(some_lesson(t, false, true));
      co_await sleep_for(me, draw_duration() / 16);
      stopped.request_stop();
      try {
        co_await std::move(stopped);
      } catch (const std::system_error&) {  // as it was asked to
      }
    } else {
      done = co_await outcome_of(some_lesson(t, true, false));
    }
    if (!done) {
      judge(me, "a lesson", done.error(), false);
      t.sure = false;
    }
  }
}

}  // namespace

learning_witness::learning_witness(witness& of) : calls(of) {
  current = this;
  size = 1 + of.world.decide().pick(2);
  for (std::uint32_t r = 0; r < of.world.size(); ++r) shared.push_back(leaf(matrix(r + 1)));
}

layer::layer(std::uint64_t number, std::uint32_t here) : number_(number), in_(&seen()) {
  seen_layer& l = in_->layers.at(number);
  ++l.made;
  if (l.owner != here) in_->calls.complain("a layer was made on another worker");
  weight_ = leaf(l.start);
  l.weight = weight_;
}
layer::~layer() {
  if (!in_) return;
  seen_layer& l = in_->layers.at(number_);
  l.weight = at::Tensor();
  if (++l.dead > l.made) in_->calls.complain("a layer died twice");
  if (in_->calls.world.runs_now() != l.owner) {
    in_->calls.complain("a layer of worker " + std::to_string(l.owner) + " died on worker " +
                        std::to_string(in_->calls.world.runs_now()));
  }
}
asio::awaitable<tensors> layer::run(worker& me, std::uint64_t which, rref<layer> next, tensors in) {
  const inside_now lives;
  std::vector<rref<layer>> known;
  if (const auto at = seen().plans[which].layer) {
    known.resize(*at + 1);
    known[*at] = std::move(next);
  }
  co_return co_await carry_out(me, which, std::move(known), std::move(in), weight_);
}
tensors layer::run_on_pool(std::uint64_t which, const tensors& in) const {
  return compute_all(which, in, weight_);
}
immediate<tensors> layer::run_in_place(std::uint64_t which, const tensors& in) const {
  return compute_all(which, in, weight_);
}
rref<at::Tensor> layer::share(worker& me) const { return me.share(weight_); }

asio::awaitable<void> some_learning(worker& me) {
  const inside_now lives;
  learning_witness& w = seen();
  witness& calls = w.calls;
  sim::world& world = calls.world;
  try {
    if (me.rank() == 0 || draw(2) == 1) co_await train(me);
    calls.mains_done.push_back(me.rank());
    const auto clean = [&](std::uint32_t r) {
      const auto& contexts = world.worker_at(r).use<autograd_service>();
      return contexts.contexts() == 0 && w.living(r) == 0 &&
             (world.faulty() || world.worker_at(r).use<rref_service>().idle());
    };
    // bounded: by the world's time
    while (!calls.all_mains_done()) co_await sleep_for(me, 20ms);
    const time_point began = me.time().now();
    const auto has_time = [&] {
      duration most = me.settings().lost_after + 1s + 2 * me.settings().call_deadline + 4s;
      // Those who were cut off have to miss each other first, and who is paused wakes late.
      if (world.was_cut()) most += me.settings().stall_limit + 14s;
      return me.time().now() - began < most;
    };
    // bounded: by has_time
    while (has_time() && !calls.all_living(clean)) co_await sleep_for(me, 20ms);
    if (!clean(me.rank())) {
      const auto& contexts = me.use<autograd_service>();
      calls.complain("worker " + std::to_string(me.rank()) + " is left with " +
                     std::to_string(contexts.contexts()) + " contexts, " +
                     std::to_string(contexts.passes()) + " passes and " +
                     std::to_string(w.living(me.rank())) + " layers; " +
                     me.use<rref_service>().describe());
    }
    if (calls.is_quiet_at_the_end) {
      co_await sleep_for(me, 1s);
      co_await must_be_quiet(me);
    }
  } catch (const std::exception& e) {
    calls.mains_threw.push_back(me.rank());
    throw;
  }
}

namespace {

class script_of_gradients final : public script {
 public:
  explicit script_of_gradients(witness& sees) : sees_(sees), learned_(sees) {}
  asio::awaitable<void> main(worker& me) override { return some_learning(me); }
  counts count() const override {
    return {{"graphs", learned_.lessons},
            {"passes", learned_.passed},
            {"failed passes", learned_.failed},
            {"steps of optimizers", learned_.stepped},
            {"steps at the end of a pass", learned_.rode},
            {"second derivatives", learned_.twice}};
  }
  void check() override {
    learned_.shared.clear();
    for (std::size_t i = 0; i < learned_.layers.size(); ++i) {
      const seen_layer& l = learned_.layers[i];
      if (l.made != l.dead) sees_.complain("layer " + std::to_string(i) + " never died");
    }
  }

 private:
  witness& sees_;
  learning_witness learned_;
};

}  // namespace

const program program::gradients{"gradients",
                                 [] { return engine::services<rref_service, autograd_service>(); },
                                 [](witness& sees) -> std::unique_ptr<script> {
                                   return std::make_unique<script_of_gradients>(sees);
                                 }};

}  // namespace weft::testing
