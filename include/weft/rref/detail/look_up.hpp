// SPDX-License-Identifier: BSL-1.0
// What of a lookup is compiled for its type.
#pragma once

#include <weft/core/detail/out_of_memory.hpp>
#include <weft/core/error.hpp>
#include <weft/rpc/detail/call_settings.hpp>
#include <weft/rpc/worker.hpp>
#include <weft/rref/detail/published_type.hpp>
#include <weft/rref/rref.hpp>
#include <weft/rref/service.hpp>

#include <asio/awaitable.hpp>

#include <cstdint>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

namespace weft::detail {

/// What a lookup gives its caller: rref<T>, expected<rref<T>>, or an exception.
template <class T, class Delivered>
asio::awaitable<Delivered> look_up(worker& me, std::uint32_t rank, std::string name,
                                   call_settings settings) {
  error why;
  try {
    auto found = co_await me.use<rref_service>().look_up(me, rank, std::move(name),
                                                         published_type<T>(), settings);
    if (found) co_return rref_access::make<T>(me, std::move(*found));
    why = std::move(found.error());
  } catch (const std::bad_alloc&) {
    out_of_memory();
  } catch (const rpc_error& e) {
    why = e.error();
  }
  if constexpr (std::is_same_v<Delivered, rref<T>>) {
    throw rpc_error(std::move(why));
  } else {
    co_return tl::unexpected(std::move(why));
  }
}

}  // namespace weft::detail
