// SPDX-License-Identifier: BSL-1.0
// Two sides of a transport for the conformance suite: each on a thread of its own, or stepped by
// whoever waits for them.
#pragma once

#include <weft/transport/concepts.hpp>
#include <weft/transport/framed.hpp>
#include <weft/transport/inproc.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft::conformance {

/// A wait that lasts longer never ends.
inline constexpr std::chrono::seconds patience{40};

/// Two transports, one of which listens. Specialise it where they share something.
template <class T>
struct sides {
  T client{};
  T server{};
};
template <>
struct sides<inproc> {
  std::shared_ptr<inproc::hub> hub = std::make_shared<inproc::hub>();
  inproc client{hub};
  inproc server{hub};
};

/// Sides that have no threads, as those in virtual time: whoever waits for them calls `step` with
/// their io_contexts, and one thing happens; false: nothing is left to happen.
template <class T>
concept stepped = requires(sides<T>& s, asio::io_context& io) {
  { s.step(io, io) } -> std::same_as<bool>;
};
/// The step of the present rig; empty if its sides have threads.
inline std::function<bool()> step_sides;

/// How an operation ended. Exceptions stay on the thread that threw them.
template <class T>
using outcome = expected<T>;

template <class T>
T get(std::future<T>& waiting) {
  const auto ended = [&](std::chrono::seconds most) {
    return waiting.wait_for(most) == std::future_status::ready;
  };
  // bounded: by what is left to happen
  while (step_sides && !ended({}) && step_sides()) continue;
  if (!ended(step_sides ? std::chrono::seconds() : patience)) {
    throw std::runtime_error("conformance: the operation never ended");
  }
  return waiting.get();
}

template <class T>
asio::awaitable<void> settle(asio::awaitable<T> a, std::promise<outcome<T>> result) {
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(a);
      result.set_value({});
    } else {
      result.set_value(co_await std::move(a));
    }
  } catch (const rpc_error& e) {
    result.set_value(unexpected(e.error()));
  } catch (const std::exception& e) {
    result.set_value(unexpected(error(errc::worker_failed, e.what())));
  }
}

/// Starts `a` on `io`, from any thread.
template <class T>
std::future<outcome<T>> start(asio::io_context& io, asio::awaitable<T> a) {
  std::promise<outcome<T>> result;
  auto waiting = result.get_future();
  asio::co_spawn(io, settle(std::move(a), std::move(result)), asio::detached);
  return waiting;
}

/// Runs `a` on `io` to its end, which must be success.
template <class T>
T run(asio::io_context& io, asio::awaitable<T> a) {
  auto waiting = start(io, std::move(a));
  auto result = get(waiting);
  if (!result) throw rpc_error(result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

/// Returns once all that was ready on `io` before has run.
inline void drain(asio::io_context& io) {
  for (int i = 0; i < 3; ++i) {
    std::promise<void> reached;
    auto waiting = reached.get_future();
    asio::post(io, [&] { reached.set_value(); });
    get(waiting);
  }
}

/// Whether `done` comes true by what happens on `io`, within `patience`.
template <class Done>
[[nodiscard]] bool comes_true(asio::io_context& io, const Done& done) {
  if (step_sides) {
    // bounded: by what is left to happen
    while (!done() && step_sides()) continue;
    return done();
  }
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!done() && std::chrono::steady_clock::now() < end) drain(io);
  return done();
}

// ── frames whose bytes follow from their number ──────────────────────────────────────────────

class heap_memory : public blob_owner {
 public:
  explicit heap_memory(std::size_t size) : bytes(size) {}
  std::vector<std::byte> bytes;
};

inline blob make_blob(std::size_t size) {
  auto memory = make_intrusive<heap_memory>(size);
  std::byte* const data = memory->bytes.data();
  return {data, size, std::move(memory)};
}

/// Bytes that follow from the seed: each block another stretch of one sequence.
constexpr std::size_t block_bytes = 256;
inline const std::byte* stretch(std::size_t block, std::uint64_t seed) {
  static const auto sequence = [] {
    std::array<std::byte, 2 * block_bytes> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(i * 7);
    return all;
  }();
  return sequence.data() + (seed * 131 + block) % block_bytes;
}
inline void paint(std::byte* to, std::size_t size, std::uint64_t seed) {
  for (std::size_t i = 0; i < size; i += block_bytes) {
    std::memcpy(to + i, stretch(i / block_bytes, seed), std::min(block_bytes, size - i));
  }
}
inline bool is_painted(const std::byte* at, std::size_t size, std::uint64_t seed) {
  for (std::size_t i = 0; i < size; i += block_bytes) {
    const std::size_t bytes = std::min(block_bytes, size - i);
    if (std::memcmp(at + i, stretch(i / block_bytes, seed), bytes) != 0) return false;
  }
  return true;
}

inline frame make_frame(std::uint64_t number, std::size_t payload,
                        const std::vector<std::size_t>& blobs = {}) {
  frame f;
  f.header.call = number;
  f.header.payload_bytes = payload;
  f.header.tensors = static_cast<std::uint16_t>(blobs.size());
  f.header.table_bytes = static_cast<std::uint32_t>(8 * blobs.size());
  f.head.resize(header_size + payload + 8 * blobs.size());
  paint(f.head.data() + header_size, payload, number);
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    const std::uint64_t size = blobs[i];
    std::memcpy(f.head.data() + header_size + payload + 8 * i, &size, sizeof size);
    f.blobs.push_back(make_blob(blobs[i]));
    paint(f.blobs.back().data(), blobs[i], number + i + 1);
  }
  f.seal();
  return f;
}

/// The same frame, sharing its blobs, with another number (its bytes keep the old one).
inline frame copy(const frame& from, std::uint64_t number) {
  frame f;
  f.header = from.header;
  f.header.call = number;
  f.head.append(from.head.data(), from.head.size());
  f.blobs = from.blobs;
  f.seal();
  return f;
}

inline bool is_intact(const frame& f, std::uint64_t number) {
  if (f.header.call != number || f.blobs.size() != f.header.tensors) return false;
  if (f.head.size() != header_size + f.header.payload_bytes + f.header.table_bytes) return false;
  if (!is_painted(f.payload().data(), f.payload().size(), number)) return false;
  for (std::size_t i = 0; i < f.blobs.size(); ++i) {
    const blob& b = f.blobs[i];
    if (b.size() != f.blob_length(i) || !is_painted(b.data(), b.size(), number + i + 1)) {
      return false;
    }
  }
  return true;
}

// ── one end of a connection, as a link would use it ──────────────────────────────────────────

template <transport T>
class end final : public frame_sink {
 public:
  end(asio::io_context& io, typename T::connection_type c) : io_(io), connection_(std::move(c)) {}

  // Read after `receive` or `read_for_ever` is over.
  std::vector<frame> received;
  std::size_t refuse_after = SIZE_MAX;
  std::atomic<std::size_t> progressed{0};
  std::atomic<std::size_t> allocated{0};

  /// Any thread.
  void send(frame&& f) {
    std::vector<frame> finished;
    std::lock_guard hold(lock_);
    waiting_.push(std::move(f));
    if (now_ != write_status::blocked) write(finished);
  }
  void send_bytes(const std::vector<std::byte>& bytes) {
    frame f;
    f.head.append(bytes.data(), bytes.size());
    send(std::move(f));
  }
  void close() {
    std::lock_guard hold(lock_);
    connection_.close();
    now_ = connection_.try_write(waiting_);
  }
  /// Frames that are not yet out of this process: that wait here, or that the connection took.
  [[nodiscard]] std::size_t unsent() {
    std::lock_guard hold(lock_);
    return waiting_.frames() + unsent_frames(connection_);
  }
  [[nodiscard]] write_status now() {
    std::lock_guard hold(lock_);
    return now_;
  }
  /// Until no write is under way.
  void await_written() {
    std::future<outcome<void>> last;
    {
      std::lock_guard hold(lock_);
      last = std::move(writing_);
    }
    if (!last.valid() || get(last)) return;
    std::lock_guard hold(lock_);
    now_ = write_status::closed;
  }
  [[nodiscard]] std::future<outcome<void>>& writing() { return writing_; }
  /// Reads until `count` frames are there, in all.
  void receive(std::size_t count) { run(io_, read_until(count)); }

  [[nodiscard]] asio::awaitable<void> read_until(std::size_t count) {
    // bounded: by the `patience` of `run`
    while (received.size() < count) co_await connection_.read(*this);
  }
  [[nodiscard]] asio::awaitable<void> read_for_ever() {
    // bounded: ends with the connection, or by the `patience` of whoever waits for it
    for (;;) co_await connection_.read(*this);
  }

  [[nodiscard]] const limits& bounds() const noexcept override { return limits_; }
  [[nodiscard]] expected<blob> allocate(std::size_t bytes) override {
    allocated += bytes;
    return make_blob(bytes);
  }
  [[nodiscard]] expected<void> frame_arrived(frame&& f) override {
    if (received.size() == refuse_after) {
      return unexpected(error(errc::shutting_down, "the test refuses"));
    }
    received.push_back(std::move(f));
    return {};
  }
  void progress() noexcept override { ++progressed; }

 private:
  /// Under the lock.
  void write(std::vector<frame>& finished) {
    now_ = connection_.try_write(waiting_);
    finished.swap(waiting_.finished());
    if (now_ == write_status::blocked) writing_ = start(io_, finish_writing());
  }
  asio::awaitable<void> finish_writing() {
    // bounded: by the `patience` of `await_written`
    for (;;) {
      co_await connection_.writable();
      std::vector<frame> finished;
      std::lock_guard hold(lock_);
      now_ = connection_.try_write(waiting_);
      finished.swap(waiting_.finished());
      if (now_ == write_status::everything) co_return;
      if (now_ == write_status::closed) throw rpc_error(errc::closed, "closed between two waits");
    }
  }

  asio::io_context& io_;
  std::mutex lock_;
  typename T::connection_type connection_;
  outbox waiting_;
  write_status now_ = write_status::everything;
  std::future<outcome<void>> writing_;
  limits limits_;
};

template <transport T>
class rig {
 public:
  rig() {
    if constexpr (stepped<T>) {
      step_sides = [this] { return sides_.step(client_.io, server_.io); };
    } else {
      client_.run();
      server_.run();
    }
  }
  rig(const rig&) = delete;
  rig& operator=(const rig&) = delete;
  ~rig() {
    for (auto& e : ends_) e.close();
    sides_.client.close();
    sides_.server.close();
    drain(client_.io);
    drain(server_.io);
    client_.stop();
    server_.stop();
    ends_.clear();
    // bounded: all is closed
    while (step_sides && step_sides()) continue;
    step_sides = nullptr;
  }

  [[nodiscard]] T& client_transport() { return sides_.client; }
  [[nodiscard]] T& server_transport() { return sides_.server; }
  [[nodiscard]] asio::io_context& client_io() { return client_.io; }
  [[nodiscard]] asio::io_context& server_io() { return server_.io; }

  /// Connects the two sides: {client's end, server's end}. They live as long as the rig.
  [[nodiscard]] std::pair<end<T>*, end<T>*> connect() {
    if (endpoint_.empty()) endpoint_ = sides_.server.listen(server_.io);
    auto accepting = start(server_.io, accept());
    end<T>* const client = run(client_.io, open());
    return {client, get(accepting).value()};
  }

 private:
  struct side {
    asio::io_context io{1};
    asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
    std::thread thread;
    void run() {
      thread = std::thread([this] { io.run(); });
    }
    void stop() {
      if (!thread.joinable()) return;
      io.stop();
      thread.join();
    }
    ~side() { stop(); }
  };

  asio::awaitable<end<T>*> accept() {
    auto c = co_await sides_.server.accept(server_.io);
    co_return add(server_.io, std::move(c));
  }
  asio::awaitable<end<T>*> open() {
    auto c = co_await sides_.client.connect(client_.io, endpoint_);
    co_return add(client_.io, std::move(c));
  }
  end<T>* add(asio::io_context& io, typename T::connection_type c) {
    std::lock_guard hold(lock_);
    return &ends_.emplace_back(io, std::move(c));
  }

  side client_;
  side server_;
  sides<T> sides_;
  std::string endpoint_;
  std::mutex lock_;
  std::list<end<T>> ends_;
};

}  // namespace weft::conformance
