// SPDX-License-Identifier: BSL-1.0
// The ledger's shell: it turns messages into steps, keeps the values, and sends what comes out.
//
//   section of a request or reply {flags 1, target 16?, creation 24?, count 4, transfers 24 each}
//   frame of kind rref            {message 40, at least one, at most 512}
//
// Every step happens under one short lock, and what it sends is queued under it, so that links see
// messages in the order of the steps. Values are destroyed on the worker's thread, never under it.
#pragma once

#include <weft/rpc/detail/call_settings.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/rref/detail/handle.hpp>
#include <weft/rref/ledger_types.hpp>

#include <asio/awaitable.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

namespace engine {
class published_names;
}

/// Part of a message: the references inside its values, and what the request is about. A reference
/// that is in it many times is handed over once.
struct rref_handover : message_extension {
  static constexpr service_id speaks_for = service_id::rref;

  /// The number of `held` in this message.
  std::uint32_t add(const intrusive_ptr<detail::reference>& held) {
    const auto next = static_cast<std::uint32_t>(references.size());
    if (!held->broken()) {  // a broken one is refused, whatever else has its name
      const auto [at, fresh] = places.try_emplace(held->id(), next);
      if (!fresh) return at->second;
    }
    references.push_back(held);
    return next;
  }

  std::vector<intrusive_ptr<detail::reference>>
      references;                                 ///< in the order in which codecs met them first
  std::map<rref_id, std::uint32_t> places;        ///< ... and where; of a message being made
  intrusive_ptr<detail::reference> target;        ///< run on this object
  bool carries_target = false;                    ///< ... and it has a reference more, until sent
  std::uint8_t forwards = 0;                      ///< ... behind so many references to it
  std::optional<rref_protocol::creation> create;  ///< the result stays there as this
  std::vector<std::uint64_t> pinned;              ///< transfers, until sent or dropped
  worker* here = nullptr;                         ///< set in a message that arrived
};

/// What an rref<T> asks of its worker. Made by `engine::rref_service`.
class rref_service : public service {
 public:
  static constexpr service_id place = service_id::rref;
  rref_service() noexcept : service(place, {section_kind::rref}) {}

  // ── for rref<T>; any thread ──

  /// A value of this worker.
  [[nodiscard]] virtual intrusive_ptr<detail::reference> share(std::shared_ptr<void> value,
                                                               type_id type) = 0;
  struct created {
    intrusive_ptr<detail::reference> reference;
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
                                                    type_id type) const = 0;

  // ── names of objects; as worker::publish, unpublish and peer::lookup ──

  virtual void publish(std::string name, std::string type,
                       const intrusive_ptr<detail::reference>& held) = 0;
  virtual bool unpublish(std::string_view name) noexcept = 0;
  [[nodiscard]] virtual asio::awaitable<expected<intrusive_ptr<detail::reference>>>
  look_up(worker& me, std::uint32_t rank, std::string name, std::string type,
          detail::call_settings settings) = 0;
  /// What this worker publishes, until the end of its run.
  [[nodiscard]] virtual engine::published_names& published() noexcept = 0;

  /// For leak reports and tests.
  [[nodiscard]] virtual rref_protocol::ledger_counters counters() const = 0;
  [[nodiscard]] virtual std::string describe() const = 0;
  [[nodiscard]] virtual bool idle() const = 0;
};

}  // namespace weft
