#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Reads the headers under $1 and prints, as file:line: what, every
#  - include of a higher folder (floors, lowest first: see below), or of one beside it, or of
#    libtorch below its floor; and of engine/ by a file above the folders, but for those that are
#    there to have it;
#  - include of the whole of libtorch's front end outside optim/;
#  - template that is one only to be compiled late (but over an io_context), and name of what such
#    templates were;
#  - public header with another order than SPDX line, purpose, `#pragma once`, includes;
#  - public header that hides its interface: over 12 lines of code of a namespace detail, nothing
#    public by line 60, or a class of the header's own name that ends behind line 110;
#  - line over 100 columns, and header over 500 lines.
# Fails if there is any. Comments are not read.
set -euo pipefail
export LC_ALL=C.UTF-8
cd "$1"
floors=(core wire memory transport rpc rref autograd "optim engine" sim)
declare -A floor=()
for i in "${!floors[@]}"; do
  for folder in ${floors[i]}; do floor[$folder]=$i; done
done
# Above all folders, these have the engine.
with_engine='^(run|src|sim)\.hpp$'

# Public headers that hide their interface still. Protocols of the engine, which no user opens, and
# whose parts are all detail, but for the class that is named:
all_detail='^rref/ledger_(entries|owner|sessions|user|wire)\.hpp$'
# The class is long: of those protocols, whose messages and steps are one list; of the engine's
# queue; and the worker and the simulated world, whose members for users come first.
long_class='^(rref/ledger|autograd/wave|transport/outbox|rpc/worker|sim/world)\.hpp$'

broken=0
say() { echo "$1: $2"; broken=1; }

# The text of a file without comments, with its line numbers kept.
declare -A codes=()
code() {
  [[ -n ${codes[$1]+known} ]] ||
    codes[$1]=$(sed -e 's://.*$::' "$1" | perl -0pe 's{/\*.*?\*/}{(my $s = $&) =~ s/[^\n]//g; $s}gse')
  printf '%s\n' "${codes[$1]}"
}

# Says $3 for each line of file $1 whose code matches the Perl regular expression $2.
forbid() {
  local line
  while IFS=: read -r line _; do say "$1:$line" "$3"; done < <(code "$1" | grep -nP "$2" || true)
}

# Says $3 for each place in file $1 where its code, over lines, matches $2: in the line of \K.
forbid_over_lines() {
  local line
  while read -r line; do say "$1:$line" "$3"; done < <(code "$1" | perl -0ne "
    while (/$2/g) { print 1 + (substr(\$_, 0, \$-[0]) =~ tr/\n//), qq{\n} }")
}

# Says in which line file $1 departs from the order of a public header's first lines.
check_head() {
  local at
  at=$(awk '
    done { next }
    NR == 1 { if (!/^\/\/ SPDX-License-Identifier: /) { print NR; done = 1 } next }
    NR == 2 { if (!/^\/\/ /) { print NR; done = 1 } next }
    !once && /^#(pragma once|ifndef WEFT_WEFT_HPP)$/ { once = NR; next }
    !once && !/^\/\// && !/^$/ { print NR; done = 1; next }
    once && /^$/ { next }
    once { if (/^\/\//) print NR; done = 1 }
    END { if (!done && !once) print NR }' "$1")
  [[ -z $at ]] ||
    say "$1:$at" "a header begins with its SPDX line, its purpose, #pragma once and its includes"
}

# Says in which lines file $1, a public header, hides its interface.
check_outline() {
  local line what
  while IFS=: read -r line what; do
    case $what in
    class*) [[ $1 =~ $long_class ]] || say "$1:$line" "$what" ;;
    *) [[ $1 =~ $all_detail ]] || say "$1:$line" "$what" ;;
    esac
  done < <(perl -e '
    my ($own) = $ARGV[0] =~ m{(\w+)\.hpp$};
    my ($depth, $detail, $begun, $own_begun, $own_ended) = (0, 0, 0, 0, 0);
    while (my $line = <>) {
      (my $code = $line) =~ s{//.*}{};
      if ($depth) { # inside a namespace detail
        $depth += ($code =~ tr/{//) - ($code =~ tr/}//);
        next if !$depth || $code !~ /\S/ || $code =~ /^\s*(?:class|struct)\s+\w+;\s*$/;
        print "$.:more than 12 lines of detail in a public header\n" if ++$detail == 13;
        next;
      }
      if ($code =~ /^\s*(?:inline\s+)?namespace\s+(?:\w+::)*detail\b[^;]*\{/) {
        $depth = ($code =~ tr/{//) - ($code =~ tr/}//);
        next;
      }
      $begun ||= $. if $line =~ m{^/// } || $code =~ /^(?:class|struct|enum|concept)\b[^;]*$/;
      $own_begun ||= $. if $code =~ /^(?:class|struct)\s+(?:\[\[\w+\]\]\s*)?$own\b[^;]*$/;
      $own_ended ||= $. if $own_begun && $code =~ /^\};/;
    }
    print "60:nothing public in the first 60 lines of a public header\n"
      if $begun ? $begun > 60 : $. > 60;
    print "$own_ended:class $own ends behind line 110 of its header\n" if $own_ended > 110;
    ' "$1")
}

mapfile -t headers < <(find . -name '*.hpp' | sed 's:^\./::' | sort)
for header in "${headers[@]}"; do
  code "$header" >/dev/null # here, as what a subshell keeps is lost
  folder=${header%%/*}
  long=$(grep -nP '^.{101,}' "$header" | head -n 1 | cut -d: -f1 || true)
  [[ -z $long ]] || say "$header:$long" "over 100 columns"
  (($(wc -l <"$header") <= 500)) || say "$header:500" "over 500 lines"
  [[ $header == */impl/* || $header == */detail/* || $folder == engine ]] || {
    check_head "$header"
    check_outline "$header"
  }
  forbid_over_lines "$header" 'template\s*<\s*(?:class|typename)(?:\s+\w+)?\s*=\s*void\s*>' \
    "a template that is one only to be compiled late"
  forbid_over_lines "$header" \
    'template\s*<\s*(?:class|typename)\s*>\s*+(?!(?:class|struct|union|using|concept|friend|requires|template)\b|(?:(?:inline|static|extern)\s+)*const(?:expr|init)?\b[^;{(]*[=;])[^;{=]*\(' \
    "a function that is a template only to be compiled late"
  forbid "$header" '\blive_\w' "a name of the templates that were compiled late"
  forbid "$header" '\buse_tensors\b' "a name of the templates that were compiled late"
  if [[ $folder == "$header" ]]; then # weft.hpp and its like stand above all floors
    [[ $header =~ $with_engine ]] ||
      forbid "$header" '#\s*include\s*[<"]weft/engine/' "only run.hpp, src.hpp and sim.hpp have the engine"
    continue
  fi
  if [[ -z ${floor[$folder]+known} ]]; then
    say "$header:1" "folder $folder has no floor in tests/layers/check.sh"
    continue
  fi
  while IFS=: read -r line included; do
    other=$(sed -E 's:.*[<"](weft/)?([a-z_0-9]+)/.*:\2:' <<<"$included")
    if [[ -z ${floor[$other]+known} || $other == "$folder" ]]; then
      continue
    elif ((floor[$other] > floor[$folder])); then
      say "$header:$line" "$folder includes the higher folder $other"
    elif ((floor[$other] == floor[$folder])); then
      say "$header:$line" "$folder includes $other, which stands beside it"
    fi
  done < <(code "$header" | grep -nP '#\s*include\s*[<"]weft/[a-z_0-9]+/' || true)
  forbid "$header" '#\s*include\s*[<"]weft/(weft|run|src|sim)\.hpp' "includes what stands above all folders"
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
  esac
done
exit $broken
