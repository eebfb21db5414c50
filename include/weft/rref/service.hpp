// SPDX-License-Identifier: BSL-1.0
// The ledger's shell: it turns messages into steps, keeps the values, and sends what comes out.
//
//   section of a request or reply {flags 1, target 16?, creation 24?, count 4, transfers 24 each}
//   frame of kind rref            {message 40, at least one, at most 512}
//
// Every step happens under one short lock, and what it sends is queued under it, so that links see
// messages in the order of the steps. Values are destroyed on the worker's thread, never under it.
#pragma once

#include <weft/rpc/worker.hpp>
#include <weft/rref/base_view.hpp>
#include <weft/rref/handle.hpp>
#include <weft/rref/ledger.hpp>
#include <weft/rref/ledger_wire.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

/// Part of a message: the references inside its values, and what the request is about. A reference
/// that is in it many times is handed over once.
struct rref_handover : part {
  /// The number of `held` in this message.
  std::uint32_t add(const ref<detail::reference>& held) {
    const auto next = static_cast<std::uint32_t>(references.size());
    if (!held->broken()) {  // a broken one is refused, whatever else has its name
      const auto [at, fresh] = places.try_emplace(held->id(), next);
      if (!fresh) return at->second;
    }
    references.push_back(held);
    return next;
  }

  std::vector<ref<detail::reference>> references;  ///< in the order in which codecs met them first
  std::map<rref_id, std::uint32_t> places;         ///< ... and where; of a message being made
  ref<detail::reference> target;                   ///< run on this object
  std::optional<rref_protocol::creation> create;   ///< the result stays there as this
  std::vector<std::uint64_t> pinned;               ///< transfers, until sent or dropped
  std::size_t taken = 0;   ///< ... of a message that arrived: how many of them were taken over
  worker* here = nullptr;  ///< set in a message that arrived
};

namespace detail {
template <class T = void>
class live_rref_service;
}

/// What an rref<T> asks of its worker. Made by `detail::live_rref_service`.
class rref_service : public service {
 public:
  static constexpr service_slot slot = service_slot::rref;
  using implementation = detail::live_rref_service<>;

  // ── for rref<T>; any thread ──

  /// A value of this worker.
  [[nodiscard]] virtual ref<detail::reference> share(std::shared_ptr<void> value,
                                                     const void* type) = 0;
  struct created {
    ref<detail::reference> reference;
    rref_protocol::creation what;
  };
  /// A reference to what a request will make at `owner`; broken if `owner` is lost.
  [[nodiscard]] virtual std::optional<created> create(std::uint32_t owner) = 0;
  /// The request for `function`, which was to make it, was never sent; who uses the reference here
  /// is told `why`.
  virtual void never_sent(const rref_id& id, std::string_view function,
                          const error& why) noexcept = 0;
  /// Why it cannot be used; success if it can.
  [[nodiscard]] virtual error state_of(const detail::reference& r) const = 0;
  /// At the owner: the object; throws rpc_error if it is elsewhere, not made yet, or failed.
  [[nodiscard]] virtual std::shared_ptr<void> local(const detail::reference& r,
                                                    const void* type) const = 0;
  /// For leak reports and tests.
  [[nodiscard]] virtual rref_protocol::ledger_counters counters() const = 0;
  [[nodiscard]] virtual std::string describe() const = 0;
  [[nodiscard]] virtual bool idle() const = 0;
};

namespace detail {

template <class T>
class rref_core;

/// A template only so that its bodies are compiled where a worker is made and nowhere else.
template <class T>
class live_rref_service final : public rref_service {
 public:
  explicit live_rref_service(worker& me);
  ~live_rref_service() override { live_rref_service::detach(); }

  [[nodiscard]] ref<detail::reference> share(std::shared_ptr<void> value,
                                             const void* type) override;
  [[nodiscard]] std::optional<created> create(std::uint32_t owner) override;
  void never_sent(const rref_id& id, std::string_view function, const error& why) noexcept override;
  [[nodiscard]] error state_of(const detail::reference& r) const override;
  [[nodiscard]] std::shared_ptr<void> local(const detail::reference& r,
                                            const void* type) const override;
  [[nodiscard]] rref_protocol::ledger_counters counters() const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] bool idle() const override;

  // ── service ──
  [[nodiscard]] bool owns(frame_kind kind) const noexcept override {
    return kind == frame_kind::rref;
  }
  void attach(link& to, const frame_header& header, message& m) override;
  void sent(link& to, parts& record) override;
  void dropped(link& to, parts& record) override;
  expected<void> arrive(link& from, incoming_message& m) override;
  expected<void> frame(link& from, incoming_message& m) override;
  void batch_ends() noexcept override;
  void down(link& peer, const error& reason) override;
  void detach() noexcept override;

 private:
  [[nodiscard]] bool take_over(link& from, incoming_message& m,
                               const std::vector<rref_protocol::transfer>& given);
  [[nodiscard]] bool find_target(link& from, incoming_message& m, const rref_id& id);
  [[nodiscard]] bool keep_result(link& from, incoming_message& m,
                                 const rref_protocol::creation& create);

  using core = rref_core<T>;
  ref<core> core_;
};

}  // namespace detail
}  // namespace weft

#include <weft/rref/impl/service.hpp>
