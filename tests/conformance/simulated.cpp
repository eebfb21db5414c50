// SPDX-License-Identifier: BSL-1.0
// Both transports of a simulated world, in virtual time: on each schedule that a seed decides.
#include <weft/sim/transports.hpp>

#include <array>
#include <chrono>
#include <conformance/suite.hpp>
#include <core/run_all.hpp>
#include <cstdint>
#include <string>

namespace weft::conformance {

using namespace std::chrono_literals;

/// Of the sides that are made next.
struct circumstances {
  std::uint64_t seed = 0;
  sim::wire_settings wires;
};
static circumstances present;

template <class Ends>
struct sides<sim::basic_transport<Ends>> {
  sim::timeline time;
  sim::choices decides{present.seed};
  sim::network net{time, decides, 2, present.wires};
  sim::basic_transport<Ends> client{net, 0};
  sim::basic_transport<Ends> server{net, 1};

  bool step(asio::io_context& of_client, asio::io_context& of_server) {
    // bounded: by what is due
    while (!time.empty() && time.next() <= time.now()) time.step();
    const std::array both{&of_client, &of_server};
    const std::uint32_t first = decides.pick(2);
    for (const std::uint32_t side : {first, 1 - first}) {
      if (both[side]->poll_one() == 0) continue;
      time.pass(1us);
      return true;
    }
    if (time.empty()) return false;
    time.step();
    return true;
  }
};

TEST_CASE_TEMPLATE("simulated: conforms", Transport, sim::frames, sim::bytes) {
  const std::array<sim::wire_settings, 2> wires{
      {{.jitter = 2ms}, {.delay = 0us, .jitter = 300us, .buffer_bytes = 50'000}}};
  for (std::uint64_t seed = 0; seed < weft::testing::rounds(2, 4); ++seed) {
    SUBCASE(("seed " + std::to_string(seed)).c_str()) {
      present = {seed, wires[seed % wires.size()]};
      check<Transport>();
    }
  }
}

}  // namespace weft::conformance
