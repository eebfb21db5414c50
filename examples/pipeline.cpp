// SPDX-License-Identifier: BSL-1.0
// Four stages on four workers, driven from a fifth: each gets a reference where it expects a value,
// so activations go from stage to stage, and the driver sees none of them. Prints
//
//   8 micro-batches went through 4 stages; the sum is 1536
#include <weft/run.hpp>

#include <ATen/ATen.h>

#include <cstdint>
#include <iostream>
#include <utility>
#include <vector>

class stage {
 public:
  explicit stage(double bias) : bias_(bias) {}
  /// Shape [n, 6] -> [n, 6].
  at::Tensor forward(const at::Tensor& x) { return x + bias_; }

 private:
  double bias_;
};

at::Tensor load(std::int64_t rows) { return at::zeros({rows, 6}); }
double sum_of(const at::Tensor& t) { return t.sum().item<double>(); }

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  std::vector<weft::rref<stage>> stages;
  for (int i = 1; i <= 4; ++i) {
    stages.push_back(me.peer(i).make<stage>(i - 1.5));  // biases -0.5, 0.5, 1.5, 2.5
  }
  // All of it is asked for at once, and the stages work at the same time. Micro-batches may
  // overtake each other: a stage that keeps something of them would be a weft::exclusive<stage>.
  std::vector<weft::rref<at::Tensor>> results;
  for (int batch = 0; batch < 8; ++batch) {
    weft::rref<at::Tensor> x = me.peer(1).remote<&load>(8);  // where the first stage is
    for (weft::rref<stage>& s : stages) x = s.remote<&stage::forward>(x);
    results.push_back(std::move(x));
  }
  std::vector<asio::awaitable<double>> sums;
  for (weft::rref<at::Tensor>& y : results) sums.push_back(y.call<&sum_of>());
  double all = 0;
  for (const double one : co_await weft::gather(std::move(sums))) all += one;  // or an error
  std::cout << results.size() << " micro-batches went through " << stages.size()
            << " stages; the sum is " << all << '\n';
}

int main() { return weft::run<weft::unix_socket, weft::tcp>(main_, weft::options{.workers = 5}); }
