// SPDX-License-Identifier: BSL-1.0
// One server and N trainers learn to read digits. Rank 0 owns the encoder, the first half of the
// model, and the report. Every trainer owns a head, and all of them change the one encoder. With
// --loaders, further processes hold the rows and stream batches to the trainers.
#include "checkpoint.hpp"
#include "data.hpp"
#include "loading.hpp"
#include "model.hpp"
#include "options.hpp"
#include "report.hpp"
#include "setup.hpp"
#include <weft/optim/distributed.hpp>
#include <weft/run.hpp>

#include <torch/optim/adam.h>

using namespace digits;
using namespace std::literals;
using parameter_list = std::vector<weft::rref<at::Tensor>>;

parameter_list share_parameters(weft::worker& me, torch::nn::Module& of) {
  parameter_list all;
  for (auto& p : of.parameters()) all.push_back(me.share(p));
  return all;
}
parameter_list encoder_parameters(weft::worker& me, Encoder& e) { return share_parameters(me, e); }

asio::awaitable<void> train(weft::worker& me, settings how, int trainer,
                            weft::rref<Encoder> encoder, weft::rref<report> says,
                            weft::rref<meeting> meet, weft::tensordict file,
                            std::vector<weft::rref<loader>> loaders, weft::rref<ledger> book) {
  const auto data = load(how.data, how.seed);
  Head head(hidden_size, static_cast<std::int64_t>(how.seed) + 1 + trainer);
  auto parameters = co_await encoder.call<&encoder_parameters>();
  for (auto& p : share_parameters(me, head)) parameters.push_back(p);
  auto optimizer =
      co_await adam::create(me, parameters, torch::optim::AdamOptions(how.learning_rate));
  const auto number = std::to_string(trainer);
  if (!file.is_empty()) {  // the run goes on
    weft::load_into(head, file["heads"][number]);
    co_await optimizer.load_state_dict(to_state(file["optimizers"][number]));
  }

  feed from(loaders, book, trainer);
  for (int epoch = epochs_done(file); epoch < how.epochs; ++epoch) {
    stopwatch watch(me);
    epoch_part part{.trainer = trainer, .epoch = epoch};
    const auto step = [&](const batch& batch) -> asio::awaitable<void> {
      double error = 0;
      co_await weft::autograd::with_context(
          me, [&](weft::autograd::context ctx) -> asio::awaitable<void> {
            auto hidden = co_await encoder.call<&Encoder::forward>(batch.images);
            auto batch_loss = loss(head.forward(hidden), batch.labels);
            co_await ctx.backward(batch_loss);
            co_await optimizer.step(ctx);
            error = batch_loss.item<double>();
          });
      part.count(batch.size(), error);
      says.start<&report::step>(epoch, batch.size(), error).detach();
    };
    if (how.loaders == 0) {
      for (auto& b : data.batches(how.batch, epoch, trainer, how.trainers, how.seed)) {
        co_await step(b);
      }
    } else {
      co_await from.begin(epoch);
      while (const auto item = co_await from.next()) {
        co_await step(item->data);
        co_await from.trained(*item);
      }
    }
    watch.stop(part);
    auto hidden = co_await encoder.call<&Encoder::forward>(data.test.images);
    part.tested = data.test.size();
    part.correct = correct(head.forward(hidden), data.test.labels);
    co_await says.call<&report::epoch>(part);
    if (!how.checkpoint.empty()) {
      co_await meet.call<&meeting::arrive>(trainer, epoch, weft::from_module(head),
                                           to_tensordict(co_await optimizer.state_dict()),
                                           weft::within(1h));
    }
  }
}

asio::awaitable<void> serve(weft::worker& me, settings how) {
  if (me.rank() != 0) co_return;  // the trainers serve until the server's main is done
  const auto data = load(how.data, how.seed);
  auto says = me.peer(0).make<report>(how, data.train.size());
  auto encoder = me.peer(0).make<Encoder>(hidden_size, static_cast<std::int64_t>(how.seed));
  auto meet = me.peer(0).make<meeting>(how, encoder, says);
  auto book = me.peer(0).make<ledger>(how, data.train.size());
  std::vector<weft::rref<loader>> loaders;
  for (int l = 0; l < how.loaders; ++l) {
    loaders.push_back(me.peer(1 + how.trainers + l).make<loader>(how, l));
  }
  co_await says.call<&report::log>(me.name(), describe(data, how.seed));
  const weft::tensordict file = begun(how);
  if (!file.is_empty()) {
    weft::load_into(*encoder.local(), file["encoder"]);
    co_await says.call<&report::resume>(read_records(file));
  }
  co_await weft::with_task_group([&](weft::task_group& all) -> asio::awaitable<void> {
    for (int t = 0; t < how.trainers; ++t) {
      all.spawn(me.peer(t + 1).call<&train>(how, t, encoder, says, meet, file, loaders, book,
                                            weft::within(1h)));
    }
    co_return;
  });
  if (how.loaders > 0) {
    co_await says.call<&report::log>("loaders", co_await book.call<&ledger::in_words>());
  }
  co_await says.call<&report::finish>();
}

int main(int argc, char** argv) {
  settings how;
  if (auto status = parse(argc, argv, how)) return *status;
  if (how.local) return run_local(how);
  return weft::run<weft::unix_socket, weft::tcp>([how](weft::worker& me) { return serve(me, how); },
                                                 worker_options(how));
}
