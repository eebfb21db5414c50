// SPDX-License-Identifier: BSL-1.0
// Runs a fuzz target without a fuzzer: the inputs that are kept, and as many that are made of them
// by a generator whose numbers are always the same.
//
//   replay FOLDER COUNT LAST     COUNT inputs in all, where everything runs, else a tenth, and all
//                                that are kept; each is written to the file LAST before it runs, so
//                                that the one that breaks something is there
//   replay FILE                  that one
#include "../core/run_all.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* argc, char*** argv);

namespace {

using input = std::vector<std::uint8_t>;
constexpr std::size_t longest = 4096;

/// Splitmix64.
class dice {
 public:
  explicit dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E37'79B9'7F4A'7C15;
    z = (z ^ (z >> 30)) * 0xBF58'476D'1CE4'E5B9;
    z = (z ^ (z >> 27)) * 0x94D0'49BB'1331'11EB;
    return z ^ (z >> 31);
  }
  /// Below `n`, which is not 0.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }

 private:
  std::uint64_t state_;
};

input content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return input(std::istreambuf_iterator<char>(in), {});
}

/// In an order of its own, whatever that of the folder is.
std::vector<input> all_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& each : std::filesystem::recursive_directory_iterator(folder)) {
    if (each.is_regular_file()) files.push_back(each.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<input> out;
  for (const auto& file : files) out.push_back(content(file));
  return out;
}

void flip_bits(input& it, dice& d) {
  for (std::size_t n = 1 + d.below(4); n > 0 && !it.empty(); --n) {
    it[d.below(it.size())] ^= static_cast<std::uint8_t>(1u << d.below(8));
  }
}
void set_byte(input& it, dice& d) {
  constexpr std::uint8_t odd[] = {0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF};
  if (!it.empty()) it[d.below(it.size())] = odd[d.below(std::size(odd))];
}
void cut_off(input& it, dice& d) {
  if (!it.empty()) it.resize(d.below(it.size()));
}
void take_out(input& it, dice& d) {
  if (it.empty()) return;
  const std::size_t from = d.below(it.size());
  const std::size_t n = 1 + d.below(std::min<std::size_t>(it.size() - from, 16));
  it.erase(it.begin() + static_cast<std::ptrdiff_t>(from),
           it.begin() + static_cast<std::ptrdiff_t>(from + n));
}
/// The end of another one behind the front of this one.
void splice(input& it, const input& other, dice& d) {
  const std::size_t front = it.empty() ? 0 : d.below(it.size());
  const std::size_t from = other.empty() ? 0 : d.below(other.size());
  it.resize(front);
  it.insert(it.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
  if (it.size() > longest) it.resize(longest);
}

input changed(const std::vector<input>& all, std::size_t which, dice& d) {
  input it = all[which];
  switch (d.below(5)) {
  case 0:
    flip_bits(it, d);
    break;
  case 1:
    cut_off(it, d);
    break;
  case 2:
    splice(it, all[d.below(all.size())], d);
    break;
  case 3:
    take_out(it, d);
    break;
  default:
    set_byte(it, d);
    flip_bits(it, d);
  }
  return it;
}

/// Memory of exactly its size.
void run(const input& it) {
  const input mine(it.begin(), it.end());
  LLVMFuzzerTestOneInput(mine.data(), mine.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    std::cout << "replay FOLDER COUNT LAST, or replay FILE\n";
    return 2;
  }
  if (LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&argc, &argv);
  if (argc == 2) {
    run(content(argv[1]));
    return 0;
  }
  const std::vector<input> kept = all_in(argv[1]);
  const std::size_t all = std::stoul(argv[2]);
  const std::size_t count = weft::testing::rounds(all / 10, all);
  if (kept.empty()) {
    std::cout << "there are no inputs in " << argv[1] << '\n';
    return 2;
  }
  dice d(1);
  for (std::size_t i = 0; i < std::max(count, kept.size()); ++i) {
    const input it = i < kept.size() ? kept[i] : changed(kept, i % kept.size(), d);
    std::ofstream last(argv[3], std::ios::binary | std::ios::trunc);
    last.write(reinterpret_cast<const char*>(it.data()), static_cast<std::streamsize>(it.size()));
    last.close();
    run(it);
  }
  std::filesystem::remove(argv[3]);
  std::cout << std::max(count, kept.size()) << " inputs, of which " << kept.size()
            << " are kept: all well\n";
  return 0;
}
