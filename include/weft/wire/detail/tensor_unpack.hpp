// SPDX-License-Identifier: BSL-1.0
// Bodies of tensor_table.hpp: tensors over the received buffers. Every descriptor
// was checked before libtorch hears of it.
#pragma once

#include <weft/wire/detail/ask_for_memory.hpp>
#include <weft/wire/detail/tensor_indices.hpp>
#include <weft/wire/detail/tensor_table.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

namespace weft {
namespace detail {

class tensor_unpacker {
 public:
  tensor_unpacker(reader& r, std::span<const blob> blobs, bool shares)
      : reader_(r), blobs_(blobs), shares_(shares), memory_(blobs.size()) {
    for (const blob& b : blobs) work_ += b.size();
    work_ = 1024 * 1024 + 256 * work_;
  }

  // What lies behind a descriptor; sparse ones get theirs from `parts`.
  at::Tensor strided(const tensor_desc& d);
  at::Tensor sparse(const tensor_desc& d, const at::Tensor& indices, const at::Tensor& values);
  // Collects where bool elements lie; `check_bools` then looks at each such byte once.
  void note_bools(const tensor_desc& d);
  void check_bools();

 private:
  struct memory {
    c10::Storage storage;
    std::uint64_t offset = 0;  // of the buffer's first byte in the storage
    bool ours = false;         // the bytes are those of a tensor of this process
  };
  struct byte_range {
    std::uint32_t buffer;
    std::uint64_t begin, end;
  };

  const memory& of(std::uint32_t buffer);
  void spend(std::uint64_t work) {
    if (work > work_) reader_.fail("sparse indices that would take too long to check");
    work_ -= work;
  }

  reader& reader_;
  std::span<const blob> blobs_;
  const bool shares_;
  std::vector<memory> memory_;
  std::vector<byte_range> bools_;
  std::uint64_t work_ = 0;  // what is left for checking index values, in bytes
};

/// Whether nobody but this blob has that memory any more, which libtorch allocated.
[[nodiscard]] inline bool is_the_last(const tensor_blob_owner& sent) {
  const c10::Storage& storage = sent.storage();
  if (sent.use_count() != 1 || storage.use_count() != 1 ||
      storage.data_ptr().get_deleter() != c10::GetCPUAllocator()->raw_deleter()) {
    return false;
  }
  std::atomic_thread_fence(std::memory_order_acquire);  // after what the others did with it
  return true;
}

/// Of the CPU allocator; lack of memory is std::bad_alloc here.
[[nodiscard]] inline c10::DataPtr allocate_bytes(std::size_t size) {
  ask_for_tensor_memory();
  try {
    return c10::GetCPUAllocator()->allocate(size);
  } catch (const c10::Error&) {
    throw std::bad_alloc();
  }
}

inline auto tensor_unpacker::of(std::uint32_t buffer) -> const memory& {
  memory& m = memory_[buffer];
  if (m.storage) return m;
  const blob& b = blobs_[buffer];
  const bool sent_here = b.owner() && b.owner()->kind() == tensor_blob_owner::tag();
  if (sent_here) {
    const auto& sent = static_cast<const tensor_blob_owner&>(*b.owner());
    if (shares_ || is_the_last(sent)) {
      m.storage = sent.storage();
      m.offset =
          static_cast<std::uint64_t>(b.data() - static_cast<const std::byte*>(m.storage.data()));
      m.ours = true;
      return m;
    }
  }
  c10::Allocator* allocator = c10::GetCPUAllocator();
  const bool aligned = reinterpret_cast<std::uintptr_t>(b.data()) % 16 == 0;
  if (!b.owner() || !aligned || sent_here) {
    c10::DataPtr copy = allocate_bytes(b.size());
    std::memcpy(copy.mutable_get(), b.data(), b.size());
    m.storage = c10::Storage(c10::Storage::use_byte_size_t(), b.size(), std::move(copy), allocator,
                             /*resizable=*/true);
    m.ours = sent_here;
    return m;
  }
  c10::DataPtr data(
      b.data(), intrusive_ptr<blob_owner>(b.owner()).detach(),
      [](void* owner) {
        after_last_drop(owner);
        static_cast<blob_owner*>(owner)->release();
      },
      c10::Device(c10::DeviceType::CPU));
  m.storage = c10::Storage(c10::Storage::use_byte_size_t(), b.size(), std::move(data), allocator,
                           /*resizable=*/true);
  return m;
}

/// Whether the libtorch of this program has that dtype; an older one lacks the latest.
[[nodiscard]] inline bool known_here(std::uint8_t dtype) {
  return dtype < static_cast<std::uint8_t>(c10::ScalarType::Undefined) &&
         c10::elementSize(static_cast<c10::ScalarType>(dtype)) == item_size(dtype);
}

inline at::Tensor tensor_unpacker::strided(const tensor_desc& d) {
  if (!known_here(d.dtype)) reader_.fail("a tensor of a dtype that this program's libtorch lacks");
  const auto type = c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(d.dtype));
  const c10::DispatchKeySet keys(c10::DispatchKey::CPU);
  c10::Storage storage;
  std::int64_t first = 0;
  if (d.buffer == no_buffer) {
    storage = c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::GetCPUAllocator(),
                           /*resizable=*/true);
  } else {
    const memory& m = of(d.buffer);
    const std::uint64_t item = item_size(d.dtype);
    if ((m.offset + d.offset) % item != 0) reader_.fail("a tensor that is not aligned");
    storage = m.storage;
    first = static_cast<std::int64_t>((m.offset + d.offset) / item);
  }
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, type);
  t.unsafeGetTensorImpl()->set_sizes_and_strides(
      c10::IntArrayRef(d.sizes().data(), d.sizes().size()),
      c10::IntArrayRef(d.strides().data(), d.strides().size()), first);
  return t;
}

inline at::Tensor tensor_unpacker::sparse(const tensor_desc& d, const at::Tensor& indices,
                                          const at::Tensor& values) {
  const std::int64_t dims = indices.size(0);
  const std::int64_t nonzeros = indices.size(1);
  const bool coalesced = (d.flags & tensor_coalesced) != 0;
  spend(saturating_multiply(static_cast<std::uint64_t>(std::max<std::int64_t>(dims, 1)),
                            static_cast<std::uint64_t>(nonzeros) * 8));
  const auto* index = dims == 0 || nonzeros == 0
                          ? nullptr
                          : static_cast<const std::int64_t*>(indices.const_data_ptr());
  const std::int64_t down = indices.stride(0);
  const std::int64_t right = indices.stride(1);
  for (std::int64_t k = 0; index && k < nonzeros; ++k) {
    for (std::int64_t i = 0; i < dims; ++i) {
      const std::int64_t at = index[i * down + k * right];
      if (at < 0 || at >= d.size[static_cast<std::size_t>(i)]) {
        reader_.fail("a sparse index outside of the tensor's sizes");
      }
    }
  }
  if (coalesced && !are_coalesced(indices)) {
    reader_.fail(
        "sparse indices that are not sorted, or repeat, though they claim to be coalesced");
  }
  return at::_sparse_coo_tensor_unsafe(indices, values,
                                       c10::IntArrayRef(d.sizes().data(), d.sizes().size()),
                                       values.options().layout(at::kSparse), coalesced);
}

inline void tensor_unpacker::note_bools(const tensor_desc& d) {
  if (d.dtype != dtype_bool || d.layout != tensor_layout::strided || d.buffer == no_buffer) return;
  if (of(d.buffer).ours) return;
  bools_.push_back({d.buffer, d.offset, d.offset + shape_of(d).extent});
}

inline void tensor_unpacker::check_bools() {
  std::sort(bools_.begin(), bools_.end(), [](const byte_range& a, const byte_range& b) {
    return std::tie(a.buffer, a.begin) < std::tie(b.buffer, b.begin);
  });
  std::uint32_t buffer = no_buffer;
  std::uint64_t done = 0;
  for (const byte_range& each : bools_) {
    if (each.buffer != buffer) done = 0;
    buffer = each.buffer;
    const std::byte* data = blobs_[buffer].data();
    unsigned all = 0;
    for (std::uint64_t i = std::max(done, each.begin); i < each.end; ++i) {
      all |= static_cast<unsigned>(data[i]);
    }
    if (all > 1) reader_.fail("a bool tensor with an element that is neither 0 nor 1");
    done = std::max(done, each.end);
  }
}

inline const at::Tensor& torch_tensor_table::received(reader& r, std::uint32_t index) {
  if (!open_) open(r);
  if (index >= tensors_.size()) {
    r.fail("tensor " + std::to_string(index) + " of a message that has " +
           std::to_string(tensors_.size()));
  }
  return tensors_[index];
}

inline void torch_tensor_table::open(reader& r) {
  if (open_) return;
  incoming_message* in = r.source();
  const auto section = in ? in->section(section_kind::tensors) : std::nullopt;
  if (!section) r.fail("a tensor in a message without tensors");
  const std::span<const blob> blobs(in->blobs());
  if (const std::string wrong = check_tensors(*section, blobs); !wrong.empty()) r.fail(wrong);

  tensor_desc_reader descs(*section);
  const auto [count, total] = descs.head();
  r.charge(total, torch_tensor_table::cost);
  const at::NoGradGuard no_grad;
  tensor_unpacker unpack(r, blobs, only_read);
  std::vector<at::Tensor> all(total);
  std::vector<std::uint32_t> with_grad;
  std::vector<bool> computed;  // of those
  tensor_desc d;
  for (std::uint32_t i = 0; i < total; ++i) {
    (void)descs.next(d, blobs);
    if (d.layout == tensor_layout::strided) all[i] = unpack.strided(d);
    if ((d.flags & tensor_requires_grad) != 0) {
      with_grad.push_back(i);
      computed.push_back((d.flags & tensor_computed) != 0);
    }
    unpack.note_bools(d);
  }
  unpack.check_bools();
  tensor_desc_reader again(*section);
  for (std::uint32_t i = 0; i < count; ++i) {
    (void)again.next(d, blobs);
    if (d.layout != tensor_layout::sparse_coo) continue;
    all[i] = unpack.sparse(d, all[d.buffer], all[d.buffer + 1]);
  }
  all.resize(count);

  if (on_received && !with_grad.empty()) {
    std::vector<at::Tensor> chosen;
    for (const std::uint32_t i : with_grad) chosen.push_back(all[i]);
    on_received(chosen, computed);
    for (std::size_t k = 0; k < chosen.size(); ++k) all[with_grad[k]] = std::move(chosen[k]);
  } else {
    for (const std::uint32_t i : with_grad) all[i].set_requires_grad(true);
  }
  tensors_ = std::move(all);
  open_ = true;
}

inline void torch_tensor_table::pass_on(incoming_message& from, message& to) {
  auto& came = from.record().get<weft::tensor_table>();
  auto& goes = static_cast<torch_tensor_table&>(to.record().get<weft::tensor_table>());
  goes.passed_on_ = true;
  reader r = from.payload();
  came.only_read = true;
  came.open(r);
  std::uint32_t next = 0;
  for (const at::Tensor& t : came.tensors()) {
    if (goes.add(t) != next++) r.fail("a tensor that is there twice");
  }
}

}  // namespace detail
}  // namespace weft
