// SPDX-License-Identifier: BSL-1.0
// As weft_sim.cpp, for the program that needs libtorch.
#include <ATen/Parallel.h>

#include <sim/tool/sim_tool.hpp>

int main(int argc, char** argv) {
  at::set_num_threads(1);
  return weft::testing::sim_tool(argc, argv, {weft::testing::program::gradients});
}
