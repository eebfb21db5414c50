// SPDX-License-Identifier: BSL-1.0
// Files: read whole, mapped, or replaced whole. All throw tensordict_error `file`.
#pragma once

#include <weft/core/detail/descriptor.hpp>
#include <weft/tensordict/error.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace weft::detail {

[[noreturn]] void refuse_file(const std::filesystem::path& path, const char* what, int error);
[[noreturn]] void refuse_format(const std::filesystem::path& path, const std::string& why);
/// Throws what is being caught once more: as `format`, with the path, unless it has that, or a path
/// below `within`.
[[noreturn]] void rethrow_with(const std::filesystem::path& path, const tensordict_error& caught,
                               const std::filesystem::path& within);

/// A file or folder inside an open folder; links are not followed. `shown` is for errors.
struct place {
  int folder;
  std::string name;
  std::filesystem::path shown;
};
/// At a path of the user.
[[nodiscard]] place at_path(const std::filesystem::path& path);

/// The same, wherever the process goes.
[[nodiscard]] place at_absolute(const std::filesystem::path& path);

enum class access : bool { read, write };
[[nodiscard]] descriptor open_file(const place& at, access how = access::read);
/// Bytes of a plain file; refuses everything else.
[[nodiscard]] std::uint64_t size_of(const descriptor& file, const std::filesystem::path& shown);
void read_at(const descriptor& file, void* into, std::size_t size, std::uint64_t offset,
             const std::filesystem::path& shown);
/// At most `most` bytes, else `format`.
[[nodiscard]] std::string read_text(const place& at, std::uint64_t most);

/// Written beside `at`, and takes its place at `commit`.
class replacement {
 public:
  explicit replacement(place at);
  ~replacement();
  replacement(const replacement&) = delete;
  replacement& operator=(const replacement&) = delete;
  void write(const void* data, std::size_t size);
  /// So many bytes, zeros behind what was written; the disk has room for them.
  void resize(std::uint64_t size);
  [[nodiscard]] const descriptor& file() const noexcept { return file_; }
  enum class durable : bool { no, yes };
  /// `yes`: all of it is on the disk before it takes the place, and the place, too.
  void commit(durable flush);

 private:
  place at_;
  std::string temporary_;
  descriptor file_;
  bool nameless_ = false;
  bool done_ = false;
};
void replace_text(const place& at, const std::string& text);

/// The whole file, as a uint8 tensor; unmapped with the last tensor of its storage.
[[nodiscard]] at::Tensor map_file(const descriptor& file, std::uint64_t size, bool shared,
                                  const std::filesystem::path& shown);

/// Opens a folder; makes it if it is not there.
[[nodiscard]] descriptor open_folder(const place& at, bool make);

}  // namespace weft::detail
