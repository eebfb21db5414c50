#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Reads the headers under $1 and prints, as file:line: what, every
#  - include of a higher folder (floors, lowest first: see below), or of libtorch below its floor;
#  - real clock, random device, iteration over an unordered container, or order by pointer value in
#    rpc/, rref/ and autograd/, which a simulator runs with virtual time and one seed;
#  - include of the whole of libtorch's front end outside optim/;
#  - line over 100 columns, and header over 500 lines.
# Fails if there is any. Comments are not read.
set -euo pipefail
export LC_ALL=C.UTF-8
cd "$1"
floors=(core wire memory transport rpc rref autograd optim)
declare -A floor=()
for i in "${!floors[@]}"; do floor[${floors[i]}]=$i; done

broken=0
say() { echo "$1: $2"; broken=1; }

# The text of a file without comments, with its line numbers kept.
code() { sed -e 's://.*$::' "$1" | perl -0pe 's{/\*.*?\*/}{(my $s = $&) =~ s/[^\n]//g; $s}gse'; }

# Says $3 for each line of file $1 whose code matches the Perl regular expression $2.
forbid() {
  local line
  while IFS=: read -r line _; do say "$1:$line" "$3"; done < <(code "$1" | grep -nP "$2" || true)
}

mapfile -t headers < <(find . -name '*.hpp' | sed 's:^\./::' | sort)
for header in "${headers[@]}"; do
  folder=${header%%/*}
  long=$(grep -nP '^.{101,}' "$header" | head -n 1 | cut -d: -f1 || true)
  [[ -z $long ]] || say "$header:$long" "over 100 columns"
  (($(wc -l <"$header") <= 500)) || say "$header:500" "over 500 lines"
  [[ $folder != "$header" ]] || continue # weft.hpp and its like stand above all floors
  if [[ -z ${floor[$folder]+known} ]]; then
    say "$header:1" "folder $folder has no floor in tests/layers/check.sh"
    continue
  fi
  while IFS=: read -r line included; do
    other=$(sed -E 's:.*[<"](weft/)?([a-z_0-9]+)/.*:\2:' <<<"$included")
    if [[ -n ${floor[$other]+known} ]] && ((floor[$other] > floor[$folder])); then
      say "$header:$line" "$folder includes the higher folder $other"
    fi
  done < <(code "$header" | grep -nP '#\s*include\s*[<"]weft/[a-z_0-9]+/' || true)
  [[ $folder == optim ]] ||
    forbid "$header" '#\s*include\s*<torch/(torch|all|nn|optim|types)\.h>' \
      "the whole front end of libtorch outside optim"
  case $folder in
  core | memory | transport)
    forbid "$header" '#\s*include\s*<(ATen|torch|c10)/(?!core/AutogradState\.h)' "$folder includes libtorch"
    ;;
  wire)
    [[ ${header##*/} == tensor* ]] ||
      forbid "$header" '#\s*include\s*<(ATen|torch|c10)/' "wire includes libtorch outside tensor*"
    ;;
  rpc | rref | autograd)
    forbid "$header" '\b(steady|system|high_resolution|utc|file)_clock\b' "a real clock; use weft's clock"
    forbid "$header" '\b(clock_gettime|gettimeofday|__rdtsc)\b|\bstd::(time|clock)\s*\(' "a real clock; use weft's clock"
    forbid "$header" '\b(asio::(basic_waitable_|steady_|system_|high_resolution_)timer|sleep_for|sleep_until)\b' \
      "a real timer; use weft's timers"
    forbid "$header" '\brandom_device\b|\b(getrandom|getentropy|arc4random|srand|drand48)\b|\b(std::)?rand\s*\(' \
      "real randomness; use weft's random source"
    forbid "$header" '\bstd::(multi)?(map|set)\s*<[^,<>]*\*' "an order by pointer value"
    forbid "$header" '\bstd::(less|greater|hash)\s*<[^<>]*\*\s*>' "an order by pointer value"
    forbid "$header" '\buintptr_t\b' "a pointer as a number"
    ;;
  esac
done

# Iterations over unordered containers: the names of such containers in all three folders, wherever
# they are declared, must not be ranged over, nor asked for begin().
mapfile -t protocol < <(printf '%s\n' "${headers[@]}" | grep -E '^(rpc|rref|autograd)/' || true)
if ((${#protocol[@]})); then
  names=$(for header in "${protocol[@]}"; do code "$header"; done | perl -0ne '
    while (/\bunordered_(?:multi)?(?:map|set)\s*<[^;{}]*>\s+(\w+)\s*(?:;|=|\{)/g) { print "$1\n" }
    while (/\busing\s+(\w+)\s*=\s*(?:std::)?unordered_(?:multi)?(?:map|set)\b/g) { print "ALIAS $1\n" }' | sort -u)
  while read -r kind alias; do
    [[ $kind == ALIAS ]] || continue
    names+=$'\n'$(for header in "${protocol[@]}"; do code "$header"; done |
      grep -oP "\b$alias(<[^;{}]*>)?\s+\K\w+(?=\s*[;={])" | sort -u || true)
  done <<<"$names"
  for name in $(grep -v '^ALIAS' <<<"$names" | sort -u); do
    for header in "${protocol[@]}"; do
      forbid "$header" "for\s*\([^;]*:\s*[^;]*\b$name\s*\)|\b$name\s*(\.|->)\s*c?begin\s*\(|\berase_if\s*\([^,]*\b$name\b" \
        "iterates $name, an unordered container"
    done
  done
fi
exit $broken
