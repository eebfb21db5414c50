// SPDX-License-Identifier: BSL-1.0
#include "cluster_bodies.hpp"

template class weft::testing::cluster_with<>;
