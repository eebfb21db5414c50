// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/rpc/owned_worker.hpp.
#pragma once

#include <weft/rpc/owned_worker.hpp>

namespace weft {
namespace detail {

/// What the engine knows of it (engine/join.hpp).
class owned_life {
 public:
  virtual ~owned_life() = default;
  [[nodiscard]] virtual weft::worker& worker() = 0;
  virtual error run() = 0;
  virtual bool run_for(duration most) = 0;
  virtual void leave() = 0;
  virtual void fail(std::string why) = 0;
  [[nodiscard]] virtual asio::awaitable<error> ended() = 0;
  /// Its owner has gone.
  virtual void abandon() noexcept = 0;
};

}  // namespace detail

inline owned_worker::owned_worker() noexcept = default;
inline owned_worker::owned_worker(std::shared_ptr<detail::owned_life> life) noexcept
    : life_(std::move(life)) {}
inline owned_worker::owned_worker(owned_worker&&) noexcept = default;
inline owned_worker& owned_worker::operator=(owned_worker&& other) noexcept {
  if (this != &other) owned_worker(std::move(other)).life_.swap(life_);
  return *this;
}
inline owned_worker::~owned_worker() {
  if (life_) life_->abandon();
}
inline detail::owned_life& owned_worker::life() const {
  if (!life_) throw rpc_error(errc::invalid_argument, "this weft::owned_worker holds no worker");
  return *life_;
}
inline worker& owned_worker::operator*() const { return life().worker(); }
inline error owned_worker::run() {
  const auto held = life_;  // the owner may go meanwhile
  return life().run();
}
inline bool owned_worker::run_for(duration most) {
  const auto held = life_;
  return life().run_for(most);
}
inline void owned_worker::leave() { life().leave(); }
inline void owned_worker::fail(std::string why) { life().fail(std::move(why)); }
inline asio::awaitable<error> owned_worker::ended() const { return life().ended(); }

}  // namespace weft
