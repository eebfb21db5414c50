// SPDX-License-Identifier: BSL-1.0
#include <weft/engine/services/rref_service.hpp>

#include <rpc/cluster_bodies.hpp>
#include <rref/pure.hpp>

template class weft::testing::cluster_with<weft::rref_service>;
