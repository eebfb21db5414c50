// SPDX-License-Identifier: BSL-1.0
// Passes over several workers in one process, through send and receive nodes.

#include "in_process.hpp"
#include <weft/autograd/nodes.hpp>
#include <weft/autograd/pass.hpp>

#include <doctest/doctest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace weft::autograd;
using torch::autograd::variable_list;
using weft::autograd::test::workers;

at::Tensor leaf(at::IntArrayRef sizes, double first = 1) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return (at::arange(n, at::kDouble) + first).reshape(sizes).detach().requires_grad_();
}

struct switched : torch::autograd::Function<switched> {
  static bool on;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static variable_list backward(torch::autograd::AutogradContext*, variable_list g) {
    if (!on) throw std::runtime_error("the switch is off");
    return {g[0] * 2};
  }
};
bool switched::on = true;

}  // namespace

TEST_CASE("pass: two workers give what one process gives") {
  workers ws(2, 1);
  const auto w0 = leaf({3, 3});
  const auto w1 = leaf({3, 3}, -4);
  const auto hidden = ws.transfer(0, {w0.matmul(w0)}, 1)[0];
  const auto back = ws.transfer(1, {hidden.matmul(w1), w1}, 0);
  const auto loss = (back[0] * back[1]).sum();
  CHECK(!ws.backward(0, {&loss, 1}).has_value());

  const auto expected = torch::autograd::grad({(w0.matmul(w0).matmul(w1) * w1).sum()}, {w0, w1});
  CHECK(at::equal(ws.gradients(0).find(w0), expected[0]));
  CHECK(at::equal(ws.gradients(1).find(w1), expected[1]));
  CHECK(ws.gradients(0).size() == 1);
  CHECK(ws.gradients(1).size() == 1);
  CHECK(!w0.grad().defined());
  CHECK(!w1.grad().defined());
}

TEST_CASE("pass: an unused result neither hangs nor gets a gradient") {
  workers ws(3, 2);
  const auto a = leaf({2});
  const auto b = leaf({2});
  const auto used = ws.transfer(1, {a * a}, 0)[0];
  ws.transfer(2, {b * b}, 0);
  const auto loss = used.sum();
  CHECK(!ws.backward(0, {&loss, 1}).has_value());
  CHECK(ws.gradients(1).find(a).defined());
  CHECK(ws.gradients(2).empty());
  CHECK(ws.messages_to(2) == 0);
}

TEST_CASE("pass: tensors of one message that are not used arrive as undefined, not as zeros") {
  workers ws(2, 3);
  const auto a = leaf({2});
  const auto b = leaf({2});
  const auto got = ws.transfer(1, {a * 2, b.detach(), b * 2}, 0);
  CHECK(got[0].requires_grad());
  CHECK(!got[1].requires_grad());
  const auto loss = got[0].sum();
  CHECK(!ws.backward(0, {&loss, 1}).has_value());
  CHECK(at::equal(ws.gradients(1).find(a), at::full({2}, 2.0, at::kDouble)));
  CHECK(!ws.gradients(1).find(b).defined());
}

TEST_CASE("pass: a thousand calls to oneself") {
  workers ws(1, 4);
  const auto a = leaf({1});
  auto x = a.clone();
  for (int i = 0; i < 1000; ++i) x = ws.transfer(0, {x + 1}, 0)[0];
  const auto loss = x.sum();
  CHECK(!ws.backward(0, {&loss, 1}).has_value());
  CHECK(at::equal(ws.gradients(0).find(a), at::ones({1}, at::kDouble)));
  CHECK(ws.messages_to(0) == 0);
}

TEST_CASE("pass: a received tensor as root, hooks and retained gradients on it") {
  workers ws(2, 5);
  const auto a = leaf({2});
  const auto got = ws.transfer(1, {a.sum() * 3}, 0)[0];
  got.retain_grad();
  got.register_hook([](const at::Tensor& g) { return g * 5; });
  CHECK(!ws.backward(0, {&got, 1}).has_value());
  CHECK(got.grad().item<double>() == 5);
  CHECK(at::equal(ws.gradients(1).find(a), at::full({2}, 15.0, at::kDouble)));
}

TEST_CASE("pass: sparse gradients travel") {
  workers ws(2, 6);
  const auto table = leaf({4, 2});
  const auto here = ws.transfer(1, {table}, 0)[0];
  const auto loss = at::embedding(here, at::tensor({1, 3, 1}, at::kLong), -1, false, true).sum();
  CHECK(!ws.backward(0, {&loss, 1}).has_value());
  const auto g = ws.gradients(1).find(table);
  CHECK(g.is_sparse());
  CHECK(at::equal(g.to_dense().select(1, 0), at::tensor({0., 2., 0., 1.}, at::kDouble)));
}

TEST_CASE("pass: an error on another worker is named, nothing is committed, a retry works") {
  workers ws(3, 7);
  const auto a = leaf({2});
  const auto b = leaf({2});
  const auto c = leaf({2});
  const auto far = ws.transfer(2, {switched::apply(c)}, 1)[0];
  const auto near = ws.transfer(1, {far * b}, 0)[0];
  const auto loss = (near * a).sum();
  switched::on = false;
  for (int i = 0; i < 20; ++i) {
    const auto error = ws.backward(0, {&loss, 1}, graph_retention::retain);
    REQUIRE(error.has_value());
    CHECK(error->origin == 2);
    CHECK(error->reason == abort_reason::failed);
    CHECK(error->text.find("the switch is off") != std::string::npos);
    CHECK(error->text.find("switched") != std::string::npos);
    for (worker_rank w = 0; w < 3; ++w) CHECK(ws.gradients(w).empty());
  }
  switched::on = true;
  for (int i = 1; i <= 3; ++i) {
    CHECK(!ws.backward(0, {&loss, 1}, graph_retention::retain).has_value());
    const auto expected = torch::autograd::grad({(c * 2 * b * a).sum()}, {a, b, c});
    CHECK(at::equal(ws.gradients(0).find(a), expected[0] * i));
    CHECK(at::equal(ws.gradients(1).find(b), expected[1] * i));
    CHECK(at::equal(ws.gradients(2).find(c), expected[2] * i));
  }
  CHECK(!ws.backward(0, {&loss, 1}).has_value());
  const auto again = ws.backward(0, {&loss, 1});
  REQUIRE(again.has_value());
  CHECK(again->text.find("second time") != std::string::npos);
}

TEST_CASE("pass: several passes at once over a retained graph, from different workers") {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    workers ws(2, seed);
    const auto a = leaf({2});
    const auto b = leaf({2}, 3);
    const auto at_one = ws.transfer(0, {a * 2}, 1)[0];
    const auto there = (at_one * b).sum();
    const auto here = (ws.transfer(1, {at_one + b}, 0)[0] * a).sum();
    const auto first = ws.start(0, {&here, 1}, graph_retention::retain);
    const auto second = ws.start(1, {&there, 1}, graph_retention::retain);
    const auto third = ws.start(0, {&here, 1}, graph_retention::retain);
    ws.finish();
    for (const auto& p : {first, second, third}) CHECK(!ws.result(p).has_value());
    const auto h = torch::autograd::grad({((a * 2 + b) * a).sum()}, {a, b});
    const auto t = torch::autograd::grad({(a * 2 * b).sum()}, {a, b});
    CHECK(at::equal(ws.gradients(0).find(a), h[0] * 2 + t[0]));
    CHECK(at::equal(ws.gradients(1).find(b), h[1] * 2 + t[1]));
  }
}

TEST_CASE("pass: gradients that do not fit what was sent are refused") {
  send_table sends;
  const auto a = leaf({2});
  const std::vector<at::Tensor> sent{a * 2};
  sends.add(record_send(sent, {0, 1}));
  const auto begun = [&] {
    auto p = std::make_unique<local_pass>(pass_id{1, 0, 1}, 1, 2, sends);
    p->arrive(0, need_message{0, graph_retention::retain, {1}});
    p->arrive(0, go_message{});
    return p;
  };
  const auto is_violation = [](const outputs& out) {
    return out.size() == 1 && std::holds_alternative<wave_output::violation>(out[0]);
  };
  grad_message one{1, 1, {1}};
  {
    const auto p = begun();
    CHECK(is_violation(p->arrive(0, one, {})));                                   // too few
    CHECK(is_violation(p->arrive(0, one, {at::ones({2}), at::ones({2})})));       // too many
    CHECK(is_violation(p->arrive(0, grad_message{1, 2, {1}}, {at::ones({2})})));  // other slots
    CHECK(is_violation(p->arrive(0, grad_message{2, 1, {1}}, {at::ones({2})})));  // unknown
    CHECK(is_violation(p->arrive(0, done_message{}, {at::ones({2})})));
    CHECK(!p->claim());
  }
  for (const at::Tensor& bad : {at::ones({3}, at::kDouble), at::ones({1, 2}, at::kDouble),
                                at::ones({2}, at::kFloat), at::ones({}, at::kDouble)}) {
    const auto p = begun();
    CHECK(p->arrive(0, one, {bad}).empty());
    REQUIRE(p->claim());
    p->evaluate([](worker_rank, packed_gradients&&, bool) {});
    const auto out = p->completed();
    REQUIRE(!out.empty());
    CHECK(std::get<wave_output::aborted>(out.back()).text.find("than its tensor") !=
          std::string::npos);
    CHECK(p->over());
  }
  const auto p = begun();
  CHECK(p->arrive(0, one, {at::ones({2}, at::kDouble)}).empty());
  CHECK(p->arrive(0, one, {at::zeros({2}, at::kDouble)}).empty());  // came twice
  REQUIRE(p->claim());
  CHECK(!p->claim());
  p->evaluate([](worker_rank, packed_gradients&&, bool) {});
  CHECK(p->completed().size() == 1);  // done
  CHECK(p->arrive(0, end_message{}).size() == 1);
  CHECK(at::equal(p->gradients().find(a), at::full({2}, 2.0, at::kDouble)));
}

TEST_CASE("pass: what no other message leads to runs before discovery is over") {
  enum class need_comes { before_run, during_run, after_run };
  for (const auto when : {need_comes::before_run, need_comes::during_run, need_comes::after_run}) {
    CAPTURE(static_cast<int>(when));
    send_table sends;
    const auto a = leaf({2});
    const auto shared = a * 2;
    sends.add(record_send(std::vector<at::Tensor>{shared}, {1, 1}));
    const std::vector<at::Tensor> result{at::ones({2}, at::kDouble)};
    record_receive(result, {1, 7, 1});
    const at::Tensor loss = (result[0] * 3 + shared).sum();

    local_pass p({1, 0, 1}, 0, 2, sends);
    REQUIRE(p.begin(roots_of(std::vector<at::Tensor>{loss})).size() == 1);  // a need
    const auto ask = [&] {
      const need_message need{0, graph_retention::release, {1}, need_reply::none};
      CHECK(p.arrive(1, need).empty());
    };
    std::vector<packed_gradients> sent;
    const auto run = [&] {
      p.evaluate([&](worker_rank to, packed_gradients&& g, bool) {
        CHECK(to == 1);
        sent.push_back(std::move(g));
      });
    };
    if (when == need_comes::before_run) ask();
    REQUIRE(p.claim());
    if (when == need_comes::during_run) ask();
    run();
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].message.message == 7);
    CHECK(at::equal(sent[0].tensors.at(0), at::full({2}, 3, at::kDouble)));
    CHECK(p.completed().empty());
    CHECK(!p.claim());  // `shared` may get more
    if (when == need_comes::after_run) ask();
    CHECK(!p.claim());

    CHECK(p.arrive(1, ack_message{0, {1}, 1}).empty());  // nobody waits for go
    CHECK(p.arrive(1, grad_message{1, 1, {1}}, {at::ones({2}, at::kDouble)}).empty());
    REQUIRE(p.claim());
    run();
    CHECK(p.completed().empty());
    const auto over = p.arrive(1, done_message{});
    REQUIRE(over.size() == 3);  // end, commit, finished
    CHECK(std::holds_alternative<wave_output::finished>(over.back()));
    CHECK(at::equal(p.gradients().find(a), at::full({2}, 4, at::kDouble)));
  }
}

TEST_CASE("pass: a lost initiator drops the pass, also while it runs") {
  send_table sends;
  const auto a = leaf({2});
  const std::vector<at::Tensor> sent{a * 2};
  sends.add(record_send(sent, {0, 1}));
  local_pass p({1, 0, 1}, 1, 2, sends);
  p.arrive(0, need_message{0, graph_retention::release, {1}});
  p.arrive(0, go_message{});
  p.arrive(0, grad_message{1, 1, {1}}, {at::ones({2}, at::kDouble)});
  REQUIRE(p.claim());
  const auto out = p.lost(0);
  REQUIRE(!out.empty());
  CHECK(std::get<wave_output::aborted>(out.back()).reason == abort_reason::lost);
  p.evaluate([](worker_rank, packed_gradients&&, bool) {});
  CHECK(p.completed().empty());
  CHECK(p.gradients().empty());
}

TEST_CASE("nodes: what is recorded") {
  const auto a = leaf({2});
  const auto b = leaf({2});
  const std::vector<at::Tensor> mixed{a, at::ones({2}), at::Tensor(), b, at::ones({2}, at::kLong)};
  const auto node = record_send(mixed, {3, 9});
  REQUIRE(node);
  REQUIRE(node->num_outputs() == 2);
  CHECK(node->next_edge(0).function == torch::autograd::impl::grad_accumulator(a));
  CHECK(node->next_edge(1).function == torch::autograd::impl::grad_accumulator(b));
  CHECK(node->name() == "message 9 to worker 3");

  const std::vector<at::Tensor> plain{at::ones({2})};
  CHECK(record_send(plain, {3, 9}) == nullptr);
  {
    const at::AutoGradMode off(false);
    CHECK(record_send(mixed, {3, 9}) == nullptr);
  }
  const std::vector<at::Tensor> integral{at::ones({2}, at::kLong)};
  CHECK_THROWS_AS(record_receive(integral, {3, 9}), std::invalid_argument);
  const std::vector<at::Tensor> undefined{at::Tensor()};
  CHECK_THROWS_AS(record_receive(undefined, {3, 9}), std::invalid_argument);

  const std::vector<at::Tensor> fresh{at::ones({2})};
  const auto received = record_receive(fresh, {3, 9});
  CHECK(fresh[0].grad_fn() == received);
  CHECK_THROWS_AS(record_receive(fresh, {3, 9}), std::invalid_argument);
  std::string told;
  try {
    torch::autograd::backward({fresh[0].sum()});
  } catch (const std::logic_error& e) {
    told = e.what();
  }
  CHECK(told.find("use backward of the autograd context") != std::string::npos);
}
