// SPDX-License-Identifier: BSL-1.0
// Bodies of tensor_table.hpp: what can travel, and which bytes of which storage do.
#pragma once

#include <weft/wire/detail/tensor_indices.hpp>
#include <weft/wire/detail/tensor_table.hpp>

#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace weft {
namespace detail {

// Why a tensor cannot travel, as the first words of a sentence; nullptr: it can.
[[nodiscard]] inline const char* obstacle(const at::Tensor& t) {
  const c10::TensorImpl& impl = *t.unsafeGetTensorImpl();
  const c10::DispatchKeySet keys = impl.key_set();
  if (t.is_quantized()) return "a quantised tensor";
  if (t.is_nested()) return "a nested tensor";
  if (t.is_mkldnn()) return "an MKL-DNN tensor";
  if (keys.has(c10::DispatchKey::Python)) return "a tensor subclass";
  if (keys.has_any(c10::DispatchKeySet(
          {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
           c10::DispatchKey::Batched, c10::DispatchKey::Functionalize}))) {
    return "a tensor inside a functorch transform";
  }
  if (t.is_meta()) return "a meta tensor";
  if (t.layout() != at::kStrided && t.layout() != at::kSparse) {
    return "a compressed sparse tensor (CSR, CSC, BSR, BSC) or one of another special layout";
  }
  if (!t.device().is_cpu()) return "a tensor on a device other than the CPU";
  if (impl.has_named_tensor_meta()) return "a tensor with named dimensions";
  if (impl.has_symbolic_sizes_strides()) return "a tensor with symbolic sizes";
  if (t._is_zerotensor()) return "a tensor of implicit zeros";
  if (item_size(static_cast<std::uint8_t>(t.scalar_type())) == 0) return "a tensor of this dtype";
  if (static_cast<std::size_t>(t.dim()) > max_tensor_dims) {
    return "a tensor of more than 64 dimensions";
  }
  return nullptr;
}

/// Before libtorch reads a strided tensor for us, which it does unseen.
[[nodiscard]] inline bool has_memory(const at::Tensor& t) {
  if (t.numel() == 0) return true;
  const at::Storage& memory = t.storage();
  const auto width = static_cast<std::size_t>(t.element_size());
  const auto begin = static_cast<std::size_t>(t.storage_offset());
  return memory && memory.data() &&
         at::detail::computeStorageNbytes(t.sizes(), t.strides(), width, begin) <= memory.nbytes();
}

[[noreturn]] inline void refuse_tensor(const at::Tensor& t, const std::string& what) {
  throw rpc_error(errc::not_encodable, what + " (" + t.toString() + ", " +
                                           std::string(c10::toString(t.scalar_type())) +
                                           ") cannot be sent");
}

// Plans which ranges of which storages the message's buffers are.
class tensor_packer {
 public:
  /// `as_it_came`: nothing is copied for it.
  explicit tensor_packer(bool as_it_came) noexcept : as_it_came_(as_it_came) {}
  void add(const at::Tensor& t) {
    std::uint8_t flags = 0;
    if (t.defined() && t.requires_grad()) {
      flags = tensor_requires_grad;
      if (!t.is_leaf()) flags |= tensor_computed;
    }
    add(t, flags);
  }
  // The sparse tensors' indices and values, after all that the payload names.
  void add_parts();
  void write(message& m, std::uint32_t count);

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  struct item {
    at::Tensor data;  // undefined: no bytes
    tensor_desc desc{};
    std::size_t storage = 0;           // number of its storage, in order of appearance
    std::uint64_t begin = 0, end = 0;  // in that storage
    bool gaps = false;
    std::size_t range = none;
  };
  struct range {
    c10::Storage memory;
    std::size_t storage;
    std::uint64_t begin, end;
    std::uint64_t item;  // the largest element in it
  };

  void add(at::Tensor t, std::uint8_t flags);
  void describe(item& it);
  void compact(item& it);
  void merge();
  std::size_t number_of(const c10::Storage& s) {
    return storages_.try_emplace(s.unsafeGetStorageImpl(), storages_.size()).first->second;
  }

  const bool as_it_came_;
  std::vector<item> items_;
  std::vector<range> ranges_;
  std::unordered_map<const void*, std::size_t> storages_;  // looked up, never iterated
};

inline void tensor_packer::add(at::Tensor t, std::uint8_t flags) {
  item& it = items_.emplace_back();
  if (!t.defined()) return;
  if ((t.is_conj() || t.is_neg()) && t.layout() == at::kStrided && !has_memory(t)) {
    refuse_tensor(t, "a tensor whose memory is not there");
  }
  if (t.is_conj()) t = t.resolve_conj();
  if (t.is_neg()) t = t.resolve_neg();
  it.desc.dtype = static_cast<std::uint8_t>(t.scalar_type());
  it.desc.flags = flags;
  it.desc.ndim = static_cast<std::uint8_t>(t.dim());
  std::copy(t.sizes().begin(), t.sizes().end(), it.desc.size.begin());
  if (t.layout() == at::kSparse) {
    it.desc.layout = tensor_layout::sparse_coo;
    if (t.is_coalesced()) it.desc.flags |= tensor_coalesced;
    if (!shape_of(it.desc).fits) refuse_tensor(t, "a tensor whose sizes are beyond the limits");
    it.data = std::move(t);
    return;
  }
  it.desc.layout = tensor_layout::strided;
  for (std::size_t i = 0; i < it.desc.ndim; ++i) {
    // Strides that lead nowhere may be anything.
    const std::int64_t stride = t.stride(static_cast<std::int64_t>(i));
    it.desc.stride[i] = it.desc.size[i] > 1 ? stride : std::min(stride, max_tensor_size);
  }
  it.data = std::move(t);
  describe(it);
}

inline void tensor_packer::describe(item& it) {
  const at::Tensor& t = it.data;
  const tensor_shape shape = shape_of(it.desc);
  if (!shape.fits) refuse_tensor(t, "a tensor whose sizes or strides are beyond the limits");
  if (shape.elements == 0) {
    it.data.reset();
    return;
  }
  const std::uint64_t width = item_size(it.desc.dtype);
  it.begin = static_cast<std::uint64_t>(t.storage_offset()) * width;
  it.end = it.begin + shape.extent * width;
  const at::Storage& memory = t.storage();
  if (!memory || !memory.data() || it.end > memory.nbytes()) {
    refuse_tensor(t, "a tensor whose memory is not there");
  }
  it.storage = number_of(memory);
  std::uint64_t distinct = 1;  // expanded dimensions aside
  for (std::size_t i = 0; i < it.desc.ndim; ++i) {
    if (it.desc.stride[i] != 0) distinct *= static_cast<std::uint64_t>(it.desc.size[i]);
  }
  it.gaps = shape.extent > distinct;
}

inline void tensor_packer::add_parts() {
  const std::size_t count = items_.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (items_[i].desc.layout != tensor_layout::sparse_coo) continue;
    const at::Tensor whole = std::move(items_[i].data);
    items_[i].desc.buffer = static_cast<std::uint32_t>(items_.size());
    for (const at::Tensor& each : {whole._indices(), whole._values()}) {
      if (const char* what = obstacle(each)) refuse_tensor(whole, what);
      add(each, 0);
    }
    const bool claims = (items_[i].desc.flags & tensor_coalesced) != 0;
    if (claims && !are_coalesced(whole._indices())) {
      items_[i].desc.flags &= static_cast<std::uint8_t>(~tensor_coalesced);
    }
  }
}

// A view with gaps becomes a copy of its elements; expanded dimensions stay expanded.
inline void tensor_packer::compact(item& it) {
  if (as_it_came_) {
    throw rpc_error(errc::bad_arguments, "a view with gaps that no tensor of its message covers");
  }
  std::vector<std::int64_t> sizes(it.desc.sizes().begin(), it.desc.sizes().end());
  std::vector<std::int64_t> strides(it.desc.strides().begin(), it.desc.strides().end());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (strides[i] == 0) sizes[i] = 1;
  }
  it.data = it.data.as_strided(sizes, strides, it.data.storage_offset()).contiguous();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (strides[i] != 0) it.desc.stride[i] = it.data.stride(static_cast<std::int64_t>(i));
  }
  describe(it);
}

inline void tensor_packer::merge() {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].data.defined() && !items_[i].gaps) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
    const item& x = items_[a];
    const item& y = items_[b];
    return std::tie(x.storage, x.begin, a) < std::tie(y.storage, y.begin, b);
  });
  for (const std::size_t i : order) {
    item& it = items_[i];
    const std::uint64_t size = item_size(it.desc.dtype);
    if (ranges_.empty() || ranges_.back().storage != it.storage || ranges_.back().end < it.begin) {
      ranges_.push_back({it.data.storage(), it.storage, it.begin, it.end, size});
    } else {
      ranges_.back().end = std::max(ranges_.back().end, it.end);
      ranges_.back().item = std::max(ranges_.back().item, size);
    }
    it.range = ranges_.size() - 1;
  }
  const std::size_t sorted = ranges_.size();
  for (item& it : items_) {
    if (!it.data.defined() || !it.gaps) continue;
    const std::uint64_t size = item_size(it.desc.dtype);
    const auto last = ranges_.begin() + static_cast<std::ptrdiff_t>(sorted);
    auto after = std::upper_bound(ranges_.begin(), last, it, [](const item& a, const range& b) {
      return std::tie(a.storage, a.begin) < std::tie(b.storage, b.begin);
    });
    if (after != ranges_.begin() && (after - 1)->storage == it.storage &&
        (after - 1)->end >= it.end) {
      it.range = static_cast<std::size_t>(after - 1 - ranges_.begin());
      ranges_[it.range].item = std::max(ranges_[it.range].item, size);
    } else {
      compact(it);
      it.range = ranges_.size();
      ranges_.push_back({it.data.storage(), it.storage, it.begin, it.end, size});
    }
  }
  // Elements of several sizes in one range: each must begin at a multiple of its own.
  for (range& each : ranges_) each.begin -= each.begin % each.item;
}

inline void tensor_packer::write(message& m, std::uint32_t count) {
  merge();
  std::vector<std::uint32_t> buffers(ranges_.size(), no_buffer);
  bytes section;
  section.resize(tensor_section_head);
  store(section.data(), count);
  store(section.data() + 4, static_cast<std::uint32_t>(items_.size()));
  for (item& it : items_) {
    if (it.range != none) {
      const range& r = ranges_[it.range];
      std::uint32_t& buffer = buffers[it.range];
      if (buffer == no_buffer) {  // buffers are sent in the order in which tensors name them
        const auto* memory = static_cast<const std::byte*>(r.memory.data());
        buffer = m.add_blob(blob(const_cast<std::byte*>(memory) + r.begin, r.end - r.begin,
                                 weft::make_intrusive<tensor_blob_owner>(r.memory)));
      }
      it.desc.buffer = buffer;
      it.desc.offset = it.begin - r.begin;
    }
    encode_desc(section, it.desc);
  }
  m.section(section_kind::tensors, section.view());
  m.payload().charge(items_.size(), torch_tensor_table::cost);
}

inline std::uint32_t torch_tensor_table::add(const at::Tensor& t) {
  constexpr std::size_t few = 16;
  const void* key = t.unsafeGetTensorImpl();  // all undefined ones are one
  const auto next = static_cast<std::uint32_t>(tensors_.size());
  if (next < few) {
    for (std::uint32_t i = 0; i < next; ++i) {
      if (tensors_[i].unsafeGetTensorImpl() == key) return i;
    }
  } else {
    if (index_of_.empty()) {
      for (std::uint32_t i = 0; i < next; ++i) {
        index_of_.emplace(tensors_[i].unsafeGetTensorImpl(), i);
      }
    }
    const auto [at, fresh] = index_of_.try_emplace(key, next);
    if (!fresh) return at->second;
  }
  if (t.defined()) {
    if (const char* what = obstacle(t)) refuse_tensor(t, what);
  }
  tensors_.push_back(t);
  return next;
}

inline void torch_tensor_table::finish(message& m) {
  if (tensors_.empty()) return;
  const at::NoGradGuard no_grad;
  tensor_packer packer(passed_on_);
  for (const at::Tensor& t : tensors_) packer.add(t);
  packer.add_parts();
  packer.write(m, static_cast<std::uint32_t>(tensors_.size()));
  tensors_.clear();  // so that who has the frame may be the last to have them
}

}  // namespace detail
}  // namespace weft
