// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/detail/file.hpp that are compiled once.
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/detail/file.hpp>
#include <weft/tensordict/files.hpp>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace weft::detail {

[[noreturn]] WEFT_DECL void refuse_file(const std::filesystem::path& path, const char* what,
                                        int error) {
  throw tensordict_error(tensordict_errc::file, std::string("cannot ") + what + " " +
                                                    path.string() + ": " +
                                                    std::system_category().message(error));
}
[[noreturn]] WEFT_DECL void refuse_format(const std::filesystem::path& path,
                                          const std::string& why) {
  throw tensordict_error(tensordict_errc::format, path.string() + ": " + why);
}

[[noreturn]] WEFT_DECL void rethrow_with(const std::filesystem::path& path,
                                         const tensordict_error& caught,
                                         const std::filesystem::path& within) {
  const bool told = std::string_view(caught.what()).starts_with(within.string());
  if (told || caught.code() == tensordict_errc::file) throw;
  refuse_format(path, caught.what());
}

[[noreturn]] WEFT_DECL void refuse_root(const tensordict_value& root,
                                        const std::filesystem::path& file) {
  throw tensordict_error(
      tensordict_errc::kind,
      file.string() + " holds " + root.kind() +
          (root.is_stack() ? ": ask for it, as by from_consolidated<weft::lazy_stack>" : ""));
}

WEFT_DECL place at_path(const std::filesystem::path& path) {
  return {AT_FDCWD, path.string(), path};
}

WEFT_DECL place at_absolute(const std::filesystem::path& path) {
  std::error_code failed;
  const std::filesystem::path whole = std::filesystem::absolute(path, failed);
  if (failed) refuse_file(path, "find the folder", failed.value());
  return at_path(whole);
}

WEFT_DECL descriptor open_file(const place& at, access how) {
  // O_NONBLOCK: a named pipe must not stop the thread.
  const int follow = at.folder == AT_FDCWD ? 0 : O_NOFOLLOW;
  const int to = how == access::write ? O_RDWR : O_RDONLY;
  descriptor file(::openat(at.folder, at.name.c_str(), to | O_CLOEXEC | O_NONBLOCK | follow));
  if (!file) refuse_file(at.shown, errno == ELOOP ? "follow the symbolic link" : "open", errno);
  return file;
}

WEFT_DECL std::uint64_t size_of(const descriptor& file, const std::filesystem::path& shown) {
  struct stat is{};
  if (::fstat(file.get(), &is) != 0) refuse_file(shown, "look at", errno);
  if (!S_ISREG(is.st_mode)) refuse_format(shown, "it is no plain file");
  return static_cast<std::uint64_t>(is.st_size);
}

WEFT_DECL void read_at(const descriptor& file, void* into, std::size_t size, std::uint64_t offset,
                       const std::filesystem::path& shown) {
  auto* at = static_cast<char*>(into);
  while (size > 0) {
    const ssize_t n = ::pread(file.get(), at, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse_file(shown, "read", errno);
    if (n == 0) refuse_format(shown, "it became shorter while it was read");
    at += n;
    size -= static_cast<std::size_t>(n);
    offset += static_cast<std::uint64_t>(n);
  }
}

WEFT_DECL std::string read_text(const place& at, std::uint64_t most) {
  const descriptor file = open_file(at);
  const std::uint64_t size = size_of(file, at.shown);
  if (size > most) refuse_format(at.shown, "it is too long: " + std::to_string(size) + " bytes");
  std::string text(size, '\0');
  read_at(file, text.data(), text.size(), 0, at.shown);
  return text;
}

/// Another one with each call.
WEFT_DECL std::string temporary_name(const std::string& name) {
  static std::atomic<unsigned> number{0};
  const std::size_t slash = name.rfind('/');
  const std::size_t begin = slash == std::string::npos ? 0 : slash + 1;
  // Not of the name itself, which may be as long as the system allows.
  return name.substr(0, begin) + ".weft-" + std::to_string(::getpid()) + "-" +
         std::to_string(number.fetch_add(1)) + ".tmp";
}
/// Calls `make` with new names until one is not taken. Nobody else's file is touched: it may be
/// that of a process with our number, on another host.
template <class Make>
int with_new_name(const std::string& name, std::string& temporary, const Make& make) {
  constexpr int most = 10'000;
  int made = -1;
  for (int i = 0; i < most; ++i) {
    temporary = temporary_name(name);
    made = make(temporary.c_str());
    if (made >= 0 || errno != EEXIST) break;
  }
  return made;
}

WEFT_DECL replacement::replacement(place at) : at_(std::move(at)) {
#if defined(O_TMPFILE)
  // Without a name until it is whole: then a process that is killed leaves nothing.
  const std::filesystem::path in = std::filesystem::path(at_.name).parent_path();
  file_ = descriptor(
      ::openat(at_.folder, in.empty() ? "." : in.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
  nameless_ = static_cast<bool>(file_);
  if (nameless_) return;
#endif
  constexpr int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  file_ = descriptor(with_new_name(at_.name, temporary_, [&](const char* name) {
    return ::openat(at_.folder, name, flags, 0666);
  }));
  if (!file_) refuse_file(at_.shown, "write", errno);
}
WEFT_DECL replacement::~replacement() {
  if (file_ && !nameless_ && !done_) ::unlinkat(at_.folder, temporary_.c_str(), 0);
}
WEFT_DECL void replacement::write(const void* data, std::size_t size) {
  const auto* at = static_cast<const char*>(data);
  constexpr std::size_t most = std::size_t{1} << 30;
  while (size > 0) {
    const ssize_t n = ::write(file_.get(), at, std::min(size, most));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse_file(at_.shown, "write", errno);
    at += n;
    size -= static_cast<std::size_t>(n);
  }
}
WEFT_DECL void replacement::resize(std::uint64_t size) {
  if (size == 0) return;
  // Without room on the disk, writing into the mapping would end the process.
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(file_.get(), 0, static_cast<off_t>(size));
  if (error == EOPNOTSUPP || error == EINVAL) {
    error = ::ftruncate(file_.get(), static_cast<off_t>(size)) == 0 ? 0 : errno;
  }
  if (error != 0) refuse_file(at_.shown, "get room for", error);
}
WEFT_DECL void replacement::commit(durable flush) {
  if (flush == durable::yes && ::fsync(file_.get()) != 0) refuse_file(at_.shown, "flush", errno);
  if (nameless_) {
    const std::string self = "/proc/self/fd/" + std::to_string(file_.get());
    const int linked = with_new_name(at_.name, temporary_, [&](const char* name) {
      return ::linkat(AT_FDCWD, self.c_str(), at_.folder, name, AT_SYMLINK_FOLLOW);
    });
    if (linked != 0) refuse_file(at_.shown, "name", errno);
    nameless_ = false;
  }
  if (::renameat(at_.folder, temporary_.c_str(), at_.folder, at_.name.c_str()) != 0) {
    refuse_file(at_.shown, "replace", errno);
  }
  done_ = true;
  if (flush == durable::no) return;
  const std::filesystem::path in = at_.shown.parent_path();
  const descriptor folder(
      ::open(in.empty() ? "." : in.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) refuse_file(in, "flush", errno);
}
WEFT_DECL void replace_text(const place& at, const std::string& text) {
  replacement out(at);
  out.write(text.data(), text.size());
  out.commit(replacement::durable::no);
}

WEFT_DECL at::Tensor map_file(const descriptor& file, std::uint64_t size, bool shared,
                              const std::filesystem::path& shown) {
  if (size == 0) return at::empty({0}, at::kByte);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE,
                        file.get(), 0);
  if (memory == MAP_FAILED) refuse_file(shown, "map", errno);
  try {
    return at::from_blob(
        memory, {static_cast<std::int64_t>(size)}, [size](void* p) { ::munmap(p, size); },
        at::kByte);
  } catch (...) {
    ::munmap(memory, size);
    throw;
  }
}

WEFT_DECL descriptor open_folder(const place& at, bool make) {
  const int follow = at.folder == AT_FDCWD ? 0 : O_NOFOLLOW;
  if (make && ::mkdirat(at.folder, at.name.c_str(), 0777) != 0 && errno != EEXIST) {
    refuse_file(at.shown, "make the folder", errno);
  }
  descriptor folder(
      ::openat(at.folder, at.name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow));
  if (!folder) refuse_file(at.shown, "open the folder", errno);
  return folder;
}

}  // namespace weft::detail
