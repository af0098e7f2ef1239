#!/bin/sh
# man.sh PROGRAM: prints the manual page, which is what `dt_perf --help` says.
#
# The first paragraph is NAME, the command lines are SYNOPSIS, and a word in capitals at the start of
# a paragraph begins a section. Lines stay as they are.
set -eu
version=$("$1" --version | awk 'NR == 1 { print $NF }')
"$1" --help | awk -v version="$version" '
function roff(line) {
    gsub(/\\/, "\\e", line)
    gsub(/-/, "\\-", line)
    sub(/^[.\x27]/, "\\\\\\&&", line)
    return line
}
function section(name) { print ".fi\n.SH " name "\n.nf" }
BEGIN {
    print ".TH DT_PERF 1 \"\" \"libdatatransport " version "\" \"User Commands\""
    print ".SH NAME"
    start = 1
}
NR == 1 { sub(/^dt_perf: /, "dt_perf \\- "); name = $0; next }
start && name != "" && $0 != "" { name = name " " $0; next }
start { sub(/[.]$/, "", name); print name; name = ""; start = 0; section("SYNOPSIS"); synopsis = 1; previous = "section"; next }
synopsis && $0 == "" { section("DESCRIPTION"); synopsis = 0; previous = "section"; next }
synopsis { sub(/^ +/, "") }
previous == "" && match($0, /^[A-Z][A-Z]+( [A-Z]+)*/) && !synopsis {
    section(substr($0, 1, RLENGTH))
    $0 = substr($0, RLENGTH + 1)
    sub(/^ +/, "")
    previous = "section"
    if ($0 == "") next
}
$0 == "" { previous = ""; next }
{
    if (previous == "") print ""
    print roff($0)
    previous = $0
}
END { print ".fi" }'
