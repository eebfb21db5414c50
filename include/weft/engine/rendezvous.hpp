// SPDX-License-Identifier: BSL-1.0
// How workers find each other: names, roles, addresses and the job token, over a c10d::Store or,
// on one host, through a file (engine/meeting_file.hpp).
//
//   worker r                    the store                     rank 0
//     registers ──► worker/<r> = {name, role, incarnation, addresses}; waits for all of them
//     waits     ◄── verdict = {members} or {failed} ◄──────── decides, for all
//     reads token, joined += 1; the last one deletes the token
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/random.hpp>
#include <weft/core/time.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/meeting_file.hpp>
#include <weft/engine/placement.hpp>
#include <weft/engine/registration.hpp>
#include <weft/rpc/membership.hpp>
#include <weft/wire/detail/tensor_error.hpp>

#include <nlohmann/json.hpp>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft::engine {

using store_ptr = c10::intrusive_ptr<c10d::Store>;

/// What came of a meeting. Rank 0 may be the one that serves the store: keep it to the end.
struct meeting {
  membership all;
  store_ptr store;  ///< none after a meeting in a file
};

/// The store that the launcher provides. Blocks until it answers or `deadline` has passed, or for
/// some times that if what answers is no store.
///   WEFT_STORE_FD             launch_local: rank 0 serves on that listening socket
///   MASTER_ADDR, MASTER_PORT  torchrun and alike; with TORCHELASTIC_USE_AGENT_STORE=True the
///                             agent serves, else rank 0
/// Throws rpc_error rendezvous_failed, invalid_argument.
[[nodiscard]] inline store_ptr open_store(const placement& where, duration deadline);

/// Blocks until every worker has registered. Throws rpc_error: rendezvous_failed (whose text lists
/// who is missing at the deadline, the same for all), duplicate_name (both ranks). `self` gets an
/// incarnation if it has none.
[[nodiscard]] inline membership rendezvous(c10d::Store& store, std::uint32_t rank,
                                           std::uint32_t size, member self, duration deadline,
                                           random_source& random);

/// All of it, in whatever way the environment says, within the deadline and two seconds. Throws
/// rpc_error as the two above do.
[[nodiscard]] inline meeting meet(const placement& where, member self, duration deadline,
                                  random_source random);

[[nodiscard]] inline std::vector<std::uint8_t> to_store(const std::string& text) {
  return {text.begin(), text.end()};
}
[[nodiscard]] inline std::string from_store(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

[[nodiscard]] inline std::string holder_of_store() {
  const auto host = environment_text("MASTER_ADDR");
  const bool agent = environment_text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return "the store" +
         (host ? " at " + *host + ":" + environment_text("MASTER_PORT").value_or("?") : "") +
         ", which " + (agent ? "torchrun's agent" : "rank 0") + " holds,";
}

/// The keys of one meeting, and who says what in them.
class store_meeting {
 public:
  store_meeting(c10d::Store& store, std::uint32_t rank, std::uint32_t size, const countdown& left)
      : store_(store), rank_(rank), size_(size), left_(left) {
    for (std::uint32_t r = 0; r < size; ++r) keys_.push_back("worker/" + std::to_string(r));
  }

  membership run(member self, random_source& random) {
    try {
      return meet(std::move(self), random);
    } catch (const rpc_error&) {
      throw;
    } catch (const std::exception& e) {
      throw rpc_error(errc::rendezvous_failed, holder_of_store() + " is gone: " + words_of(e));
    }
  }

 private:
  membership meet(member self, random_source& random) {
    if (self.incarnation == id128{}) self.incarnation = random_id(random);
    const auto given = token_from_file();
    if (store_.add("seat/" + std::to_string(rank_), 1) != 1) {
      throw rpc_error(errc::rendezvous_failed, "another process has registered as rank " +
                                                   std::to_string(rank_) +
                                                   ": each run needs a MASTER_PORT of its own");
    }
    if (rank_ == 0) store_.set("token", to_store(given ? "file" : random_id(random).text()));
    store_.set(keys_[rank_], to_store(describe(self)));
    if (rank_ == 0) decide();
    membership out;
    out.rank = rank_;
    out.members = heed();
    out.token = token(given);
    // From here on nobody reads it, and the store may answer strangers as long as it likes.
    if (store_.add("joined", 1) == static_cast<std::int64_t>(size_)) store_.deleteKey("token");
    return out;
  }

  /// Rank 0: once all are there, or at the deadline, what becomes of the meeting.
  void decide() {
    nlohmann::json verdict;
    try {
      try {
        store_.wait(keys_, left_.now());
      } catch (const std::exception& e) {
        const auto there = registered();
        if (std::count(there.begin(), there.end(), false) == 0) throw;
        throw rpc_error(errc::rendezvous_failed, missing_ranks(there, left_.all()));
      }
      std::vector<member> all;
      for (const std::string& key : keys_) {
        all.push_back(read_member(from_store(store_.get(key))));
        verdict["members"].push_back(describe(all.back()));
      }
      check_names(all);
    } catch (const rpc_error& e) {
      verdict = {{"failed", e.error().detail().text}, {"code", e.error().code().value()}};
      store_.set("verdict", to_store(verdict.dump()));
      // With this process the store may go: those who wait are told before.
      const countdown patience(std::chrono::seconds(1));
      const auto there = registered();
      const auto others = std::count(there.begin(), there.end(), true) - 1;
      while (store_.add("heard", 0) < others && !patience.over()) {
        pause_for(std::chrono::milliseconds(5));
      }
      return;
    }
    store_.set("verdict", to_store(verdict.dump()));
  }

  [[nodiscard]] std::vector<bool> registered() {
    std::vector<bool> there;
    for (const std::string& key : keys_) there.push_back(store_.check({key}));
    return there;
  }

  /// The verdict, obeyed.
  [[nodiscard]] std::vector<member> heed() {
    try {
      // Rank 0 may have begun a little later; it says who is missing.
      store_.wait({"verdict"}, left_.now() + std::chrono::milliseconds(rank_ == 0 ? 0 : 500));
    } catch (const std::exception&) {
      const auto there = registered();
      if (std::count(there.begin(), there.end(), false) != 0) {
        throw rpc_error(errc::rendezvous_failed, missing_ranks(there, left_.all()));
      }
      throw rpc_error(errc::rendezvous_failed, "rank 0 has registered, and then said no more");
    }
    std::vector<member> out;
    try {
      const auto verdict = nlohmann::json::parse(from_store(store_.get("verdict")));
      if (verdict.contains("failed")) {
        if (rank_ != 0) store_.add("heard", 1);
        throw rpc_error(static_cast<errc>(verdict.at("code").get<int>()),
                        verdict.at("failed").get<std::string>());
      }
      for (const auto& m : verdict.at("members")) {
        out.push_back(read_member(m.get<std::string>()));
      }
    } catch (const nlohmann::json::exception& e) {
      throw rpc_error(errc::rendezvous_failed,
                      std::string("what rank 0 decided is unreadable: ") + e.what());
    }
    if (out.size() != size_) {
      throw rpc_error(errc::rendezvous_failed, "rank 0 speaks of " + std::to_string(out.size()) +
                                                   " workers, not of " + std::to_string(size_) +
                                                   ": WORLD_SIZE must be the same everywhere");
    }
    return out;
  }

  [[nodiscard]] id128 token(const std::optional<id128>& given) {
    const std::string text = from_store(store_.get("token"));
    if (given.has_value() != (text == "file")) {
      throw rpc_error(errc::rendezvous_failed,
                      "WEFT_TOKEN_FILE must be set for all workers or for none");
    }
    if (given) return *given;
    const auto token = id128::parse(text);
    if (!token) throw rpc_error(errc::rendezvous_failed, "the job token in the store is no token");
    return *token;
  }

  c10d::Store& store_;
  std::uint32_t rank_;
  std::uint32_t size_;
  const countdown& left_;
  std::vector<std::string> keys_;
};

/// Runs `work` on a thread of its own and returns what it returns; rendezvous_failed with `why` if
/// that takes longer. Then the thread stays behind until its work ends: operations on a store have
/// time limits of their own, which add up, and none while its process is stopped.
template <class Work>
auto no_longer_than(duration most, Work work, const std::string& why) {
  using result = decltype(work());
  struct shared {
    std::mutex lock;
    std::condition_variable done;
    std::optional<result> value;
    std::exception_ptr failure;
  };
  const auto state = std::make_shared<shared>();
  std::thread([state, work = std::move(work)]() mutable {
    std::optional<result> value;
    std::exception_ptr failure;
    try {
      value.emplace(work());
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard hold(state->lock);
    state->value = std::move(value);
    state->failure = failure;
    state->done.notify_all();
  }).detach();
  std::unique_lock hold(state->lock);
  if (!state->done.wait_for(hold, most, [&] { return state->value || state->failure; })) {
    throw rpc_error(errc::rendezvous_failed, why);
  }
  if (state->failure) std::rethrow_exception(state->failure);
  return std::move(*state->value);
}

/// A meeting in a file: rank 0's line carries the token.
[[nodiscard]] inline membership meet_on_this_host(const placement& where, member self,
                                                  duration deadline, random_source& random) {
  if (self.incarnation == id128{}) self.incarnation = random_id(random);
  const auto given = token_from_file();
  const id128 mine = given ? *given : random_id(random);
  const std::string line = mine.text() + " " + describe(self);
  std::vector<std::string> lines;
  try {
    lines = meet_in_file(meeting_folder(), run_key(where), where.rank, where.size, line, deadline);
  } catch (const rpc_error& e) {
    if (environment_text("WEFT_RUN_ID") || where.launcher != "torchrun") throw;
    throw rpc_error(errc::rendezvous_failed,
                    e.error().detail().text +
                        " (without MASTER_ADDR or WEFT_RUN_ID those meet that one process "
                        "started with one command line)");
  }
  membership out;
  out.rank = where.rank;
  for (const std::string& text : lines) {
    out.members.push_back(read_member(text.substr(std::min<std::size_t>(33, text.size()))));
  }
  const auto token = id128::parse(lines[0].substr(0, 32));
  if (!token) throw rpc_error(errc::rendezvous_failed, "rank 0 registered without a token");
  if (given && *given != *token) {
    throw rpc_error(errc::rendezvous_failed,
                    "WEFT_TOKEN_FILE must be set for all workers, to the same token");
  }
  out.token = *token;
  check_names(out.members);
  return out;
}

inline store_ptr open_store(const placement& where, duration deadline) {
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(deadline);
  const auto host = environment_text("MASTER_ADDR");
  const auto port = environment_number("MASTER_PORT");
  if (!host || !port || *port > 65535) {
    throw rpc_error(errc::invalid_argument,
                    host ? "MASTER_ADDR is set, so MASTER_PORT must be a port"
                         : "the workers are on several hosts, so MASTER_ADDR and MASTER_PORT must "
                           "name where to meet");
  }
  const std::string here = "rank " + std::to_string(where.rank);
  try {
    c10d::TCPStoreOptions o;
    o.port = static_cast<std::uint16_t>(*port);
    o.timeout = timeout;
    o.waitWorkers = false;
    o.useLibUV = false;  // not every build of libtorch has it, and the keys are few
    const bool agent = environment_text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    o.isServer = where.rank == 0 && !agent;
    if (const auto fd = environment_number("WEFT_STORE_FD"); fd && o.isServer) {
      o.masterListenFd = static_cast<int>(*fd);
    }
    const store_ptr store = c10::make_intrusive<c10d::TCPStore>(*host, o);
    store->setTimeout(timeout);
    const std::string attempt = environment_text("TORCHELASTIC_RESTART_COUNT").value_or("0");
    return c10::make_intrusive<c10d::PrefixStore>("weft/" + attempt, store);
  } catch (const rpc_error&) {
    throw;
  } catch (const std::exception& e) {
    throw rpc_error(errc::rendezvous_failed, here + " cannot reach " + holder_of_store() +
                                                 " within " + std::to_string(timeout.count()) +
                                                 " ms: " + words_of(e));
  }
}

inline membership rendezvous(c10d::Store& store, std::uint32_t rank, std::uint32_t size,
                             member self, duration deadline, random_source& random) {
  const countdown left(deadline);
  return store_meeting(store, rank, size, left).run(std::move(self), random);
}

inline meeting meet(const placement& where, member self, duration deadline, random_source random) {
  if (!environment_text("MASTER_ADDR") && where.one_host()) {
    return {meet_on_this_host(where, std::move(self), deadline, random), nullptr};
  }
  auto work = [=]() mutable {
    const countdown left(deadline);
    store_ptr store = open_store(where, deadline);
    membership all =
        store_meeting(*store, where.rank, where.size, left).run(std::move(self), random);
    return meeting{std::move(all), std::move(store)};
  };
  return no_longer_than(deadline + std::chrono::seconds(2), std::move(work),
                        holder_of_store() + " does not answer");
}

}  // namespace weft::engine
