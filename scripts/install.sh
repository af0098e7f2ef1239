#!/usr/bin/env bash
# Builds the library and installs it; --help says how.
set -euo pipefail

caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

usage='usage: scripts/install.sh [--prefix PREFIX] [--uninstall]'

help() {
    cat << END
$usage

Builds the library and dt_perf, and installs them with the header, the manual page and what pkg-config
and CMake need to find them, below PREFIX (/usr/local), which need not be there yet. It needs cc, c++,
make, cmake, libclang and Rust, and installs what is missing. Where this user may not write to PREFIX,
sudo is used for that step alone. --uninstall removes what the last installation put there.

It is the same as

    cmake -S . -B build/install && cmake --build build/install && cmake --install build/install --prefix PREFIX

DESTDIR is in effect as usual.
END
}

prefix=/usr/local
uninstall=
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) help; exit ;;
        --prefix)
            [ $# -ge 2 ] && [ -n "$2" ] || die "--prefix needs a value: the folder to install below"
            prefix=$2
            shift ;;
        --prefix=?*) prefix=${1#--prefix=} ;;
        --prefix=) die "--prefix needs a value: the folder to install below" ;;
        --uninstall) uninstall=yes ;;
        *) die "there is no option $1; $usage" ;;
    esac
    shift
done
# What is relative is so to where the caller is.
[ "${prefix#/}" != "$prefix" ] || prefix=$caller/$prefix
# CMake and pkg-config read these as something else.
case $prefix in
    *[\"\;\\\|,]*) die "PREFIX is $prefix, but CMake cannot install below a folder with one of \" ; \\ | , in its name" ;;
esac
destdir=${DESTDIR:-}
if [ -n "$destdir" ]; then
    [ "${destdir#/}" != "$destdir" ] || destdir=$caller/$destdir
    export DESTDIR=$destdir
fi

folder=build/install
manifest=$folder/install_manifest.txt

# existing PATH: it, or the nearest folder above it that is there.
existing() {
    local there=$1
    while [ ! -e "$there" ]; do there=$(dirname "$there"); done
    printf '%s\n' "$there"
}

# may_write PATH: stops where neither this user nor sudo could write to it.
may_write() {
    local there
    there=$(existing "$1")
    [ -w "$there" ] || command -v sudo > /dev/null ||
        die "this user may not write to $there, and there is no sudo: try --prefix \"\$HOME/.local\""
}

# as_needed FOLDER COMMAND...: as this user, or with sudo where this user may not write to FOLDER.
as_needed() {
    local there sudo=()
    may_write "$1"
    there=$(existing "$1")
    shift
    if [ ! -w "$there" ]; then
        sudo=(sudo ${destdir:+DESTDIR="$destdir"})
        say "with sudo, for $there"
    fi
    "${sudo[@]}" "$@"
}

if [ -n "$uninstall" ]; then
    [ -s "$manifest" ] || die "nothing was installed from here: there is no $manifest"
    first=$destdir$(head -n 1 "$manifest")
    while read -r file || [ -n "$file" ]; do printf '%s\n' "$destdir$file"; done < "$manifest" |
        as_needed "$(dirname "$first")" xargs -d '\n' rm -f --
    # Folders of its own; others are left, as they were there before or may be of use to others. What is in
    # them tells, for folders above the prefix may have the same names.
    sed -n 's|/datatransport-config[.]cmake$||p; s|\(/datatransport\)/LICENSE$|\1|p; s|/basics[.]hpp$||p' "$manifest" |
        while read -r own; do
            [ ! -d "$destdir$own" ] || as_needed "$destdir$own" find "$destdir$own" -depth -type d -empty -delete
        done
    rm -f "$manifest"
    say "removed"
    exit
fi

# Before the minutes that the build takes.
there=$(existing "$destdir$prefix")
[ -d "$there" ] || die "$there is no folder, so nothing can be installed below $destdir$prefix"
may_write "$there"
need_tools cc c++ make cmake
need_libclang
need_rust
# The folder that other scripts build in, so that nothing is built twice.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
cmake -S . -B "$folder" -DDT_CARGO_TARGET_DIR="$CARGO_TARGET_DIR" -DCMAKE_INSTALL_PREFIX="$prefix" > /dev/null
cmake --build "$folder" --parallel "$(nproc)"
say "installing below $destdir$prefix"
as_needed "$destdir$prefix" cmake --install "$folder"

[ -z "$destdir" ] || exit 0
libraries=$(dirname "$(grep '/libdatatransport[.]so$' "$manifest")")
rpath=
# Where the loader looks anyway it has a list, which has to be renewed, by one who may.
if /sbin/ldconfig -v -N 2> /dev/null | grep "^$libraries:" > /dev/null &&
    { [ -w /etc/ld.so.cache ] || command -v sudo > /dev/null; }; then
    as_needed /etc/ld.so.cache /sbin/ldconfig
else
    rpath=" -Wl,-rpath,$libraries"
fi
version=$(sed -n 's/^version = "\([0-9]*[.][0-9]*\).*/\1/p' Cargo.toml)
say "to use it"
cat << END
export PKG_CONFIG_PATH=$libraries/pkgconfig
cc program.c \$(pkg-config --cflags --libs datatransport)$rpath

or in CMakeLists.txt, with cmake -DCMAKE_PREFIX_PATH=$prefix

find_package(datatransport $version CONFIG REQUIRED)
target_link_libraries(program PRIVATE datatransport::datatransport)
END
