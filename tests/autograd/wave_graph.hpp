// SPDX-License-Identifier: BSL-1.0
// An abstract graph for tests of waves, without libtorch.
#pragma once

#include <weft/autograd/messages.hpp>
#include <weft/autograd/wave.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace weft::testing {

using autograd::message_id;
using autograd::node_index;
using autograd::peer_message;
using autograd::send_point;
using autograd::worker_rank;

/// One worker's part of an abstract graph, with fixed node numbers.
struct test_graph {
  struct node {
    std::vector<node_index> edges;
    std::optional<peer_message> receive;
  };
  std::vector<node> nodes;
  std::map<message_id, send_point> sends;

  node_index add(std::vector<node_index> edges) {
    nodes.push_back({std::move(edges), std::nullopt});
    return static_cast<node_index>(nodes.size() - 1);
  }
  template <class F>
  void next(node_index n, F&& visit) {
    for (node_index e : nodes[n].edges) visit(e);
  }
  std::optional<peer_message> receive(node_index n) { return nodes[n].receive; }
  std::optional<send_point> send(message_id m) {
    const auto found = sends.find(m);
    if (found == sends.end()) return std::nullopt;
    return found->second;
  }
  std::size_t messages(worker_rank self) {
    return static_cast<std::size_t>(std::count_if(
        sends.begin(), sends.end(), [&](const auto& s) { return s.second.peer != self; }));
  }
  template <class F>
  void each_send(F&& meet) {
    for (const auto& [id, point] : sends) meet(id, point);
  }
  void freeze() {}
};

}  // namespace weft::testing
