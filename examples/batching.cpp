// SPDX-License-Identifier: BSL-1.0
// An inference server that collects rows of several clients, and runs its model once for all of
// them. Prints
//
//   96 answers, all of them right
//   batches were larger than one row
#include <weft/run.hpp>

#include <ATen/ATen.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace std::literals;

constexpr std::size_t most_rows = 16;     // of a batch
constexpr auto longest_wait = 2ms;        // of its first row
constexpr std::size_t rows_waiting = 64;  // before clients wait for room

/// Its functions are coroutines, on their worker's one thread.
class server {
 public:
  /// The model's answer to one row. Shape [in] -> [out].
  asio::awaitable<at::Tensor> infer(at::Tensor row) {
    request mine{std::move(row)};
    const auto done = mine.done;
    const auto answer = mine.answer;
    co_await waiting_.send(std::move(mine));
    co_await weft::event::async_wait(done, asio::use_awaitable);
    if (answer->failure) std::rethrow_exception(answer->failure);
    co_return answer->row;
  }
  /// Serves as long as the run lasts.
  asio::awaitable<void> serve() {
    while (auto first = co_await waiting_.receive()) {
      std::vector<request> batch;
      batch.push_back(std::move(*first));
      co_await weft::sleep_for(longest_wait);
      while (batch.size() < most_rows) {
        auto next = waiting_.try_receive();
        if (!next) break;
        batch.push_back(std::move(*next));
      }
      co_await run(batch);
    }
  }
  asio::awaitable<std::size_t> batches() { co_return batches_; }

 private:
  struct outcome {
    at::Tensor row;
    std::exception_ptr failure;
  };
  struct request {
    at::Tensor row;
    std::shared_ptr<outcome> answer = std::make_shared<outcome>();
    weft::intrusive_ptr<weft::event> done = weft::make_intrusive<weft::event>();
  };

  /// On the pool, while this worker's thread takes the next rows. A row that does not fit fails its
  /// own batch, and no other.
  asio::awaitable<void> run(std::vector<request>& batch) {
    std::vector<at::Tensor> rows;
    for (const request& r : batch) rows.push_back(r.row);
    std::exception_ptr failure;
    std::vector<at::Tensor> answers(batch.size());
    try {
      answers = co_await weft::on_pool(
          [weight = weight_](const std::vector<at::Tensor>& in) {
            return at::stack(in).matmul(weight).unbind();
          },
          std::move(rows));
    } catch (...) {
      failure = std::current_exception();
    }
    ++batches_;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      *batch[i].answer = {answers[i], failure};
      batch[i].done->set();
    }
  }

  at::Tensor weight_ = at::full({4, 2}, 0.5);
  weft::channel<request> waiting_{rows_waiting};
  std::size_t batches_ = 0;
};

/// Asks for `n` rows at once; how many answers were right.
asio::awaitable<int> ask(weft::rref<server> model, int n) {
  std::vector<asio::awaitable<at::Tensor>> calls;
  for (int i = 0; i < n; ++i) calls.push_back(model.call<&server::infer>(at::full({4}, 1.0 * i)));
  int right = 0;
  int i = 0;
  for (const at::Tensor& y : co_await weft::gather(std::move(calls))) {
    right += at::equal(y, at::full({2}, 2.0 * i++)) ? 1 : 0;
  }
  co_return right;
}

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  weft::rref<server> model = me.make<server>();
  auto serving = model.start<&server::serve>(weft::within(weft::no_limit));
  std::vector<asio::awaitable<int>> clients;
  for (const weft::peer& p : me.peers("client")) clients.push_back(p.call<&ask>(model, 32));
  int right = 0;
  for (const int n : co_await weft::gather(std::move(clients))) right += n;
  std::cout << right << " answers, all of them right\n";
  const std::size_t batches = co_await model.call<&server::batches>();
  std::cout << (batches < 96 ? "batches were larger than one row\n" : "each row was a batch\n");
  serving.request_stop();
}

int main() {
  weft::options o{.workers = 4};
  o.role = [](std::uint32_t rank, std::uint32_t) { return std::string(rank == 0 ? "" : "client"); };
  return weft::run<weft::unix_socket, weft::tcp>(main_, o);
}
