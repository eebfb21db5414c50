// SPDX-License-Identifier: BSL-1.0
// What an rref<T> points to: one local reference in the ledger, dropped with the last handle.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/rref/ledger_types.hpp>

#include <type_traits>
#include <utility>

namespace weft::detail {

/// Makes rrefs of handles, and takes them out.
struct rref_access;
/// Takes one out to keep it.
struct forwarding_address;

/// Of another class, which has that base.
template <class T, class Base>
concept derived_class =
    !std::is_same_v<T, Base> && std::is_base_of_v<Base, T> && std::is_convertible_v<T*, Base*>;

/// The part of the service that handles need; it outlives the worker, so that a handle may.
class reference_keeper : public ref_counted {
 public:
  /// Thread safe; nothing happens once the worker is gone.
  virtual void drop(const rref_id& id) noexcept = 0;
};

/// One local reference, with its one owner: the last copy of the handles that share it.
class reference final : public ref_counted {
 public:
  /// Takes over one local reference of the ledger.
  reference(intrusive_ptr<reference_keeper> keeper, const rref_id& id)
      : keeper_(std::move(keeper)), id_(id) {}
  /// Born broken: holds nothing.
  reference(const rref_id& id, error why) : id_(id), broken_(std::move(why)) {}
  ~reference() override {
    if (keeper_) keeper_->drop(id_);
  }

  [[nodiscard]] const rref_id& id() const noexcept { return id_; }
  /// Set if it never came to hold anything.
  [[nodiscard]] const error& broken() const noexcept { return broken_; }

 private:
  intrusive_ptr<reference_keeper> keeper_;
  const rref_id id_;
  const error broken_;
};

}  // namespace weft::detail
