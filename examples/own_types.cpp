// SPDX-License-Identifier: BSL-1.0
// Values that travel: aggregates as they are, with all that libtorch's tensors and the standard
// library's types have in them; a class that keeps its members to itself, by a pair of functions.
// Prints
//
//   3 samples, of which 2 are labelled
//   their mean is 2.5
//   30.00 EUR and 12.50 EUR are 42.50 EUR
//   EUR and USD: remote exception
#include <weft/run.hpp>

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// An aggregate: nothing is to be said.
struct sample {
  at::Tensor image;
  std::optional<std::int64_t> label;
  std::map<std::string, std::string> origin;
};
struct summary {
  std::size_t samples, labelled;
  double mean;
};
summary summarise(const std::vector<sample>& all) {
  summary out{all.size(), 0, 0};
  for (const sample& s : all) {
    out.labelled += s.label ? 1 : 0;
    out.mean += s.image.mean().item<double>() / static_cast<double>(all.size());
  }
  return out;
}

/// No aggregate: weft cannot see what it is made of.
class money {
 public:
  money(std::int64_t cents, std::string currency) : cents_(cents), currency_(std::move(currency)) {
    if (currency_.empty()) throw std::invalid_argument("a sum of money in no currency");
  }
  [[nodiscard]] std::int64_t cents() const { return cents_; }
  [[nodiscard]] const std::string& currency() const { return currency_; }

  friend void weft_encode(weft::writer& w, const money& m) {
    weft::encode(w, m.cents_);
    weft::encode(w, m.currency_);
  }
  /// What throws here refuses the call, and the link lives on.
  friend money weft_decode(weft::reader& r, std::type_identity<money>) {
    const auto cents = weft::decode<std::int64_t>(r);
    return money(cents, weft::decode<std::string>(r));
  }

 private:
  std::int64_t cents_;
  std::string currency_;
};
money sum_of(const money& a, const money& b) {
  if (a.currency() != b.currency()) throw std::invalid_argument("two currencies");
  return money(a.cents() + b.cents(), a.currency());
}

std::string text(const money& m) {
  char out[32];
  std::snprintf(out, sizeof out, "%.2f ", static_cast<double>(m.cents()) / 100);
  return out + m.currency();
}

asio::awaitable<void> main_(weft::worker& me) {
  if (me.rank() != 0) co_return;
  weft::peer there = me.peer(1);

  std::vector<sample> samples;
  samples.push_back({at::full({8, 8}, 1.5), 7, {{"file", "a.png"}}});
  samples.push_back({at::full({8, 8}, 2.5), std::nullopt, {}});
  samples.push_back({at::full({8, 8}, 3.5), 1, {{"file", "c.png"}, {"camera", "left"}}});
  const summary s = co_await there.call<&summarise>(samples);
  std::cout << s.samples << " samples, of which " << s.labelled << " are labelled\n"
            << "their mean is " << s.mean << '\n';

  const money a(3000, "EUR"), b(1250, "EUR");
  std::cout << text(a) << " and " << text(b) << " are " << text(co_await there.call<&sum_of>(a, b))
            << '\n';
  const auto mixed = co_await there.call<&sum_of>(a, money(1, "USD"), weft::as_expected);
  if (!mixed) std::cout << "EUR and USD: " << mixed.error().code().message() << '\n';
}

int main() { return weft::run<weft::unix_socket, weft::tcp>(main_, weft::options{.workers = 2}); }
