// SPDX-License-Identifier: BSL-1.0
#include "rows.hpp"
#include "samples.hpp"
#include "weft_pair.hpp"

#include <ATen/ATen.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace served {

/// 1 MiB, [512, 512] float.
at::Tensor batch() { return at::ones({512, 512}); }

class stage {
 public:
  at::Tensor forward(const at::Tensor& x) { return x + 1; }
};
double first_of(const at::Tensor& t) { return t.flatten()[0].item<double>(); }

}  // namespace served

namespace {

constexpr unsigned stages = 4;

/// Four stages on four workers, driven from a fifth, which asks for the first number of what comes
/// out. References from stage to stage, or values by way of the driver.
template <bool ByReference>
asio::awaitable<void> drive(weft::worker& me, figures& out) {
  std::vector<weft::rref<served::stage>> all;
  for (unsigned i = 1; i <= stages; ++i) all.push_back(me.peer(i).make<served::stage>());
  const auto once = [&]() -> asio::awaitable<double> {
    weft::rref<at::Tensor> x = me.peer(1).remote<&served::batch>();
    if constexpr (ByReference) {
      for (const auto& s : all) x = s.remote<&served::stage::forward>(x);
      co_return co_await x.call<&served::first_of>();
    } else {
      at::Tensor value = co_await x.to_here();
      for (const auto& s : all) value = co_await s.call<&served::stage::forward>(value);
      co_return served::first_of(value);
    }
  };
  static_cast<void>(co_await once());  // connects
  const weft::worker_stats before = me.stats();
  std::size_t batches = 0;
  pace times(std::chrono::milliseconds(500));
  while (times.more()) {
    times.begin();
    const double got = co_await once();
    times.end();
    ++batches;
    if (got != 1 + stages) throw std::runtime_error("the stages computed something else");
  }
  const weft::worker_stats after = me.stats();
  out = times.latency();
  const std::uint64_t bytes =
      after.bytes_sent - before.bytes_sent + after.bytes_received - before.bytes_received;
  out["driver"] = static_cast<double>(bytes) / static_cast<double>(batches) / 1024;
}

}  // namespace

void add_pipeline_rows(std::vector<row>& rows) {
  for (const link_kind over : {link_kind::inproc, link_kind::unix_socket}) {
    const auto run = [over](const std::string& name, job what) {
      constexpr auto where = placement::two_cores;
      return make_run(
          {.name = "weft pipeline." + name + '.' + name_of(over),
           .where = where,
           .measure = [over, what] { return among(1 + stages, over, where, by_default, what); }});
    };
    const auto references = run("references", drive<true>);
    const auto values = run("values", drive<false>);
    rows.push_back({"pipeline.4x1MB." + name_of(over) + ".p50",
                    "ms",
                    {{"weft", references, "p50", 1e-3}, {"to_here", values, "p50", 1e-3}}});
    rows.push_back({"pipeline.4x1MB." + name_of(over) + ".driver",
                    "KiB",
                    {{"weft", references, "driver"}, {"to_here", values, "driver"}}});
  }
}

}  // namespace bench
