// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/owned_worker.hpp.
#pragma once

#include <weft/rpc/detail/owned_life.hpp>
#include <weft/rpc/owned_worker.hpp>

namespace weft {

WEFT_DECL owned_worker::owned_worker() noexcept = default;
WEFT_DECL owned_worker::owned_worker(std::shared_ptr<detail::owned_life> life) noexcept
    : life_(std::move(life)) {}
WEFT_DECL owned_worker::owned_worker(owned_worker&&) noexcept = default;
WEFT_DECL owned_worker& owned_worker::operator=(owned_worker&& other) noexcept {
  if (this != &other) owned_worker(std::move(other)).life_.swap(life_);
  return *this;
}
WEFT_DECL owned_worker::~owned_worker() {
  if (life_) life_->abandon();
}
WEFT_DECL detail::owned_life& owned_worker::life() const {
  if (!life_) throw rpc_error(errc::invalid_argument, "this weft::owned_worker holds no worker");
  return *life_;
}
WEFT_DECL worker& owned_worker::operator*() const { return life().worker(); }
WEFT_DECL error owned_worker::run() {
  const auto held = life_;  // the owner may go meanwhile
  return life().run();
}
WEFT_DECL bool owned_worker::run_for(duration most) {
  const auto held = life_;
  return life().run_for(most);
}
WEFT_DECL void owned_worker::leave() { life().leave(); }
WEFT_DECL void owned_worker::fail(std::string why) { life().fail(std::move(why)); }
WEFT_DECL asio::awaitable<error> owned_worker::ended() const { return life().ended(); }

}  // namespace weft
