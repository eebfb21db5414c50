// SPDX-License-Identifier: BSL-1.0
#include <sim/tool/sim_tool.hpp>

int main(int argc, char** argv) {
  using weft::testing::program;
  return weft::testing::sim_tool(
      argc, argv,
      {program::calls, program::references, program::habits, program::verbs, program::flows});
}
