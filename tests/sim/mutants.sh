#!/usr/bin/env bash
# Seeded defects: each patch of tests/sim/mutants, applied to a copy of include/, must break some
# simulated world. `./dev sim --mutants` runs all of them, or those that it is given by name.
#
#   mutants.sh --apply                     only whether each patch still applies
#   mutants.sh [--seeds N] [NAME ...]      N worlds at most for each defect, over all kinds
#
# A patch begins with a line that says what the defect is. A second line `needs: asan` has it built
# with AddressSanitizer and UndefinedBehaviorSanitizer, and run in a tenth of the worlds. What
# `needs: gradients`, or changes a file of gradients or optimizers, meets the program that has some,
# which needs the libtorch of WEFT_TORCH_DIR, or else the one in build/deps. `needs: FILE.cpp` names
# a test of ours, which has to fail: one that goes through every schedule of a small run, for what one
# thread cannot show, one of sim/ whose worlds are led to one moment that random programs meet too
# seldom, or one between real workers. Those that begin with `review-` are defects that weft once had,
# put back.
#
# Prints a row for each: its name, after how many worlds it was found and in which kind, what broke,
# and what the defect is. Fails if one was not found, does not apply, or does not compile.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seeds=400000 apply=no names=()
while (($#)); do
  case $1 in
  --apply) apply=yes ;;
  --seeds) seeds=$2; shift ;;
  -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' tests/sim/mutants.sh; exit ;;
  *)
    if [[ ! -e tests/sim/mutants/$1.patch ]]; then
      echo "mutants: there is no tests/sim/mutants/$1.patch" >&2
      exit 2
    fi
    names+=("$1")
    ;;
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
#include <sim/flows.cpp>
#include <sim/habits.cpp>
#include <sim/play.cpp>
#include <sim/programs.cpp>
#include <sim/references.cpp>
#include <sim/verbs.cpp>
#include <sim/tool/weft_sim.cpp>
E2
cat >"$work/all_torch.cpp" <<'E2'
#include <sim/learning_torch.cpp>
#include <sim/play.cpp>
#include <sim/tool/weft_sim_torch.cpp>
E2
for torch in "${WEFT_TORCH_DIR:-}" build/deps/torch-*/lib/python3*/site-packages/torch; do
  if [[ -e $torch/lib/libtorch_cpu.so ]]; then break; fi
done
torch=$(realpath -m "$torch")

# What the patch $1 is built with and met by: nothing, asan, gradients, or a file of tests.
needs_of() {
  local said
  said=$(sed -n '2s/^needs: //p' "$1")
  if [[ -z $said ]] && grep -qE '^\+\+\+ include/weft/(autograd/|optim/|engine/services/(impl/)?autograd_)' "$1"; then
    said=gradients
  fi
  echo "$said"
}
# $1: a folder with include/; builds $1/sim, for what $2 needs, with optimization $3.
build() {
  local sources=("$work/all.cpp") more=()
  local no_recycling=(-DASIO_DISABLE_AWAITABLE_FRAME_RECYCLING -DASIO_DISABLE_SMALL_BLOCK_RECYCLING
    -DWEFT_DISABLE_BLOCK_RECYCLING)
  case $2 in
  asan) # what is recycled looks alive to a sanitizer when it is not
    more=(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
      "${no_recycling[@]}")
    ;;
  gradients) sources=("$work/all_torch.cpp") ;;
  sim/*.cpp)
    printf '#include <%s>\n' main.cpp watchdog.cpp sim/calls.cpp "$2" >"$1/all.cpp"
    sources=("$1/all.cpp")
    more=("${no_recycling[@]}")
    ;;
  autograd/*.cpp) sources=(tests/main.cpp tests/watchdog.cpp tests/rref/workers.cpp "tests/$2") ;;
  rref/pure_*.cpp)
    sources=(tests/main.cpp tests/watchdog.cpp tests/rpc/cluster.cpp tests/rref/pure.cpp "tests/$2")
    ;;
  rpc/helper.cpp)
    sources=(tests/main.cpp tests/watchdog.cpp tests/rpc/cluster.cpp "tests/$2")
    ;;
  faults/*.cpp)
    sources=(tests/main.cpp tests/watchdog.cpp tests/faults/shortage.cpp "tests/$2")
    more=(-Wl,--wrap=malloc)
    ;;
  *.cpp) sources=(tests/main.cpp tests/watchdog.cpp "tests/$2") ;;
  esac
  if [[ $2 == gradients || $2 == autograd/* || $2 == *_torch.cpp ]]; then
    # Its CHECK comes before doctest's, which then counts.
    more+=(-isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include"
      -include c10/util/Logging.h
      "$torch/lib/libtorch_cpu.so" "$torch/lib/libc10.so" "-Wl,-rpath,$torch/lib")
  fi
  "${CXX:-clang++}" -std=c++20 "${3:--O1}" -w -DNDEBUG -DASIO_STANDALONE -DASIO_NO_DEPRECATED \
    -I "$1/include" -I tests -I . "${sources[@]}" -o "$1/sim" "${more[@]}" -lcrypto -lpthread \
    2>"$1/errors" || { grep -m 5 error: "$1/errors" >&2; return 1; }
}
# $1's program on $3 worlds of kind $2 from seed $4; sets how and after, or leaves how empty.
play() {
  local kind=$2 rc=0 said
  how= after=
  said=$(ASAN_OPTIONS=detect_leaks=0:exitcode=99 UBSAN_OPTIONS=exitcode=99 timeout "${5:-600}" \
    "$1/sim" --first --seeds "$3" --from "$4" --profile "${kind% *}" \
    --program "${kind#* }" 2>"$1/said") || rc=$?
  case $rc in
  0) ;;
  1)
    [[ $said == "broken after "* ]] || { how="FAILED TO RUN"; return; }
    after=${said#broken after } after=${after%% *}
    how=$(sed 's/^[^:]*: //; s/|/ /g' <<<"$said" | head -n 1 | cut -c 1-90)
    ;;
  99)
    how=$(grep -m 1 -oE 'AddressSanitizer: [a-z-]+|runtime error: .*' "$1/said" | cut -c 1-90)
    after=$3
    ;;
  134 | 136 | 139) how="it crashes ($rc)" after=$3 ;;
  124)
    # The worlds may only be many: one that stands still does so in a small part of them, too.
    if (($3 <= 250)); then
      how="it hangs" after=$3
    else
      local at
      for ((at = 0; at < $3; at += 250)); do
        play "$1" "$kind" 250 $(($4 + at)) 120
        [[ -z $how ]] || { after=$((at + after)); return; }
      done
    fi
    ;;
  *) how="FAILED TO RUN ($rc)" ;;
  esac
}
# Whether each case of $1, a test of ours, is well; sets how to the first that is not.
prove() {
  local rc=0 said
  said=$(WEFT_TEST_ALL=1 timeout 600 "$1/sim" --test-case='*every schedule*,*explored*,moments:*,published:*,shortage:*,autograd *,leads on:*,order:*,waiting line:*,restarted worlds:*,on_loss:*,helper:*,drain:*' 2>&1) || rc=$?
  if ((rc == 0)); then
    [[ $said =~ test\ cases:\ +[1-9] ]] || how="FAILED: none of its cases ran"
    return 0
  fi
  how=$(grep -m 1 "ERROR: " <<<"$said" | cut -c 1-90) || true
  if [[ -z $how && $rc == 124 ]]; then how="FAILED: it took too long"; fi
  how=${how:-"it ends with $rc"}
}
# One defect, or with its name "none" none, in the program that $2 needs; prints its row.
try() {
  local name=$1 patch=tests/sim/mutants/$1.patch here what="no defect" needs=${2:-}
  local seeds=$seeds
  here=$(mktemp -d "$work/XXXXXX")
  cp -r include "$here/include"
  if [[ $name != none ]]; then
    what=$(head -n 1 "$patch")
    needs=$(needs_of "$patch")
    if ! patch -s -F 0 -p 1 -d "$here/include" <"$patch" >/dev/null; then
      echo "$name | DOES NOT APPLY | | $what"
      return 1
    fi
  fi
  [[ $apply == yes ]] && { rm -rf "$here"; return 0; }
  [[ $needs == asan ]] && seeds=$((seeds / 10))
  # Most are found at once: so all kinds get a few worlds before one gets many, and the few are of a
  # program that is compiled in a third of the time.
  local fast=-O1
  [[ $needs == *.cpp || $needs == asan ]] || fast=-O0
  build "$here" "$needs" "$fast" || { echo "$name | DOES NOT COMPILE | | $what"; return 1; }
  local done_=0 from=0 part kind how= after
  local kinds=("calm calls" "brutal calls" "calm references" "brutal references" "calm habits"
    "brutal habits" "calm verbs" "brutal verbs" "calm flows" "brutal flows")
  if [[ $needs == *.cpp ]]; then
    prove "$here"
    rm -rf "$here"
    echo "$name | ${how:+$needs} | ${how:-NOT FOUND} | $what"
    [[ -n $how && $how != FAILED* ]]
    return
  fi
  if [[ $needs == gradients ]]; then kinds=("calm gradients" "brutal gradients"); fi
  local of=${#kinds[@]}
  for part in $((seeds / of / 400)) $((seeds / of / 40)) \
    $((seeds / of - seeds / of / 40 - seeds / of / 400)); do
    ((part > 0)) || continue
    for kind in "${kinds[@]}"; do
      play "$here" "$kind" "$part" "$from"
      if [[ -n $how ]]; then
        rm -rf "$here"
        echo "$name | ${after:+$((done_ + after)) }($kind) | $how | $what"
        [[ $how != FAILED* ]]
        return
      fi
      done_=$((done_ + part))
    done
    from=$((from + part))
    if [[ $fast == -O0 ]]; then
      fast=-O1
      build "$here" "$needs"
    fi
    [[ $name == none && $from -gt $((seeds / of / 40)) ]] && break
  done
  rm -rf "$here"
  echo "$name | NOT FOUND in $done_ | | $what"
  return 1
}
# What $1 asks for (- for nothing) breaks nothing without a defect.
control() {
  local said
  if said=$(try none "${1#-}") || [[ $said != *"NOT FOUND"* ]]; then
    echo "without any defect: $said" >&2
    return 1
  fi
}
export -f needs_of build play prove try control
export work seeds apply torch
if [[ $apply == no ]]; then
  for name in "${names[@]}"; do needs_of "tests/sim/mutants/$name.patch"; done | sort -u |
    sed 's/^$/-/' | xargs -P "${JOBS:-$(nproc)}" -I NEEDS bash -c 'control NEEDS'
fi
printf '%s\n' "${names[@]}" | xargs -P "${JOBS:-$(nproc)}" -I NAME bash -c 'try NAME'
