// SPDX-License-Identifier: BSL-1.0
// Bodies of ../autograd_service.hpp: plans that passes repeat, and what a FAST pass waits for.
#pragma once

#include <weft/engine/services/autograd_service.hpp>
#include <weft/engine/serving/not_made.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace weft::engine {

/// A pass over a retained graph has succeeded: a later one from the same roots needs no discovery.
/// All workers keep those with the highest numbers, and its initiator the fewest: an older one may
/// be on its way to be repeated while newer ones become known.
inline void autograd_service::keep_plan(context_state& c, autograd::local_pass& pass) const {
  if (c.how != autograd::mode::smart || !pass.can_be_kept()) return;
  const autograd::pass_id& id = pass.plan().pass();
  auto& kept = c.plans[id.initiator];
  kept[id.number] = pass.keep();
  if (kept.size() > (id.initiator == me_.rank() ? 8 : 32)) kept.erase(kept.begin());
}

/// Also of a pass whose success has not been heard of here yet.
inline std::shared_ptr<const autograd::kept_plan>
autograd_service::find_plan(context_state& c, std::uint32_t initiator, std::uint32_t number) {
  if (const auto of = c.plans.find(initiator); of != c.plans.end()) {
    if (const auto kept = of->second.find(number); kept != of->second.end()) return kept->second;
  }
  const auto under_way = c.passes.find({c.id, initiator, number});
  if (under_way == c.passes.end() || !under_way->second->can_be_kept()) return nullptr;
  return under_way->second->keep();
}

/// Under the context's lock.
inline std::shared_ptr<autograd::local_pass>
autograd_service::new_pass(context_state& c, const autograd::pass_id& id,
                           const std::vector<autograd::root>& roots,
                           autograd::pass_settings settings, effects& todo) {
  if (const auto mine = c.plans.find(me_.rank()); mine != c.plans.end()) {
    const auto nodes = autograd::local_pass::nodes_of(roots);
    for (const auto& [number, kept] : mine->second) {
      if (kept->roots != nodes) continue;
      // Others may lie where nodes were that are gone; but not while all of these are there.
      if (std::vector<std::shared_ptr<torch::autograd::Node>> owners; kept->lock(owners)) {
        return std::make_shared<autograd::local_pass>(id, *kept, settings, std::move(owners));
      } else {
        std::move(owners.begin(), owners.end(), std::back_inserter(todo.nodes));
      }
    }
  }
  return std::make_shared<autograd::local_pass>(id, me_.rank(), me_.world_size(), c.sends, settings,
                                                c.how);
}

/// Under the context's lock.
inline std::string autograd_service::words_of_message(const context_state& c,
                                                      autograd::message_id message) const {
  std::string text = "message " + std::to_string(message);
  const auto node = c.sends.find(message);
  if (!node) return text;
  const function_entry* const f = find_function(node->call().function);
  if (f == nullptr) return text + " to worker '" + name_of(node->where().peer) + "'";
  text += node->call().request ? ", the arguments of " : ", the result of ";
  return text + std::string(f->name) + " to worker '" + name_of(node->where().peer) + "'";
}

/// What the pass waits for here, for people.
inline std::string autograd_service::missing_here(const context_state& c,
                                                  const autograd::local_pass& pass) const {
  constexpr std::size_t most = 8;
  std::string text;
  std::size_t count = 0;
  pass.plan().each_missing([&](const autograd::peer_message& m) {
    if (++count > most) return;
    if (count != 1) text += ", ";
    text += words_of_message(c, m.message);
  });
  if (count > most) text += " and " + std::to_string(count - most) + " more";
  return text;
}

/// Shortly before the deadline of a FAST pass.
inline void autograd_service::ask_for_missing(const intrusive_ptr<context_state>& c,
                                              const std::shared_ptr<autograd::local_pass>& pass) {
  std::vector<autograd::worker_rank> slow;
  {
    const std::lock_guard lock(c->mutex);
    if (pass->over()) return;
    slow = pass->plan().not_done();
  }
  const auto bytes = autograd::encode({pass->plan().pass(), autograd::which_message{}});
  for (const auto rank : slow) {
    if (!queue(rank, bytes, {})) me_.link_to(rank).flush();
  }
}

/// Under the context's lock.
inline std::string autograd_service::missing_anywhere(const context_state& c,
                                                      const autograd::local_pass& pass,
                                                      const pass_waiter& heard) const {
  std::string text;
  const auto add = [&](const std::string& who, const std::string& what) {
    if (what.empty()) return;
    text +=
        (text.empty() ? "" : "; ") + ("worker '" + who + "' waits for the gradients of ") + what;
  };
  if (c.how != autograd::mode::fast) {
    for (const auto rank : pass.plan().not_done()) {
      text += (text.empty() ? ": not done on worker '" : ", '") + name_of(rank) + "'";
    }
    return text;
  }
  add(me_.name(), missing_here(c, pass));
  for (const auto& [rank, what] : heard.waits) add(name_of(rank), what);
  if (text.empty()) return {};
  return ": " + text + "; in FAST mode all results must be used, use autograd::mode::smart if not";
}

}  // namespace weft::engine
