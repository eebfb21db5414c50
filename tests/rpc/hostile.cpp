// SPDX-License-Identifier: BSL-1.0
// Peers that say what they like, over plain TCP, to a worker that must neither crash, nor hang, nor
// stop serving the others.
#include <weft/core/system_random.hpp>
#include <weft/engine/link/window.hpp>
#include <weft/engine/serving/served_calls.hpp>
#include <weft/engine/shutdown/shutdown.hpp>
#include <weft/rpc/expose.hpp>
#include <weft/rpc/peer.hpp>
#include <weft/wire/bulk.hpp>

#include <asio/use_future.hpp>

#include <algorithm>
#include <conformance/rig.hpp>
#include <core/bounded_wait.hpp>
#include <core/for_ever.hpp>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <rpc/cluster.hpp>
#include <rpc/engine_link.hpp>
#include <rpc/raw_peer.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <transport/feeding.hpp>
#include <vector>

namespace hostile_peers {

using namespace std::chrono_literals;
using namespace weft::testing;
using weft::as_expected;
using weft::errc;
using weft::frame;
using weft::frame_header;
using weft::frame_kind;
using weft::header_size;
using weft::immediate;
using weft::within;
using weft::worker;

constexpr std::uint64_t mutant_call = 0x0000'0007'0000'0003;
constexpr std::uint64_t probe_call = 0x1111'2222'3333'4444;

immediate<std::uint64_t> twice(std::uint64_t x) { return x * 2; }
asio::awaitable<std::uint64_t> twice_later(std::uint64_t x) {
  co_await asio::post(asio::use_awaitable);
  co_return x * 2;
}

asio::awaitable<void> serve(worker&) { co_await for_ever(); }

std::atomic<int> ended_by_itself{0};
/// Waits until it is cancelled.
asio::awaitable<std::uint64_t> wait_for_ever(std::uint64_t x) {
  try {
    co_await for_ever();
  } catch (const std::system_error&) {
    ++ended_by_itself;
    throw;
  }
  co_return x;
}
[[maybe_unused]] void known_here() { weft::expose<&wait_for_ever>(); }

/// Workers 0 and 1, and as many strangers as the test wants; worker 1 is the victim.
class scene {
 public:
  explicit scene(std::uint32_t strangers, weft::options o = with_io_threads(1))
      : workers_(2, over::tcp, patient(std::move(o)), strangers) {}
  ~scene() {
    workers_.stop();
    const auto ends = workers_.join();
    INFO(ends[1].message());
    CHECK(ends[1].message().find("test is over") != std::string::npos);
  }
  void start(const cluster::main_function& main_ = serve) {
    workers_.start(main_);
    ping();
  }
  [[nodiscard]] weft::membership& members() { return workers_.members(); }
  [[nodiscard]] raw_peer connect() {
    return raw_peer(workers_.members().members[1].addresses[0].endpoint);
  }
  /// A connection that was welcomed, by a stranger not heard of before.
  [[nodiscard]] raw_peer connect_as_member() {
    raw_peer p = connect();
    REQUIRE(next_ < members().size());
    REQUIRE(p.greet(members(), next_++, 1));
    return p;
  }
  /// Another worker is served by the victim, and the other way round.
  void ping() {
    for (const std::uint32_t from : {0u, 1u}) {
      auto call = [](worker& me) -> asio::awaitable<std::uint64_t> {
        co_return co_await me.peer(1 - me.rank()).call<&twice_later>(21u);
      };
      auto done = asio::co_spawn(weft::detail::context_of(workers_.at(from)),
                                 call(workers_.at(from)), asio::use_future);
      CHECK(result_of(done) == 42);
    }
  }
  /// The result of a coroutine on the victim's thread.
  template <class T>
  T on_victim(asio::awaitable<T> work) {
    auto done =
        asio::co_spawn(weft::detail::context_of(workers_.at(1)), std::move(work), asio::use_future);
    return result_of(done);
  }
  [[nodiscard]] worker& victim() { return workers_.at(1); }

 private:
  /// Strangers never greet rank 0.
  static weft::options patient(weft::options o) {
    o.rendezvous_deadline = 1h;
    return o;
  }
  template <class T>
  static T result_of(std::future<T>& done) {
    if (done.wait_for(wait_patience) != std::future_status::ready) {
      throw std::runtime_error("the victim does not answer");
    }
    return done.get();
  }

  cluster workers_;
  std::uint32_t next_ = 2;
};

template <auto& F = twice>
frame request(std::uint64_t call, std::uint64_t x,
              std::chrono::microseconds deadline = std::chrono::seconds(30)) {
  using f = weft::function<&F>;
  weft::message m;
  weft::codec<std::uint64_t>::encode(m.payload(), x);
  const std::byte trace[8] = {};
  m.section(weft::section_kind::trace, trace);
  frame_header h;
  h.call = call;
  h.function = f::id();
  h.signature = f::signature;
  h.deadline = static_cast<std::uint32_t>(deadline.count());
  return std::move(m).finish(h);
}
frame reply(std::uint64_t call, std::uint64_t value) {
  weft::message m;
  weft::codec<std::uint64_t>::encode(m.payload(), value);
  frame_header h;
  h.kind = frame_kind::reply;
  h.call = call;
  return std::move(m).finish(h);
}
frame failure(std::uint64_t call) {
  weft::message m;
  weft::codec<weft::error>::encode(m.payload(), weft::error(errc::remote_exception, "boom"));
  frame_header h;
  h.kind = frame_kind::failure;
  h.call = call;
  return std::move(m).finish(h);
}
frame control() {
  weft::message m;
  m.payload().number(weft::engine::shutdown_message::kind::finished);
  m.payload().number(std::uint32_t{2});
  weft::codec<std::string>::encode(m.payload(), "");
  frame_header h;
  h.kind = frame_kind::control;
  return std::move(m).finish(h);
}
frame other(frame_kind kind) {
  weft::message m;
  m.payload().number(std::uint32_t{7});
  frame_header h;
  h.kind = kind;
  h.call = mutant_call;
  return std::move(m).finish(h);
}
std::vector<byte_string> every_kind() {
  std::vector<byte_string> out{bytes_of(request(mutant_call, 4)), bytes_of(reply(mutant_call, 4)),
                               bytes_of(failure(mutant_call)), bytes_of(control())};
  for (const auto kind :
       {frame_kind::cancel, frame_kind::rref, frame_kind::autograd, frame_kind::hello,
        frame_kind::welcome, frame_kind::refuse, frame_kind::challenge, frame_kind::proof,
        frame_kind::ready, frame_kind::window, frame_kind::ping, frame_kind::bulk}) {
    out.push_back(bytes_of(other(kind)));
  }
  return out;
}
byte_string flipped(byte_string bytes, std::size_t bit) {
  bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  return bytes;
}

/// What came back for a frame and the good request behind it.
struct answers {
  std::vector<frame> frames;
  [[nodiscard]] const frame* to(std::uint64_t call) const {
    for (const frame& f : frames) {
      if (f.header.call == call) return &f;
    }
    return nullptr;
  }
};
weft::error failure_in(const frame* f) {
  if (!f || f->header.kind != frame_kind::failure) return {};
  weft::message_extensions record;
  weft::reader r(f->payload(), record);
  return weft::codec<weft::error>::decode(r);
}
std::uint64_t value_in(const frame* f) {
  if (!f || f->header.kind != frame_kind::reply) return 0;
  weft::message_extensions record;
  weft::reader r(f->payload(), record);
  return weft::codec<std::uint64_t>::decode(r);
}

void check_sane(const answers& got) {
  std::set<std::uint64_t> seen;
  for (const frame& f : got.frames) {
    CHECK((weft::is_answer(f.header.kind) || f.header.kind == frame_kind::window ||
           f.header.kind == frame_kind::ping));
    CHECK(seen.insert(f.header.call).second);  // no call is answered twice
  }
  if (const frame* probe = got.to(probe_call)) CHECK(value_in(probe) == 200);
}

/// Says it, then a good request, then nothing more, and takes in what comes until the end.
answers say(scene& s, const byte_string& bytes) {
  raw_peer p = s.connect_as_member();
  byte_string all = bytes;
  append(all, bytes_of(request(probe_call, 100)));
  p.send(all);
  p.finish_sending();
  answers out{p.read_all()};
  check_sane(out);
  return out;
}

/// As `say`, over one connection for as long as it lasts. Not for what makes the victim wait for
/// more bytes.
class talker {
 public:
  explicit talker(scene& s) : scene_(s) {}
  answers say(const byte_string& bytes) {
    if (!peer_) peer_.emplace(scene_.connect_as_member());
    byte_string all = bytes;
    append(all, bytes_of(request(probe_call, 100)));
    answers out;
    if (peer_->send(all)) {
      // bounded: each frame within the raw peer's patience, and the probe's reply ends them
      while (auto f = peer_->read()) {
        out.frames.push_back(std::move(*f));
        if (out.frames.back().header.call == probe_call) break;
      }
    }
    if (!out.to(probe_call)) peer_.reset();
    check_sane(out);
    return out;
  }

 private:
  scene& scene_;
  std::optional<raw_peer> peer_;
};

TEST_CASE("hostile: every frame kind, truncated at every byte") {
  const auto kinds = every_kind();
  const std::size_t step = rounds(3, 1);
  std::size_t count = 0;
  for (const auto& k : kinds) count += (k.size() + step - 1) / step;
  scene s(static_cast<std::uint32_t>(count));
  s.start();
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const byte_string& whole = kinds[k];
    for (std::size_t size = k % step; size < whole.size(); size += step) {
      raw_peer p = s.connect_as_member();
      p.send(std::span(whole).first(size));
      p.finish_sending();
      CHECK(p.read_all().empty());
    }
    s.ping();
  }
}

TEST_CASE("hostile: every bit of every kind's header flipped") {
  const auto kinds = every_kind();
  constexpr std::size_t bits = header_size * 8;
  const std::size_t step = rounds(5, 1);
  scene s(static_cast<std::uint32_t>(kinds.size() * (bits + step - 1) / step + 1));
  s.start();
  talker t(s);
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    for (std::size_t bit = k % step; bit < bits; bit += step) {
      CAPTURE(k);
      CAPTURE(bit);
      const byte_string mutant = flipped(kinds[k], bit);
      const std::size_t byte = bit / 8;
      const answers got = byte < 48 ? t.say(mutant) : say(s, mutant);
      if (byte < 5) CHECK(got.frames.empty());  // magic, version
      if (k != 0) {
        CHECK(got.frames.size() <= 2);
        continue;
      }
      // A request: what it now says is known.
      const auto call = weft::detail::load<std::uint64_t>(mutant.data() + 8);
      const frame* const answer = got.to(call);
      if (byte >= 8 && byte < 16) CHECK(value_in(answer) == 8);
      if (byte >= 16 && byte < 24) CHECK(failure_in(answer) == errc::unknown_function);
      if (byte >= 24 && byte < 28) CHECK(failure_in(answer) == errc::signature_mismatch);
      if (byte >= 32 && byte < 48) CHECK(value_in(answer) == 8);
      if (byte >= 8 && byte < 48) CHECK(got.to(probe_call));
      if (byte >= 48) CHECK_FALSE(got.to(call));
    }
    s.ping();
  }
}

TEST_CASE("hostile: every bit of payload and table flipped") {
  const byte_string good = bytes_of(request(mutant_call, 4));
  scene s(static_cast<std::uint32_t>((good.size() - header_size) * 8));
  s.start();
  const std::size_t table = header_size + 8;  // behind the one argument
  for (std::size_t bit = header_size * 8; bit < good.size() * 8; ++bit) {
    CAPTURE(bit);
    const answers got = say(s, flipped(good, bit));
    if (bit / 8 < table) {
      CHECK(value_in(got.to(mutant_call)) ==
            2 * (std::uint64_t{4} ^ (std::uint64_t{1} << (bit - header_size * 8))));
      CHECK(got.to(probe_call));
    } else if (bit / 8 >= table + 4 && bit / 8 < table + 8) {
      CHECK(got.frames.empty());  // the section's length
    }
  }
  s.ping();
}

TEST_CASE("hostile: every length 0, one less, one more, and the largest") {
  struct field {
    std::size_t at;
    std::size_t size;
  };
  // sections, tensors, table bytes, payload bytes, length of the section, its kind
  const std::vector<field> fields{{48, 2}, {50, 2}, {52, 4}, {56, 8}, {76, 4}, {72, 2}};
  const byte_string good = bytes_of(request(mutant_call, 4));
  scene s(200);
  s.start();
  for (const field& f : fields) {
    std::uint64_t value = 0;
    std::memcpy(&value, good.data() + f.at, f.size);
    const std::uint64_t most =
        f.size == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * f.size) - 1;
    for (const std::uint64_t wrong :
         {std::uint64_t{0}, value - 1, value + 1, most, most - 1, most / 2, most / 2 + 1,
          std::uint64_t{weft::default_limits.payload}, std::uint64_t{weft::default_limits.table}}) {
      if ((wrong & most) == value) continue;
      CAPTURE(f.at);
      CAPTURE(wrong);
      byte_string mutant = good;
      std::memcpy(mutant.data() + f.at, &wrong, f.size);
      const answers got = say(s, mutant);
      // Nothing that lies about its lengths is executed.
      if (f.at != 72) CHECK(value_in(got.to(mutant_call)) == 0);
    }
  }
  s.ping();
}

/// What this process has reserved, touched or not: memory that is allocated and never written is
/// not resident.
std::size_t reserved_bytes() {
  std::ifstream in("/proc/self/statm");
  std::size_t total = 0;
  REQUIRE((in >> total));
  return total * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST_CASE("hostile: what is announced but never sent takes no memory") {
  {  // so that the check below could fail
    const std::size_t before = reserved_bytes();
    const auto untouched = std::make_unique_for_overwrite<std::byte[]>(std::size_t{1} << 30);
    const std::byte* volatile kept = untouched.get();
    static_cast<void>(kept);
    REQUIRE(reserved_bytes() >= before + (std::size_t{1} << 29));
  }
  scene s(64);
  s.start();
  byte_string announces = bytes_of(request(mutant_call, 4));
  const std::uint64_t payload = weft::default_limits.payload;
  std::memcpy(announces.data() + 56, &payload, sizeof payload);
  const std::size_t before = reserved_bytes();
  std::vector<raw_peer> peers;
  for (int i = 0; i < 64; ++i) {
    peers.push_back(s.connect_as_member());
    peers.back().send(announces);
  }
  s.ping();
  const std::size_t after = reserved_bytes();
  CHECK(after - std::min(before, after) < (std::size_t{4} << 30));  // of 16 GiB announced
}

TEST_CASE("hostile: buffers of one byte count what they take, and not one byte") {
  weft::options o = with_io_threads(1);
  o.bounds.link_tensor_bytes = 1 << 20;
  scene s(1, o);
  s.start();
  raw_peer p = s.connect_as_member();
  weft::message many;
  many.section(weft::section_kind::tensors, {});
  for (int i = 0; i < 4000; ++i) {
    static_cast<void>(many.add_blob(weft::conformance::make_blob(1)));
  }
  byte_string bytes = weft::testing::wire(std::move(many).finish(request(mutant_call, 20).header));
  append(bytes, bytes_of(request(probe_call, 21)));
  REQUIRE(p.send(bytes));
  std::map<std::uint64_t, frame> answers;
  for (int i = 0; i < 2; ++i) {
    auto answer = p.read();
    REQUIRE(answer);
    answers.insert_or_assign(answer->header.call, std::move(*answer));
  }
  REQUIRE(answers.contains(mutant_call));
  REQUIRE(answers.contains(probe_call));
  CHECK(failure_in(&answers[mutant_call]) == errc::resource_exhausted);
  CHECK(value_in(&answers[probe_call]) == 42);
  s.ping();
}

TEST_CASE("hostile: a cancel counts once, and only of a call that is served") {
  struct item {
    std::uint64_t number = 0;
    item* served_next = nullptr;
    item** served_link = nullptr;
    [[nodiscard]] std::uint64_t call() const { return number; }
  };
  weft::engine::served_calls<item> calls(12345);
  CHECK_FALSE(calls.first_cancel(7));
  std::vector<item> items(100);
  for (std::size_t i = 0; i < items.size(); ++i) {
    items[i].number = i;
    calls.add(items[i]);
  }
  std::size_t counted = 0;
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t call = 0; call < 10'000; ++call) counted += calls.first_cancel(call) ? 1 : 0;
  }
  CHECK(counted == items.size());
  // As long as it is served: its number may be used again.
  calls.remove(items[7]);
  CHECK_FALSE(calls.first_cancel(7));
  calls.remove(items[7]);
  calls.add(items[7]);
  CHECK(calls.first_cancel(7));
  CHECK_FALSE(calls.first_cancel(7));
  // Two calls of one number, which only a hostile peer has: never more cancels than calls.
  item twin;
  twin.number = 8;
  calls.add(twin);
  CHECK_FALSE(calls.first_cancel(8));
  calls.remove(twin);
  CHECK(calls.first_cancel(8));
  std::size_t place = 0;
  // bounded: each turn takes one out
  while (item* const next = calls.take(place)) CHECK_FALSE(calls.first_cancel(next->number));
}

TEST_CASE("hostile: tensors beyond the limits close the link before they are allocated") {
  weft::options o = with_io_threads(1);
  o.bounds.frame_tensor_bytes = 1 << 20;
  o.bounds.worker_tensor_bytes = 1 << 21;
  scene s(3, o);
  s.start();
  for (const std::uint64_t length :
       {std::uint64_t{1} << 21, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    byte_string bytes = bytes_of(other(frame_kind::request));
    const std::uint16_t tensors = 1;
    const std::uint32_t table = 8;
    std::memcpy(bytes.data() + 50, &tensors, sizeof tensors);
    std::memcpy(bytes.data() + 52, &table, sizeof table);
    bytes.resize(bytes.size() + 8);
    std::memcpy(bytes.data() + bytes.size() - 8, &length, sizeof length);
    raw_peer p = s.connect_as_member();
    p.send(bytes);
    CHECK(p.read_all().empty());  // closed without waiting for the tensor
  }
  s.ping();
}

// ── before the handshake is over ──

using edit_json = std::function<void(nlohmann::json&)>;

/// The hello of a member to rank 1, changed.
byte_string hello_of(const weft::membership& all, std::uint32_t rank, const edit_json& edit = {}) {
  weft::membership mine = all;
  mine.rank = rank;
  weft::random_source random = weft::system_random();
  const frame honest = weft::engine::handshake(mine, 1, random).hello();
  const auto text = honest.payload();
  const auto* begin = reinterpret_cast<const char*>(text.data());
  auto json = nlohmann::json::parse(begin, begin + text.size());
  if (edit) edit(json);
  return bytes_of(weft::engine::json_frame(frame_kind::hello, json.dump()));
}

TEST_CASE("hostile: peers that say nothing are closed after the handshake's deadline") {
  weft::options o = with_io_threads(1);
  o.handshake_deadline = 100ms;
  scene s(1, o);
  s.start();
  std::vector<raw_peer> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(s.connect());
  s.ping();
  for (raw_peer& p : silent) CHECK(p.read_all().empty());
  raw_peer half = s.connect();
  const byte_string hello = hello_of(s.members(), 2);
  half.send(std::span(hello).first(70));
  CHECK(half.read_all().empty());
  s.ping();
}

TEST_CASE("hostile: garbage instead of a hello closes the connection") {
  scene s(1);
  s.start();
  std::uint64_t n = 88172645463325252;
  for (int round = 0; round < 50; ++round) {
    byte_string noise(1 + static_cast<std::size_t>(round) * 37);
    for (std::byte& b : noise) {
      n ^= n << 13;
      n ^= n >> 7;
      n ^= n << 17;
      b = static_cast<std::byte>(n);
    }
    raw_peer p = s.connect();
    p.send(noise);
    p.finish_sending();
    CHECK(p.read_all().empty());
  }
  raw_peer http = s.connect();
  const std::string text =
      "GET / HTTP/1.1\r\nHost: weft\r\nUser-Agent: a browser that got lost\r\n\r\n";
  http.send(std::as_bytes(std::span(text)));
  CHECK(http.read_all().empty());
  s.ping();
}

TEST_CASE("hostile: a hello truncated at every byte, and with every bit flipped") {
  scene s(2);
  s.start();
  const byte_string hello = hello_of(s.members(), 2);
  for (std::size_t size = 0; size < hello.size(); ++size) {
    raw_peer p = s.connect();
    p.send(std::span(hello).first(size));
    p.finish_sending();
    CHECK(p.read_all().empty());
  }
  s.ping();
  int refused = 0;
  for (std::size_t bit = 0; bit < hello.size() * 8; bit += rounds(7, 1)) {
    raw_peer p = s.connect();
    p.send(flipped(hello, bit));
    p.finish_sending();
    const auto all = p.read_all();
    CHECK(all.size() <= 1);
    if (!all.empty() && all[0].header.kind == frame_kind::refuse) ++refused;
  }
  CHECK(refused > (run_all() ? 100 : 14));  // most bits of the text make it wrong
  s.ping();
}

TEST_CASE("hostile: a hello that lies is refused with the reason") {
  scene s(2);
  s.start();
  auto refusal = [&](const byte_string& hello) {
    raw_peer p = s.connect();
    p.send(hello);
    const auto why = p.read_refused();
    CHECK(p.read_all().empty());
    return why;
  };
  const auto& all = s.members();
  CHECK(refusal(hello_of(all, 2, [](auto& g) { g["incarnation"] = weft::id128{9, 9}.text(); })) ==
        errc::wrong_peer);
  CHECK(refusal(hello_of(all, 2, [](auto& g) { g["rank"] = 3; })) == errc::wrong_peer);
  CHECK(refusal(hello_of(all, 2, [](auto& g) { g["rank"] = 999; })) == errc::wrong_peer);
  CHECK(refusal(hello_of(all, 2, [](auto& g) { g["to"] = 0; })) == errc::wrong_peer);
  CHECK(refusal(hello_of(all, 1)) == errc::wrong_peer);  // claims to be the one it speaks to
  CHECK(refusal(hello_of(all, 2, [](auto& g) { g["weft"] = 1; })) == errc::version_mismatch);
  const auto purpose = refusal(hello_of(all, 2, [](auto& g) { g["for"] = "zip"; }));
  CHECK(purpose == errc::version_mismatch);
  CHECK(purpose.message().find("'zip'") != std::string::npos);
  byte_string newer = hello_of(all, 2);
  newer[4] = std::byte{weft::wire_version + 1};
  CHECK(refusal(newer) == errc::version_mismatch);
  CHECK(refusal(bytes_of(other(frame_kind::request))) == errc::protocol_error);
  CHECK(refusal(bytes_of(other(frame_kind::hello))) == errc::protocol_error);
  // Whoever does not know the token cannot prove it, and is not told whether it was near.
  raw_peer stranger = s.connect();
  stranger.send(hello_of(all, 2));
  const auto challenge = stranger.read();
  REQUIRE(challenge);
  CHECK(challenge->header.kind == frame_kind::challenge);
  stranger.send(weft::engine::json_frame(frame_kind::proof,
                                         R"({"proof":")" + std::string(64, '0') + R"("})"));
  CHECK(stranger.read_refused() == errc::unauthenticated);
  CHECK(stranger.read_all().empty());
  s.ping();
  raw_peer honest = s.connect_as_member();  // nobody took its place
}

TEST_CASE("hostile: frames before the handshake is over, and frames that are too large for it") {
  scene s(3);
  s.start();
  raw_peer eager = s.connect();
  byte_string both = hello_of(s.members(), 2);
  append(both, bytes_of(request(mutant_call, 4)));
  eager.send(both);
  eager.finish_sending();
  for (const frame& f : eager.read_all()) CHECK(f.header.kind != frame_kind::reply);
  for (const std::uint64_t payload : {std::uint64_t{4033}, std::uint64_t{1} << 40}) {
    byte_string large = hello_of(s.members(), 3);
    std::memcpy(large.data() + 56, &payload, sizeof payload);
    raw_peer p = s.connect();
    p.send(large);
    CHECK(p.read_all().empty());  // closed at its header
  }
  const std::string nested(4000, '[');
  weft::message m;
  m.payload().raw(nested.data(), nested.size());
  frame_header h;
  h.kind = frame_kind::hello;
  raw_peer deep = s.connect();
  deep.send(std::move(m).finish(h));
  CHECK(deep.read_refused() == errc::protocol_error);
  s.ping();
}

TEST_CASE("hostile: a second connection of one member is turned away, the first goes on") {
  scene s(1);
  s.start();
  raw_peer first = s.connect_as_member();
  raw_peer second = s.connect();
  CHECK_FALSE(second.greet(s.members(), 2, 1));
  CHECK(second.read_all().empty());
  first.send(request(5, 4));
  const auto answer = first.read();
  CHECK(value_in(answer ? &*answer : nullptr) == 8);
}

// ── large tensors ──

struct buffer final : weft::blob_owner {
  std::vector<std::byte> bytes = std::vector<std::byte>(300);
};
/// A request with a buffer, of a function that does not look at it.
frame large_request(std::uint64_t call, std::uint64_t x) {
  using f = weft::function<&twice>;
  weft::message m;
  weft::codec<std::uint64_t>::encode(m.payload(), x);
  auto owner = weft::make_intrusive<buffer>();
  std::byte* const data = owner->bytes.data();
  m.add_blob({data, owner->bytes.size(), std::move(owner)});
  const std::byte descriptors[4] = {};
  m.section(weft::section_kind::tensors, descriptors);
  frame_header h;
  h.call = call;
  h.function = f::id();
  h.signature = f::signature;
  return std::move(m).finish(h);
}
constexpr auto for_bulk = weft::engine::handshake::purpose::bulk;

TEST_CASE("hostile: large tensors join their heads in order, whichever comes first") {
  scene s(1);
  s.start();
  raw_peer calls = s.connect_as_member();
  raw_peer bulk = s.connect();
  REQUIRE(bulk.greet(s.members(), 2, 1, for_bulk));
  frame heads[4];
  byte_string bodies;
  for (std::uint64_t i = 0; i < 4; ++i) {
    heads[i] = large_request(10 + i, i);
    append(bodies, weft::testing::wire(weft::split_bulk(heads[i])));
  }
  calls.send(heads[0]);
  calls.send(heads[1]);
  calls.send(request(20, 50));  // goes by
  const auto small = calls.read();
  REQUIRE(small);
  CHECK(small->header.call == 20);
  CHECK(value_in(&*small) == 100);
  bulk.send(bodies);  // two of them before their heads
  for (std::uint64_t i = 0; i < 2; ++i) {
    const auto answer = calls.read();
    REQUIRE(answer);
    CHECK(answer->header.call == 10 + i);
    CHECK(value_in(&*answer) == 2 * i);
  }
  calls.send(heads[2]);
  calls.send(heads[3]);
  for (std::uint64_t i = 2; i < 4; ++i) {
    const auto answer = calls.read();
    REQUIRE(answer);
    CHECK(answer->header.call == 10 + i);
  }
  s.ping();
}

TEST_CASE("hostile: tensors that belong to nothing, or frames of calls among them, end the link") {
  using change = std::function<void(frame & head, frame & body)>;
  const std::vector<change> lies = {
      [](frame&, frame& body) { body.header.call = 99; },
      [](frame&, frame& body) { body.header.deadline = 5; },
      [](frame&, frame& body) { body.header.kind = frame_kind::request; },
      [](frame&, frame& body) {
        body.header.flags = weft::flag_bulk;
        body.blobs.clear();
      },
      [](frame&, frame& body) { ++body.header.function; },
      [](frame&, frame& body) { body.head.data()[header_size] ^= std::byte{1}; },
      [](frame&, frame& body) { body.head.data()[body.head.size() - 1] ^= std::byte{1}; },
      [](frame&, frame& body) { body = request(7, 4); },
      [](frame&, frame& body) { body = control(); },
      [](frame& head, frame&) { head.header.kind = frame_kind::rref; },
      [](frame& head, frame&) { head.header.kind = frame_kind::window; },
      [](frame& head, frame& body) {  // one of the two says another length
        head.head.data()[header_size + head.header.payload_bytes] ^= std::byte{1};
        static_cast<void>(body);
      },
  };
  scene s(static_cast<std::uint32_t>(lies.size()) + 1);
  s.start();
  for (std::uint32_t i = 0; i < lies.size(); ++i) {
    CAPTURE(i);
    raw_peer calls = s.connect_as_member();
    raw_peer bulk = s.connect();
    REQUIRE(bulk.greet(s.members(), 2 + i, 1, for_bulk));
    frame head = large_request(10, 4);
    frame body = weft::split_bulk(head);
    lies[i](head, body);
    if (head.header.kind != frame_kind::request) head.seal();
    body.seal();
    calls.send(head);
    bulk.send(weft::testing::wire(body));
    for (const frame& f : calls.read_all()) CHECK(f.header.kind != frame_kind::reply);
    bulk.hear_out();  // closed, too
  }
  raw_peer lost = s.connect_as_member();  // large tensors on the connection for calls
  frame head = large_request(10, 4);
  lost.send(weft::testing::wire(weft::split_bulk(head)));
  CHECK(lost.read_all().empty());
  s.ping();
}

TEST_CASE("hostile: one connection for large tensors each, and its end is that of the link") {
  scene s(2);
  s.start();
  raw_peer calls = s.connect_as_member();
  {
    raw_peer early = s.connect();  // of a member that has no connection for calls yet
    CHECK(early.greet(s.members(), 3, 1, for_bulk));
  }
  std::optional<raw_peer> bulk(s.connect());
  REQUIRE(bulk->greet(s.members(), 2, 1, for_bulk));
  raw_peer second = s.connect();
  CHECK_FALSE(second.greet(s.members(), 2, 1, for_bulk));
  CHECK(second.read_all().empty());
  calls.send(request(5, 4));
  const auto answer = calls.read();
  CHECK(value_in(answer ? &*answer : nullptr) == 8);
  bulk.reset();
  CHECK(calls.read_all().empty());  // closed, within a second or so
  s.ping();
}

TEST_CASE("hostile: large tensors that nobody awaits are read no further than one read brings") {
  scene s(1);
  s.start();
  raw_peer calls = s.connect_as_member();
  raw_peer bulk = s.connect();
  REQUIRE(bulk.greet(s.members(), 2, 1, for_bulk));
  byte_string bodies;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    frame head = large_request(i, i);
    append(bodies, weft::testing::wire(weft::split_bulk(head)));
  }
  std::thread pours([&] {
    try {
      // bounded: by the end of the connection
      while (bulk.send(bodies)) {
      }
    } catch (const std::runtime_error&) {  // it does not read on: as it should be
    }
  });
  s.ping();
  calls.send(request(5, 4));
  const auto answer = calls.read();
  CHECK(value_in(answer ? &*answer : nullptr) == 8);
  const auto held = s.on_victim([](worker& me) -> asio::awaitable<std::uint64_t> {
    co_return engine_link(me, 2).count().budget_used;
  }(s.victim()));
  CHECK(held < (4u << 20));
  s.on_victim([](worker& me) -> asio::awaitable<bool> {
    me.link_to(2).mark_down(weft::error(errc::peer_died, "enough"));
    co_return true;
  }(s.victim()));
  pours.join();
  s.ping();
}

// ── as the one who is called ──

/// The victim calls members whose every connection is answered by hand, each of them once.
class hand_answered {
 public:
  using answer_by = std::function<void(raw_peer&, weft::membership&)>;

  explicit hand_answered(std::uint32_t calls) : there_(calls), scene_(calls, impatient()) {
    for (std::uint32_t i = 0; i < calls; ++i) {
      scene_.members().members.change(2 + i).addresses = {{"tcp", there_[i].endpoint()}};
    }
    scene_.start();
  }
  /// How the next call fails; `answer` is given the members as the one who is called sees them.
  weft::error call(const answer_by& answer, weft::duration limit = 1500ms) {
    const std::uint32_t rank = 2 + called_;
    raw_listener& there = there_.at(called_++);
    std::atomic<bool> over = false;
    std::thread other([&, all = scene_.members()]() mutable {
      all.rank = rank;
      // bounded: by `over`, and by the patience of `accept_before`
      while (auto p = there.accept_before(over)) answer(*p, all);
    });
    auto call = [](weft::peer to, weft::duration limit, weft::error& out) -> asio::awaitable<bool> {
      out = co_await failure_of(to.call<&twice>(4u, within(limit), as_expected));
      co_return true;
    };
    weft::error out;
    static_cast<void>(scene_.on_victim(call(scene_.victim().peer(rank), limit, out)));
    scene_.ping();
    over = true;
    other.join();
    return out;
  }
  /// Who was called last.
  [[nodiscard]] std::string called() const { return "worker" + std::to_string(1 + called_); }

 private:
  static weft::options impatient() {
    weft::options o = with_io_threads(1);
    o.handshake_deadline = 200ms;
    return o;
  }
  std::vector<raw_listener> there_;
  scene scene_;
  std::uint32_t called_ = 0;
};

TEST_CASE("hostile: a member that gives up while it is welcomed is not lost") {
  scene s(1);
  s.members().members.change(2).addresses = {{"tcp", raw_listener().endpoint()}};  // closed at once
  s.start();
  for (int i = 0; i < 3; ++i) {
    raw_peer gives_up = s.connect();
    REQUIRE(gives_up.greet_without_ready(s.members(), 2, 1));
  }
  // The victim may be calling back just now: then this one is turned away, and tries again.
  bool served = false;
  for (int i = 0; i < 200 && !served; ++i) {
    raw_peer returns = s.connect();
    if (!returns.greet(s.members(), 2, 1)) continue;
    REQUIRE(returns.send(request(1, 21)));
    const auto reply = returns.read();
    REQUIRE(reply);
    CHECK(reply->header.kind == frame_kind::reply);
    served = true;
  }
  CHECK(served);
}

TEST_CASE("hostile: a member that is never ready is waited for only so long") {
  weft::options o = with_io_threads(1);
  o.lost_after = {};  // nothing else bounds it
  o.handshake_deadline = 200ms;
  scene s(1, o);
  s.start();
  raw_peer silent = s.connect();
  REQUIRE(silent.greet_without_ready(s.members(), 2, 1));
  CHECK(silent.read_all().empty());
  s.ping();
}

TEST_CASE("hostile: a request right behind the handshake for which memory lacks fails alone") {
  weft::options o = with_io_threads(1);
  o.bounds.link_tensor_bytes = 4096;
  scene s(1, o);
  s.start();
  raw_peer p = s.connect();
  REQUIRE(p.greet_without_ready(s.members(), 2, 1));
  weft::message too_large;
  too_large.section(weft::section_kind::tensors, {});
  static_cast<void>(too_large.add_blob(weft::conformance::make_blob(4097)));
  frame_header h = request(1, 20).header;
  byte_string at_once = bytes_of(weft::engine::json_frame(frame_kind::ready, "{}"));
  append(at_once, weft::testing::wire(std::move(too_large).finish(h)));
  append(at_once, bytes_of(request(2, 21)));
  REQUIRE(p.send(at_once));
  std::map<std::uint64_t, frame> answers;
  for (int i = 0; i < 2; ++i) {
    auto answer = p.read();
    REQUIRE(answer);
    answers.insert_or_assign(answer->header.call, std::move(*answer));
  }
  REQUIRE(answers.contains(1));
  REQUIRE(answers.contains(2));
  CHECK(answers[1].header.kind == frame_kind::failure);
  CHECK(weft::engine::refusal_in(answers[1]) == errc::resource_exhausted);
  CHECK(answers[2].header.kind == frame_kind::reply);
  s.ping();
}

TEST_CASE("hostile: answers to our hello") {
  using weft::engine::json_frame;
  hand_answered victim(13);
  // What may pass is tried again until the deadline.
  for (const auto& error : {victim.call([](raw_peer&, auto&) {}, 600ms),
                            victim.call(
                                [](raw_peer& p, auto&) {
                                  static_cast<void>(p.read());
                                  static_cast<void>(p.read());  // nothing is said
                                },
                                600ms)}) {
    INFO(error.message());
    CHECK(error == errc::timed_out);
    CHECK(error.ran() == weft::call_progress::not_sent);
  }
  // What can never pass ends it at once.
  CHECK(victim.call([](raw_peer& p, auto&) { p.send(byte_string(100)); }) == errc::protocol_error);
  for (const errc code : {errc::version_mismatch, errc::wrong_peer}) {
    CHECK(victim.call([code](raw_peer& p, auto&) {
      p.send(weft::engine::refusal_frame_of(weft::error(code, "no")));
    }) == code);
  }
  CHECK(victim.call([](raw_peer& p, auto&) {
    p.send(weft::engine::refusal_frame_of(weft::error()));
  }) == errc::protocol_error);
  CHECK(victim.call([](raw_peer& p, auto&) { p.send(reply(1, 1)); }) == errc::protocol_error);
  auto challenge = [](const edit_json& edit) {
    return [edit](raw_peer& p, weft::membership& all) {
      weft::random_source random = weft::system_random();
      weft::engine::handshake h(all, random);
      auto hello = p.read();
      if (!hello) return;
      const auto honest = h.arrived(std::move(*hello));
      if (!honest) return;
      const auto text = honest->payload();
      const auto* begin = reinterpret_cast<const char*>(text.data());
      auto json = nlohmann::json::parse(begin, begin + text.size());
      edit(json);
      p.send(json_frame(frame_kind::challenge, json.dump()));
      static_cast<void>(p.read());
    };
  };
  CHECK(victim.call(challenge([](auto& g) { g["weft"] = 9; })) == errc::version_mismatch);
  CHECK(victim.call(challenge([](auto& g) { g["for"] = "zip"; })) == errc::version_mismatch);
  CHECK(victim.call(challenge([](auto& g) { g["incarnation"] = weft::id128{5, 5}.text(); })) ==
        errc::wrong_peer);
  CHECK(victim.call(challenge([](auto& g) { g["rank"] = 0; })) == errc::wrong_peer);
  CHECK(victim.call(challenge([](auto& g) { g["proof"] = std::string(64, '0'); })) ==
        errc::unauthenticated);
  // A reply right behind the welcome, to the request that is not sent yet: nobody's.
  // While it has not been handled it is one more answer than calls, which ends the link.
  const weft::error stray = victim.call([](raw_peer& p, weft::membership& all) {
    if (!p.answer(all, all.rank)) return;
    p.send(reply(probe_call, 1));
    const auto asked = p.read();
    if (asked) p.send(reply(asked->header.call, 8));
    static_cast<void>(p.read_all());
  });
  INFO(stray.message());
  CHECK((!stray || stray == errc::protocol_error));
}

TEST_CASE("hostile: every bit of a reply's header flipped, the other call gets its own result") {
  const auto step = static_cast<std::uint32_t>(rounds(5, 1));
  const std::uint32_t count = (header_size * 8 + step - 1) / step;
  raw_listener there;
  scene s(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    s.members().members.change(2 + i).addresses = {{"tcp", there.endpoint()}};
  }
  s.start();
  std::thread other([&, all = s.members()]() mutable {
    for (std::uint32_t i = 0; i < count; ++i) {
      raw_peer p = there.accept();
      CHECK(p.answer(all, 2 + i));
      const auto first = p.read();
      const auto second = p.read();
      if (!first || !second) continue;
      p.send(flipped(bytes_of(reply(first->header.call, 1001)), i * step));
      p.send(reply(second->header.call, 1002));
      p.finish_sending();
      static_cast<void>(p.read_all());
    }
  });
  int first_right = 0;
  int second_right = 0;
  auto calls = [&](worker& me) -> asio::awaitable<bool> {
    for (std::uint32_t i = 0; i < count; ++i) {
      CAPTURE(i * step);
      const auto p = me.peer(2 + i);
      auto a = [](weft::peer to) -> asio::awaitable<weft::expected<std::uint64_t>> {
        co_return co_await to.call<&twice>(1u, as_expected);
      };
      auto first = me.spawn(a(p));
      const auto second = co_await p.call<&twice>(2u, as_expected);
      const auto got = co_await first.copy();
      if (got) {
        CHECK(*got == 1001);
        ++first_right;
      } else {
        CHECK((got.error() == errc::peer_died || got.error() == errc::protocol_error ||
               got.error() == errc::version_mismatch || got.error() == errc::bad_arguments ||
               got.error() == errc::message_too_large));
      }
      if (second) {
        CHECK(*second == 1002);
        ++second_right;
      }
    }
    co_return true;
  };
  static_cast<void>(s.on_victim(calls(s.victim())));
  other.join();
  const int most = 190 / static_cast<int>(step);
  CHECK(first_right >= most);   // signature, deadline, trace and span say nothing there
  CHECK(second_right >= most);  // ... and a wrong call id harms nobody else; wrong credit does
  s.ping();
}

/// A window frame with that credit, which is no payload.
frame credit(std::uint64_t bytes) {
  frame_header h;
  h.kind = frame_kind::window;
  h.function = bytes;
  return weft::message().finish(h);
}

TEST_CASE("hostile: credit for more than was sent ends the link, with a typed error") {
  const std::uint64_t one = weft::engine::request_cost(request(1, 4).wire_size());
  hand_answered victim(4);
  for (const std::uint64_t bytes : {one + 1, ~std::uint64_t{0}}) {
    for (const bool with_reply : {false, true}) {
      CAPTURE(bytes);
      CAPTURE(with_reply);
      const auto e = victim.call([&](raw_peer& p, weft::membership& all) {
        if (!p.answer(all, all.rank)) return;
        const auto asked = p.read();
        if (!asked) return;
        frame answer = with_reply ? reply(asked->header.call, 8) : credit(bytes);
        answer.header.function = bytes;
        answer.seal();
        p.send(answer);
        CHECK(p.read_all().size() <= 1);  // a ping at most, then it closes
      });
      INFO(e.message());
      CHECK(e == errc::protocol_error);
      CHECK(e.ran() == weft::call_progress::maybe_executed);
      CHECK(e.detail().peer == victim.called());
      CHECK(e.message().find("credit for more than this worker sent") != std::string::npos);
    }
  }
}

TEST_CASE("hostile: credit for what was sent, in pieces, is no offence") {
  const std::uint64_t one = weft::engine::request_cost(request(1, 4).wire_size());
  const auto e = hand_answered(1).call([&](raw_peer& p, weft::membership& all) {
    if (!p.answer(all, all.rank)) return;
    const auto asked = p.read();
    if (!asked) return;
    for (const std::uint64_t bytes : {std::uint64_t{1}, one - 1}) p.send(credit(bytes));
    p.send(reply(asked->header.call, 8));
  });
  INFO(e.message());
  CHECK_FALSE(e);
}

void stand() { std::this_thread::sleep_for(1ms); }

TEST_CASE("hostile: more requests than the window holds end the link, and nobody else's") {
  weft::options o = with_io_threads(1);
  o.window_bytes = 4096;
  scene s(2, o);
  weft::testing::set_windows(s.members(), o.window_bytes);
  s.start();
  // The victim's pool is held, so that plain functions do not begin.
  std::promise<void> open;
  const auto opened = open.get_future().share();
  for (unsigned i = 0; i < std::max(1u, s.victim().settings().compute_threads); ++i) {
    asio::post(s.victim().compute_pool(), [opened] { opened.wait_for(wait_patience); });
  }
  auto plain = [](std::uint64_t call) {
    using f = weft::function<&stand>;
    frame_header h;
    h.call = call;
    h.function = f::id();
    h.signature = f::signature;
    return weft::message().finish(h);
  };
  CHECK(s.on_victim([](worker& me) -> asio::awaitable<bool> {
    co_await me.peer(0).call<&stand>();
    co_return true;
  }(s.victim())));
  raw_peer greedy = s.connect_as_member();
  raw_peer modest = s.connect_as_member();
  for (std::uint64_t call = 1; call <= 4; ++call) CHECK(modest.send(plain(call)));  // all it may
  byte_string five;
  for (std::uint64_t call = 1; call <= 5; ++call) append(five, bytes_of(plain(call)));
  greedy.send(five);
  for (const frame& f : greedy.read_all()) CHECK_FALSE(weft::is_answer(f.header.kind));
  open.set_value();
  std::set<std::uint64_t> answered;
  for (int frames = 0; frames < 100 && answered.size() < 4; ++frames) {
    const auto f = modest.read();
    REQUIRE(f);
    if (f->header.kind == frame_kind::reply) answered.insert(f->header.call);
  }
  CHECK(answered.size() == 4);
  const auto why = s.on_victim([](worker& me) -> asio::awaitable<weft::error> {
    co_return me.link_to(2).reason();
  }(s.victim()));
  INFO(why.message());
  CHECK(why == errc::protocol_error);
  CHECK(why.message().find("more requests than the window holds") != std::string::npos);
  s.ping();
}

TEST_CASE("hostile: a coroutine function ends at its deadline, also if its caller never says so") {
  for (const unsigned io_threads : io_ways(2)) {
    CAPTURE(io_threads);
    scene s(1, with_io_threads(io_threads));
    s.start();
    ended_by_itself = 0;
    raw_peer caller = s.connect_as_member();
    // Time enough for both to begin.
    caller.send(request<wait_for_ever>(1, 4, 500ms));
    frame post = request<wait_for_ever>(2, 4, 500ms);
    post.header.flags |= weft::flag_no_reply;
    post.seal();
    caller.send(post);
    const auto answer = caller.read();
    REQUIRE(answer);
    CHECK(answer->header.call == 1);
    CHECK(answer->header.kind == frame_kind::failure);
    CHECK(failure_in(&*answer) == errc::timed_out);
    for (bounded_wait until("both have ended"); until.not_yet(ended_by_itself == 2);) {
      std::this_thread::sleep_for(1ms);
    }
  }
}

TEST_CASE("hostile: replies that do not decode, and failures that say success") {
  raw_listener there;
  scene s(3);
  for (std::uint32_t r = 2; r < 5; ++r) {
    s.members().members.change(r).addresses = {{"tcp", there.endpoint()}};
  }
  s.start();
  std::thread other([&, all = s.members()]() mutable {
    for (std::uint32_t r = 2; r < 5; ++r) {
      raw_peer p = there.accept();
      CHECK(p.answer(all, r));
      const auto asked = p.read();
      if (!asked) continue;
      frame_header h;
      h.call = asked->header.call;
      weft::message m;
      if (r == 2) {  // too short
        h.kind = frame_kind::reply;
        m.payload().number(std::uint32_t{1});
      } else if (r == 3) {  // a failure of nothing
        h.kind = frame_kind::failure;
        m.payload().number(std::uint8_t{0});
      } else {  // an unknown category
        h.kind = frame_kind::failure;
        m.payload().number(std::uint8_t{200});
      }
      p.send(std::move(m).finish(h));
      static_cast<void>(p.read_all());
    }
  });
  auto calls = [](worker& me) -> asio::awaitable<bool> {
    for (std::uint32_t r = 2; r < 5; ++r) {
      const auto e = co_await failure_of(me.peer(r).call<&twice>(1u, as_expected));
      INFO(e.message());
      CHECK(e == errc::bad_arguments);
      me.link_to(r).mark_down(weft::error(errc::peer_died, "the test closes it"));
    }
    co_return true;
  };
  static_cast<void>(s.on_victim(calls(s.victim())));
  other.join();
  s.ping();
}

/// The victim's own thread computes, for as long as this lives.
class busy_victim {
 public:
  explicit busy_victim(scene& s) {
    std::promise<void> begun;
    auto has_begun = begun.get_future();
    asio::post(weft::detail::context_of(s.victim()),
               [b = std::move(begun), e = end_.get_future()]() mutable {
                 b.set_value();
                 e.wait_for(wait_patience);
               });
    REQUIRE(has_begun.wait_for(wait_patience) == std::future_status::ready);
  }
  busy_victim(const busy_victim&) = delete;
  busy_victim& operator=(const busy_victim&) = delete;
  ~busy_victim() { end_.set_value(); }

 private:
  std::promise<void> end_;
};
weft::error reason_of(scene& s, std::uint32_t rank) {
  return s.on_victim([](worker& me, std::uint32_t r) -> asio::awaitable<weft::error> {
    co_return me.link_to(r).reason();
  }(s.victim(), rank));
}
/// Sends that, and nothing after it, to a victim that computes, which closes the connection.
void check_closed_meanwhile(scene& s, raw_peer& p, const byte_string& bytes) {
  const busy_victim busy(s);
  CHECK(p.send(bytes));
  // Were it kept until the victim has time, this would not end before it has.
  for (const frame& f : p.read_all()) CHECK_FALSE(weft::is_answer(f.header.kind));
  CHECK(s.victim().link_to(2).current_state() == weft::link::state::down);
}

TEST_CASE("hostile: answers that nobody asked for are not kept for a worker that computes") {
  for (const bool with_call : {false, true}) {
    CAPTURE(with_call);
    scene s(1);
    s.start();
    raw_peer p = s.connect_as_member();
    std::uint64_t asked = mutant_call;
    std::future<weft::error> call;
    if (with_call) {
      call = asio::co_spawn(
          weft::detail::context_of(s.victim()),
          [](worker& me) -> asio::awaitable<weft::error> {
            co_return co_await failure_of(me.peer(2).call<&twice>(1u, as_expected));
          }(s.victim()),
          asio::use_future);
      const auto request = p.read();
      REQUIRE(request);
      asked = request->header.call;
    }
    byte_string bytes = bytes_of(with_call ? reply(asked, 2) : failure(asked));
    if (with_call) append(bytes, bytes_of(reply(asked, 2)));
    check_closed_meanwhile(s, p, bytes);
    const auto why = reason_of(s, 2);
    INFO(why.message());
    CHECK(why == errc::protocol_error);
    CHECK(why.message().find("more answers than it got calls") != std::string::npos);
    if (with_call) {  // the first of the two was its answer
      REQUIRE(call.wait_for(wait_patience) == std::future_status::ready);
      CHECK_FALSE(call.get());
    }
    s.ping();
  }
}

TEST_CASE("hostile: an answer to a call that was given up is legal, once") {
  for (const unsigned io_threads : io_ways(2)) {
    CAPTURE(io_threads);
    scene s(1, with_io_threads(io_threads));
    s.start();
    raw_peer p = s.connect_as_member();
    const auto next_request = [&p] {
      for (int frames = 0; frames < 100; ++frames) {
        auto f = p.read();
        if (!f || f->header.kind == frame_kind::request) return f;
      }
      return std::optional<frame>();
    };
    constexpr int calls = 3;
    for (int i = 0; i < calls; ++i) {
      const auto e = s.on_victim([](worker& me) -> asio::awaitable<weft::error> {
        co_return co_await failure_of(me.peer(2).call<&twice>(1u, as_expected, within(20ms)));
      }(s.victim()));
      CHECK(e == errc::timed_out);
    }
    byte_string late;
    for (int i = 0; i < calls; ++i) {
      const auto request = next_request();
      REQUIRE(request);
      append(late, bytes_of(reply(request->header.call, 2)));
    }
    CHECK(p.send(late));
    // The link goes on, and a call gets its own answer.
    auto call = asio::co_spawn(
        weft::detail::context_of(s.victim()),
        [](worker& me) -> asio::awaitable<std::uint64_t> {
          co_return co_await me.peer(2).call<&twice>(4u);
        }(s.victim()),
        asio::use_future);
    const auto request = next_request();
    REQUIRE(request);
    CHECK(p.send(bytes_of(reply(request->header.call, 8))));
    REQUIRE(call.wait_for(wait_patience) == std::future_status::ready);
    CHECK(call.get() == 8);
    CHECK(p.send(late));  // once more
    for (const frame& f : p.read_all()) CHECK_FALSE(weft::is_answer(f.header.kind));
    CHECK(reason_of(s, 2) == errc::protocol_error);
    s.ping();
  }
}

TEST_CASE("hostile: control frames are not kept without limit for a worker that computes") {
  scene s(1);
  s.start();
  raw_peer p = s.connect_as_member();
  byte_string many;
  const auto most = weft::engine::most_controls(s.members().size());
  for (std::size_t i = 0; i <= most; ++i) append(many, bytes_of(control()));
  check_closed_meanwhile(s, p, many);
  const auto why = reason_of(s, 2);
  INFO(why.message());
  CHECK(why == errc::resource_exhausted);
  CHECK(why.message().find("control frames") != std::string::npos);
  s.ping();
}

TEST_CASE("hostile: a control frame longer than any that is sent ends the link") {
  scene s(1);
  s.start();
  raw_peer p = s.connect_as_member();
  weft::message m;
  m.payload().number(weft::engine::shutdown_message::kind::failed);
  m.payload().number(std::uint32_t{2});
  weft::codec<std::string>::encode(
      m.payload(), std::string(weft::engine::most_control_bytes(s.members().size()), 'x'));
  frame_header h;
  h.kind = frame_kind::control;
  check_closed_meanwhile(s, p, bytes_of(std::move(m).finish(h)));
  const auto why = reason_of(s, 2);
  INFO(why.message());
  CHECK(why == errc::protocol_error);
  CHECK(why.message().find("a control frame of ") != std::string::npos);
  s.ping();
}

TEST_CASE("hostile: a peer that begins a frame and stops is closed after the stall limit") {
  weft::options o = with_io_threads(1);
  o.stall_limit = 50ms;
  scene s(2, o);
  s.start();
  const byte_string whole = bytes_of(request(mutant_call, 4));
  for (const std::size_t cut : {std::size_t{20}, std::size_t{68}}) {
    raw_peer p = s.connect_as_member();
    p.send(std::span(whole).first(cut));
    CHECK(p.read_all().empty());
  }
  s.ping();
}

}  // namespace hostile_peers
