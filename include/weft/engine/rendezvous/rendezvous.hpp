// SPDX-License-Identifier: BSL-1.0
// Room rendezvous: how workers of a run find each other. What each publishes is in
// registration.hpp, where others reach it in addresses.hpp. Includes core/, wire/, transport/, rpc/
// and room launch.
//
// This file: names, roles, addresses and the job token, over a c10d::Store or, on one host, through
// a file (meeting_file.hpp).
//
//   worker r                    the store                     rank 0
//     registers ──► worker/<r> = {name, role, incarnation, addresses}; waits for all of them
//     waits     ◄── verdict = {members} or {failed} ◄──────── decides, for all
//     reads token, joined += 1; the last one deletes the token
#pragma once

#include <weft/core/detail/blocking_end.hpp>
#include <weft/core/detail/descriptor.hpp>
#include <weft/core/detail/rethrow_taken.hpp>
#include <weft/core/error.hpp>
#include <weft/core/random.hpp>
#include <weft/core/time.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/launch/launch_mark.hpp>
#include <weft/engine/launch/placement.hpp>
#include <weft/engine/rendezvous/addresses.hpp>
#include <weft/engine/rendezvous/meeting_file.hpp>
#include <weft/engine/rendezvous/registration.hpp>
#include <weft/rpc/membership.hpp>
#include <weft/wire/detail/tensor_error.hpp>

#include <nlohmann/json.hpp>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
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
[[nodiscard]] inline store_ptr open_store(const placement& where, const countdown& left,
                                          const std::string& run_id = {});

/// Blocks until every worker has registered, of which the store is asked ever more seldom, at least
/// every tenth of a second. Throws rpc_error:
/// rendezvous_failed (whose text lists who is missing at the deadline, the same for all),
/// duplicate_name (both ranks). `self` gets an incarnation if it has none.
[[nodiscard]] inline membership rendezvous(c10d::Store& store, std::uint32_t rank,
                                           std::uint32_t size, member self, duration deadline,
                                           random_source& random);

/// What a worker needs to meet the others.
struct meeting_request {
  placement where;
  member self;
  countdown left;
  random_source random;
  std::string run_id{};  ///< see `run_id_of`
};

/// All of it, in whatever way the environment says. Blocks as long as the store does. Throws as the
/// two above.
[[nodiscard]] inline meeting meet(meeting_request what);

/// Runs `work`, which blocks, on a thread of its own. `then`, which throws nothing, is called there
/// with what it returned or threw.
template <class T>
using on_done = std::function<void(std::optional<T>, std::exception_ptr)>;
template <class T>
void begin_apart(std::function<T()> work, on_done<T> then) {
  std::thread([work = std::move(work), then = std::move(then)]() mutable {
    std::optional<T> out;
    std::exception_ptr failure;
    try {
      out.emplace(work());
    } catch (...) {
      failure = std::current_exception();
    }
    work = nullptr;
    then(std::move(out), std::move(failure));
  }).detach();
}

/// How much longer than until the deadline anybody waits for such a thread: a name service and a
/// store have time limits of their own, which add up; a store none while its process is stopped.
inline constexpr std::chrono::seconds patience_with_others(2);

/// The same; blocks, for no longer than until then. Throws what `work` throws; else, with the words
/// `stuck`, rpc_error rendezvous_failed: the thread stays behind, and ends once it can.
template <class T>
[[nodiscard]] T apart(std::function<T()> work, const countdown& left, const std::string& stuck);

/// Those words, for the two things that are done so.
[[nodiscard]] inline std::string stuck_look_up() {
  return "this host's name service does not answer: the look-up of " + master_addr() +
         " has not ended";
}
[[nodiscard]] inline std::string stuck_store();

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

  membership meet(member self, random_source& random) {
    try {
      return register_and_wait(std::move(self), random);
    } catch (const rpc_error&) {
      throw;
    } catch (const std::exception& e) {
      throw rpc_error(errc::rendezvous_failed, holder_of_store() + " is gone: " + words_of(e));
    }
  }

 private:
  membership register_and_wait(member self, random_source& random) {
    if (self.incarnation == id128{}) self.incarnation = random_id(random);
    const auto given = token_from_file();
    if (store_.add("seat/" + std::to_string(rank_), 1) != 1) {
      throw rpc_error(errc::rendezvous_failed,
                      "another process has registered as rank " + std::to_string(rank_) +
                          ": each run needs a MASTER_PORT of its own; if a worker starts another "
                          "program of weft, remove RANK, WORLD_SIZE and MASTER_PORT from that "
                          "program's environment");
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

  /// Until the keys are there, `more` than the time that is left, or until it is given up.
  void wait_for(const std::vector<std::string>& keys, std::chrono::milliseconds more) {
    // By questions, as libtorch complains on standard error of each wait that ends in vain.
    constexpr std::chrono::milliseconds seldom(100);
    for (std::chrono::milliseconds pause(1); !store_.check(keys);) {
      const auto left = left_.stopped() ? left_.now() : left_.now() + more;
      if (left <= std::chrono::milliseconds(0)) {
        throw std::runtime_error("the others have not come in time");
      }
      pause_for(std::min(pause, left));
      pause = std::min(2 * pause, seldom);
    }
  }

  /// Rank 0: once all are there, or at the deadline, what becomes of the meeting.
  void decide() {
    nlohmann::json verdict;
    try {
      try {
        wait_for(keys_, std::chrono::milliseconds(0));
      } catch (const std::exception& e) {
        const auto there = registered();
        if (std::count(there.begin(), there.end(), false) != 0) {
          throw rpc_error(errc::rendezvous_failed, missing_ranks(there, left_.all()));
        }
        // The last has come meanwhile.
      }
      std::vector<member> all;
      for (const std::string& key : keys_) {
        all.push_back(read_member(from_store(store_.get(key))));
        verdict["members"].push_back(describe(all.back()));
      }
      check_names(all);
    } catch (const rpc_error& e) {
      verdict = {{"failed", as_unicode(e.error().detail().text)},
                 {"code", e.error().code().value()}};
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
      wait_for({"verdict"}, std::chrono::milliseconds(rank_ == 0 ? 0 : 500));
    } catch (const std::exception&) {
      const auto there = registered();
      if (std::count(there.begin(), there.end(), false) != 0) {
        throw rpc_error(errc::rendezvous_failed, missing_ranks(there, left_.all()));
      }
      throw rpc_error(errc::rendezvous_failed, "rank 0 registered, and then stopped answering");
    }
    std::vector<member> out;
    try {
      const auto verdict = nlohmann::json::parse(from_store(store_.get("verdict")));
      if (verdict.contains("failed")) {
        if (rank_ != 0) store_.add("heard", 1);
        throw rpc_error(static_cast<errc>(verdict.at("code").get<int>()),
                        as_bytes(verdict.at("failed").get<std::string>()));
      }
      for (const auto& m : verdict.at("members")) {
        out.push_back(read_member(m.get<std::string>()));
      }
    } catch (const nlohmann::json::exception& e) {
      throw rpc_error(errc::rendezvous_failed,
                      std::string("the decision of rank 0 is unreadable: ") + e.what());
    }
    if (out.size() != size_) {
      throw rpc_error(errc::rendezvous_failed, "rank 0 counts " + std::to_string(out.size()) +
                                                   " workers, this worker counts " +
                                                   std::to_string(size_) +
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

/// A meeting in a file: rank 0's line carries the token.
[[nodiscard]] inline membership meet_on_this_host(const meeting_request& what) {
  const placement& where = what.where;
  member self = what.self;
  random_source random = what.random;
  if (self.incarnation == id128{}) self.incarnation = random_id(random);
  const auto given = token_from_file();
  const id128 mine = given ? *given : random_id(random);
  const std::string line = mine.text() + " " + describe(self);
  std::vector<std::string> lines;
  try {
    lines = meet_in_file(meeting_folder(), run_key(where, what.run_id), where.rank, where.size,
                         line, what.left);
  } catch (const rpc_error& e) {
    if (!what.run_id.empty() || where.launcher != "torchrun") throw;
    throw rpc_error(errc::rendezvous_failed,
                    e.error().detail().text +
                        " (without MASTER_ADDR or WEFT_RUN_ID, workers meet only if one process "
                        "started them all with the same command line)");
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

/// What libtorch's client may take where somebody answers. Both sides of its connections ask the
/// name service who the other is, which takes 5 or 10 s where that does not answer.
[[nodiscard]] inline std::chrono::milliseconds time_of_libtorch(const countdown& left) {
  return std::clamp(left.now(), std::chrono::milliseconds(1), std::chrono::milliseconds(30'000));
}

/// Tries for a second at a time, as long as nobody answers. First by a plain connection: libtorch
/// prints how its own went wrong, with its stack, each time.
[[nodiscard]] inline store_ptr connected(const meeting_place& at, c10d::TCPStoreOptions o,
                                         const countdown& left) {
  constexpr std::chrono::milliseconds a_moment(50);
  constexpr std::chrono::milliseconds a_second(1000);
  for (;;) {
    std::error_code why;
    const ip_addresses there = look_up(at.host, why);
    const auto open = accepts(there, at.port, std::min(left.now(), a_second), why);
    if (!open) {
      pause_for(std::min(left.now(), there.empty() ? between_look_ups : a_moment));
      if (!left.over()) continue;
      if (there.empty()) throw std::runtime_error(not_found(why));
      const bool name = there.front().to_string() != at.host;
      throw std::runtime_error(
          why.message() + (name ? " (" + master_addr() + " is " + text_of(there) + " here)" : ""));
    }
    const countdown this_one(a_second);
    // Where something answers that is no store, libtorch goes on for half as long again, or more.
    o.timeout = std::max(time_of_libtorch(left) / 2, std::chrono::milliseconds(1));
    try {
      return c10::make_intrusive<c10d::TCPStore>(open->to_string(), o);
    } catch (const std::exception& e) {
      if (words_of(e).find("invalid value returned") != std::string::npos) {
        throw std::runtime_error("a program that is no c10d store answers there: " + words_of(e));
      }
      if (left.over() || !this_one.over()) throw;
    }
  }
}

/// Rank 0's own: it listens before anybody is asked for it.
[[nodiscard]] inline store_ptr served(const meeting_place& at, c10d::TCPStoreOptions o,
                                      const countdown& left) {
  std::string host = at.host;
  descriptor listens;
  if (!o.masterListenFd) {
    listens = listen_for_store(at.port);
    host = reaches_itself(listens, at, left);
    o.masterListenFd = listens.release();
  }
  o.timeout = time_of_libtorch(left);
  return c10::make_intrusive<c10d::TCPStore>(host, o);
}

inline store_ptr open_store(const placement& where, const countdown& left,
                            const std::string& run_id) {
  const auto timeout = left.all();
  const meeting_place at = place_to_meet();
  const std::string here = "rank " + std::to_string(where.rank);
  try {
    c10d::TCPStoreOptions o;
    o.port = at.port;
    o.waitWorkers = false;
    o.useLibUV = false;  // not every build of libtorch has it, and the keys are few
    const bool agent = environment_text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    o.isServer = where.rank == 0 && !agent;
    if (o.isServer) o.masterListenFd = given_descriptor("WEFT_STORE_FD");
    const store_ptr store = o.isServer ? served(at, o, left) : connected(at, o, left);
    store->setTimeout(timeout);
    std::string prefix = "weft/" + environment_text("TORCHELASTIC_RESTART_COUNT").value_or("0");
    if (!run_id.empty()) prefix += "/" + run_id;
    return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
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
  return store_meeting(store, rank, size, left).meet(std::move(self), random);
}

inline meeting meet(meeting_request what) {
  if (!environment_text("MASTER_ADDR") && what.where.one_host()) {
    return {meet_on_this_host(what), nullptr};
  }
  store_ptr store = open_store(what.where, what.left, what.run_id);
  membership all = store_meeting(*store, what.where.rank, what.where.size, what.left)
                       .meet(std::move(what.self), what.random);
  return {std::move(all), std::move(store)};
}

inline std::string stuck_store() {
  return holder_of_store() + " does not answer: its process is stopped or hangs, or is another "
                             "program, which is no c10d store";
}

template <class T>
T apart(std::function<T()> work, const countdown& left, const std::string& stuck) {
  struct shared {
    detail::blocking_end done;
    std::optional<T> out;
    std::exception_ptr failure;
  };
  const auto state = std::make_shared<shared>();
  begin_apart<T>(std::move(work), [state](std::optional<T> out, std::exception_ptr why) {
    state->out = std::move(out);
    state->failure = std::move(why);
    state->done.set();
  });
  if (!state->done.wait_until(left.end(patience_with_others))) {
    left.give_up();
    throw rpc_error(errc::rendezvous_failed, stuck);
  }
  rethrow_taken(state->failure);
  return std::move(*state->out);
}

}  // namespace weft::engine
