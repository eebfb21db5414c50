#!/usr/bin/env bash
# Bytes that nobody sent: libFuzzer's, for every decoder (decoders.cpp), and to a whole link of a real
# worker (link.cpp). `./dev fuzz` runs it; needs Clang.
#
#   run.sh [--seconds N] [decoders|link ...]      N seconds for each, 60 unless said
#
# It begins with what it learned in half an hour each (TARGET.corpus.tar.xz: few inputs that go
# wherever all did), and keeps what it learns in build/fuzz. An input that breaks something stays
# there, too, and is run again by giving its path to the program there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=60 targets=()
while (($#)); do
  case $1 in
  --seconds) seconds=$2; shift ;;
  -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' tests/fuzz/run.sh; exit ;;
  decoders | link) targets+=("$1") ;;
  *) echo "fuzz: there are decoders and link, no '$1'" >&2; exit 2 ;;
  esac
  shift
done
((${#targets[@]})) || targets=(decoders link)

mkdir -p build/fuzz
for target in "${targets[@]}"; do
  "${CXX:-clang++}" -std=c++20 -O1 -g1 -w -DASIO_STANDALONE -DASIO_NO_DEPRECATED \
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -I include -I tests -I . \
    "tests/fuzz/$target.cpp" -o "build/fuzz/$target" -lcrypto -lpthread
  corpus=build/fuzz/corpus-$target
  if [[ ! -d $corpus ]]; then
    mkdir -p "$corpus"
    tar -xJf "tests/fuzz/$target.corpus.tar.xz" -C "$corpus"
  fi
  "build/fuzz/$target" -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=2048 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="build/fuzz/$target-" \
    "$corpus"
done
