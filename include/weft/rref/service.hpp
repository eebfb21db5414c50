// SPDX-License-Identifier: BSL-1.0
// The ledger's shell: turns messages into steps, keeps the values, and sends the messages that the
// steps give.
//
//   section of a request or reply {flags 1, target 16?, creation 24?, count 4, transfers 24 each}
//   frame of kind rref            {message 40, at least one, at most 512}
//
// Every step happens under one short lock. Its messages are queued under the same lock, so that
// links see them in the order of the steps. Values are destroyed on the worker's thread, never
// under the lock.
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

/// The references of a message: those inside its values, the request's target and its result. A
/// reference that is in the message many times is handed over once.
struct rref_handover : message_extension {
  static constexpr service_id speaks_for = service_id::rref;

  /// Adds a reference; returns its number in this message.
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
  std::map<rref_id, std::uint32_t> places;        ///< their numbers; only in a message being made
  intrusive_ptr<detail::reference> target;        ///< the function runs on this object
  bool carries_target = false;                    ///< a request to itself holds target until sent
  std::uint8_t forwards = 0;                      ///< so many workers forwarded the request
  std::optional<rref_protocol::creation> create;  ///< the result stays at the callee, under this id
  std::vector<std::uint64_t> pinned;              ///< transfers, until sent or dropped
  worker* here = nullptr;                         ///< set in a message that arrived
};

/// The worker's part of an rref<T>. `engine::rref_service` implements it.
class rref_service : public service {
 public:
  static constexpr service_id place = service_id::rref;
  rref_service() noexcept : service(place, {section_kind::rref}) {}

  // ── for rref<T>; any thread ──

  /// A reference to a value of this worker.
  [[nodiscard]] virtual intrusive_ptr<detail::reference> share(std::shared_ptr<void> value,
                                                               type_id type) = 0;
  struct created {
    intrusive_ptr<detail::reference> reference;
    rref_protocol::creation what;
  };
  /// A reference to the value that a request will make at `owner`; nothing if `owner` is lost.
  /// Throws rpc_error: resource_exhausted if too many such requests wait to be sent.
  [[nodiscard]] virtual std::optional<created> create(std::uint32_t owner) = 0;
  /// The request for `function`, which was to make the value, was never sent. Uses of the reference
  /// here fail with `why`.
  virtual void never_sent(const rref_id& id, std::string_view function,
                          const error& why) noexcept = 0;
  /// Why the reference cannot be used; success if it can.
  [[nodiscard]] virtual error state_of(const detail::reference& r) const = 0;
  /// At the owner: the object. Throws rpc_error if the object is elsewhere, is not made yet, or if
  /// making it failed.
  [[nodiscard]] virtual std::shared_ptr<void> local(const detail::reference& r,
                                                    type_id type) const = 0;

  // ── names of objects; see worker::publish, unpublish and peer::lookup ──

  virtual void publish(std::string name, std::string type,
                       const intrusive_ptr<detail::reference>& held) = 0;
  virtual bool unpublish(std::string_view name) noexcept = 0;
  [[nodiscard]] virtual asio::awaitable<expected<intrusive_ptr<detail::reference>>>
  look_up(worker& me, std::uint32_t rank, std::string name, std::string type,
          detail::call_settings settings) = 0;
  /// The names that this worker publishes, until the end of its run.
  [[nodiscard]] virtual engine::published_names& published() noexcept = 0;

  /// For leak reports and tests.
  [[nodiscard]] virtual rref_protocol::ledger_counters counters() const = 0;
  [[nodiscard]] virtual std::string describe() const = 0;
  [[nodiscard]] virtual bool idle() const = 0;
};

}  // namespace weft
