// SPDX-License-Identifier: BSL-1.0
// `weft::run<transports...>(main, options)`: the whole life of a worker process.
#pragma once

#include <weft/rpc/detail/usable_cores.hpp>
#include <weft/rpc/launch.hpp>
#include <weft/rpc/options.hpp>
#include <weft/rpc/placement.hpp>
#include <weft/rpc/rendezvous.hpp>
#include <weft/rpc/runtime.hpp>
#include <weft/rpc/table.hpp>
#include <weft/services.hpp>
#include <weft/transport/inproc.hpp>

#include <asio/ip/udp.hpp>

#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft {

using worker_main = std::function<asio::awaitable<void>(worker&)>;

namespace detail {

/// A transport for a worker that must be reached at `address`; empty: from this host only.
template <class T>
[[nodiscard]] T make_transport(const std::string& address) {
  if constexpr (requires(typename T::options o) {
                  o.address = std::string();
                  T(o);
                }) {
    typename T::options o;
    if (!address.empty()) o.address = address;
    return T(o);
  } else {
    return T();
  }
}

/// This host's address on the interface by which the store is reached.
template <class = void>
[[nodiscard]] std::string address_towards(const std::string& host) {
  asio::io_context io;
  asio::ip::udp::resolver resolver(io);
  const auto found = resolver.resolve(host, "9");
  asio::ip::udp::socket probe(io);
  probe.connect(found.begin()->endpoint());  // sends nothing
  return probe.local_endpoint().address().to_string();
}

/// Prints the one sentence of a failed run; returns the exit status.
template <class = void>
[[nodiscard]] int conclude(const std::string& name, const error& result) {
  if (!result) return 0;
  std::cerr << "weft: " + name + ": " + result.message() + "\n" << std::flush;
  return 1;
}

/// Why no worker of this program may run anything, or success.
[[nodiscard]] inline error unfit_program() {
  try {
    const function_table all;
    return {};
  } catch (const rpc_error& e) {
    return e.error();
  }
}

template <class = void>
[[nodiscard]] unsigned pool_size(const options& o, std::uint32_t on_this_host) {
  if (o.pool_threads != 0) return o.pool_threads;
  return cores_each(on_this_host);
}

// These take the type that compiles a whole worker as a parameter, so that it is compiled only
// where `run` is called, not wherever this header is included.

template <class Life, class... Transports>
int run_here(const placement& where, worker_main main_, options o) {
  o.pool_threads = pool_size(o, where.on_this_host);
  if (!environment_text("OMP_NUM_THREADS")) {
    at::set_num_threads(static_cast<int>(cores_each(where.on_this_host)));
  }
  member self;
  self.name = o.name(where.rank, where.size, "worker" + std::to_string(where.rank));
  self.role = o.role(where.rank, where.size, "");
  try {
    std::string address;
    if (!where.one_host()) {
      address = address_towards(environment_text("MASTER_ADDR").value_or("localhost"));
    }
    random_source random = system_random();
    // Kept to the end of the run: rank 0 serves it.
    store_ptr store;
    membership all;
    Life life(std::make_unique<network_of<Transports...>>(make_transport<Transports>(address)...),
              o);
    self.addresses = life.addresses();
    if (where.size > 1) {
      store = open_store(where, o.rendezvous_deadline);
      all = rendezvous(*store, where.rank, where.size, self, o.rendezvous_deadline, random);
    } else {
      self.incarnation = random_id(random);
      all.token = random_id(random);
      all.members.push_back(self);
    }
    life.join(std::move(all), random);
    return conclude(self.name, life.run(std::move(main_)));
  } catch (const std::exception& e) {
    std::cerr << "weft: " + self.name + ": " + e.what() + "\n" << std::flush;
    return 1;
  }
}

/// All workers as threads of this process.
template <class Life>
[[nodiscard]] int run_threads(worker_main main_, options o) {
  const std::uint32_t size = std::max(1u, o.workers);
  o.pool_threads = pool_size(o, size);
  const auto hub = std::make_shared<inproc::hub>();
  random_source random = system_random();
  membership all;
  all.token = random_id(random);
  std::vector<std::unique_ptr<Life>> lives;
  for (std::uint32_t r = 0; r < size; ++r) {
    lives.push_back(std::make_unique<Life>(std::make_unique<network_of<inproc>>(inproc(hub)), o));
    all.members.push_back({o.name(r, size, "worker" + std::to_string(r)), o.role(r, size, ""),
                           random_id(random), lives.back()->addresses()});
  }
  std::vector<int> status(size, 0);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < size; ++r) {
    all.rank = r;
    lives[r]->join(all);
    threads.emplace_back([&, r, name = all.members[r].name] {
      try {
        status[r] = conclude(name, lives[r]->run(main_));
      } catch (const std::exception& e) {
        status[r] = conclude(name, error(errc::worker_failed, e.what()));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return *std::max_element(status.begin(), status.end());
}

}  // namespace detail

/// Runs `main_` on a worker with these transports, most preferred first, and serves until every
/// worker's main has returned. What the process is, the environment says (torchrun, mpirun, srun);
/// without one, `options.workers` > 1 starts that many processes of this program, or threads if
/// the only transport is `inproc`. Returns the exit status: 0, or 1 after printing one sentence
/// that names the worker and the cause. Throws nothing that `main_` or a peer caused.
template <transport... Transports>
[[nodiscard]] int run(worker_main main_, options o = {}) {
  static_assert(sizeof...(Transports) > 0,
                "weft: run needs at least one transport: weft::run<weft::tcp>(main_)");
  if (const error unfit = detail::unfit_program()) return detail::conclude("run", unfit);
  using life = runtime<rref_service, autograd_service>;
  if constexpr (sizeof...(Transports) == 1 && (std::is_same_v<Transports, inproc> && ...)) {
    return detail::run_threads<life>(std::move(main_), std::move(o));
  } else {
    if (const auto where = placement_from_environment()) {
      return detail::run_here<life, Transports...>(*where, std::move(main_), std::move(o));
    }
    if (o.workers > 1) {
      launch_options launch;
      launch.workers = o.workers;
      launch.foreground = o.foreground;
      launch.name = [name = o.name](std::uint32_t rank, std::uint32_t size) {
        return name(rank, size, "worker" + std::to_string(rank));
      };
      return launch_local(std::move(launch));
    }
    return detail::run_here<life, Transports...>(placement{}, std::move(main_), std::move(o));
  }
}

/// A slip, for which there is a sentence.
template <transport... Transports, class Main>
  requires(!std::is_convertible_v<Main, worker_main>)
[[nodiscard]] int run(Main&&, options = {}) {
  static_assert(std::is_convertible_v<Main, worker_main>,
                "weft: main_ must be callable as asio::awaitable<void> main_(weft::worker& me)");
  return 1;
}

}  // namespace weft
