#!/usr/bin/env bash
# The program in README.md is minimal.c, to the letter.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' ../README.md |
    diff -u minimal.c - || { echo "README.md does not show examples/minimal.c"; exit 1; }
echo "README.md shows examples/minimal.c"
