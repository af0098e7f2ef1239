#!/bin/sh
# planted.sh PROGRAM FAULT WORD...
#
# A planted fault is found: the program fails, and its report has each of these words.
set -eu
program=$1 fault=$2
shift 2

if report=$("$program" "$fault" 2>&1); then
    echo "$fault was not found: $report" >&2
    exit 1
fi
for word in "$@"; do
    case $report in
    *"$word"*) ;;
    *)
        echo "no '$word' in the report of $fault: $report" >&2
        exit 1
        ;;
    esac
done
