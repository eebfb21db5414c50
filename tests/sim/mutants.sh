#!/usr/bin/env bash
# Seeded defects: each patch of tests/sim/mutants, applied to a copy of include/, must break some
# simulated world. `./dev sim --mutants` runs all of them, or those that it is given by name.
#
#   mutants.sh --apply                     only whether each patch still applies
#   mutants.sh [--seeds N] [NAME ...]      N worlds at most for each defect, over all kinds
#
# Prints a row for each: its name, after how many worlds it was found and in which kind, what broke,
# and what the defect is. Fails if one was not found, does not apply, or does not compile.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seeds=100000 apply=no names=()
while (($#)); do
  case $1 in
  --apply) apply=yes ;;
  --seeds) seeds=$2; shift ;;
  *) names+=("$1") ;;
  esac
  shift
done
if ((${#names[@]} == 0)); then
  for patch in tests/sim/mutants/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/all.cpp" <<'E2'
#include <sim/calls.cpp>
#include <sim/play.cpp>
#include <sim/references.cpp>
#include <sim/tool/weft_sim.cpp>
E2

# One defect; prints its row.
try() {
  local name=$1 patch=tests/sim/mutants/$1.patch here=$work/$1 what
  what=$(head -n 1 "$patch")
  mkdir -p "$here"
  cp -r include "$here/include"
  if ! patch -s -F 0 -p 1 -d "$here/include" <"$patch" >/dev/null; then
    echo "$name | DOES NOT APPLY | | $what"
    return 1
  fi
  [[ $apply == yes ]] && { rm -rf "$here"; return 0; }
  if ! "${CXX:-clang++}" -std=c++20 -O1 -w -DNDEBUG -DASIO_STANDALONE -DASIO_NO_DEPRECATED \
    -I "$here/include" -I tests -I . "$work/all.cpp" -o "$here/sim" -lcrypto -lpthread \
    2>"$here/errors"; then
    head -n 5 "$here/errors" >&2
    echo "$name | DOES NOT COMPILE | | $what"
    return 1
  fi
  # Most are found at once, so all kinds get a few worlds before one gets many.
  local done_=0 from=0 part kind said rc
  for part in $((seeds / 400)) $((seeds / 40)) $((seeds / 4 - seeds / 40 - seeds / 400)); do
    ((part > 0)) || continue
    for kind in "calm calls" "brutal calls" "calm references" "brutal references"; do
      rc=0
      said=$(timeout 600 "$here/sim" --first --seeds "$part" --from "$from" --profile "${kind% *}" \
        --program "${kind#* }" 2>/dev/null) || rc=$?
      if ((rc == 0)); then
        done_=$((done_ + part))
        continue
      fi
      local after=${said#broken after } how
      case $rc in
      1) how=$(sed 's/^[^:]*: //; s/|/ /g' <<<"$after" | head -n 1 | cut -c 1-90) after=$((done_ + ${after%% *})) ;;
      124) how="it hangs" after="at most $((done_ + part))" ;;
      *) how="it crashes ($rc)" after="at most $((done_ + part))" ;;
      esac
      echo "$name | $after ($kind) | $how | $what"
      rm -rf "$here"
      return 0
    done
    from=$((from + part))
  done
  echo "$name | NOT FOUND in $done_ | | $what"
  rm -rf "$here"
  return 1
}
export -f try
export work seeds apply
printf '%s\n' "${names[@]}" | xargs -P "${JOBS:-$(nproc)}" -I NAME bash -c 'try NAME'
