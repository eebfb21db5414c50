// SPDX-License-Identifier: BSL-1.0
// The ledger's shell: it turns messages into steps, keeps the values, and sends what comes out.
//
//   section of a request or reply {flags 1, target 16?, creation 24?, count 4, transfers 24 each}
//   frame of kind rref            {message 40, at least one, at most 512}
//
// Every step happens under one short lock, and what it sends is queued under it, so that links see
// messages in the order of the steps. Values are destroyed on the worker's thread, never under it.
#pragma once

#include <weft/engine/fwd.hpp>
#include <weft/engine/services/published_names.hpp>
#include <weft/engine/worker/worker.hpp>
#include <weft/rref/ledger.hpp>
#include <weft/rref/ledger_wire.hpp>
#include <weft/rref/service.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::engine {

class rref_core;

/// The one implementation of `weft::rref_service`.
class rref_service final : public weft::rref_service {
 public:
  explicit rref_service(engine::worker& me);
  ~rref_service() override { rref_service::detach(); }

  [[nodiscard]] intrusive_ptr<reference> share(std::shared_ptr<void> value, type_id type) override;
  [[nodiscard]] std::optional<created> create(std::uint32_t owner) override;
  void never_sent(const rref_id& id, std::string_view function, const error& why) noexcept override;
  [[nodiscard]] error state_of(const reference& r) const override;
  [[nodiscard]] std::shared_ptr<void> local(const reference& r, type_id type) const override;
  void publish(std::string name, std::string type, const intrusive_ptr<reference>& held) override;
  bool unpublish(std::string_view name) noexcept override { return names_.unpublish(name); }
  [[nodiscard]] asio::awaitable<expected<intrusive_ptr<reference>>>
  look_up(weft::worker& me, std::uint32_t rank, std::string name, std::string type,
          call_settings settings) override;
  [[nodiscard]] published_names& published() noexcept override { return names_; }
  [[nodiscard]] rref_protocol::ledger_counters counters() const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] bool idle() const override;

  // ── service ──
  [[nodiscard]] bool owns(frame_kind kind) const noexcept override {
    return kind == frame_kind::rref;
  }
  void attach(weft::link& to, const frame_header& header, message& m) override;
  void sent(weft::link& to, message_extensions& record) override;
  void dropped(weft::link& to, message_extensions& record) override;
  expected<void> arrive(weft::link& from, incoming_message& m) override;
  expected<void> frame(weft::link& from, incoming_message& m) override;
  void batch_ends() noexcept override;
  void down(weft::link& peer, const error& reason) override;
  void fail_waits(const error& why) override;
  asio::awaitable<void> stop(time_point deadline) override;
  void detach() noexcept override;

 private:
  [[nodiscard]] bool take_over(weft::link& from, incoming_message& m,
                               const std::vector<rref_protocol::transfer>& given);
  void carry_home(rref_handover& handover);
  [[nodiscard]] bool find_target(weft::link& from, incoming_message& m, const rref_id& id);
  [[nodiscard]] bool keep_result(weft::link& from, incoming_message& m,
                                 const rref_protocol::creation& create);

  using core = rref_core;
  intrusive_ptr<core> core_;
  published_names names_;  // their references go before the core
};

}  // namespace weft::engine

#include <weft/engine/services/impl/rref_service.hpp>
