#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Reads the headers under $1 and prints, as file:line: what, every
#  - include of a higher folder (floors, lowest first: see below), or of one beside it, or of
#    libtorch below its floor; of a higher room of engine/ by a lower one, or by one beside it; and
#    of engine/ by a file above the folders, but for those that are there to have it;
#  - room of engine/ with over 25 files, or without a main header of its name;
#  - include of the whole of libtorch's front end outside optim/, or of its modules by tensordict/
#    outside module.hpp;
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
find . -name '*.hpp' | sed 's:^\./::' | sort | exec perl -CSD -Mutf8 -e '
use strict;
use warnings;

# Lowest first; those of one line stand beside one another.
my @floors = (qw(core wire memory transport rpc rref autograd), "optim engine tensordict", "sim");
# Of engine/. Its own files, outside the rooms, have them all.
my @rooms = ("launch shutdown helper", "rendezvous serving", "link", "worker", "services");
my $most_in_a_room = 25;
# Above all folders, these have the engine.
my $with_engine = qr/^(run|src\w*|sim)\.hpp$/;

# Public headers that hide their interface still. Protocols of the engine, which no user opens, and
# whose parts are all detail, but for the class that is named:
my $all_detail = qr/^rref\/ledger_(entries|owner|sessions|user|wire)\.hpp$/;
# The class is long: of those protocols, whose messages and steps are one list; of the engine\x27s
# queue; and the worker, the simulated world and the distributed optimizer, whose members for users
# come first.
my $long_class = qr/^(rref\/ledger|tensordict\/tensordict|optim\/distributed|autograd\/wave|transport\/outbox|rpc\/worker|sim\/world)\.hpp$/;

sub heights {
  my %height;
  for my $i (0 .. $#_) { $height{$_} = $i for split / /, $_[$i] }
  return \%height;
}
my ($floor, $room_height) = (heights(@floors), heights(@rooms));

my $broken = 0;
my $file;
sub say_at { print "$file:$_[0]: $_[1]\n"; $broken = 1 }

# Says $says for each place where the code $code matches $what, in the line of its \K.
sub forbid {
  my ($code, $what, $says) = @_;
  say_at(1 + (substr($code, 0, $-[0]) =~ tr/\n//), $says) while $code =~ /$what/g;
}

# The order of the first lines of a public header.
sub check_head {
  my $once = 0;
  for my $i (1 .. @_) {
    my $line = $_[$i - 1];
    my $right = $i == 1 ? $line =~ m{^// SPDX-License-Identifier: }
              : $i == 2 ? $line =~ m{^// }
              : 1;
    if ($right && $i > 2 && !$once) {
      if ($line =~ /^#(pragma once|ifndef WEFT_(WEFT|CALL)_HPP)$/) { $once = $i; next }
      $right = $line =~ m{^//} || $line eq "";
    } elsif ($right && $once) {
      next if $line eq "";
      return if $line !~ m{^//};
      $right = 0;
    }
    next if $right;
    return say_at($i, "a header begins with its SPDX line, its purpose, #pragma once and its includes");
  }
  say_at(scalar @_, "a header begins with its SPDX line, its purpose, #pragma once and its includes") unless $once;
}

# Whether a public header hides its interface.
sub check_outline {
  my ($own) = $file =~ m{(\w+)\.hpp$};
  my ($depth, $detail, $begun, $own_begun, $own_ended) = (0, 0, 0, 0, 0);
  for my $i (1 .. @_) {
    my $line = $_[$i - 1];
    (my $code = $line) =~ s{//.*}{};
    if ($depth) {  # inside a namespace detail
      $depth += ($code =~ tr/{//) - ($code =~ tr/}//);
      next if !$depth || $code !~ /\S/ || $code =~ /^\s*(?:class|struct)\s+\w+;\s*$/;
      say_at($i, "more than 12 lines of detail in a public header") if ++$detail == 13 && $file !~ $all_detail;
      next;
    }
    if ($code =~ /^\s*(?:inline\s+)?namespace\s+(?:\w+::)*detail\b[^;]*\{/) {
      $depth = ($code =~ tr/{//) - ($code =~ tr/}//);
      next;
    }
    $begun ||= $i if $line =~ m{^/// } || $code =~ /^(?:class|struct|enum|concept)\b[^;]*$/;
    $own_begun ||= $i if $code =~ /^(?:class|struct)\s+(?:\[\[\w+\]\]\s*)?$own\b[^;]*$/;
    $own_ended ||= $i if $own_begun && $code =~ /^\};/;
  }
  say_at(60, "nothing public in the first 60 lines of a public header")
    if ($begun ? $begun > 60 : @_ > 60) && $file !~ $all_detail;
  say_at($own_ended, "class $own ends behind line 110 of its header")
    if $own_ended > 110 && $file !~ $long_class;
}

sub below {
  my ($line, $height, $mine, $other) = @_;
  return if $other eq $mine || !defined $height->{$other};
  say_at($line, "$mine includes the higher folder $other") if $height->{$other} > $height->{$mine};
  say_at($line, "$mine includes $other, which stands beside it") if $height->{$other} == $height->{$mine};
}

my %in_room;
while ($file = <STDIN>) {
  chomp $file;
  open my $in, "<", $file or die "$file: $!";
  my $text = do { local $/; <$in> };
  my @lines = split /\n/, $text, -1;
  pop @lines;
  (my $code = $text) =~ s{//[^\n]*}{}g;
  $code =~ s{/\*.*?\*/}{(my $s = $&) =~ s/[^\n]//g; $s}gse;
  my ($folder) = $file =~ m{^([^/]+)/};

  for my $i (0 .. $#lines) {
    next if length $lines[$i] <= 100;
    say_at($i + 1, "over 100 columns");
    last;
  }
  say_at(500, "over 500 lines") if @lines > 500;
  if ($file !~ m{/(?:impl|detail)/} && ($folder // "") ne "engine") {
    check_head(@lines);
    check_outline(@lines);
  }
  forbid($code, qr/template\s*<\s*(?:class|typename)(?:\s+\w+)?\s*=\s*void\s*>/,
         "a template that is one only to be compiled late");
  forbid($code, qr/template\s*<\s*(?:class|typename)\s*>\s*+(?!(?:class|struct|union|using|concept|friend|requires|template)\b|(?:(?:inline|static|extern)\s+)*const(?:expr|init)?\b[^;{(]*[=;])[^;{=]*\(/,
         "a function that is a template only to be compiled late");
  forbid($code, qr/\b(?:live_\w|use_tensors\b)/, "a name of the templates that were compiled late");
  if (!defined $folder) {  # weft.hpp and its like stand above all floors
    forbid($code, qr{#\s*include\s*[<"]weft/engine/}, "only run.hpp, src.hpp and sim.hpp have the engine")
      if $file !~ $with_engine;
    next;
  }
  if (!defined $floor->{$folder}) {
    say_at(1, "folder $folder has no floor in tests/layers/check.sh");
    next;
  }
  my ($room) = $file =~ m{^engine/(?!impl/)(\w+)/};
  if (defined $room) {
    ++$in_room{$room};
    say_at(1, "room $room has no height in tests/layers/check.sh") unless defined $room_height->{$room};
  }
  my @code_lines = split /\n/, $code, -1;
  for my $i (0 .. $#code_lines) {
    next unless $code_lines[$i] =~ m{#\s*include\s*[<"]weft/(\w+)/(?:(\w+)/)?};
    my ($other, $inner) = ($1, $2);
    below($i + 1, $floor, $folder, $other);
    next unless defined $room && defined $room_height->{$room} && $other eq "engine";
    if ($code_lines[$i] =~ m{weft/engine/(?!fwd\.hpp)(?:impl/)?\w+\.hpp}) {
      say_at($i + 1, "room $room includes what stands above all rooms");
    } elsif (defined $inner && $inner ne $room) {
      below($i + 1, $room_height, $room, $inner);
    }
  }
  forbid($code, qr{#\s*include\s*[<"]weft/(?:weft|run|src\w*|sim)\.hpp}, "includes what stands above all folders");
  forbid($code, qr{#\s*include\s*<torch/(?:torch|all|nn|optim|types)\.h>},
         "the whole front end of libtorch outside optim") if $folder ne "optim";
  forbid($code, qr{#\s*include\s*<torch/(?!csrc/jit/serialization/pickle\.h)},
         "tensordict includes libtorch\x27s modules outside module.hpp")
      if $folder eq "tensordict" && $file !~ m{/module\.hpp$};
  if ($folder =~ /^(?:core|memory|transport)$/) {
    forbid($code, qr{#\s*include\s*<(?:ATen|torch|c10)/(?!core/AutogradState\.h)}, "$folder includes libtorch");
  } elsif ($folder eq "wire" && $file !~ m{(?:^|/)tensor[^/]*$}) {
    forbid($code, qr{#\s*include\s*<(?:ATen|torch|c10)/}, "wire includes libtorch outside tensor*");
  }
}
for my $room (sort keys %in_room) {
  $file = "engine/$room/$room.hpp";
  say_at(1, "over $most_in_a_room files in room $room") if $in_room{$room} > $most_in_a_room;
  say_at(1, "room $room has no main header") unless -e $file;
}
exit $broken;
'
