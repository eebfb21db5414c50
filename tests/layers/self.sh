#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# check.sh must find exactly what expected.txt lists in bad/, virtual.sh what expected_virtual.txt
# lists in bad_virtual/, and loops.sh what expected_loops.txt lists in bad_loops/.
set -euo pipefail
cd "$1"
diff <(bash check.sh bad 2>&1 | sort) <(sort expected.txt)
diff <(bash virtual.sh bad_virtual 2>&1) expected_virtual.txt
diff <(bash loops.sh bad_loops 2>&1) expected_loops.txt
