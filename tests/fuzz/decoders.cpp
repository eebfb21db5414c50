// SPDX-License-Identifier: BSL-1.0
// Whatever bytes come: a frame, or a typed error, and of each part of a frame what it says, or a
// typed error. What is a value can be sent again, and is the same then. The first byte says whose
// decoder is asked, the second how the bytes are cut.
#include "scene.hpp"
#include <weft/autograd/messages.hpp>
#include <weft/engine/link/handshake.hpp>
#include <weft/engine/rendezvous/registration.hpp>
#include <weft/engine/services/lookup.hpp>
#include <weft/rref/callback.hpp>
#include <weft/rref/ledger_wire.hpp>
#include <weft/rref/peer.hpp>
#include <weft/rref/rref.hpp>
#include <weft/rref/section.hpp>
#include <weft/rref/sharded.hpp>
#include <weft/wire/codec.hpp>
#include <weft/wire/detail/drop_tensors.hpp>
#include <weft/wire/error_codec.hpp>
#include <weft/wire/message.hpp>
#include <weft/wire/path.hpp>
#include <weft/wire/tensor_desc.hpp>

#include <algorithm>
#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <transport/feeding.hpp>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>
#include <wire/everything.hpp>
#include <wire/sent_over.hpp>

namespace {

using weft::frame;
using weft::rpc_error;
using weft_test::everything;
using weft_test::tree;

using bytes = std::span<const std::byte>;

/// What `everything` lacks.
struct others {
  std::filesystem::path path;
  std::chrono::milliseconds time;
  std::chrono::system_clock::time_point when;
  std::complex<float> number;
  std::vector<std::byte> raw;
  std::set<std::pair<std::string, std::int16_t>> pairs;
  std::map<std::uint8_t, std::monostate> keys;
  std::tuple<> nothing;
  std::vector<std::optional<std::unique_ptr<tree>>> trees;
};

template <class T>
frame frame_of(const T& value) {
  weft::message m;
  weft::encode(m.payload(), value);
  return std::move(m).finish({});
}
/// It arrives as it was sent; what a hash table holds, in any order.
template <class T>
void send_on(const T& value) {
  const frame first = frame_of(value);
  auto copy = weft_test::copy_of(first);
  if (!copy) std::abort();
  weft::incoming_message m(std::move(*copy));
  if (!m.check()) std::abort();
  weft::reader r = m.payload();
  const T same = weft::decode<T>(r);
  r.finish();
  const frame second = frame_of(same);
  if (second.head.size() != first.head.size()) std::abort();
  if (!std::is_same_v<T, everything> && !std::ranges::equal(first.payload(), second.payload())) {
    std::abort();
  }
}

/// None if they are refused.
template <class T>
std::optional<T> decoded(bytes in, weft::message_extensions& record) {
  weft::reader r(in, record);
  try {
    std::optional<T> value(weft::codec<T>::decode(r));
    r.finish();
    return value;
  } catch (const rpc_error&) {
    return std::nullopt;
  }
}
template <class T>
void decode_as(bytes in) {
  weft::message_extensions record;
  if (const auto value = decoded<T>(in, record)) send_on(*value);
}

template <class T>
void refer_to(bytes in) {
  weft::message_extensions record;
  weft_fuzz::refer_to_nobody(record);
  const auto value = decoded<T>(in, record);
  if (!value) return;
  weft::bytes out;
  weft::message_extensions again;
  weft::writer w(out, again);
  weft::encode(w, *value);
  if (out.size() != in.size()) std::abort();
}
void refer(bytes in, std::size_t to) {
  using namespace weft;
  switch (to % 6) {
  case 0:
    return refer_to<std::map<std::string, rref<tree>>>(in);
  case 1:
    return refer_to<std::vector<callback<int(std::string)>>>(in);
  case 2:
    return refer_to<sharded<tree>>(in);
  case 3:
    return refer_to<engine::found_object>(in);
  case 4:
    return refer_to<detail::given_argument<std::vector<std::string>>>(in);
  default:
    return refer_to<std::tuple<std::string, std::string, engine::lookup_mode>>(in);
  }
}

/// Memory lacked for the tensors of a frame that arrived.
void drop_tensors(const frame& f) {
  auto rest = weft_test::copy_of(f);
  if (!rest || !weft::detail::drop_tensors(*rest)) std::abort();
  weft::incoming_message m(std::move(*rest));
  if (!m.check() || m.section(weft::section_kind::tensors)) std::abort();
  if (!std::ranges::equal(m.whole().payload(), f.payload())) std::abort();
}

/// What arrives of a stream of frames, and all that stands in them.
struct hears final : weft::frame_sink {
  [[nodiscard]] const weft::limits& bounds() const noexcept override { return limits; }
  [[nodiscard]] weft::expected<weft::blob> allocate(std::size_t size) override {
    if (size > 1u << 20) {
      return weft::unexpected(weft::error(weft::errc::resource_exhausted, "too much"));
    }
    return weft_test::copy_of(std::vector<std::byte>(size));
  }
  [[nodiscard]] weft::expected<void> frame_arrived(frame&& f) override {
    weft::incoming_message m(std::move(f), limits);
    if (!m.check()) return {};
    drop_tensors(m.whole());
    weft::reader r = m.payload();
    try {
      static_cast<void>(weft::codec<everything>::decode(r));
      r.finish();
    } catch (const rpc_error&) {
    }
    return {};
  }
  [[nodiscard]] weft::expected<void> frame_skipped(frame&&, weft::partial_frame, std::uint64_t,
                                                   weft::error) override {
    return {};
  }
  void progress() noexcept override {}
  weft::limits limits{};
};

void assemble(bytes in, std::size_t step) {
  hears sink;
  weft::frame_assembler a;
  static_cast<void>(weft::testing::feed(a, sink, in, [step] { return step; }));
}

void read_tensors(bytes in) {
  std::vector<weft::blob> buffers;
  for (const std::size_t size : {0, 8, 64, 4096}) {
    buffers.push_back(weft_test::copy_of(std::vector<std::byte>(size)));
  }
  if (!weft::check_tensors(in, buffers).empty()) return;
  weft::tensor_desc_reader reader(in);
  weft::tensor_desc one;
  for (std::uint32_t i = 0; i < reader.head().total; ++i) {
    if (reader.next(one, buffers) != nullptr) std::abort();  // it has been checked
  }
}

void shake_hands(bytes in, bool connects) {
  weft::membership all;
  for (int r = 0; r < 2; ++r) {
    weft::member m;
    m.name = "worker" + std::to_string(r);
    m.incarnation.low = static_cast<std::uint64_t>(r) + 1;
    all.members.push_back(m);
  }
  weft::random_source random = [state = std::uint64_t{1}]() mutable { return ++state; };
  using weft::engine::handshake;
  handshake h = connects ? handshake(all, 1, random) : handshake(all, random);
  // Frames of one byte of kind, two of length, and their payload.
  while (in.size() >= 3) {  // bounded: by the bytes
    const auto kind = static_cast<weft::frame_kind>(in[0]);
    const std::size_t size = std::min<std::size_t>(
        static_cast<std::size_t>(in[1]) | static_cast<std::size_t>(in[2]) << 8, in.size() - 3);
    weft::message m;
    m.payload().raw(in.data() + 3, size);
    weft::frame_header header;
    header.kind = kind;
    static_cast<void>(h.arrived(std::move(m).finish(header)));
    // Nobody who does not know the token is a member.
    if (h.current_state() == handshake::state::accepted ||
        h.current_state() == handshake::state::proven)
      std::abort();
    in = in.subspan(3 + size);
  }
  static_cast<void>(h.failed(weft::error(weft::errc::peer_died, "the end")));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  // Memory of its own, so that reading beyond it is seen.
  const std::vector<std::byte> mine(reinterpret_cast<const std::byte*>(data) + 2,
                                    reinterpret_cast<const std::byte*>(data) + size);
  const bytes in(mine);
  switch (data[0] % 14) {
  case 0:
    assemble(in, 1 + data[1]);
    break;
  case 1:
    decode_as<everything>(in);
    break;
  case 2:
    decode_as<weft::error>(in);
    break;
  case 3:
    decode_as<std::vector<std::map<std::string, std::optional<std::vector<float>>>>>(in);
    break;
  case 4:
    read_tensors(in);
    break;
  case 5:
    static_cast<void>(weft::rref_protocol::read_section(in, data[1] % 2 == 0));
    break;
  case 6:
    if (const auto m = weft::rref_protocol::decode_message(in)) {
      std::byte again[weft::rref_protocol::message_bytes];
      weft::rref_protocol::encode(*m, again);
      if (std::memcmp(again, in.data(), sizeof again) != 0) std::abort();
    }
    break;
  case 7:
    if (const auto m = weft::autograd::decode(in)) {
      if (!std::ranges::equal(weft::autograd::encode(*m), in)) std::abort();
    }
    break;
  case 8:
    shake_hands(in, data[1] % 2 == 0);
    break;
  case 9:
    try {
      static_cast<void>(weft::engine::read_member(
          std::string(reinterpret_cast<const char*>(in.data()), in.size())));
    } catch (const rpc_error&) {
    }
    break;
  case 10:
    assemble(in, 1 << 16);
    break;
  case 12:
    decode_as<others>(in);
    break;
  case 13:
    refer(in, data[1]);
    break;
  default:
    decode_as<tree>(in);
  }
  return 0;
}
