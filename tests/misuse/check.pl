# SPDX-License-Identifier: BSL-1.0
# check.pl SCRATCH SOURCE… -- COMPILER FLAG…: no SOURCE may compile, and the first line with "error:"
# that the compiler prints for it must match the regular expression of the source's first line,
# `// expect: <regex>`. Most of the time goes into the headers, so the sources are compiled as one,
# each in a namespace of its own, and errors are told apart by the files that they name; whatever
# does not get its error so is compiled alone, and that counts. SCRATCH is the file for all of them.
use strict;
use warnings;

my $scratch = shift @ARGV;
my (@sources, @compiler);
while (@ARGV && (my $next = shift @ARGV) ne "--") { push @sources, $next }
@compiler = @ARGV;

my (%expected, %includes, $all);
for my $source (@sources) {
  open my $in, "<", $source or die "$source: $!";
  my @lines = <$in>;
  ($lines[0] // "") =~ m{^// expect: (.+)$} or die "the first line of $source is not `// expect: <regex>`\n";
  $expected{$source} = $1;
  $includes{$_} = 1 for grep { /^#include/ } @lines;
  my ($name) = $source =~ m{(\w+)\.cpp$};
  $all .= "namespace misuse_$name {\n#include \"$source\"\n}\n";
}

# What the compiler prints for a source, and whether it compiled.
sub compiled {
  my ($source) = @_;
  open my $out, "-|", "exec 2>&1; exec " . join(" ", map { "\x27$_\x27" } @compiler, $source) or die "$compiler[0]: $!";
  my $log = do { local $/; <$out> } // "";
  return ($log, close $out);
}

my %seen;  # sources whose first error is as expected
if (@sources > 1) {
  open my $to, ">", $scratch or die "$scratch: $!";
  print $to sort(keys %includes), $all;
  close $to;
  my ($log) = compiled($scratch);
  my %met;
  for my $block (split /^(?=[^\n]*error: )/m, $log) {
    my ($error) = $block =~ /^([^\n]*error: [^\n]*)/ or next;
    for my $source (@sources) {
      next unless $block =~ /^\Q$source\E:/m;
      $seen{$source} = 1 if !$met{$source}++ && $error =~ /$expected{$source}/;
    }
  }
}
my $broken = 0;
for my $source (@sources) {
  next if $seen{$source};
  my ($log, $compiles) = compiled($source);
  my ($error) = $log =~ /([^\n]*error: [^\n]*)/;
  if ($compiles) {
    print "$source compiles, but must not\n";
  } elsif (($error // "") !~ /$expected{$source}/) {
    print "$source: expected an error that matches\n  $expected{$source}\nbut the first one is\n  ",
      $error // "none", "\nin\n$log\n";
  } else {
    print "$source was compiled alone\n";
    next;
  }
  $broken = 1;
}
exit $broken;
