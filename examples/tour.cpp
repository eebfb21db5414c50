// SPDX-License-Identifier: BSL-1.0
// A tour of what a program can say, a few lines for each; the README shows the numbered parts.
#include <weft/optim/distributed.hpp>
#include <weft/run.hpp>

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <iostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::literals;

// What the parts call.
int slow_square(int x) { return x * x; }
at::Tensor big(int n) { return at::ones({n}); }
double sum_of(at::Tensor& t) { return t.sum().item<double>(); }
void note(std::string text) { std::clog << text << '\n'; }
asio::awaitable<int> never(weft::worker& me) {
  co_await weft::event::async_wait(weft::make_intrusive<weft::event>(), asio::use_awaitable);
  co_return static_cast<int>(me.rank());
}

// [start, post]
asio::awaitable<int> start_and_post(weft::peer p) {
  weft::future<int> nine = p.start<&slow_square>(3);  // on its way; this coroutine goes on
  p.post<&note>("computing");                         // one way: no result, no error from there
  int four = co_await p.call<&slow_square>(2);
  co_return four + co_await std::move(nine);
}
// [end]

// [remote]
asio::awaitable<double> leave_it_there(weft::peer p) {
  weft::rref<at::Tensor> there = p.remote<&big>(1000);  // usable at once; the tensor stays at p
  co_return co_await there.call<&sum_of>();             // sum_of takes at::Tensor&
}
// [end]

// [within, as_expected]
asio::awaitable<std::string> give_up(weft::peer p) {
  weft::expected<int> r = co_await p.call<&never>(weft::within(50ms), weft::as_expected);
  if (r) co_return "it ended";
  bool again = r.error().ran() <= weft::call_progress::not_executed;  // then it is safe to repeat
  co_return r.error().code().message() + (again ? ", try again" : ", it may have run");
}
// [end]

// [with_task_group]
asio::awaitable<void> tell_all(weft::worker& me) {
  co_await weft::with_task_group([&](weft::task_group& group) -> asio::awaitable<void> {
    for (weft::peer p : me.peers("")) group.spawn(p.call<&note>("hello from " + me.name()));
    co_return;
  });  // waits for all of them; if one fails, the others are cancelled
}
// [end]

// [event, immediate]
struct gate {
  using immediate_constructor = gate;
  weft::intrusive_ptr<weft::event> opened = weft::make_intrusive<weft::event>();
  weft::immediate<void> open() {  // in place, on the thread that read the request: must not block
    opened->set();
    return {};  // immediate is no coroutine: it returns, also nothing
  }
  asio::awaitable<void> wait() { co_await weft::event::async_wait(opened, asio::use_awaitable); }
};
// [end]

// [named, expose]
namespace {
int half(int x) { return x / 2; }  // a name that only this file knows
}  // namespace
constexpr auto& half_everywhere = weft::named<"tour.half", &half>;
// Callable from other programs, or by a line that another source file has.
void called_by_others() { weft::expose<half_everywhere>(); }
// [end]

// [a type of one's own]
struct money {
  explicit money(std::int64_t c) : cents(c) {}  // no aggregate: weft cannot see what it is made of
  static constexpr std::string_view weft_structure = "money 1";  // names the format
  std::int64_t cents;
};
void weft_encode(weft::writer& w, const money& m) { weft::encode(w, m.cents); }
money weft_decode(weft::reader& r, std::type_identity<money>) {
  return money(weft::decode<std::int64_t>(r));
}
// [end]
money doubled(money m) { return money(2 * m.cents); }

class scale {
 public:
  std::vector<weft::rref<at::Tensor>> parameters(weft::worker& me) { return {me.share(by_)}; }
  at::Tensor forward(at::Tensor x) { return x * by_; }

 private:
  at::Tensor by_ = at::ones({1}).set_requires_grad(true);
};

using torch::optim::SGD, torch::optim::SGDOptions;

// [optim]
asio::awaitable<void> one_step(weft::worker& me, weft::rref<scale> model) {
  auto there = co_await model.call<&scale::parameters>();  // references; they stay where they are
  auto sgd = co_await weft::optim::distributed<SGD>::create(me, there, SGDOptions(0.5));
  co_await weft::autograd::with_context(
      me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
        at::Tensor y = co_await model.call<&scale::forward>(at::ones({1}));
        co_await ctx.backward(y.sum());
        co_await sgd.step(ctx);
      });
}
// [end]

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  weft::peer p = me.peer(1);
  std::cout << "start, post: " << co_await start_and_post(p) << '\n';
  std::cout << "remote: " << co_await leave_it_there(p) << '\n';
  std::cout << "within, as_expected: " << co_await give_up(p) << '\n';
  co_await tell_all(me);
  std::cout << "with_task_group: all were told\n";
  auto there = p.make<gate>();
  auto waiting = there.start<&gate::wait>();
  co_await there.call<&gate::open>();
  co_await std::move(waiting);
  std::cout << "event, immediate: opened\n";
  std::cout << "named: " << co_await p.call<half_everywhere>(42) << '\n';
  money two = co_await p.call<&doubled>(money(100));
  std::cout << "a type of one's own: " << two.cents << '\n';
  auto model = p.make<scale>();
  co_await one_step(me, model);
  at::Tensor y = co_await model.call<&scale::forward>(at::ones({1}));
  std::cout << "optim: " << y.item<double>() << '\n';
}

int main() {
  called_by_others();
  return weft::run<weft::inproc>(main_, weft::options{.workers = 2});
}
