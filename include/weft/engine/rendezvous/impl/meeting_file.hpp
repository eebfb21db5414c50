// SPDX-License-Identifier: BSL-1.0
// Bodies of ../meeting_file.hpp.
#pragma once

#include <weft/core/detail/descriptor.hpp>
#include <weft/core/real_clock.hpp>
#include <weft/engine/rendezvous/meeting_file.hpp>
#include <weft/engine/rendezvous/registration.hpp>
#include <weft/rpc/identity.hpp>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace weft::engine {

inline std::filesystem::path meeting_folder() {
  std::error_code why;
  const auto temporary = std::filesystem::temp_directory_path(why);
  if (!why) return temporary / ("weft-" + std::to_string(::geteuid()));
  std::string whose = "/tmp";
  for (const char* name : {"TEMPDIR", "TEMP", "TMP", "TMPDIR"}) {  // the last one counts
    if (const auto value = environment_text(name)) whose = std::string(name) + "='" + *value + "'";
  }
  throw rpc_error(errc::rendezvous_failed,
                  "workers of one host meet in the folder for temporary files, but " + whose +
                      " cannot be used (" + why.message() +
                      "): set TMPDIR to a folder that all workers can use");
}

/// When a process began, in clock ticks since the system's start: with its id, one process for
/// ever.
[[nodiscard]] inline std::string start_of_process(::pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(in, line);
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;  // the 22nd, counted from 1 with "pid (name)"
  return field;
}

inline std::string run_key(const placement& where, const std::string& run_id) {
  auto key = [&]() -> std::string {
    if (!run_id.empty()) return "run " + run_id;
    for (const char* name : {"PMIX_NAMESPACE", "PMI_JOBID"}) {
      if (const auto id = environment_text(name)) return "mpi " + *id;
    }
    if (const auto job = environment_text("SLURM_JOB_ID")) {
      return "slurm " + *job + " " + environment_text("SLURM_STEP_ID").value_or("");
    }
    const ::pid_t parent = ::getppid();
    std::string out = "parent " + std::to_string(parent) + " " + start_of_process(parent);
    // Started by hand; one parent may start several runs at once, of different programs.
    if (where.launcher == "torchrun") out += " " + whole_file("/proc/self/cmdline");
    return out;
  }();
  key += " of " + std::to_string(where.size);
  std::string name;
  for (const char c : key.substr(0, 40)) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  }
  const std::uint64_t hash = name_hash(key);
  return name + "-" + id128{0, hash}.text().substr(16);
}

/// How long an operation may still take, unless it is given up; copies are of one operation.
class countdown {
 public:
  explicit countdown(duration all) : all_(all), until_(later(real_clock().now(), all)) {}
  [[nodiscard]] std::chrono::milliseconds now() const {
    if (stopped()) return std::chrono::milliseconds(0);
    return std::max(std::chrono::milliseconds(0),
                    std::chrono::ceil<std::chrono::milliseconds>(until_ - real_clock().now()));
  }
  [[nodiscard]] bool over() const { return stopped() || real_clock().now() >= until_; }
  [[nodiscard]] bool stopped() const { return stop_->load(); }
  [[nodiscard]] std::chrono::milliseconds all() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(all_);
  }
  /// So long after it is over.
  [[nodiscard]] time_point end(duration more) const { return later(until_, more); }
  /// Nobody waits any more, whoever does it on whatever thread: it is over.
  void give_up() const { stop_->store(true); }

 private:
  duration all_;
  time_point until_;
  std::shared_ptr<std::atomic<bool>> stop_ = std::make_shared<std::atomic<bool>>(false);
};

[[noreturn]] inline void meeting_failed(const std::string& what, const std::filesystem::path& where,
                                        int code = 0) {
  throw rpc_error(errc::rendezvous_failed,
                  what + " " + where.string() +
                      (code != 0 ? std::string(": ") + std::strerror(code) : std::string()));
}

/// The folder, locked: nobody else takes a seat or removes a file meanwhile.
class locked_folder {
 public:
  locked_folder(std::filesystem::path path, const countdown& left) : path_(std::move(path)) {
    for (;;) {
      if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
        meeting_failed("cannot make the folder", path_, errno);
      }
      fd_ = descriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!fd_) {
        if (errno == ENOENT && !left.over()) continue;  // removed by the last one to leave
        meeting_failed("cannot open the folder", path_, errno);
      }
      struct ::stat is{};
      ::fstat(fd_.get(), &is);
      if (is.st_uid != ::geteuid() || (is.st_mode & 077) != 0) {
        meeting_failed("other users may read or write in the folder", path_);
      }
      if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) {
        struct ::stat named{};
        if (::lstat(path_.c_str(), &named) == 0 && named.st_ino == is.st_ino) return;
      } else if (left.over()) {
        meeting_failed("another process holds the lock of the folder", path_);
      } else {
        pause_for(std::chrono::milliseconds(1));
      }
    }
  }
  locked_folder(const locked_folder&) = delete;
  locked_folder& operator=(const locked_folder&) = delete;
  ~locked_folder() { ::rmdir(path_.c_str()); }  // stays if it is not empty

 private:
  std::filesystem::path path_;
  descriptor fd_;
};

/// One open meeting. Its descriptor holds the seat.
class meeting_file {
 public:
  meeting_file(std::filesystem::path path, int flags)
      : path_(std::move(path)),
        fd_(::open(path_.c_str(), flags | O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600)) {}
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

  /// The lines by rank, and what the first one who gave up said.
  struct content {
    std::vector<std::optional<std::string>> lines;
    std::optional<std::string> given_up;
    [[nodiscard]] bool complete() const {
      return std::all_of(lines.begin(), lines.end(), [](const auto& l) { return !!l; });
    }
  };
  [[nodiscard]] content read(std::uint32_t size) const {
    std::string text;
    char chunk[4096];
    for (::ssize_t got = 0;
         (got = ::pread(fd_.get(), chunk, sizeof chunk, static_cast<::off_t>(text.size()))) > 0;) {
      text.append(chunk, static_cast<std::size_t>(got));
    }
    content out;
    out.lines.resize(size);
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      const std::string_view line = std::string_view(text).substr(begin, end - begin);
      const std::size_t space = std::min(line.find(' '), line.size());
      const std::string_view head = line.substr(0, space);
      const std::string body(line.substr(std::min(space + 1, line.size())));
      std::uint32_t rank = 0;
      if (head == "!") {
        if (!out.given_up) out.given_up = body;
      } else if (std::from_chars(head.data(), head.data() + head.size(), rank).ec == std::errc() &&
                 rank < size) {
        out.lines[rank] = body;
      }
    }
    return out;
  }
  /// One write, so that lines do not mix.
  void add(const std::string& head, const std::string& body) const {
    const std::string line = head + " " + body + "\n";
    if (::write(fd_.get(), line.data(), line.size()) != static_cast<::ssize_t>(line.size())) {
      meeting_failed("cannot write", path_, errno);
    }
  }

  [[nodiscard]] bool take_seat(std::uint32_t rank) const {
    struct ::flock seat = bytes(rank, 1);
    return ::fcntl(fd_.get(), F_OFD_SETLK, &seat) == 0;
  }
  /// Whether another process holds that seat; any of them, without a rank.
  [[nodiscard]] bool held(std::optional<std::uint32_t> rank = std::nullopt) const {
    struct ::flock seat = rank ? bytes(*rank, 1) : bytes(0, 0);
    return ::fcntl(fd_.get(), F_OFD_GETLK, &seat) != 0 || seat.l_type != F_UNLCK;
  }
  /// The first rank but `me` that came and has died, if any.
  [[nodiscard]] std::optional<std::uint32_t>
  died(const content& now, std::optional<std::uint32_t> me = std::nullopt) const {
    for (std::uint32_t r = 0; r < now.lines.size(); ++r) {
      if (now.lines[r] && me != r && !held(r)) return r;
    }
    return std::nullopt;
  }
  /// Requires the folder's lock.
  void remove() const {
    struct ::stat mine{};
    struct ::stat named{};
    if (::fstat(fd_.get(), &mine) == 0 && ::lstat(path_.c_str(), &named) == 0 &&
        mine.st_ino == named.st_ino) {
      ::unlink(path_.c_str());
    }
  }

 private:
  static struct ::flock bytes(std::uint32_t from, ::off_t count) {
    struct ::flock out{};
    out.l_type = F_WRLCK;
    out.l_whence = SEEK_SET;
    out.l_start = static_cast<::off_t>(from);
    out.l_len = count;  // 0: all that follow
    return out;
  }
  std::filesystem::path path_;
  descriptor fd_;
};

/// A seat in a meeting that is open to this rank, else in a new one. Removes what dead runs left.
[[nodiscard]] inline meeting_file find_seat(const std::filesystem::path& folder,
                                            const std::string& key, std::uint32_t rank,
                                            std::uint32_t size, const std::string& line,
                                            const countdown& left) {
  const locked_folder locked(folder, left);
  std::vector<std::string> names;
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ec)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  auto sit = [&](meeting_file file) {
    if (!file.take_seat(rank)) meeting_failed("cannot lock", folder, errno);
    file.add(std::to_string(rank), line);
    return file;
  };
  for (const std::string& name : names) {
    meeting_file file(folder / name, 0);
    if (!file) continue;
    if (!file.held()) {
      file.remove();
      continue;
    }
    if (!name.starts_with(key + ".")) continue;
    const auto now = file.read(size);
    if (now.complete() || now.given_up || file.died(now)) {
      file.remove();  // closed to all who come; those inside have it open
    } else if (!now.lines[rank]) {
      return sit(std::move(file));
    }
  }
  for (int n = 0; n < 10000; ++n) {
    const auto path = folder / (key + "." + std::to_string(n));
    meeting_file file(path, O_CREAT | O_EXCL);
    if (file) return sit(std::move(file));
    if (errno != EEXIST) meeting_failed("cannot make", path, errno);
  }
  meeting_failed("too many meetings in", folder);
}

inline std::vector<std::string> meet_in_file(const std::filesystem::path& folder,
                                             const std::string& key, std::uint32_t rank,
                                             std::uint32_t size, const std::string& line,
                                             const countdown& left) {
  const meeting_file file = find_seat(folder, key, rank, size, line, left);
  auto texts = [](meeting_file::content& all) {
    std::vector<std::string> out;
    for (auto& text : all.lines) out.push_back(std::move(*text));
    return out;
  };
  const auto moment = std::chrono::seconds(1);
  for (;;) {
    auto now = file.read(size);
    if (now.complete()) {
      try {
        const locked_folder locked(folder, countdown(moment));
        file.remove();
      } catch (const rpc_error&) {
        // Somebody who was stopped keeps the lock. Whoever comes next removes the file.
      }
      return texts(now);
    }
    const bool over = left.over();
    if (!over && !now.given_up && !file.died(now, rank)) {
      pause_for(std::chrono::milliseconds(5));
      continue;
    }
    // Under the lock nobody comes any more: either all are there by now, or this is the end for
    // all. Who leaves after all have come is not mistaken for dead.
    const locked_folder locked(folder, countdown(moment));
    now = file.read(size);
    const auto dead = file.died(now, rank);
    if (!now.complete() && !now.given_up && !dead && !over) continue;
    file.remove();
    if (now.complete()) return texts(now);
    std::string why;
    if (now.given_up) {
      why = *now.given_up;
    } else if (dead) {
      why = "rank " + std::to_string(*dead) + " died while the workers met";
    } else if (left.stopped()) {
      why = "rank " + std::to_string(rank) + " gave up meeting the others";
    } else {
      std::vector<bool> there;
      for (const auto& text : now.lines) there.push_back(text.has_value());
      why = missing_ranks(there, left.all());
    }
    if (!now.given_up) file.add("!", why);
    throw rpc_error(errc::rendezvous_failed, why);
  }
}

}  // namespace weft::engine
