#!/usr/bin/env bash
# demo.sh [--backend auto|local|nixl] [FILE]: builds the library and sends FILE from one process to
# another. Without FILE it sends the largest file of the Rust compiler that built the library, a
# shared object of some 100 to 200 MB.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

backend=auto
file=
while [ $# -gt 0 ]; do
    case $1 in
        --backend) [ $# -ge 2 ] || die "--backend needs auto, local or nixl"
                   backend=$2; shift ;;
        -*) die "usage: scripts/demo.sh [--backend auto|local|nixl] [FILE]" ;;
        *) file=$(cd "$OLDPWD" && realpath -e -- "$1") ;;
    esac
    shift
done

need_tools cc make cmake
need_rust
build_library
build_programs examples build/examples

if [ -z "$file" ]; then
    file=$(find "$(rustc --print sysroot)/lib" -maxdepth 1 -type f -printf '%s %p\n' |
           sort -n | tail -n 1 | cut -d ' ' -f 2-)
fi
say "push_file"
exec build/examples/push_file --backend "$backend" "$file"
