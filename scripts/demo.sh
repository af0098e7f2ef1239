#!/usr/bin/env bash
# Builds the library and moves bytes between processes; --help says how.
set -euo pipefail

caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

usage='usage: scripts/demo.sh [--backend auto|local|nixl] [--] [FILE]'

help() {
    cat << END
$usage

Builds the library and sends FILE from one process to another as KV-cache blocks; then one process
reads embeddings from another. Without FILE it sends the largest file of the Rust compiler that
built the library, a shared object of some 100 to 200 MB. It needs cc, make, cmake and Rust, and
installs what is missing. With --backend nixl it also fetches NIXL from PyPI into third_party/,
unless DT_NIXL_LIB_DIR names a folder that has it.
END
}

# Everything about the arguments is said before anything is installed or built.
backend=auto
files=()
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) help; exit ;;
        --backend)
            [ $# -ge 2 ] || die "--backend needs a value: auto, local or nixl"
            backend=$2
            shift ;;
        --) shift; files+=("$@"); break ;;
        -*) die "there is no option $1; $usage" ;;
        *) files+=("$1") ;;
    esac
    shift
done

case $backend in
    auto | local | nixl) ;;
    *) die "--backend is \"$backend\", but must be auto, local or nixl" ;;
esac
[ ${#files[@]} -le 1 ] || die "${#files[@]} files were named, but one at a time is sent; $usage"
file=
if [ ${#files[@]} -eq 1 ]; then
    file=${files[0]}
    [ -n "$file" ] || die "FILE is empty; $usage"
    # Named as seen from where the caller is.
    [ "${file#/}" != "$file" ] || file=$caller/$file
    [ -e "$file" ] || die "there is no file $file"
    [ ! -d "$file" ] || die "$file is a directory, but one file is sent"
    [ -f "$file" ] || die "$file is not a regular file"
    [ -r "$file" ] || die "$file cannot be read by this user"
fi

need_tools cc c++ make cmake
need_libclang
need_rust
if [ "$backend" = nixl ] && [ -z "${DT_NIXL_LIB_DIR:-}" ]; then
    need_tools python3
    need_nixl
    export DT_NIXL_LIB_DIR=$PWD/$nixl_lib_dir
fi
# NIXL itself complains of a peer that closes first, which is no error.
export NIXL_LOG_LEVEL=${NIXL_LOG_LEVEL:-FATAL}
build_library
build_programs examples build/examples

if [ -z "$file" ]; then
    file=$(find "$(rustc --print sysroot)/lib" -maxdepth 1 -type f -printf '%s %p\n' |
           sort -n | tail -n 1 | cut -d ' ' -f 2-)
fi
say "push_file"
build/examples/push_file --backend "$backend" "$file"
say "pull_embeddings"
exec build/examples/pull_embeddings --backend "$backend"
