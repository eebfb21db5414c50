// SPDX-License-Identifier: BSL-1.0
#include "peers/raw.hpp"
#include "rows.hpp"
#include "samples.hpp"
#include "weft_pair.hpp"

#include <asio.hpp>

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace served {

asio::awaitable<std::string> keep(std::string text) { co_return text; }

/// Made on the compute pool.
class holder {
 public:
  explicit holder(std::string text) : text_(std::move(text)) {}
  asio::awaitable<std::string> get() { co_return text_; }

 private:
  std::string text_;
};
/// Made in place.
class light_holder : public holder {
 public:
  using immediate_constructor = light_holder;
  using holder::holder;
  asio::awaitable<std::string> get_lightly() { return get(); }
};

}  // namespace served

namespace {

constexpr std::size_t message_bytes = 64;

asio::awaitable<void> remote_to_here(weft::worker& me, figures& out) {
  auto callee = me.peer(callee_rank);
  const std::string text(message_bytes, 'x');
  pace times(std::chrono::milliseconds(500));
  while (times.more()) {
    times.begin();
    const auto kept = callee.remote<&served::keep>(text);
    const auto back = co_await kept.to_here();
    times.end();
    if (back.size() != text.size()) throw std::runtime_error("the value has another size");
  }
  out = times.latency();
}

/// An object made, used once and dropped.
template <class Holder, auto Get>
asio::awaitable<void> make_call_drop(weft::worker& me, figures& out) {
  auto callee = me.peer(callee_rank);
  const std::string text(message_bytes, 'x');
  pace times(std::chrono::milliseconds(500));
  while (times.more()) {
    times.begin();
    const auto made = callee.make<Holder>(text);
    const auto back = co_await made.template call<Get>();
    times.end();
    if (back.size() != text.size()) throw std::runtime_error("the value has another size");
  }
  out = times.latency();
}

asio::awaitable<void> one_call(weft::worker& me, figures& out) {
  auto callee = me.peer(callee_rank);
  const std::string text(message_bytes, 'x');
  pace times(std::chrono::milliseconds(500));
  while (times.more()) {
    times.begin();
    const auto back = co_await callee.call<&served::keep>(text);
    times.end();
    if (back.size() != text.size()) throw std::runtime_error("the value has another size");
  }
  out = times.latency();
}

}  // namespace

void add_rref_rows(std::vector<row>& rows) {
  constexpr auto where = placement::one_core;
  for (const auto over : {link_kind::inproc, link_kind::unix_socket, link_kind::tcp}) {
    const auto name = "rref.remote_to_here." + name_of(over);
    row one{name + ".p50", "µs", {}};
    one.subjects.push_back(
        {"weft", weft_run(name, over, where, by_default, remote_to_here), "p50"});
    if (over != link_kind::inproc) {
      const auto medium = over == link_kind::tcp ? raw::medium::tcp : raw::medium::unix_socket;
      one.subjects.push_back(
          {"raw",
           make_run({.name = "raw " + name,
                     .where = where,
                     .measure = [=] { return raw::echo(medium, message_bytes, where); }}),
           "p50"});
    }
    rows.push_back(std::move(one));
    for (const bool light : {true, false}) {
      const auto made =
          (light ? "rref.make_call_drop." : "rref.make_call_drop.pool.") + name_of(over);
      const auto work =
          light ? make_call_drop<served::light_holder, &served::light_holder::get_lightly>
                : make_call_drop<served::holder, &served::holder::get>;
      rows.push_back(
          {made + ".p50",
           "µs",
           {{"weft", weft_run(made, over, where, by_default, work), "p50"},
            {"call", weft_run("call beside " + made, over, where, by_default, one_call), "p50"}}});
    }
  }
}

}  // namespace bench
