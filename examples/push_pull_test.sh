#!/usr/bin/env bash
# push_pull_test.sh PROGRAM: both directions, and what a wrong $DT_BACKEND leads to. On the backend
# that $DT_BACKEND names, or else LOCAL.
set -euo pipefail

program=$1
output=$(mktemp)
trap 'rm -f "$output"' EXIT

DT_BACKEND=${DT_BACKEND:-local} "$program" > "$output" || { cat "$output"; exit 1; }
for line in "generates: prompt 1 is there" "generates: image 7 is there" \
            "computes: image 7 was read, its blocks are free"; do
    grep -qxF -- "$line" "$output" || { cat "$output"; echo "no line says \"$line\""; exit 1; }
done

if DT_BACKEND=nonsense "$program" > /dev/null 2> "$output"; then
    echo "a backend that does not exist is not refused"
    exit 1
fi
grep -q '^generates: DT_ERR_INVALID_ARG: .*nonsense' "$output" ||
    { cat "$output"; echo "the library's sentence is not told"; exit 1; }
echo "pushed, pulled, freed; a wrong backend was refused"
