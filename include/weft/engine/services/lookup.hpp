// SPDX-License-Identifier: BSL-1.0
// The call behind peer::lookup, in the form of `detail::exposed<f>`, and its caller's half. In the
// engine, and not a template, so that it is not compiled wherever the face is.
//
//   caller   waits ─────────────────────────────► looks ─► waits ─► deadline: says what was there
//   callee   until the name is published here     names     until the name is published here
//
// The names that an error lists are asked for shortly before the deadline, which then counts to
// the last moment.
#pragma once

#include <weft/core/event.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/services/published_names.hpp>
#include <weft/rpc/detail/call_settings.hpp>
#include <weft/rpc/detail/invocation.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rref/rref.hpp>
#include <weft/rref/service.hpp>
#include <weft/wire/structure.hpp>

#include <asio/awaitable.hpp>
#include <asio/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

namespace weft::engine {

/// What only the name of its type tells.
struct any_object {};

struct found_object {
  rref<any_object> it;             // empty: nobody has published it; then:
  std::vector<std::string> names;  // that are published, the first ones
  std::uint64_t others = 0;        // how many more there are
};

enum class lookup_mode : std::uint8_t { waits, looks };

/// Serves a lookup, on the worker's thread. What it throws is refused as arguments are: nothing was
/// done, and the caller gets it as it is.
inline asio::awaitable<found_object> find_published(invocation& c, std::string name,
                                                    std::string type, lookup_mode how) {
  c.reached = invocation::stage::arguments;
  if (const error why = published_names::refuse(name)) throw rpc_error(why);
  if (type.size() > published_names::longest_type) {
    throw rpc_error(errc::bad_arguments, "the type looked up has a name of " +
                                             std::to_string(type.size()) + " bytes, more than " +
                                             std::to_string(published_names::longest_type));
  }
  weft::worker& me = c.who.self();
  published_names& names = me.use<weft::rref_service>().published();
  // bounded: by the request's life, which its caller, its deadline and the end of the run end
  for (;;) {
    const published_names::waiter here(names, name);  // before it looks, so that it misses nothing
    if (const auto found = names.find(name)) {
      if (found->type == type) {
        co_return found_object{rref_access::make<any_object>(me, found->held), {}, 0};
      }
      throw rpc_error(errc::bad_arguments, "the object published as '" + name + "' is a " +
                                               found->type + ", not a " + type);
    }
    if (how == lookup_mode::looks) {
      auto [listed, others] = names.list();
      co_return found_object{{}, std::move(listed), others};
    }
    co_await event::wait(here.published());
  }
}

struct lookup_function {
  using result = found_object;
  using arguments = std::tuple<std::string, std::string, lookup_mode>;  // name, type
  static constexpr function_style style = function_style::coroutine;
  static constexpr std::string_view name() { return "weft::peer::lookup"; }
  static constexpr bool has_portable_name() { return true; }
  static constexpr std::uint64_t id() { return name_hash(name()); }
  static constexpr std::uint32_t signature =
      structure_hash<found_object, std::string, std::string, lookup_mode>();
  static asio::awaitable<found_object> call(invocation& c, arguments&& a) {
    auto& [name, type, how] = a;
    return find_published(c, std::move(name), std::move(type), how);
  }
};

/// A lookup that has failed at its deadline: it was one call to its user. `there`, if it came, is
/// what was published shortly before.
[[nodiscard]] inline error not_published(const error& late, std::string_view name, duration limit,
                                         const found_object* there) noexcept {
  return late.with([&](error_detail& d) {
    using std::chrono::microseconds;
    if (there) d.ran = call_progress::not_executed;
    d.deadline = d.elapsed = std::chrono::duration_cast<microseconds>(limit);
    if (!there) return;
    std::string text =
        "no object was published there as '" + std::string(name) + "' by the deadline; ";
    std::size_t listed = 0;
    for (const std::string& other : there->names) {
      if (listed == published_names::most_listed) break;
      text += listed++ == 0 ? "published there: '" : ", '";
      text += other.substr(0, published_names::longest_name) + "'";
    }
    if (listed == 0) text += "nothing is published there";
    if (there->others > 0) text += " and " + std::to_string(there->others) + " more";
    d.text = std::move(text);
  });
}

/// Waits for a name at that worker, at most until the call's deadline.
inline asio::awaitable<expected<intrusive_ptr<reference>>>
look_up(weft::worker& me, std::uint32_t rank, std::string name, std::string type,
        call_settings settings) {
  try {
    if (error why = published_names::refuse(name)) co_return tl::unexpected(std::move(why));
    const time_point begun = me.time().now();
    const time_point deadline =
        std::max(begun, settings.deadline_from(begun, me.settings().call_deadline));
    const duration limit = deadline - begun;
    const auto ask = [&](lookup_mode how, time_point until) {
      return make_call<lookup_function>(me.link_to(rank), prepare_nothing{}, name, type, how,
                                        within(until - me.time().now()), as_expected);
    };
    const auto is_late = [](const expected<found_object>& r) {
      return !r && r.error() == errc::timed_out;
    };
    std::optional<found_object> there;
    constexpr duration last_look = std::chrono::seconds(1);
    const bool looks = deadline != time_point::max() && limit > duration(0);
    auto r = co_await ask(lookup_mode::waits,
                          looks ? deadline - std::min(limit / 4, last_look) : deadline);
    if (looks && is_late(r)) {
      r = co_await ask(lookup_mode::looks, deadline);
      if (r && !r->it) {
        there = std::move(*r);
        r = co_await ask(lookup_mode::waits, deadline);
      }
    }
    if (r && r->it) co_return rref_access::held(std::move(r->it));
    if (r) co_return tl::unexpected(error(errc::bad_arguments, "an answer without a reference"));
    if (!looks || !is_late(r)) co_return tl::unexpected(std::move(r.error()));
    co_return tl::unexpected(not_published(r.error(), name, limit, there ? &*there : nullptr));
  } catch (const std::system_error& e) {  // between two of its calls
    if (e.code() != asio::error::operation_aborted) throw;
    co_return tl::unexpected(
        error(errc::cancelled, "the caller gave up", call_progress::not_executed));
  }
}

}  // namespace weft::engine
