#!/bin/sh
# linked.sh SANITIZER LIBRARY PROGRAM
#
# The library is built with the sanitizer and leaves its runtime to the program: two would not know of
# each other's memory.
set -eu
case $1 in
address) mark=__asan ;;
thread) mark=__tsan ;;
esac

fail() {
    echo "$*" >&2
    exit 1
}

# count FILE TYPE NAME: symbols of that type.
count() {
    nm -D "$1" | awk -v type="$2" -v name="$3" '$(NF - 1) ~ type && index($NF, name) == 1' | wc -l
}

[ "$(count "$2" '^U$' ${mark}_init)" -eq 1 ] || fail "$2 is not built with the sanitizer"
[ "$(count "$2" '^U$' ${mark})" -gt 10 ] || fail "$2 calls hardly anything of the sanitizer"
[ "$(count "$2" '^[TWi]$' ${mark})" -eq 0 ] || fail "$2 has a runtime of its own"
[ "$(count "$3" '^T$' ${mark}_init)" -eq 1 ] || fail "$3 has no runtime of the sanitizer"
