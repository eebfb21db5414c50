// SPDX-License-Identifier: BSL-1.0
// A member that has proved to be one, and then says whatever it likes to a real worker, in a
// simulated world: the worker neither crashes nor ends, nor leaves anything behind.
//
// The first byte of an input says whether bytes follow, or frames that are written out of
// {kind and buffers, flags, call, which function, sections, payload's length (2), payload}. Frames
// of large tensors go by a second connection.
#include "scene.hpp"
#include <weft/engine/services/rref_service.hpp>
#include <weft/engine/services/services.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>
#include <weft/wire/bulk.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <span>
#include <string>
#include <system_error>
#include <transport/feeding.hpp>
#include <utility>
#include <vector>
#include <wire/sent_over.hpp>

namespace hostile_link {

using namespace std::chrono_literals;
using weft::frame;
using weft::frame_kind;
using weft_fuzz::known;
using weft_fuzz::one;

struct thing {
  std::uint64_t number = 1;
  std::uint64_t plus(std::uint64_t x) { return number + x; }
};

std::uint64_t plain(std::uint64_t x) { return x; }
std::vector<std::string> texts(std::vector<std::string> all) { return all; }
asio::awaitable<std::uint64_t> slow(weft::worker& me, std::uint64_t x) {
  const auto over = weft::make_intrusive<weft::event>();
  const auto t = me.time().make_timer(weft::detail::context_of(me));
  t->arm(weft::later(me.time().now(), 10ms), [over] { over->set(); });
  co_await weft::event::wait(over);
  co_return x;
}
thing make(std::uint64_t x) { return {x}; }
asio::awaitable<weft::rref<thing>> pass(weft::rref<thing> it) { co_return it; }

const std::array<known, 7>& functions() {
  static const std::array<known, 7> all = {one<&plain>(),      one<&texts>(), one<&slow>(),
                                           one<&make>(),       one<&pass>(),  known{7, 7},
                                           one<&thing::plus>()};
  return all;
}

struct buffer final : weft::blob_owner {
  std::vector<std::byte> bytes;
};
/// For the two connections.
struct written {
  std::vector<std::byte> calls, bulk;
};
/// The frames that those bytes describe.
written written_out(std::span<const std::byte> in) {
  written out;
  constexpr std::size_t head = 7;
  while (in.size() >= head) {  // bounded: by the bytes
    const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(in[i]); };
    const std::size_t size =
        std::min<std::size_t>(at(5) | std::size_t{at(6)} << 8, in.size() - head);
    weft::message m;
    m.payload().raw(in.data() + head, size);
    // ... and as buffers, as many as its kind says.
    for (int i = at(0) >> 6; i > 0; --i) {
      auto owner = weft::make_intrusive<buffer>();
      owner->bytes.assign(in.begin() + head, in.begin() + head + size / static_cast<unsigned>(i));
      std::byte* const data = owner->bytes.data();
      const std::size_t bytes = owner->bytes.size();
      m.add_blob({data, bytes, std::move(owner)});
    }
    // The first part of the payload also as sections, as many as it says.
    for (int i = 0; i < at(4) % 4; ++i) {
      m.section(static_cast<weft::section_kind>((at(4) >> 2) + i),
                in.subspan(head, std::min<std::size_t>(size, 64)));
    }
    weft::frame_header h;
    h.kind = static_cast<frame_kind>(at(0) % 64);
    const bool parts = (at(0) >> 6) > 0 && (at(1) & weft::flag_bulk) != 0;
    h.flags = at(1) & (parts ? ~weft::flag_bulk : 0xff);
    h.call = at(2) == 0 ? 0 : std::uint64_t{at(2)} << 32 | (at(2) % 4);
    const known& f = functions()[at(3) % functions().size()];
    h.function = at(3) < 128 ? f.id : at(3) - 128u;  // of a reply or a window: its credit
    h.signature = f.signature;
    h.deadline = at(2) % 3 == 0 ? 0 : 1000u * at(2);
    frame whole = std::move(m).finish(h);
    const auto say = [](std::vector<std::byte>& where, const frame& f) {
      const std::vector<std::byte> all = weft::testing::wire(f);
      where.insert(where.end(), all.begin(), all.end());
    };
    if (parts) say(out.bulk, weft::split_bulk(whole));
    say(whole.header.kind == frame_kind::bulk ? out.bulk : out.calls, whole);
    in = in.subspan(head + size);
  }
  return out;
}

}  // namespace hostile_link

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::cerr.setstate(std::ios::badbit);  // what the worker says of its peer
  return 0;
}
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace std::chrono_literals;
  if (size < 1) return 0;
  const std::span<const std::byte> in(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  weft_fuzz::scene s(weft::engine::services<weft::rref_service>());
  if (data[0] % 4 == 0) {
    s.say(in);
  } else {
    const auto out = hostile_link::written_out(in);
    if (data[0] % 4 == 1) {  // whatever comes first
      s.say(out.calls);
      s.run(1ms);
    }
    if (!out.bulk.empty()) s.say_as_bulk(out.bulk);
    if (data[0] % 4 != 1) s.say(out.calls);
  }
  s.run(100ms);
  s.hear();
  s.run(100ms);
  // It may be left behind, and the run goes on.
  if (!s.victim().alive() || s.victim().ended()) std::abort();
  return 0;
}
