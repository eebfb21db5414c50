#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Reads the tests under $1 and prints, as file:line, every loop that could wait for ever: one whose
# end is a condition that something else must bring about. A loop is bounded if
#  - its condition asks a bounded_wait: `until.not_yet(...)`;
#  - it counts, or walks, something that its condition compares, or takes away from a container
#    until that is empty, or reads lines to the end;
#  - it looks at a clock: `now() < end` in the condition, or `now() > end` and leaving in the body;
#  - `// bounded: why` stands on its line or the one before.
# Fails if there is any. Comments and texts are not read.
set -euo pipefail
export LC_ALL=C.UTF-8
cd "$1"
find . \( -name '*.cpp' -o -name '*.hpp' \) -not -path './layers/bad_loops/*' | sed 's:^\./::' | sort |
  exec perl -e '
use strict;
use warnings;
my $broken = 0;

# The text from the bracket at $at to its partner, both included.
sub bracketed {
  my ($code, $at) = @_;
  my ($open, $close) = substr($code, $at, 1) eq "(" ? ("(", ")") : ("{", "}");
  my $depth = 0;
  for (my $i = $at; $i < length $code; ++$i) {
    my $c = substr($code, $i, 1);
    ++$depth if $c eq $open;
    return substr($code, $at, $i + 1 - $at) if $c eq $close && --$depth == 0;
  }
  return substr($code, $at);
}
# The statement that begins at $at.
sub statement {
  my ($code, $at) = @_;
  ++$at while $at < length $code && substr($code, $at, 1) =~ /\s/;
  return bracketed($code, $at) if substr($code, $at, 1) eq "{";
  return substr($code, $at) =~ /^([^;]*;)/s ? $1 : "";
}
# Something that the condition names is counted or walked on: in the step also by assignment.
sub steps {
  my ($condition, $step, $body) = @_;
  for my $name ($condition =~ /\b([A-Za-z_]\w*)\b(?!\s*\()/g) {
    my $walks = qr/\+\+\s*$name\b|--\s*$name\b|\b$name\s*(?:\+\+|--|[-+*\/]=)/;
    return 1 if "$condition;$step;$body" =~ $walks || $step =~ /\b$name\s*=\s*[^=;]*\b$name\b/;
  }
  return 0;
}
sub bounded {
  my ($condition, $step, $body) = @_;
  return 1 if $condition =~ /\.not_yet\s*\(/;
  if ($condition =~ /\|\|/) {  # each alternative must be
    for my $part (split /\|\|/, $condition) { return 0 unless bounded($part, $step, $body) }
    return 1;
  }
  return 1 if $condition =~ /\bnow\(\)\s*<|>\s*[\w.>-]*\bnow\(\)/;
  return 1 if $body =~ /\bnow\(\)\s*>=?\s*\w+[^;]*\)\s*\{?\s*(?:co_return|return|throw|break)\b/;
  return 1 if $condition =~ /\bgetline\s*\(/;
  while ($condition =~ /!\s*([\w.>-]+?)(?:\.|->)empty\(\)/g) {
    my $name = quotemeta $1;
    return 1 if $body =~ /\b$name(?:\.|->)(?:pop|erase|take|clear|advance)\w*\s*\(|\b$name\s*=\s*$name\b/;
  }
  return steps($condition, $step, $body);
}

while (my $file = <STDIN>) {
  chomp $file;
  open my $in, "<", $file or die "$file: $!";
  my $code = do { local $/; <$in> };
  my %excused;
  my $line = 0;
  for my $text (split /\n/, $code) {
    ++$line;
    $excused{$line} = $excused{$line + 1} = 1 if $text =~ m{//\s*bounded: \S};
  }
  # Comments and texts become blanks, lines stay where they are.
  $code =~ s{(R"(\w*)\(.*?\)\2"|"(?:[^"\\\n]|\\.)*"|\x27(?:[^\x27\\\n]|\\.)\x27|//[^\n]*|/\*.*?\*/)}
            {(my $s = $1) =~ s/[^\n]/ /g; $s}gse;
  while ($code =~ /\b(while|for|do)\b/g) {
    my ($word, $begin, $at) = ($1, $-[1], pos $code);
    my ($condition, $step, $body) = ("", "", "");
    if ($word eq "do") {
      next unless substr($code, $at) =~ /^(\s*)\{/;
      $body = bracketed($code, $at + length $1);
      my $rest = substr($code, $at + length($1) + length $body);
      next unless $rest =~ /^\s*while\s*\(/;
      $condition = bracketed($rest, $+[0] - 1);
    } else {
      next unless substr($code, $at) =~ /^(\s*)\(/;
      my $head = bracketed($code, $at + length $1);
      my $end = $at + length($1) + length $head;
      $body = statement($code, $end);
      if ($word eq "while") {
        # The end of a do loop was read with its beginning.
        next if $body eq ";" && substr($code, 0, $begin) =~ /\}\s*$/;
        $condition = $head;
      } else {
        my $depth = 0;
        my @parts = ("");
        for my $c (split //, substr($head, 1, -1)) {
          ++$depth if $c =~ /[({[]/;
          --$depth if $c =~ /[)}\]]/;
          if ($c eq ";" && $depth == 0) { push @parts, "" } else { $parts[-1] .= $c }
        }
        next if @parts < 3;  # over a range
        ($condition, $step) = @parts[1, 2];
      }
    }
    my $where = 1 + (substr($code, 0, $begin) =~ tr/\n//);
    next if $excused{$where} || bounded($condition, $step, $body);
    print "$file:$where: a loop without a bound; see tests/core/bounded_wait.hpp\n";
    $broken = 1;
  }
}
exit $broken;
'
