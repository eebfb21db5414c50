// SPDX-License-Identifier: BSL-1.0
// A tour of what a program can say, a few lines for each; the guide shows each part.
#include <weft/optim/distributed.hpp>
#include <weft/run.hpp>

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::literals;

// What the parts call.
int slow_square(int x) { return x * x; }
int half_of(int x) { return x / 2; }
at::Tensor big(int n) { return at::ones({n}); }
double sum_of(at::Tensor& t) { return t.sum().item<double>(); }
void note(std::string text) { std::clog << text << '\n'; }
asio::awaitable<int> never(weft::worker& me) {
  co_await weft::event::async_wait(weft::make_intrusive<weft::event>(), asio::use_awaitable);
  co_return static_cast<int>(me.rank());
}

asio::awaitable<void> count(weft::channel<int> to) {
  for (int i = 1; i <= 4; ++i) co_await to.send(i);
  to.close();
}
struct shard {
  std::int64_t rows = 0;
  void add(std::int64_t n) { rows += n; }
  std::int64_t size() const { return rows; }
};

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

struct stage {
  explicit stage(double factor) : by(factor) {}
  at::Tensor forward(const at::Tensor& x) { return x * by; }
  double by;
};
// [a reference as an argument]
asio::awaitable<double> through_two(weft::worker& me, weft::peer p) {
  auto first = p.make<stage>(2.0), second = me.make<stage>(3.0);
  weft::rref<at::Tensor> hidden = first.remote<&stage::forward>(at::ones({2, 2}));
  weft::rref<at::Tensor> out = second.remote<&stage::forward>(hidden);  // comes straight from p
  co_return (co_await out.to_here()).sum().item<double>();              // waits for both
}
// [end]

// [a result that is a reference]
weft::rref<stage> best_stage(weft::worker& me) {  // p decides where it is
  return me.peer(0).make<stage>(5.0);
}
asio::awaitable<double> through_a_result(weft::peer p) {
  weft::rref<stage> best = p.remote<&best_stage>();  // usable at once: not an rref of an rref
  at::Tensor out = co_await best.call<&stage::forward>(at::ones({2, 2}));  // by p, to the stage
  co_return out.sum().item<double>();
}
// [end]

struct account {
  explicit account(int n) : balance(n) {}
  asio::awaitable<int> withdraw(int n) {
    if (balance < n) co_return 0;
    co_await weft::sleep_for(1ms);  // others would come in between, and find as much
    balance -= n;
    co_return n;
  }
  int balance;
};
// [exclusive]
asio::awaitable<int> never_overdrawn(weft::peer p) {
  auto shared = p.make<weft::exclusive<account>>(100);
  std::vector<asio::awaitable<int>> paid;
  for (int i = 0; i < 4; ++i) paid.push_back(shared.call<&account::withdraw>(30));
  int all = 0;
  for (int n : co_await weft::gather(std::move(paid))) all += n;
  co_return all;
}
// [end]

// [publish, lookup]
struct counter {
  asio::awaitable<int> add(int n) { co_return value += n; }
  int value = 0;
};
void serve_it(weft::worker& me) { me.publish("counter", me.share(counter{})); }
asio::awaitable<int> find_it(weft::peer server) {  // also before it is published: then it waits
  auto there = co_await server.lookup<counter>("counter", weft::within(5s));
  co_return co_await there.call<&counter::add>(2);
}
// [end]

// [within, as_expected]
asio::awaitable<std::string> give_up(weft::peer p) {
  weft::expected<int> r = co_await p.call<&never>(weft::within(50ms), weft::as_expected);
  if (r) co_return "it ended";
  co_return r.error().code().message() +
      (r.error().safe_to_repeat() ? ", try again" : ", it may have run");
}
// [end]

// [retry, idempotent]
int look_up(std::string key) { return static_cast<int>(key.size()); }
template <>
inline constexpr bool weft::idempotent<&look_up> = true;  // running it twice does no harm

asio::awaitable<int> insist(weft::peer p) {  // 5 attempts of up to 200 ms, all within 2 s
  co_return co_await p.call<&look_up>("retry", weft::retry{.each = 200ms}, weft::within(2s));
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

// [gather, first]
asio::awaitable<int> ask_everybody(weft::worker& me) {
  auto [four, five] = co_await weft::gather(me.peer(0).call<&slow_square>(2),  // side by side
                                            me.peer(1).call<&half_of>(10));
  std::vector<weft::future<int>> answers;
  for (weft::peer p : me.peers("")) answers.push_back(p.start<&slow_square>(3));
  auto fastest = co_await weft::first(1, std::move(answers));  // the others are cancelled
  co_return four + five + *fastest[0].result;
}
// [end]

// [on_pool, sleep_for, with_deadline]
asio::awaitable<double> in_time(at::Tensor x) {
  at::Tensor y = co_await weft::on_pool([](at::Tensor t) { return t.matmul(t); }, x);
  co_await weft::sleep_for(1ms);  // the worker's thread does something else meanwhile
  co_return co_await weft::with_deadline(5s, weft::on_pool([y] { return y.sum().item<double>(); }));
}
// [end]

// [channel]
asio::awaitable<int> pass_along(weft::worker& me) {
  weft::channel<int> numbers(2);                           // who sends a third one waits
  weft::future<void> producer = me.spawn(count(numbers));  // sends 1 to 4, then numbers.close()
  int sum = 0;
  while (auto n = co_await numbers.receive()) sum += *n;  // until it is closed, and empty
  co_await std::move(producer);
  co_return sum;
}
// [end]

// [callback]
asio::awaitable<void> count_to(int n, weft::callback<void(int)> told) {
  for (int i = 1; i <= n; ++i) co_await told(i);  // runs where it was made
}
asio::awaitable<int> hear_of_it(weft::worker& me, weft::peer p) {
  int last = 0;
  weft::callback<void(int)> told(me, [&](int i) { last = i; });
  co_await p.call<&count_to>(3, told);
  co_return last;
}
// [end]

// [sharded]
asio::awaitable<std::int64_t> split(weft::worker& me) {
  auto table = co_await weft::make_sharded<shard>(me.peers(""));  // one on each
  co_await table.on(1).call<&shard::add>(7);
  table.local()->add(5);  // this worker's own; as an argument, the receiver's own
  std::int64_t sum = 0;
  for (std::int64_t n : co_await table.call_all<&shard::size>()) sum += n;
  co_return sum;
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
  std::cout << "a reference as an argument: " << co_await through_two(me, p) << '\n';
  std::cout << "a result that is a reference: " << co_await through_a_result(p) << '\n';
  std::cout << "exclusive: " << co_await never_overdrawn(p) << '\n';
  auto found = me.spawn(find_it(p));
  co_await p.call<&serve_it>();
  std::cout << "publish, lookup: " << co_await std::move(found) << '\n';
  std::cout << "within, as_expected: " << co_await give_up(p) << '\n';
  std::cout << "retry: " << co_await insist(p) << '\n';
  co_await tell_all(me);
  std::cout << "with_task_group: all were told\n";
  std::cout << "gather, first: " << co_await ask_everybody(me) << '\n';
  std::cout << "on_pool, sleep_for, with_deadline: " << co_await in_time(at::ones({2, 2})) << '\n';
  std::cout << "channel: " << co_await pass_along(me) << '\n';
  std::cout << "callback: " << co_await hear_of_it(me, p) << '\n';
  std::cout << "sharded: " << co_await split(me) << '\n';
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
