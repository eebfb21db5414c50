// SPDX-License-Identifier: BSL-1.0
// A part of weft/src.hpp: the bodies of weft/tensordict.
#pragma once

#if !defined(WEFT_SEPARATE_COMPILATION)
#error "weft: src_tensordict.hpp is for programs with WEFT_SEPARATE_COMPILATION."
#endif

#include <weft/core/detail/macros_off.hpp>

#include <weft/tensordict/impl/apply_once.hpp>
#include <weft/tensordict/impl/checks_once.hpp>
#include <weft/tensordict/impl/codec_once.hpp>
#include <weft/tensordict/impl/consolidate_once.hpp>
#include <weft/tensordict/impl/consolidated_file_once.hpp>
#include <weft/tensordict/impl/file_once.hpp>
#include <weft/tensordict/impl/index_once.hpp>
#include <weft/tensordict/impl/join_once.hpp>
#include <weft/tensordict/impl/lazy_stack_once.hpp>
#include <weft/tensordict/impl/memmap_once.hpp>
#include <weft/tensordict/impl/memmap_read_once.hpp>
#include <weft/tensordict/impl/non_tensor_once.hpp>
#include <weft/tensordict/impl/ops_once.hpp>
#include <weft/tensordict/impl/safetensors_once.hpp>
#include <weft/tensordict/impl/select_once.hpp>
#include <weft/tensordict/impl/shape_once.hpp>
#include <weft/tensordict/impl/tensordict_once.hpp>
#include <weft/tensordict/impl/torch_save_once.hpp>
#include <weft/tensordict/impl/update_once.hpp>

#include <weft/core/detail/macros_on.hpp>
