// SPDX-License-Identifier: BSL-1.0
// Two processes of ordinary threads: one runs the worker's loop, and others wait for calls.
#include <weft/run.hpp>

#include <exception>
#include <iostream>
#include <thread>

int twice(int x) { return 2 * x; }

int main() {
  weft::options o{.workers = 2};
  if (!weft::placement_from_environment()) return weft::launch_local(o);
  weft::owned_worker me = weft::join_blocking<weft::unix_socket, weft::tcp>(o);
  weft::error end;
  std::thread loop([&] { end = me.run(); });  // serves until every worker has left
  try {
    if (me->rank() == 0) std::cout << weft::wait(*me, me->peer(1).call<&twice>(21)) << '\n';
  } catch (const std::exception& e) {
    me.fail(e.what());  // as a main that throws
  }
  me.leave();
  loop.join();
  if (end) std::cerr << end.message() << '\n';
  return end ? 1 : 0;
}
