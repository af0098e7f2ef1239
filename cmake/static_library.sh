#!/bin/sh
# static_library.sh ARCHIVE SHARED OUTPUT: a static library for C programs, from the one that rustc makes.
#
# rustc's archive has the Rust standard library in it, with symbols that all can see: a program with
# a second library of that kind may not link. Here it becomes one object that shows what the shared
# library shows, and nothing else. CC, NM, AR and OBJCOPY are the tools.
set -eu
archive=$1 shared=$2 output=$3

# Up to date? This takes about a second, and each build comes here.
[ ! -f "$output" ] || [ "$archive" -nt "$output" ] || exit 0

scratch=$(mktemp -d "$output.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

"$NM" -D --defined-only "$shared" | awk '{ print $3 }' > "$scratch/exports"
[ -s "$scratch/exports" ] || { echo "$shared exports nothing" >&2; exit 1; }
# Naming what is exported takes from the archive what that needs, and no more.
sed 's/^/-Wl,-u,/' "$scratch/exports" > "$scratch/wanted"
"$CC" -r -nostdlib -o "$scratch/all.o" @"$scratch/wanted" "$archive"
# Bitcode is for link-time optimisation by rustc. Joined it is invalid, and other tools stop at it.
"$OBJCOPY" --remove-section .llvmbc --remove-section .llvmcmd \
    --keep-global-symbols="$scratch/exports" "$scratch/all.o" "$scratch/datatransport.o"
"$AR" rcs "$scratch/libdatatransport.a" "$scratch/datatransport.o"
mv "$scratch/libdatatransport.a" "$output"
