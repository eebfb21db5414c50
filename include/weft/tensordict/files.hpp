// SPDX-License-Identifier: BSL-1.0
// Tensordicts in files, which Python's tensordict reads and writes, too.
//
//   weft::to_consolidated(td, "step_100.td");            // one file, replaced whole
//   weft::tensordict td = weft::from_consolidated("step_100.td");
//   auto buffer = weft::memmap_like(sample.expand({100'000}), "buffer");   // a folder; zeros
//   buffer.index_put_({step}, sample);                   // is in the file
//   auto again = weft::load_memmap("buffer");            // opened, not read
//
// No function here runs code from a file, but from_torch_save. What is in a file is checked before
// it is used: a wrong file is an error `format`, and costs memory in proportion to its size (a few
// hundred bytes for a tensor or a value that it names). If the system refuses something, that is an
// error `file`, with the path and the reason. Tensors are saved as values, without gradients.
#pragma once

#include <weft/tensordict/detail/file_root.hpp>
#include <weft/tensordict/tensordict.hpp>

#include <ATen/core/Tensor.h>

#include <concepts>
#include <filesystem>

namespace weft {

/// What a file holds: a tensordict, or, if one asks for it, a lazy stack.
template <class T>
concept tensordict_root = std::same_as<T, tensordict> || std::same_as<T, lazy_stack>;

// ── one file ──

/// Python's `consolidate(filename)`: all tensors, then what they are. The file is written beside
/// `file`, flushed to the disk, and renamed: `file` is the old one or the new one, whole.
void to_consolidated(const tensordict& td, const std::filesystem::path& file);
void to_consolidated(const lazy_stack& stack, const std::filesystem::path& file);
/// All tensors are in one buffer that is read from the file; is_consolidated.
template <tensordict_root Root = tensordict>
[[nodiscard]] Root from_consolidated(const std::filesystem::path& file) {
  return detail::root_of<Root>(detail::read_consolidated(file), file);
}

/// Replaced whole, as above. Keys are joined by "."; two equal ones are an error `key_exists`.
/// Lazy stacks are stacked; lazy stacks of data are an error `kind`.
void to_safetensors(const tensordict& td, const std::filesystem::path& file);
/// Also files of others: their names are split at ".", and the batch size is [].
template <tensordict_root Root = tensordict>
[[nodiscard]] Root from_safetensors(const std::filesystem::path& file) {
  return detail::root_of<Root>(detail::read_safetensors(file), file);
}

/// A dictionary of tensors that Python's torch.save wrote, as a module's state_dict: keys are split
/// at ".", other values are left out. libtorch reads it. Only for files that you trust.
[[nodiscard]] tensordict from_torch_save(const std::filesystem::path& file);

// ── a folder of mapped files: a file for each tensor ──

/// Writes `td`, and returns a locked tensordict whose tensors are the files, mapped: what is
/// written into them is in the files, also if the process is killed. Files that are there are
/// replaced; until all are written, the folder opens nowhere. What has no place there is refused
/// before. Others must not make the files shorter while they are mapped: whoever reads them then is
/// killed.
tensordict memmap(const tensordict& td, const std::filesystem::path& folder);
lazy_stack memmap(const lazy_stack& stack, const std::filesystem::path& folder);
/// Of the same sizes and dtypes, filled with zeros: for a sample, expanded to all that will come.
/// Does not replace what is there: throws `file` if the folder has a meta.json.
[[nodiscard]] tensordict memmap_like(const tensordict& like, const std::filesystem::path& folder);
/// Of a memmap or load_memmap: with another entry, filled with zeros, which is also in its folder.
/// `shape` begins with the batch size. One process at a time does this.
tensordict& make_memmap(tensordict& td, const nested_key& key, at::IntArrayRef shape,
                        at::ScalarType dtype);
/// With the entries that others have added to its folder.
tensordict& refresh_memmap(tensordict& td);
/// Waits until what was written into the mapped tensors is on the disk.
void flush_memmap(const tensordict& td);

/// `shared`: what is written into the tensors is in the files. `copied`: it is not.
enum class memmap_mode : bool { shared, copied };
/// Opens the files and reads none of them. Symbolic links are refused.
template <tensordict_root Root = tensordict>
[[nodiscard]] Root load_memmap(const std::filesystem::path& folder,
                               memmap_mode mode = memmap_mode::shared) {
  return detail::root_of<Root>(detail::read_memmap(folder, mode == memmap_mode::shared), folder);
}

}  // namespace weft

#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/tensordict/impl/consolidated_file_once.hpp>
#include <weft/tensordict/impl/file_once.hpp>
#include <weft/tensordict/impl/memmap_once.hpp>
#include <weft/tensordict/impl/memmap_read_once.hpp>
#include <weft/tensordict/impl/safetensors_once.hpp>
#include <weft/tensordict/impl/torch_save_once.hpp>
#endif
