#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# check.sh must find exactly what expected.txt lists in bad/.
set -euo pipefail
cd "$1"
diff <(bash check.sh bad 2>&1 | sort) <(sort expected.txt)
