// SPDX-License-Identifier: BSL-1.0
#include <rpc/cluster_bodies.hpp>
#include <rref/pure.hpp>

template class weft::testing::cluster_with<weft::rref_service>;
