// SPDX-License-Identifier: BSL-1.0
// Bodies of weft/tensordict/codec.hpp that are compiled once.
//
//   dimensions: count, then i64 each | names: count (0, or one for each), then strings
//   entries: count, then each: key, u8 (0 tensor, 1 tensordict), value
#pragma once

#include <weft/config.hpp>
#include <weft/tensordict/codec.hpp>
#include <weft/tensordict/detail/node.hpp>
#include <weft/tensordict/detail/words.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weft {

WEFT_DECL void codec<tensordict>::encode(writer& w, const tensordict& value) {
  const auto deeper = w.nested();
  const detail::tensordict_node& node = detail::tensordict_node::of(value);
  codec<std::vector<std::int64_t>>::encode(w, {node.batch.begin(), node.batch.end()});
  codec<std::vector<std::string>>::encode(w, node.names);
  w.number(static_cast<std::uint32_t>(node.entries.size()));
  for (const auto& e : node.entries) {
    codec<std::string>::encode(w, e.key);
    w.number(static_cast<std::uint8_t>(e.value.is_tensor() ? 0 : 1));
    if (e.value.is_tensor()) {
      codec<at::Tensor>::encode(w, e.value.tensor());
    } else {
      encode(w, e.value.dict());
    }
  }
}

WEFT_DECL tensordict codec<tensordict>::decode(reader& r) {
  const auto deeper = r.nested();
  r.charge(sizeof(detail::tensordict_node));
  const auto batch = codec<std::vector<std::int64_t>>::decode(r);
  auto names = codec<std::vector<std::string>>::decode(r);
  try {
    tensordict out = detail::tensordict_node::make(batch, std::move(names));
    constexpr std::size_t least = 4 + 1 + 4;  // an empty key, a kind, a tensor's number
    const std::size_t count = r.count(least);
    r.charge(count, sizeof(detail::tensordict_node::entry));
    for (std::size_t i = 0; i < count; ++i) {
      const auto key = codec<std::string>::decode(r);
      const auto kind = r.number<std::uint8_t>();
      if (kind > 1) r.fail("an entry of a tensordict that is of kind " + std::to_string(kind));
      if (out.contains(key)) r.fail("the key '" + key + "' twice in a tensordict");
      tensordict_value value =
          kind == 0 ? tensordict_value(codec<at::Tensor>::decode(r)) : tensordict_value(decode(r));
      if (kind == 1) detail::require_batch(value.dict().batch_size(), batch, key);
      out.set(key, std::move(value));
    }
    return out;
  } catch (const tensordict_error& e) {
    r.fail(e.what());
  }
}

}  // namespace weft
