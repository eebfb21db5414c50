// SPDX-License-Identifier: BSL-1.0
// How workers find each other: names, roles, addresses and the job token over a c10d::Store.
//
//   worker r:  set worker/<r> = {name, role, incarnation, addresses}     rank 0 also: set token
//              wait for token and all worker/<i>, until the deadline
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/random.hpp>
#include <weft/core/time.hpp>
#include <weft/rpc/membership.hpp>
#include <weft/rpc/placement.hpp>
#include <weft/wire/detail/tensor_error.hpp>

#include <nlohmann/json.hpp>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace weft {

using store_ptr = c10::intrusive_ptr<c10d::Store>;

/// The store that the launcher provides. Blocks until it answers or `deadline` has passed.
///   WEFT_STORE_FD             launch_local: rank 0 serves on that listening socket
///   MASTER_ADDR, MASTER_PORT  torchrun and alike; with TORCHELASTIC_USE_AGENT_STORE=True the
///                             agent serves, else rank 0
///   none of them              one host: a file that the workers of this launch share
/// Throws rpc_error rendezvous_failed, invalid_argument.
template <class = void>
[[nodiscard]] store_ptr open_store(const placement& where, duration deadline) {
  using std::chrono::milliseconds;
  const auto timeout = std::chrono::duration_cast<milliseconds>(deadline);
  const auto host = detail::environment_text("MASTER_ADDR");
  store_ptr store;
  try {
    if (host) {
      const auto port = detail::environment_number("MASTER_PORT");
      if (!port || *port > 65535) {
        throw rpc_error(errc::invalid_argument,
                        "MASTER_ADDR is set, so MASTER_PORT must be a port");
      }
      c10d::TCPStoreOptions o;
      o.port = static_cast<std::uint16_t>(*port);
      o.timeout = timeout;
      o.waitWorkers = false;
      o.useLibUV = false;  // not every build of libtorch has it, and the keys are few
      const bool agent = detail::environment_text("TORCHELASTIC_USE_AGENT_STORE") == "True";
      o.isServer = where.rank == 0 && !agent;
      if (const auto fd = detail::environment_number("WEFT_STORE_FD"); fd && o.isServer) {
        o.masterListenFd = static_cast<int>(*fd);
      }
      store = c10::make_intrusive<c10d::TCPStore>(*host, o);
    } else if (where.one_host()) {
      std::string job = std::to_string(::getppid());
      for (const char* name : {"PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID"}) {
        if (const auto text = detail::environment_text(name)) {
          job = *text;
          break;
        }
      }
      for (char& c : job) {
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '-';
      }
      const auto path = std::filesystem::temp_directory_path() /
                        ("weft-" + std::to_string(::getuid()) + "-" + job);
      store = c10::make_intrusive<c10d::FileStore>(path.string(), static_cast<int>(where.size));
    } else {
      throw rpc_error(errc::invalid_argument,
                      "the workers are on several hosts, so MASTER_ADDR and MASTER_PORT must name "
                      "where to meet");
    }
  } catch (const rpc_error&) {
    throw;
  } catch (const std::exception& e) {
    throw rpc_error(errc::rendezvous_failed,
                    "rank " + std::to_string(where.rank) + " cannot reach the store" +
                        (host ? " at " + *host : std::string()) + ": " + detail::words_of(e));
  }
  store->setTimeout(timeout);
  const std::string attempt = detail::environment_text("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return c10::make_intrusive<c10d::PrefixStore>("weft/" + attempt, store);
}

namespace detail {

template <class = void>
[[nodiscard]] std::vector<std::uint8_t> to_store(const std::string& text) {
  return {text.begin(), text.end()};
}
template <class = void>
[[nodiscard]] std::string from_store(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

template <class = void>
[[nodiscard]] std::string describe(const member& m) {
  nlohmann::json addresses = nlohmann::json::array();
  for (const auto& a : m.addresses) addresses.push_back({a.transport, a.endpoint});
  return nlohmann::json{{"name", m.name},
                        {"role", m.role},
                        {"incarnation", m.incarnation.text()},
                        {"addresses", addresses},
                        {"window", m.window}}
      .dump();
}
template <class = void>
[[nodiscard]] member read_member(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  member m;
  m.name = json.at("name").get<std::string>();
  m.role = json.at("role").get<std::string>();
  const auto incarnation = id128::parse(json.at("incarnation").get<std::string>());
  if (!incarnation) throw rpc_error(errc::rendezvous_failed, "a worker's incarnation is no id");
  m.incarnation = *incarnation;
  m.window = json.at("window").get<std::uint64_t>();
  for (const auto& a : json.at("addresses")) {
    m.addresses.push_back({a.at(0).get<std::string>(), a.at(1).get<std::string>()});
  }
  return m;
}

}  // namespace detail

/// Blocks until every worker has registered. Throws rpc_error: rendezvous_failed (whose text lists
/// who is missing at the deadline), duplicate_name (both ranks).
template <class = void>
[[nodiscard]] membership rendezvous(c10d::Store& store, std::uint32_t rank, std::uint32_t size,
                                    member self, duration deadline, random_source& random) {
  using std::chrono::milliseconds;
  const auto until = std::chrono::duration_cast<milliseconds>(deadline);
  if (self.incarnation == id128{}) self.incarnation = random_id(random);
  membership out;
  out.rank = rank;
  std::vector<std::string> keys;
  for (std::uint32_t r = 0; r < size; ++r) keys.push_back("worker/" + std::to_string(r));
  try {
    if (rank == 0) store.set("token", detail::to_store(random_id(random).text()));
    store.set(keys[rank], detail::to_store(detail::describe(self)));
    std::vector<std::string> wanted = keys;
    wanted.push_back("token");
    try {
      store.wait(wanted, until);
    } catch (const std::exception& e) {
      std::string missing;
      for (std::uint32_t r = 0; r < size; ++r) {
        if (!store.check({keys[r]})) {
          missing += (missing.empty() ? "" : ", ") + std::to_string(r);
        }
      }
      throw rpc_error(errc::rendezvous_failed,
                      missing.empty()
                          ? "the store failed: " + detail::words_of(e)
                          : "after " + std::to_string(until.count()) + " ms these ranks of " +
                                std::to_string(size) + " are missing: " + missing);
    }
    const auto token = id128::parse(detail::from_store(store.get("token")));
    if (!token) throw rpc_error(errc::rendezvous_failed, "the job token in the store is no token");
    out.token = *token;
    for (const std::string& key : keys) {
      out.members.push_back(detail::read_member(detail::from_store(store.get(key))));
    }
  } catch (const rpc_error&) {
    throw;
  } catch (const std::exception& e) {
    throw rpc_error(errc::rendezvous_failed, "the store failed: " + detail::words_of(e));
  }
  for (std::uint32_t a = 0; a < size; ++a) {
    for (std::uint32_t b = a + 1; b < size; ++b) {
      if (out.members[a].name == out.members[b].name) {
        throw rpc_error(errc::duplicate_name, "ranks " + std::to_string(a) + " and " +
                                                  std::to_string(b) + " are both named '" +
                                                  out.members[a].name + "'");
      }
    }
  }
  return out;
}

}  // namespace weft
