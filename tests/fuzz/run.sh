#!/usr/bin/env bash
# Bytes that nobody sent: libFuzzer's, for every decoder (decoders.cpp), to a whole link of a real
# worker (link.cpp), and both for all that needs libtorch (tensors.cpp, left out where that is not
# found: in WEFT_TORCH_DIR or build/deps). `./dev fuzz` runs it; needs Clang.
#
#   run.sh [--seconds N] [decoders|link|tensors ...]      N seconds for each, 60 unless said
#
# It begins with what it learned before (TARGET.corpus.tar.xz: few inputs that go wherever all did;
# tests run them, and changes of them, without libFuzzer), and keeps what it learns in build/fuzz.
# An input that breaks something stays there, too, and is run again by giving its path to the
# program there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=60 targets=()
while (($#)); do
  case $1 in
  --seconds) seconds=$2; shift ;;
  -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' tests/fuzz/run.sh; exit ;;
  decoders | link | tensors) targets+=("$1") ;;
  *) echo "fuzz: there are decoders, link and tensors, no '$1'" >&2; exit 2 ;;
  esac
  shift
done
for torch in "${WEFT_TORCH_DIR:-}" build/deps/torch-*/lib/python3*/site-packages/torch; do
  if [[ -e $torch/lib/libtorch_cpu.so ]]; then break; fi
done
torch=$(realpath -m "$torch")
if ((${#targets[@]} == 0)); then
  targets=(decoders link)
  if [[ -e $torch/lib/libtorch_cpu.so ]]; then targets+=(tensors); fi
elif [[ " ${targets[*]} " == *" tensors "* && ! -e $torch/lib/libtorch_cpu.so ]]; then
  echo "fuzz: tensors needs libtorch, which is neither in WEFT_TORCH_DIR nor in build/deps" >&2
  exit 2
fi

mkdir -p build/fuzz
for target in "${targets[@]}"; do
  more=() memory=2048
  if [[ $target == tensors ]]; then
    memory=4096 # libtorch itself takes some of it
    more=(-isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include"
      "$torch/lib/libtorch_cpu.so" "$torch/lib/libc10.so" "-Wl,-rpath,$torch/lib")
    export LSAN_OPTIONS=suppressions=tests/lsan.supp:print_suppressions=0
  fi
  "${CXX:-clang++}" -std=c++20 -O1 -g1 -w -DASIO_STANDALONE -DASIO_NO_DEPRECATED \
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -I include -I tests -I . \
    "tests/fuzz/$target.cpp" -o "build/fuzz/$target" "${more[@]}" -lcrypto -lpthread
  corpus=build/fuzz/corpus-$target
  if [[ ! -d $corpus ]]; then
    mkdir -p "$corpus"
    tar -xJf "tests/fuzz/$target.corpus.tar.xz" -C "$corpus"
  fi
  "build/fuzz/$target" -max_total_time="$seconds" -max_len=4096 -timeout=20 \
    -rss_limit_mb="$memory" -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="build/fuzz/$target-" "$corpus"
done
