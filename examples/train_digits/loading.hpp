// SPDX-License-Identifier: BSL-1.0
#pragma once
// --loaders: processes that hold the rows, and stream batches to the trainers.
//
//   loader 1  ── rows 0, 2, 4, …  ──►  any trainer that asks      each batch to one of them
//   loader 2  ── rows 1, 3, 5, …  ──►
//   server: ledger, which batches were trained on. If a loader is lost, another reads the rest.

#include "data.hpp"
#include "settings.hpp"
#include <weft/weft.hpp>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace digits {

// One batch of an epoch: of the rows of which loader, and the how manieth.
struct ticket {
  int loader = 0;
  std::int64_t index = 0;
  friend auto operator<=>(const ticket&, const ticket&) = default;
};
struct numbered {
  ticket number;
  batch data;
};

// Of so many rows that a loader holds: the numbers of each batch of an epoch.
inline std::vector<std::vector<std::int64_t>> batches_of(const settings& how, int loader,
                                                         std::int64_t rows, int epoch) {
  return shard(rows, how.batch, epoch, 0, 1, how.seed + static_cast<std::uint64_t>(loader));
}

// What one loader holds: each how_.loaders-th row.
class held_rows {
 public:
  held_rows(const settings& how, int loader) : how_(how), loader_(loader) {
    const batch all = load(how.data, how.seed).train;
    std::vector<std::int64_t> rows;
    for (std::int64_t r = loader; r < all.size(); r += how.loaders) rows.push_back(r);
    rows_ = select(all, rows);
  }
  // Row numbers here, batch by batch, of an epoch.
  std::vector<std::vector<std::int64_t>> batches(int epoch) const {
    return batches_of(how_, loader_, rows_.size(), epoch);
  }
  batch read(const std::vector<std::int64_t>& rows) const { return select(rows_, rows); }

 private:
  settings how_;
  int loader_;
  batch rows_;
};

// At a loader.
class loader {
 public:
  loader(settings how, int number) : how_(std::move(how)), number_(number), mine_(how_, number) {}

  // Batches of the epoch that nobody else has got, until there are no more.
  asio::awaitable<void> batches(int epoch, weft::sink<numbered> out) {
    out.set_window(2);  // whoever is faster gets more
    const auto all = mine_.batches(epoch);
    auto& next = next_[epoch];
    while (next < all.size()) {
      if (epoch == how_.epochs / 2 && number_ + 1 == how_.kill_loader && next >= all.size() / 2) {
        std::raise(SIGKILL);
      }
      const std::size_t index = next++;
      co_await out.write({{number_, static_cast<std::int64_t>(index)}, mine_.read(all[index])});
    }
  }
  // Those batches, whosever they were: they are read from the file.
  asio::awaitable<void> again(int epoch, std::vector<ticket> which, weft::sink<numbered> out) {
    std::map<int, std::vector<std::int64_t>> by_loader;
    for (const ticket& t : which) by_loader[t.loader].push_back(t.index);
    for (const auto& [of, indices] : by_loader) {
      const held_rows theirs(how_, of);
      const auto all = theirs.batches(epoch);
      for (const std::int64_t i : indices) {
        co_await out.write({{of, i}, theirs.read(all.at(static_cast<std::size_t>(i)))});
      }
    }
  }

 private:
  settings how_;
  int number_;
  held_rows mine_;
  std::map<int, std::size_t> next_;  // by epoch
};

// At the server: what was trained on. Its coroutines share one thread.
class ledger {
 public:
  // `rows` are in an epoch.
  ledger(settings how, std::int64_t rows) : how_(std::move(how)), rows_of_epoch_(rows) {
    for (int l = 0; l < how_.loaders; ++l) {
      const std::int64_t held = (rows - l + how_.loaders - 1) / how_.loaders;
      batches_.push_back(static_cast<std::int64_t>(batches_of(how_, l, held, 0).size()));
    }
  }

  asio::awaitable<void> trained(int epoch, ticket which, std::int64_t rows) {
    if (!done_[epoch].insert(which).second) {
      throw std::logic_error("a batch was trained on twice in epoch " + std::to_string(epoch + 1));
    }
    rows_[epoch] += rows;
    co_return;
  }
  // A trainer has no more batches of the epoch. When all have come, each gets a part of those that
  // nobody has trained on; and comes again behind them, until there are none.
  asio::awaitable<std::vector<ticket>> rest(int trainer, int epoch) {
    const auto together = together_;
    if (++waiting_ < how_.trainers) {
      co_await weft::event::wait(together);
    } else {
      waiting_ = 0;
      rest_.clear();
      for (int l = 0; l < how_.loaders; ++l) {
        for (std::int64_t i = 0; i < batches_[static_cast<std::size_t>(l)]; ++i) {
          if (!done_[epoch].contains({l, i})) rest_.push_back({l, i});
        }
      }
      reread_ += static_cast<std::int64_t>(rest_.size());
      together_ = weft::make_intrusive<weft::event>();
      together->set();
    }
    std::vector<ticket> mine;
    for (std::size_t i = static_cast<std::size_t>(trainer); i < rest_.size();
         i += static_cast<std::size_t>(how_.trainers)) {
      mine.push_back(rest_[i]);
    }
    // Nobody has anything to do: the epoch is over.
    co_return rest_.empty() ? std::vector<ticket>() : mine.empty() ? std::vector{nothing} : mine;
  }
  static constexpr ticket nothing{-1, 0};  // come again

  // "every row was trained on exactly once in each of 30 epochs: 45000 rows, of which 12 batches …"
  asio::awaitable<std::string> in_words() {
    std::int64_t rows = 0;
    for (const auto& [epoch, count] : rows_) {
      if (count != rows_of_epoch_) {
        throw std::logic_error("in epoch " + std::to_string(epoch + 1) + ", " +
                               std::to_string(count) + " of " + std::to_string(rows_of_epoch_) +
                               " rows were trained on");
      }
      rows += count;
    }
    std::string text = "every row was trained on exactly once in each of " +
                       std::to_string(rows_.size()) + " epochs: " + std::to_string(rows) + " rows";
    if (reread_ > 0) {
      text += "; " + std::to_string(reread_) + " batches of a lost loader were read by others";
    }
    co_return text;
  }

 private:
  settings how_;
  std::int64_t rows_of_epoch_;
  std::vector<std::int64_t> batches_;     // of an epoch, by loader
  std::map<int, std::set<ticket>> done_;  // by epoch
  std::map<int, std::int64_t> rows_;
  std::vector<ticket> rest_;
  std::int64_t reread_ = 0;
  int waiting_ = 0;
  weft::intrusive_ptr<weft::event> together_ = weft::make_intrusive<weft::event>();
};

// Whether a loader that threw this is gone.
inline bool is_lost(const weft::rpc_error& e) {
  return e.error() == weft::errc::peer_died || e.error() == weft::errc::rref_owner_died;
}

// A trainer's batches of an epoch, from all loaders. Forgets those that are lost.
class feed {
 public:
  feed(std::vector<weft::rref<loader>> loaders, weft::rref<ledger> book, int trainer)
      : loaders_(std::move(loaders)), book_(std::move(book)), trainer_(trainer) {}

  asio::awaitable<void> begin(int epoch) {
    epoch_ = epoch;
    for (const auto& l : loaders_) {
      auto [in] = co_await l.open<&loader::batches>(epoch);
      place_.push_back(in_.size());
      in_.push_back(std::move(in));
    }
  }
  // Nothing: the epoch is over for all trainers.
  asio::awaitable<std::optional<numbered>> next() {
    for (;;) {
      while (!in_.empty()) {
        turn_ %= in_.size();
        try {
          if (auto item = co_await in_[turn_].next()) {
            ++turn_;
            co_return item;
          }
        } catch (const weft::rpc_error& e) {
          if (!is_lost(e)) throw;
          const std::size_t lost = place_[turn_];
          loaders_.erase(loaders_.begin() + static_cast<std::ptrdiff_t>(lost));
          for (std::size_t& p : place_) p -= p > lost ? 1 : 0;
        }
        place_.erase(place_.begin() + static_cast<std::ptrdiff_t>(turn_));
        in_.erase(in_.begin() + static_cast<std::ptrdiff_t>(turn_));
      }
      const auto which =
          co_await book_.call<&ledger::rest>(trainer_, epoch_, weft::within(weft::no_limit));
      if (which.empty()) co_return std::nullopt;
      if (which.front() == ledger::nothing) continue;
      if (loaders_.empty()) throw std::runtime_error("every loader is lost");
      auto [in] = co_await loaders_.front().open<&loader::again>(epoch_, which);
      place_.push_back(0);
      in_.push_back(std::move(in));
    }
  }
  asio::awaitable<void> trained(const numbered& what) {
    co_await book_.call<&ledger::trained>(epoch_, what.number, what.data.size());
  }

 private:
  std::vector<weft::rref<loader>> loaders_;
  std::vector<weft::stream<numbered>> in_;
  std::vector<std::size_t> place_;  // of each one's loader among `loaders_`
  weft::rref<ledger> book_;
  int trainer_;
  int epoch_ = 0;
  std::size_t turn_ = 0;
};

}  // namespace digits
