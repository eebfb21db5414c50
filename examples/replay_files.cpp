// SPDX-License-Identifier: BSL-1.0
// A replay buffer in files, which several workers fill through calls. If the program is killed at
// any moment, it goes on where it was when it is started again: every step that was acknowledged is
// in the files. Python opens them: tensordict.load_memmap("build/replay"). Prints
//
//   actor 1: 4000 steps are safe
//   ...
//   the buffer has 12000 steps of 3 actors, and all are right
#include <weft/run.hpp>
#include <weft/tensordict/codec.hpp>
#include <weft/tensordict/files.hpp>
#include <weft/tensordict/ops.hpp>

#include <CLI/CLI.hpp>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>

using at::indexing::Slice;

struct settings {
  std::string folder = "build/replay";
  std::int64_t steps = 4000;  // of each actor
  std::int64_t at_once = 50;  // of a call
  std::uint32_t actors = 3;
};

/// What an actor sees and does, made up from its number and the step's. Batch size [n].
weft::tensordict play(std::int64_t actor, std::int64_t first, std::int64_t n) {
  const at::Tensor step = at::arange(first, first + n);
  return weft::tensordict(
      {{"frame", (step * 7 + actor).to(at::kByte).view({n, 1, 1}).expand({n, 84, 84})},
       {"action", step % 6},
       {"next", {{"reward", (step + actor).to(at::kFloat)}}}},
      {n});
}

/// At rank 0: the files. {"steps": [actors, steps], "filled": how many each actor has there}
class replay {
 public:
  explicit replay(const settings& how) {
    if (std::filesystem::exists(std::filesystem::path(how.folder) / "meta.json")) {
      files_ = weft::load_memmap(how.folder);
      return;
    }
    const auto actors = static_cast<std::int64_t>(how.actors);
    const weft::tensordict one = play(0, 0, 1).index({0});
    files_ = weft::memmap_like(weft::tensordict({{"steps", one.expand({actors, how.steps})},
                                                 {"filled", at::zeros({actors}, at::kLong)}},
                                                {actors}),
                               how.folder);
  }
  /// How many steps this actor has there.
  std::int64_t filled(std::int64_t actor) const {
    return files_.tensor("filled")[actor - 1].item<std::int64_t>();
  }
  /// When it returns, they are in the files, also if this process is killed now.
  void add(std::int64_t actor, const weft::tensordict& steps) {
    const std::int64_t at = filled(actor);
    weft::tensordict mine = files_["steps"].dict().index({actor - 1});
    mine.index_put_({Slice(at, at + steps.batch_size()[0])}, steps);
    files_.tensor("filled")[actor - 1].fill_(at + steps.batch_size()[0]);
  }
  /// Whether all that is there is what the actors have played.
  bool is_right() const {
    const auto actors = files_.batch_size()[0];
    for (std::int64_t actor = 1; actor <= actors; ++actor) {
      const weft::tensordict mine =
          files_["steps"].dict().index({actor - 1, Slice(0, filled(actor))});
      if (!weft::allclose(mine, play(actor, 0, filled(actor)))) return false;
    }
    return true;
  }

 private:
  weft::tensordict files_;
};

asio::awaitable<void> act(weft::worker& me, settings how, weft::rref<replay> to) {
  const std::int64_t actor = me.rank();
  std::int64_t done = co_await to.call<&replay::filled>(actor);
  while (done < how.steps) {
    const std::int64_t n = std::min(how.at_once, how.steps - done);
    co_await to.call<&replay::add>(actor, play(actor, done, n).consolidate());
    done += n;
    if (done % (20 * how.at_once) == 0 || done == how.steps) {
      std::cout << "actor " << actor << ": " << done << " steps are safe" << std::endl;
    }
  }
}

int main(int argc, char** argv) {
  settings how;
  CLI::App app{"Fills a replay buffer in files, from several workers."};
  app.add_option("--folder", how.folder, "Where the files are.");
  app.add_option("--steps", how.steps, "Of each actor; 7 kB each.")->check(CLI::PositiveNumber);
  app.add_option("--actors", how.actors, "Workers that play.")->check(CLI::Range(1, 64));
  CLI11_PARSE(app, argc, argv);

  weft::options options;
  options.workers = how.actors + 1;
  return weft::run<weft::unix_socket, weft::tcp>(
      [how](weft::worker& me) -> asio::awaitable<void> {
        if (me.rank() != 0) co_return;
        auto files = me.peer(0).make<replay>(how);
        co_await weft::with_task_group([&](weft::task_group& all) -> asio::awaitable<void> {
          for (std::uint32_t actor = 1; actor <= how.actors; ++actor) {
            all.spawn(me.peer(actor).call<&act>(how, files, weft::within(weft::no_limit)));
          }
          co_return;
        });
        if (!co_await files.call<&replay::is_right>()) throw std::runtime_error("a step is wrong");
        std::cout << "the buffer has " << how.actors * how.steps << " steps of " << how.actors
                  << " actors, and all are right\n";
      },
      options);
}
