// SPDX-License-Identifier: BSL-1.0
// Who ended a run, from how its processes ended and what they said: no processes in here.
#pragma once

#include <weft/core/log.hpp>
#include <weft/engine/fwd.hpp>
#include <weft/engine/launch/run_report.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/wait.h>

namespace weft::engine {

/// Hears the lines of the workers' reports (report.hpp) and the ends of their processes, in the
/// order in which they come. The first process to exit is rarely the one that failed: the others
/// leave as soon as they have lost it. Who may go (options::on_loss) is no culprit: how it went is
/// told apart, and that it blames another proves nothing, as it may have been cut off.
class first_failure {
 public:
  /// `may_go`: by rank, missing ones may not; rank 0 never may.
  explicit first_failure(std::vector<std::string> names, const std::vector<bool>& may_go = {})
      : names_(std::move(names)) {
    workers_.resize(names_.size());
    for (std::size_t r = 1; r < std::min(may_go.size(), workers_.size()); ++r) {
      workers_[r].may_go = may_go[r];
    }
  }

  /// What a worker wrote into its report, in pieces of any size; before `ended`.
  void heard(std::uint32_t rank, std::string_view text) {
    worker& w = workers_[rank];
    w.report += text;
    std::size_t end = 0;
    while ((end = w.report.find('\n')) != std::string::npos) {
      line(rank, w.report.substr(0, end));
      w.report.erase(0, end + 1);
    }
  }

  /// The process of that rank ended by itself, with that status of waitpid; none if it is unknown,
  /// and what the worker has said of its run must do.
  void ended(std::uint32_t rank, std::optional<int> known) {
    worker& w = workers_[rank];
    if (!known && !w.concluded) {
      return certain(
          rank,
          "ended before its run did; its exit status is unknown, because something else in the "
          "launching program collected it (a waitpid(-1), for example)");
    }
    const int status = known.value_or(w.failed ? 1 << 8 : 0);
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      const char* const text = ::strsignal(signal);
      certain(rank,
              "was killed by signal " + std::to_string(signal) + " (" + (text ? text : "?") + ")");
      return;
    }
    const int code = WEXITSTATUS(status);
    // Who was told that it has failed, and returns 0, has failed.
    if (code == 0 && !(w.began && w.concluded && w.failed)) {
      w.left = !w.concluded;
      look_for_leavers();
      return;
    }
    if (!w.concluded || !w.failed) {
      certain(rank, "exited with status " + std::to_string(code));
    } else if (w.blames == rank) {
      certain(rank, "failed: " + w.why);
    } else {
      accusers_.push_back(rank);
    }
  }
  /// Whether anything went wrong so far that ends the run.
  [[nodiscard]] bool failed() const {
    return certain_ || std::any_of(accusers_.begin(), accusers_.end(),
                                   [this](std::uint32_t a) { return !workers_[a].may_go; });
  }
  /// Of those that may go, how each went that ended by its own doing or was killed since the last
  /// call, in sentences.
  [[nodiscard]] std::vector<std::string> take_gone() { return std::exchange(gone_, {}); }
  [[nodiscard]] bool may_go(std::uint32_t rank) const { return workers_[rank].may_go; }
  /// Whether `run` was about to return 0 at some worker: then it is over for all.
  [[nodiscard]] bool ended_well() const {
    return std::any_of(workers_.begin(), workers_.end(),
                       [](const worker& w) { return w.concluded && !w.failed; });
  }
  /// A sentence that names the culprit, as soon as nothing can change it any more.
  [[nodiscard]] const std::optional<std::string>& culprit() const { return certain_; }
  /// The best that can be said without waiting longer: whom most blame, the first of them first.
  [[nodiscard]] std::optional<std::string> suspect() const {
    if (certain_ || !failed()) return certain_;
    std::optional<std::uint32_t> most;
    std::ptrdiff_t votes = 0;
    for (const std::uint32_t a : accusers_) {
      const auto blamed = workers_[a].blames;
      const auto n = std::count_if(accusers_.begin(), accusers_.end(), [&](std::uint32_t other) {
        return workers_[other].blames == blamed;
      });
      if (!blamed || n <= votes) continue;
      votes = n;
      most = a;
    }
    const worker& first = workers_[most.value_or(accusers_.front())];
    if (most) return who(*first.blames) + "was lost: " + first.why;
    return who(accusers_.front()) + "exited with status 1: " + first.why;
  }

  /// "worker 'a' (rank 0) "
  [[nodiscard]] std::string who(std::uint32_t rank) const {
    return "worker '" + names_[rank] + "' (rank " + std::to_string(rank) + ") ";
  }

 private:
  struct worker {
    std::string report;
    bool began = false;
    bool concluded = false;  ///< `run` returned
    bool failed = false;     ///< ... 1
    bool left = false;       ///< with status 0, before `run` returned
    bool may_go = false;
    std::optional<std::uint32_t> blames;
    std::string why;
  };

  void line(std::uint32_t rank, std::string_view text) {
    worker& w = workers_[rank];
    if (text == "begins") {
      w.began = true;
      w.concluded = w.failed = false;
      look_for_leavers();
    } else if (text == "ends well") {
      w.concluded = true;
      w.failed = false;
    } else if (text.starts_with("ends ")) {
      text.remove_prefix(5);
      const std::size_t space = std::min(text.find(' '), text.size());
      w.concluded = w.failed = true;
      w.why = text.substr(std::min(space + 1, text.size()));
      for (std::uint32_t r = 0; r < names_.size(); ++r) {
        if (as_word(names_[r]) == text.substr(0, space)) w.blames = r;
      }
    }
  }
  /// In a program whose processes use `run`, who leaves without having done so ended the run.
  void look_for_leavers() {
    if (std::none_of(workers_.begin(), workers_.end(), [](const worker& w) { return w.began; })) {
      return;
    }
    for (std::uint32_t r = 0; r < workers_.size(); ++r) {
      if (!workers_[r].left) continue;
      certain(r, "left with status 0 before the run had ended");
      workers_[r].left = !workers_[r].may_go;  // told once
    }
  }
  void certain(std::uint32_t rank, const std::string& how) {
    if (workers_[rank].may_go) {
      gone_.push_back(who(rank) + how);
    } else if (!certain_) {
      certain_ = who(rank) + how;
    }
  }

  std::vector<std::string> names_;
  std::vector<worker> workers_;
  std::vector<std::uint32_t> accusers_;
  std::vector<std::string> gone_;
  std::optional<std::string> certain_;
};

}  // namespace weft::engine
