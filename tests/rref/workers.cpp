// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/services/autograd_service.hpp>
#include <weft/engine/services/rref_service.hpp>
#include <weft/wire/detail/tensor_table.hpp>

#include <rpc/cluster_bodies.hpp>
#include <rref/workers.hpp>

template class weft::testing::cluster_with<weft::rref_service, weft::autograd_service>;
template class weft::testing::cluster_with<weft::rref_service, weft::autograd_service,
                                           weft::detail::broadcasts>;
