#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Reads what runs in simulated worlds, the headers of weft and tests/sim under $1, and prints, as
# file:line, everything by which two runs of one seed could differ:
#  - real clock, real timer or sleep, thread;
#  - random device, generator with a seed of its own, and distribution or shuffle of the standard
#    library, which each library draws in its own way;
#  - iteration over an unordered container, and order or hash by pointer value;
#  - two draws in one expression, which compilers take in different orders.
# The machine's own parts, in whose place a simulated world has others, are excepted below, each
# with its reason; an exception that nothing needs is refused, too. Comments and texts are not read.
set -euo pipefail
export LC_ALL=C.UTF-8
cd "$1"
find include/weft tests/sim \( -name '*.cpp' -o -name '*.hpp' \) | sort | exec perl -e '
use strict;
use warnings;

my $engine = "include/weft/engine/(\\w+/)?(impl/)?";
my $of_processes = "processes, their threads and their ends";
my @exceptions = (  # file, rule, reason
  ["include/weft/core/real_clock", "clock", "what virtual_clock stands for"],
  ["include/weft/core/real_clock", "timer", "what virtual_clock stands for"],
  ["include/weft/core/system_random", "random", "a world gives its workers sources of their own"],
  ["include/weft/core/detail/waiter_registry", "timer", "waits for other threads, which are none"],
  ["include/weft/core/detail/blocking_end", "thread", "blocks a thread that is no worker'"'"'s"],
  ["${engine}rref_core", "thread", "waits for other threads, which are none"],
  ["include/weft/transport/detail/stream_listener", "timer", "sockets"],
  ["include/weft/transport/detail/host", "random", "the name of a machine"],
  ["include/weft/core/detail/compute_pool", "thread", "a world has an io_context for it"],
  ["include/weft/core/detail/in_time", "thread", $of_processes],
  ["${engine}runtime", "thread", "a world has a host for it"],
  ["${engine}(joined|rendezvous|run|usable_cores)", "thread", $of_processes],
  ["${engine}run", "clock", $of_processes],
  ["${engine}(join|joined)", "timer", $of_processes],
  ["tests/sim/tool/", "clock", "says how many worlds there were in a second"],
  ["tests/sim/worlds", "timer", "that a world names who waits for one"],
  ["include/weft/optim/detail/lbfgs_owner", "thread", "libtorch\x27s LBFGS waits for its closure"],
  ["tests/sim/worlds", "thread", "that one outside is not held for ever"],
  ["tests/sim/misused", "thread", "that one outside may not run a world"],
);
my %needed;
my $broken = 0;
sub say_of {
  my ($rule, $file, $line, $what) = @_;
  for my $i (0 .. $#exceptions) {
    my ($where, $which) = @{$exceptions[$i]};
    next unless $which eq $rule && $file =~ /^$where(?:\.\w+$|(?<=\/))/;
    $needed{$i} = 1;
    return;
  }
  print "$file:$line: $what\n";
  $broken = 1;
}

my @rules = (
  ["clock", qr/\b(?:steady|system|high_resolution|utc|file)_clock\b(?!\s*::\s*(?:time_point|duration)\b|\s*>)/,
   "a real clock; use weft\x27s clock"],
  ["clock", qr/\b(?:clock_gettime|gettimeofday|__rdtsc)\b|\bstd::(?:time|clock)\s*\(/,
   "a real clock; use weft\x27s clock"],
  ["timer", qr/\basio::(?:basic_waitable_|steady_|system_|high_resolution_)timer\b|\bthis_thread::|\b(?:usleep|nanosleep)\s*\(/,
   "a real timer; use weft\x27s timers"],
  ["thread", qr/\bstd::(?:j?thread|async|condition_variable(?:_any)?|(?:shared_)?future|promise|packaged_task|latch|barrier|(?:counting|binary)_semaphore)\b|\bnotify_(?:one|all)\s*\(|\bpthread_create\b|\basio::thread_pool\b/,
   "a thread; use the worker\x27s executors"],
  ["random", qr/\brandom_device\b|\b(?:getrandom|getentropy|arc4random|srand|drand48|default_random_engine)\b|\brand\s*\(/,
   "real randomness; use weft\x27s random source"],
  ["random", qr/\b(?:mt19937(?:_64)?|minstd_rand0?|ranlux\w+)(?:\s+\w+\s*)?(?:;|\{\s*\}|\(\s*\))/,
   "a generator without a seed from outside"],
  ["random", qr/\b\w+_distribution\s*<|\bstd::(?:ranges::)?(?:shuffle|sample)\b/,
   "drawn in each library\x27s own way"],
  ["order", qr/\bstd::(?:multi)?(?:map|set)\s*<[^,<>]*\*/, "an order by pointer value"],
  ["order", qr/\bstd::(?:less|greater|hash)\s*<[^<>]*\*\s*>/, "an order by pointer value"],
  # alignment may be asked
  ["order", qr/\buintptr_t\b(?!>\([^;]*?\)\s*%\s*\d)/, "a pointer as a number"],
);
my $draw = qr/\b(?:draw\w*|some_more|pick|chance|one_piece|random_|random_id)\s*\(|(?:\.|->|\b)delay\(\)/;

sub line_of { 1 + (substr($_[0], 0, $_[1]) =~ tr/\n//) }

my (%codes, @files);
while (my $file = <STDIN>) {
  chomp $file;
  open my $in, "<", $file or die "$file: $!";
  my $code = do { local $/; <$in> };
  # Comments and texts become blanks, and numbers lose what separates their digits.
  $code =~ s/(?<=\d)\x27(?=\d)/0/g;
  $code =~ s{(R"(\w*)\(.*?\)\2"|"(?:[^"\\\n]|\\.)*"|\x27(?:[^\x27\\\n]|\\.)\x27|//[^\n]*|/\*.*?\*/)}
            {(my $s = $1) =~ s/[^\n]/ /g; $s}gse;
  push @files, $file;
  $codes{$file} = $code;
}

# The names of unordered containers, wherever they are declared.
my (%names, %aliases);
for my $code (values %codes) {
  while ($code =~ /\bunordered_(?:multi)?(?:map|set)\s*<[^;{}()]*>(?:\s*&&?\s*|\s+)(\w+)\s*[;={,)]/g) { $names{$1} = 1 }
  while ($code =~ /\busing\s+(\w+)\s*=\s*(?:std::)?unordered_(?:multi)?(?:map|set)\b/g) { $aliases{$1} = 1 }
}
for my $code (values %codes) {
  for my $alias (keys %aliases) {
    while ($code =~ /\b$alias(?:<[^;{}()]*>)?(?:\s*&&?\s*|\s+)(\w+)\s*[;={,)]/g) { $names{$1} = 1 }
  }
}

for my $file (@files) {
  my $code = $codes{$file};
  my @found;
  for (@rules) {
    my ($rule, $what, $says) = @$_;
    push @found, [line_of($code, $-[0]), $rule, $says] while $code =~ /$what/g;
  }
  for my $name (keys %names) {
    while ($code =~ /for\s*\([^;()]*:\s*[^;]*?\b$name\s*\)|\b$name\s*(?:\.|->)\s*c?begin\s*\(|\berase_if\s*\([^,]*\b$name\b/g) {
      push @found, [line_of($code, $-[0]), "order", "iterates $name, an unordered container"];
    }
  }
  # What stands between two of these is taken in order, as is what stands behind a head.
  my $parts = $code;
  while ($parts =~ /\b(?:if|while|for|switch)\s*(?:constexpr\s*)?\(/g) {
    my $depth = 1;
    my $end = pos $parts;
    for (; $end < length $parts; ++$end) {
      my $c = substr($parts, $end, 1);
      ++$depth if $c eq "(";
      last if $c eq ")" && --$depth == 0;
    }
    my $back = pos $parts;
    substr($parts, $end, 1) = ";";
    pos($parts) = $back;
  }
  my $at = 0;
  for my $part (split /(;|&&|\|\||\?|(?<!:):(?!:)|[{}])/, $parts) {
    my $count = 0;
    while ($part =~ /$draw/g) {
      next if ++$count < 2;
      push @found, [line_of($code, $at + $-[0]), "draws", "a second draw in one expression"];
      last;
    }
    $at += length $part;
  }
  my %once;
  for (sort { $a->[0] <=> $b->[0] || $a->[2] cmp $b->[2] } @found) {
    my ($line, $rule, $says) = @$_;
    say_of($rule, $file, $line, $says) unless $once{"$line $says"}++;
  }
}
for my $i (0 .. $#exceptions) {
  my ($where, $rule) = @{$exceptions[$i]};
  next if $needed{$i} || !grep { /^$where(?:\.\w+$|(?<=\/))/ } @files;
  print "tests/layers/virtual.sh: nothing of $where needs an exception ($rule)\n";
  $broken = 1;
}
exit $broken;
'
