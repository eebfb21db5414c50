// SPDX-License-Identifier: BSL-1.0
// The rows of the table, by family. Each function appends its rows.
#pragma once

#include "harness.hpp"

#include <vector>

namespace bench {

void add_call_rows(std::vector<row>& rows);      ///< call.*: small messages
void add_waiting_rows(std::vector<row>& rows);   ///< call.waiting*: beside many that wait
void add_tensor_rows(std::vector<row>& rows);    ///< tensor.*: there and back
void add_rref_rows(std::vector<row>& rows);      ///< rref.*: references
void add_pipeline_rows(std::vector<row>& rows);  ///< pipeline.*: stages that pass references
void add_autograd_rows(std::vector<row>& rows);  ///< autograd.*: a step of a model on two workers
void add_gradient_rows(
    std::vector<row>& rows);  ///< autograd.table2, .chain, .unused: passes in both modes
void add_stream_rows(std::vector<row>& rows);  ///< stream.*: items, beside posts and calls
void add_sim_rows(
    std::vector<row>&
        rows);  ///< sim.*: schedules of a simulated world; call.simulated.*: many workers
void add_tensordict_rows(
    std::vector<row>& rows);                    ///< tensordict.*: beside bare tensors, and Python
void add_compile_rows(std::vector<row>& rows);  ///< compile.*: seconds of the compiler

}  // namespace bench
