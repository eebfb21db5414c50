// SPDX-License-Identifier: BSL-1.0
// The file with `main`.
#include "job.hpp"
#include <weft/run.hpp>

int main() { return weft::run<weft::inproc>(job, {.workers = 2}); }
