// SPDX-License-Identifier: BSL-1.0
// A part of weft/src.hpp: what all programs and shared libraries with remote functions need.
#pragma once

#if !defined(WEFT_SEPARATE_COMPILATION)
#error "weft: src_base.hpp is for programs with WEFT_SEPARATE_COMPILATION, defined for every file."
#endif

#include <weft/core/detail/macros_off.hpp>

#include <weft/core/impl/error.hpp>
#include <weft/core/impl/event_once.hpp>
#include <weft/core/impl/log.hpp>
#include <weft/core/impl/out_of_memory.hpp>
#include <weft/core/impl/task_group_once.hpp>
#include <weft/rpc/impl/owned_worker.hpp>
#include <weft/rpc/impl/retry_once.hpp>
#include <weft/rpc/impl/spelled_name.hpp>
#include <weft/rpc/impl/wait_once.hpp>
#include <weft/rpc/impl/worker.hpp>
#include <weft/wire/impl/header.hpp>
#include <weft/wire/impl/message.hpp>
#include <weft/wire/impl/reader.hpp>
#include <weft/wire/impl/tensor_desc.hpp>

#include <weft/core/detail/macros_on.hpp>
