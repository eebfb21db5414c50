// SPDX-License-Identifier: BSL-1.0
// Repeats calls: which calls, how often, and with which pauses.
//
//   template <>
//   inline constexpr bool weft::idempotent<&lookup> = true;  // beside the function's declaration
//
//   co_await p.call<&lookup>(key, weft::retry{.each = 200ms}, weft::within(2s));
#pragma once

#include <weft/rpc/impl/retry.hpp>
#if !defined(WEFT_SEPARATE_COMPILATION)
#include <weft/rpc/impl/retry_once.hpp>
#endif
#include <weft/rpc/retry_options.hpp>
