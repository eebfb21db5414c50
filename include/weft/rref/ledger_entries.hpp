// SPDX-License-Identifier: BSL-1.0
// The table of both halves of the ledger: an entry for each reference, with its local references
// and pins.
#pragma once

#include <weft/rref/ledger_types.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace weft::rref_protocol::detail {

/// Why this worker keeps an entry. Each half derives its own from it.
struct counted_entry {
  std::uint64_t local = 0;  // references of user code and requests
  std::uint64_t pins = 0;   // hand-overs that wait for an answer
};

/// Entries by their ids. It only counts. If a count fell, the caller gets the entry, and decides
/// what follows. Not thread-safe.
template <class Entry>
class entry_table {
 public:
  using map = std::map<rref_id, Entry>;
  using iterator = typename map::iterator;
  using const_iterator = typename map::const_iterator;

  [[nodiscard]] iterator find(const rref_id& id) { return entries_.find(id); }
  [[nodiscard]] const_iterator find(const rref_id& id) const { return entries_.find(id); }
  [[nodiscard]] bool contains(const rref_id& id) const { return entries_.contains(id); }
  [[nodiscard]] iterator end() noexcept { return entries_.end(); }
  [[nodiscard]] const_iterator end() const noexcept { return entries_.end(); }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

  /// Inserts an entry, or finds the one that is there; `second` says which.
  std::pair<iterator, bool> insert(const rref_id& id) { return entries_.try_emplace(id); }
  void erase(iterator it) noexcept { entries_.erase(it); }

  /// One local reference more. False, without effect, if there is none yet.
  [[nodiscard]] bool add_local(const rref_id& id) noexcept {
    const auto it = find(id);
    if (it == end() || it->second.local == 0) return false;
    ++it->second.local;
    return true;
  }
  /// One local reference less: the entry that had it. `end()`, without effect, if there was none.
  [[nodiscard]] iterator drop_local(const rref_id& id) noexcept {
    const auto it = find(id);
    if (it == end() || it->second.local == 0) return end();
    --it->second.local;
    return it;
  }

  /// A hand-over begins. False, without effect, unless there is a local reference and `may(entry)`.
  template <class May>
  [[nodiscard]] bool pin(const rref_id& id, May may) {
    const auto it = find(id);
    if (it == end() || it->second.local == 0 || !may(std::as_const(it->second))) return false;
    ++it->second.pins;
    return true;
  }
  /// A hand-over was answered, or never left. Returns as drop_local.
  [[nodiscard]] iterator unpin(const rref_id& id) noexcept {
    const auto it = find(id);
    if (it == end() || it->second.pins == 0) return end();
    --it->second.pins;
    return it;
  }

  /// Calls `visit(iterator)` for all, in the order of their ids; it may erase what it is given.
  template <class Visitor>
  void each(Visitor visit) {
    for (auto it = entries_.begin(); it != entries_.end();) visit(it++);
  }
  /// Calls `visit(id, entry)`.
  template <class Visitor>
  void each(Visitor visit) const {
    for (const auto& [id, e] : entries_) visit(id, e);
  }

 private:
  map entries_;
};

}  // namespace weft::rref_protocol::detail
