// SPDX-License-Identifier: BSL-1.0
// Reinforcement learning: an agent holds the policy, and observers, each with an environment of its
// own, ask it for every action. The agent answers one state of each observer at once, and learns
// from whole episodes (REINFORCE: Williams, Machine Learning 8, 1992). Prints
//
//   an untrained agent needs more than 4 steps to the goal
//   after 240 episodes it needs 4
#include <weft/run.hpp>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

/// A corridor of five cells: from the left end to the goal at the right one. Action 1 goes right.
class corridor {
 public:
  static constexpr std::int64_t cells = 5;
  [[nodiscard]] std::int64_t cell() const { return cell_; }
  [[nodiscard]] bool done() const { return cell_ == cells - 1; }
  void go(std::int64_t action) {
    cell_ = action == 1 ? cell_ + 1 : std::max<std::int64_t>(0, cell_ - 1);
  }

 private:
  std::int64_t cell_ = 0;
};

struct episode {
  std::uint32_t observer = 0;
  std::vector<std::int64_t> cells, actions;
  double score = 0;  // 1 for the goal, less what the way took
};

class agent {
 public:
  explicit agent(std::size_t observers) : observers_(observers) {}

  /// An action for that cell. Waits until every observer that still runs has asked, and computes
  /// all their answers in one pass: a table may be asked on this thread, a network on the pool.
  /// Who gives up while it waits has been counted: then this object is of no use any more.
  asio::awaitable<std::int64_t> act(std::uint32_t observer, std::int64_t cell) {
    const auto now = round_;
    const std::size_t mine = now->cells.size();
    now->observers.push_back(observer);
    now->cells.push_back(cell);
    answer_if_all_asked();
    co_await weft::event::wait(now->answered);
    co_return now->actions[mine];
  }
  /// An observer's episode is over: the others are not to wait for it.
  asio::awaitable<void> finished(episode e) {
    episodes_.push_back(std::move(e));
    answer_if_all_asked();
    co_return;
  }
  /// Between episodes, from all of them at once, in whatever order they ended.
  asio::awaitable<void> learn() {
    std::sort(episodes_.begin(), episodes_.end(),
              [](const episode& a, const episode& b) { return a.observer < b.observer; });
    const at::Tensor chances = preference_.softmax(1);  // of the policy that played
    at::Tensor change = at::zeros_like(preference_);
    double mean = 0;
    for (const episode& e : episodes_) mean += e.score / static_cast<double>(episodes_.size());
    for (const episode& e : episodes_) {
      for (std::size_t i = 0; i < e.cells.size(); ++i) {
        at::Tensor gradient = -chances[e.cells[i]];  // of the action's log-likelihood
        gradient[e.actions[i]] += 1;
        change[e.cells[i]] += gradient * (e.score - mean);
      }
    }
    preference_ += 0.5 * change.clamp(-1, 1);
    episodes_.clear();
    co_return;
  }
  /// Steps to the goal by the likelier action, at most 20.
  asio::awaitable<int> steps_needed() {
    corridor c;
    int steps = 0;
    for (; !c.done() && steps < 20; ++steps) {
      c.go(preference_[c.cell()].argmax().item<std::int64_t>());
    }
    co_return steps;
  }

 private:
  struct round {
    std::vector<std::uint32_t> observers;
    std::vector<std::int64_t> cells, actions;
    weft::intrusive_ptr<weft::event> answered = weft::make_intrusive<weft::event>();
  };

  void answer_if_all_asked() {
    if (round_->cells.empty() || round_->cells.size() + episodes_.size() < observers_) return;
    const auto now = std::exchange(round_, std::make_shared<round>());
    const at::Tensor chances =
        preference_.index_select(0, at::tensor(now->cells)).softmax(1).contiguous();
    for (std::int64_t i = 0; i < chances.size(0); ++i) {
      const double right = chances[i][1].item<double>();
      now->actions.push_back(draw_of(now->observers[static_cast<std::size_t>(i)]) < right ? 1 : 0);
    }
    now->answered->set();
  }

  /// In [0, 1). Each observer has draws of its own: nothing depends on who asks first.
  double draw_of(std::uint32_t observer) {
    const auto [at, first] = random_.try_emplace(observer, observer);
    return static_cast<double>(at->second()) / 4294967296.0;
  }

  std::size_t observers_;
  at::Tensor preference_ = at::zeros({corridor::cells, 2});
  std::vector<episode> episodes_;
  std::shared_ptr<round> round_ = std::make_shared<round>();
  std::map<std::uint32_t, std::mt19937> random_;
};

/// At an observer.
asio::awaitable<void> run_episode(weft::worker& me, weft::rref<agent> policy) {
  corridor c;
  episode e;
  e.observer = me.rank();
  while (!c.done() && e.cells.size() < 30) {
    e.cells.push_back(c.cell());
    e.actions.push_back(co_await policy.call<&agent::act>(me.rank(), c.cell()));
    c.go(e.actions.back());
  }
  e.score = (c.done() ? 1 : 0) - 0.05 * static_cast<double>(e.cells.size());
  co_await policy.call<&agent::finished>(std::move(e));
}

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  const std::vector<weft::peer> observers = me.peers("observer");
  const weft::rref<agent> policy = me.make<agent>(observers.size());
  const int before = co_await policy.call<&agent::steps_needed>();
  std::cout << "an untrained agent needs " << (before > 4 ? "more than 4" : "few")
            << " steps to the goal\n";
  std::size_t episodes = 0;
  for (int round = 0; round < 80; ++round) {
    std::vector<asio::awaitable<void>> running;
    for (const weft::peer& p : observers) running.push_back(p.call<&run_episode>(policy));
    episodes += running.size();
    co_await weft::gather(std::move(running));
    co_await policy.call<&agent::learn>();
  }
  std::cout << "after " << episodes << " episodes it needs "
            << co_await policy.call<&agent::steps_needed>() << '\n';
}

int main() {
  weft::options o{.workers = 4};
  o.role = [](std::uint32_t rank, std::uint32_t) {
    return std::string(rank == 0 ? "agent" : "observer");
  };
  return weft::run<weft::unix_socket, weft::tcp>(main_, o);
}
