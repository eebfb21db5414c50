// SPDX-License-Identifier: BSL-1.0
#include "weft_pair.hpp"

#include <weft/engine/launch/launch_mark.hpp>

#include <cerrno>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

namespace bench {
namespace {

constexpr unsigned ends = 2;

/// What a job left behind; outlives the run.
struct outbox {
  figures values;
  std::string failure;
};

asio::awaitable<void> run_job(weft::worker& me, job what, outbox& out) {
  if (me.rank() != 0) co_return;
  try {
    co_await what(me, out.values);
  } catch (const std::exception& e) {
    out.failure = e.what();
    throw;
  }
}

/// A bound socket whose descriptor children inherit, for the store that both ends meet at.
class store_socket {
 public:
  store_socket() : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (descriptor_ < 0 || bind(descriptor_, generic, size) != 0 ||
        listen(descriptor_, SOMAXCONN) != 0 || getsockname(descriptor_, generic, &size) != 0) {
      throw std::system_error(errno, std::generic_category(), "a socket for the store");
    }
    port_ = ntohs(address.sin_port);
  }

  /// Says to this process what a launcher would say.
  void become(unsigned rank, unsigned workers) const {
    const auto set = [](const char* name, const std::string& value) {
      setenv(name, value.c_str(), 1);
    };
    set("RANK", std::to_string(rank));
    set("WORLD_SIZE", std::to_string(workers));
    set("LOCAL_WORLD_SIZE", std::to_string(workers));
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(port_));
    set("WEFT_LAUNCHED", std::to_string(getpid()) + ":" + std::to_string(port_) + ":0");
    set("WEFT_STORE_FD", rank == 0 ? weft::engine::described(descriptor_) : "");
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  }

 private:
  int descriptor_;  // the store closes it
  unsigned port_ = 0;
};

int run_over(link_kind over, threads_of_links io_threads, job what, outbox& out, unsigned workers) {
  weft::options settings;
  settings.workers = workers;
  settings.io_threads = io_threads;
  settings.compute_threads = 1;
  const weft::worker_main main = [what, &out](weft::worker& me) { return run_job(me, what, out); };
  switch (over) {
  case link_kind::inproc:
    return weft::run<weft::inproc>(main, settings);
  case link_kind::unix_socket:
    return weft::run<weft::unix_socket>(main, settings);
  case link_kind::tcp:
    return weft::run<weft::tcp>(main, settings);
  }
  throw std::logic_error("no such link");
}

figures came_of(int status, const outbox& out) {
  if (!out.failure.empty()) throw std::runtime_error(out.failure);
  if (status != 0) throw std::runtime_error("the run failed");
  return out.values;
}

}  // namespace

std::string name_of(link_kind over) {
  switch (over) {
  case link_kind::inproc:
    return "inproc";
  case link_kind::unix_socket:
    return "unix";
  case link_kind::tcp:
    return "tcp";
  }
  throw std::logic_error("no such link");
}

figures between(link_kind over, placement where, threads_of_links io_threads, job what) {
  return among(ends, over, where, io_threads, what);
}

figures among(unsigned workers, link_kind over, placement where, threads_of_links io_threads,
              job what) {
  outbox out;
  std::vector<std::unique_ptr<child>> others;
  if (over != link_kind::inproc) {
    const store_socket store;
    for (unsigned rank = 1; rank < workers; ++rank) {
      others.push_back(std::make_unique<child>(where, side::callee, [&, rank] {
        store.become(rank, workers);
        static_cast<void>(run_over(over, io_threads, what, out, workers));
      }));
    }
    store.become(0, workers);
  }
  return came_of(run_over(over, io_threads, what, out, workers), out);
}

run_ptr weft_run(const std::string& name, link_kind over, placement where,
                 threads_of_links io_threads, job what) {
  return make_run({.name = "weft " + name, .where = where, .measure = [=] {
                     return between(over, where, io_threads, what);
                   }});
}

}  // namespace bench
