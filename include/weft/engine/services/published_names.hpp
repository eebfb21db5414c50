// SPDX-License-Identifier: BSL-1.0
// The names that one worker gives to objects, and who waits for them.
#pragma once

#include <weft/core/error.hpp>
#include <weft/core/event.hpp>
#include <weft/core/intrusive_ptr.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/rref/detail/handle.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::engine {

/// Thread safe. No reference is dropped and nobody is woken under its lock.
class published_names {
 public:
  static constexpr std::size_t longest_name = 1024;   ///< bytes
  static constexpr std::size_t longest_type = 65536;  ///< bytes, as a lookup names it
  static constexpr std::size_t most_listed = 8;       ///< names in one error's text

  struct object {
    std::string type;
    intrusive_ptr<reference> held;
  };
  using objects = std::map<std::string, object, std::less<>>;
  struct listing {
    std::vector<std::string> names;  ///< the first ones, at most `most_listed`
    std::size_t others = 0;          ///< how many more there are
  };

  published_names() = default;
  published_names(const published_names&) = delete;
  published_names& operator=(const published_names&) = delete;

  /// Why that can be no name; success if it can.
  [[nodiscard]] static error refuse(std::string_view name) {
    if (!name.empty() && name.size() <= longest_name) return {};
    return error(errc::invalid_argument,
                 name.empty() ? "the name of an object is empty"
                              : "the name of an object has " + std::to_string(name.size()) +
                                    " bytes; " + std::to_string(longest_name) + " are allowed");
  }

  /// Whoever waits for the name goes on. Throws rpc_error: duplicate_name; why all is over.
  void publish(std::string name, object what) {
    intrusive_ptr<event> awaited;
    {
      const std::lock_guard lock(mutex_);
      if (over_) throw rpc_error(over_);
      const auto [at, fresh] = objects_.try_emplace(std::move(name));
      if (fresh) {
        at->second = std::move(what);
        if (const auto line = lines_.find(at->first); line != lines_.end()) {
          awaited = std::move(line->second.published);
          lines_.erase(line);
        }
      } else if (at->second.held->id() != what.held->id() || at->second.type != what.type) {
        throw rpc_error(errc::duplicate_name, "another object is published as '" + at->first +
                                                  "', a " + at->second.type +
                                                  "; unpublish that first");
      }
    }
    if (awaited) awaited->set();
  }
  /// Whether there was one.
  bool unpublish(std::string_view name) noexcept {
    objects::node_type gone;  // dies without the lock
    const std::lock_guard lock(mutex_);
    const auto at = objects_.find(name);
    if (at == objects_.end()) return false;
    gone = objects_.extract(at);
    return true;
  }

  /// Somebody in line for a name, until this goes.
  class waiter {
   public:
    waiter(published_names& in, std::string_view name) : in_(in), name_(name) {
      auto fresh = make_intrusive<event>();
      const std::lock_guard lock(in_.mutex_);
      waiters_line& mine = in_.lines_.try_emplace(name_).first->second;
      if (!mine.published) mine.published = std::move(fresh);
      published_ = mine.published;
      ++mine.waiters;
    }
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;
    ~waiter() {
      const std::lock_guard lock(in_.mutex_);
      const auto at = in_.lines_.find(name_);
      if (at == in_.lines_.end() || at->second.published != published_) return;  // it was woken
      if (--at->second.waiters == 0) in_.lines_.erase(at);
    }
    /// Set once the name was published after this came, or all is over.
    [[nodiscard]] const intrusive_ptr<event>& published() const noexcept { return published_; }

   private:
    published_names& in_;
    const std::string name_;
    intrusive_ptr<event> published_;
  };

  /// Nothing: nobody has published it. Throws rpc_error: why all is over.
  [[nodiscard]] std::optional<object> find(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    if (over_) throw rpc_error(over_);
    const auto at = objects_.find(name);
    return at == objects_.end() ? std::nullopt : std::optional(at->second);
  }
  [[nodiscard]] listing list() const {
    listing out;
    const std::lock_guard lock(mutex_);
    for (const auto& [name, what] : objects_) {
      if (out.names.size() == most_listed) break;
      out.names.push_back(name);
    }
    out.others = objects_.size() - out.names.size();
    return out;
  }
  /// How many wait, for whatever name.
  [[nodiscard]] std::size_t waiting() const noexcept {
    const std::lock_guard lock(mutex_);
    std::size_t n = 0;
    for (const auto& [name, line] : lines_) n += line.waiters;
    return n;
  }
  /// No name, and nobody who waits for one.
  [[nodiscard]] bool idle() const noexcept {
    const std::lock_guard lock(mutex_);
    return objects_.empty() && lines_.empty();
  }

  /// For ever: lets go of all objects; who waits, or asks later, is told `why`, which is an error.
  void close(const error& why) noexcept {
    objects gone;
    lines woken;
    {
      const std::lock_guard lock(mutex_);
      if (!over_) over_ = why;
      gone.swap(objects_);
      woken.swap(lines_);
    }
    for (const auto& [name, line] : woken) line.published->set();
  }

 private:
  /// Where all wait who want one name.
  struct waiters_line {
    intrusive_ptr<event> published;
    std::size_t waiters = 0;
  };
  using lines = std::map<std::string, waiters_line, std::less<>>;

  mutable std::mutex mutex_;
  objects objects_;
  lines lines_;  // of names that are not published
  error over_;
};

}  // namespace weft::engine
