// SPDX-License-Identifier: BSL-1.0
// A loader that streams batches to whoever asks, and a function that answers while it is still
// being told. Prints
//
//   batch 0: 32 rows, mean 15.5
//   batch 1: 32 rows, mean 47.5
//   batch 2: 16 rows, mean 71.5
//   no more batches
//   the running sums: 1 3 6 10 15
//   the loader: remote exception: row 7 is torn
#include <weft/run.hpp>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

/// At the loader. It waits in `write` while its reader is slow.
asio::awaitable<void> batches(std::int64_t rows, std::int64_t size, weft::sink<at::Tensor> out) {
  for (std::int64_t first = 0; first < rows; first += size) {
    co_await out.write(at::arange(first, std::min(first + size, rows), at::kFloat));
  }
}

asio::awaitable<void> running_sums(weft::stream<int> in, weft::sink<int> out) {
  int sum = 0;
  while (auto x = co_await in.next()) co_await out.write(sum += *x);
}

asio::awaitable<void> torn(weft::sink<int> out) {
  for (int row = 0; row < 7; ++row) co_await out.write(row);
  throw std::runtime_error("row 7 is torn");
}

asio::awaitable<void> read_batches(weft::peer loader) {
  auto [in] = co_await loader.open<&batches>(80, 32);
  for (int i = 0; auto batch = co_await in.next(weft::within(std::chrono::seconds(5))); ++i) {
    std::printf("batch %d: %d rows, mean %.1f\n", i, static_cast<int>(batch->size(0)),
                batch->mean().item<double>());
  }
  std::printf("no more batches\n");
}

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  const weft::peer loader = me.peer(1);
  co_await read_batches(loader);

  auto [numbers, sums] = co_await loader.open<&running_sums>();
  std::printf("the running sums:");
  for (int x = 1; x <= 5; ++x) {
    co_await numbers.write(x);
    std::printf(" %d", *(co_await sums.next()));
  }
  std::printf("\n");
  co_await numbers.finish();

  auto [rows] = co_await loader.open<&torn>();
  try {
    while (co_await rows.next()) {
    }
  } catch (const weft::rpc_error& e) {
    std::printf("the loader: %s: %s\n", e.code().message().c_str(), "row 7 is torn");
  }
}

int main() { return weft::run<weft::unix_socket, weft::tcp>(main_, weft::options{.workers = 2}); }
