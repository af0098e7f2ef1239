#!/usr/bin/env bash
# readme_test.sh LIBRARY: the program in README.md is minimal.c, to the letter, and README.md's
# commands build and run it, in C and in C++17, and leave nothing that git would show.
#
# The commands run in a scratch folder that has what they use of a clone. There cargo is a script
# that checks how it is called: the library was built already.
set -euo pipefail

library=$(realpath -e -- "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# fenced LANGUAGE: the lines of README.md's blocks of this language.
fenced() {
    awk -v start="^\`\`\`$1\$" '$0 ~ start { inside = 1; next } /^```$/ { inside = 0 } inside' \
        README.md
}

fenced c | diff -u examples/minimal.c - ||
    { echo "README.md does not show examples/minimal.c"; exit 1; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/clone/target/release" "$scratch/bin"
cp -r README.md include examples "$scratch/clone"
fenced sh > "$scratch/commands"
cat > "$scratch/bin/cargo" << 'END'
#!/bin/sh
[ "$*" = "build --release" ] || { echo "cargo $* is not what builds the release library" >&2; exit 1; }
cp "$LIBRARY" target/release/libdatatransport.so
END
chmod +x "$scratch/bin/cargo"

cd "$scratch/clone"
# Twice: the second time everything is there already.
for round in first second; do
    LIBRARY=$library PATH=$scratch/bin:$PATH bash -euo pipefail "$scratch/commands" \
        > "$scratch/out" 2>&1 || { cat "$scratch/out"; echo "README.md's commands fail"; exit 1; }
    grep -qxF 'block 5 holds "hello"' "$scratch/out" ||
        { cat "$scratch/out"; echo "README.md's commands do not run the program ($round time)"; exit 1; }
done
left=$(find . \( -path ./target -o -path ./build \) -prune -o -newer "$scratch/bin/cargo" -type f -print)
[ -z "$left" ] || { echo "README.md's commands leave $left, which git does not ignore"; exit 1; }

if command -v c++ > /dev/null; then
    c++ -x c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -Iinclude examples/minimal.c -x none \
        -Ltarget/release -ldatatransport -o build/minimal
    LD_LIBRARY_PATH=target/release build/minimal | grep -xF 'block 5 holds "hello"'
else
    echo "SKIPPED: minimal.c as C++17: there is no c++"
    [ "${CI:-}" != true ] || exit 1
fi
echo "README.md shows examples/minimal.c, and its commands run it"
