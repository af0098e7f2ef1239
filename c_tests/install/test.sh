#!/usr/bin/env bash
# test.sh TEST SOURCE WORK: the library as it is installed, seen from other folders.
#
# "install" makes the prefix in WORK that the others use. CARGO_TARGET_DIR has the library already.
set -euo pipefail

what=$1 source=$(realpath "$2") work=$3
mkdir -p "$work"
work=$(realpath "$work")
prefix=$work/prefix
consumers=$source/c_tests/install
: "${CARGO_TARGET_DIR:?must name the folder that has the library, for all of it is built else}"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$source/Cargo.toml")
IFS=. read -r major minor _ <<< "$version"
soname=libdatatransport.so.$major

fail() { printf '%s\n' "$what: $*" >&2; exit 1; }

# An empty folder of its own.
here=$work/$what
rm -rf "$here"
mkdir "$here"
cd "$here"
# What the surroundings set up must not be what makes it work.
unset LD_LIBRARY_PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH CPATH LIBRARY_PATH CMAKE_GENERATOR DESTDIR

# moves_a_block PROGRAM
moves_a_block() {
    "$1" > out || fail "$1 has failed: $(cat out)"
    grep -qxF 'block 5 holds "hello"' out || fail "$1 says $(cat out)"
}

# uses PROGRAM LIBRARY: it is this file that the loader takes.
uses() {
    ldd "$1" | grep -F "$soname => $2" > /dev/null || fail "$1 does not use $2: $(ldd "$1")"
}

has_it_inside() {
    ! ldd "$1" | grep libdatatransport > /dev/null || fail "$1 has not been linked statically: $(ldd "$1")"
}

# listed FOLDER LIBDIR: what is in it is what should be.
listed() {
    local header headers=
    for header in "$source"/include/{,dt/}*.h*; do
        headers+=" ${header#"$source"/}"
    done
    # shellcheck disable=SC2086 # one word for each header
    printf '%s\n' bin/dt_perf $headers "$2"/cmake/datatransport/datatransport-config{,-version}.cmake \
        "$2"/libdatatransport.{a,so,"so.$major","so.$version"} "$2"/pkgconfig/datatransport{,-static}.pc \
        share/doc/datatransport/{CHANGELOG.md,LICENSE,THIRD_PARTY_NOTICES,examples/{handshake,minimal}.c} \
        share/man/man1/dt_perf.1 | LC_ALL=C sort > wanted
    (cd "$1" && find . ! -type d -printf '%P\n') | LC_ALL=C sort | diff -u wanted - ||
        fail "this is not what should be in $1"
    [ "$(readlink "$1/$2/libdatatransport.so")" = "$soname" ] &&
        [ "$(readlink "$1/$2/$soname")" = "libdatatransport.so.$version" ] ||
        fail "the links in $1/$2 are wrong"
}

# configure NAME [OPTION...]: the consumer with find_package, in a folder of this name.
configure() {
    local name=$1
    shift
    mkdir -p source
    cp "$consumers/consumer/CMakeLists.txt" "$source/examples/minimal.c" source
    cmake -S source -B "$name" -DWANTED="$major.$minor" "$@" > log 2>&1
}

# builds PREFIX [LANGUAGE...]: the consumer that has found it there has working programs in these.
builds() {
    local there=$1 language
    shift
    configure build -DCMAKE_PREFIX_PATH="$there" -DLANGUAGES="$(IFS=';'; echo "${*^^}")" || fail "$(cat log)"
    grep -qxF -e "-- found $version" log || fail "$(cat log)"
    cmake --build build > log 2>&1 || fail "$(cat log)"
    for language in "$@"; do
        moves_a_block "build/${language}_datatransport"
        uses "build/${language}_datatransport" "$there/lib/$soname"
        moves_a_block "build/${language}_datatransport_static"
        has_it_inside "build/${language}_datatransport_static"
    done
}

# refused WANTED WORD: find_package(datatransport WANTED) fails with this word.
refused() {
    ! configure refused -DCMAKE_PREFIX_PATH="$prefix" -DLANGUAGES=NONE -DWANTED="$1" ||
        fail "$version is taken for $1"
    grep -qF "$2" log || fail "nothing says why $1 is refused: $(cat log)"
    rm -rf refused
}

case $what in
install)
    rm -rf "$prefix"
    for bad in 'a;b' 'a"b' 'a\b' 'a|b' 'a,b'; do
        ! "$source/scripts/install.sh" --prefix "$bad" > log 2>&1 || fail "the prefix $bad is not refused"
        grep -qF "PREFIX is $PWD/$bad, but" log || fail "the prefix $bad is refused with: $(cat log)"
    done

    # Where nothing can be installed, nothing is built before that is said.
    touch file
    ! "$source/scripts/install.sh" --prefix file/x > log 2>&1 || fail "a prefix below a file is not refused"
    [ "$(cat log)" = "$PWD/file is no folder, so nothing can be installed below $PWD/file/x" ] ||
        fail "a prefix below a file is refused with: $(cat log)"
    # As a user who may not write there, and without sudo; the sources may lie where that user cannot look.
    apart=$(mktemp -d)
    mkdir -p "$apart"/{scripts,tools,closed}
    cp "$source"/scripts/{install,lib}.sh "$apart/scripts"
    ln -s "$(command -v bash)" "$(command -v dirname)" "$apart/tools"
    chmod -R a+rX "$apart"
    chmod a-w "$apart/closed"
    as=()
    [ "$(id -u)" -ne 0 ] || as=("$(command -v setpriv)" --reuid 65534 --regid 65534 --clear-groups)
    ! (cd "$apart" && PATH=$apart/tools "${as[@]}" scripts/install.sh --prefix closed/x) > log 2>&1 ||
        fail "a prefix where this user may not write is not refused"
    grep -qxF "this user may not write to $apart/closed, and there is no sudo: try --prefix \"\$HOME/.local\"" log &&
        [ "$(wc -l < log)" -eq 1 ] || fail "a prefix where this user may not write is refused with: $(cat log)"
    rm -rf "$apart"

    # Another prefix first: it goes as it has come, and leaves what is not the library's.
    # Its name is that of the library's own folders.
    mkdir -p datatransport/share/doc datatransport/cache/empty
    touch datatransport/share/doc/foreign
    "$source/scripts/install.sh" --prefix datatransport > log 2>&1 || fail "$(cat log)"
    [ -f datatransport/include/dt.h ] || fail "nothing was installed for --prefix datatransport: $(cat log)"
    "$source/scripts/install.sh" --uninstall > log 2>&1 || fail "$(cat log)"
    left=$(cd datatransport && find . ! -type d -o -name datatransport ! -path . -o -name dt)
    [ "$left" = ./share/doc/foreign ] || fail "--uninstall has left this: $left"
    [ -d datatransport/cache/empty ] || fail "--uninstall has removed a folder that is not the library's"

    # Both relative to this folder.
    DESTDIR=stage "$source/scripts/install.sh" --prefix /usr > log 2>&1 || fail "$(cat log)"
    [ -f stage/usr/include/dt.h ] || fail "nothing was installed for DESTDIR=stage: $(cat log)"
    DESTDIR=stage "$source/scripts/install.sh" --uninstall > log 2>&1 || fail "$(cat log)"
    [ -z "$(find stage ! -type d)" ] || fail "--uninstall has left $(find stage ! -type d)"

    "$source/scripts/install.sh" --prefix "$prefix" > log 2>&1 || fail "$(cat log)"
    listed "$prefix" lib
    cmp "$source/LICENSE" "$prefix/share/doc/datatransport/LICENSE"
    ;;
pkg_config)
    export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
    [ "$(pkg-config --modversion datatransport)" = "$version" ] || fail "the version is wrong"
    pkg-config --atleast-version="$major.$minor" datatransport || fail "$version is older than itself"
    ! pkg-config --atleast-version="$major.$((minor + 1))" datatransport || fail "$version is newer than itself"
    flags="$(pkg-config --cflags --libs datatransport) -Wl,-rpath,$(pkg-config --variable=libdir datatransport)"
    static=$(pkg-config --cflags --libs datatransport-static)
    warnings='-Wall -Wextra -Wpedantic -Werror'
    cp "$source/examples/minimal.c" minimal.c
    cp minimal.c minimal.cpp
    # shellcheck disable=SC2086 # options
    for kind in flags static; do
        cc -std=c11 -D_GNU_SOURCE $warnings minimal.c ${!kind} -o "c_$kind"
        c++ -std=c++17 $warnings minimal.cpp ${!kind} -o "cpp_$kind"
    done
    for language in c cpp; do
        moves_a_block "./${language}_flags"
        uses "./${language}_flags" "$(pkg-config --variable=libdir datatransport)/$soname"
        moves_a_block "./${language}_static"
        has_it_inside "./${language}_static"
    done
    ;;
static)
    # It shows what the shared one shows, and goes together with another library in Rust.
    nm -D --defined-only "$prefix/lib/libdatatransport.so" | awk '{ print $3 }' | LC_ALL=C sort > shared
    nm -g --defined-only "$prefix/lib/libdatatransport.a" | awk 'NF == 3 { print $3 }' | LC_ALL=C sort |
        diff -u shared - || fail "the static library shows other symbols than the shared one"
    cat > other.rs << 'END'
#[unsafe(no_mangle)]
pub extern "C" fn other(text: *const std::ffi::c_char) -> usize {
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    std::panic::catch_unwind(|| format!("{text:?}").len()).unwrap_or(0)
}
END
    rustc --edition 2024 --crate-type staticlib other.rs
    { echo 'unsigned long other(const char *text);'; sed 's/int main(void)/int moves(void)/' "$source/examples/minimal.c"
      echo 'int main(void) { return other("hi") == 4 ? moves() : 2; }'; } > both.c
    static=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs datatransport-static)
    # All of the other one, too, not only what a linker would take from it.
    # shellcheck disable=SC2086 # options
    cc -D_GNU_SOURCE both.c -Wl,--whole-archive libother.a -Wl,--no-whole-archive $static -o both
    moves_a_block ./both
    ;;
find_package)
    builds "$prefix" c
    refused "$major.$((minor + 1))" "version: $version"
    refused "$((major + 1)).0" "version: $version"
    refused "$major.$minor COMPONENTS rdma" 'it has no components, and so no "rdma"'
    ;;
moved_prefix)
    mkdir elsewhere
    cp -a "$prefix" elsewhere/moved
    moved=$PWD/elsewhere/moved
    ! grep -rlF "$prefix" "$moved" || fail "these have the prefix in them"
    builds "$moved" c cxx
    [ "$(PKG_CONFIG_PATH=$moved/lib/pkgconfig pkg-config --cflags datatransport |
        xargs -n 1 | sed -n 's/^-I//p' | xargs realpath)" = "$moved/include" ] ||
        fail "pkg-config names another folder"
    uses "$moved/bin/dt_perf" "$moved/bin/../lib/$soname"
    ;;
subdirectory)
    mkdir source
    cp "$consumers/subproject/CMakeLists.txt" "$source/examples/minimal.c" source
    # As a submodule it would have no folder of its own that cargo has built in; here that is shared.
    cmake -S source -B build -DSOURCE="$source" > log 2>&1 && cmake --build build > log 2>&1 &&
        cmake --install build --prefix "$PWD/prefix" > log 2>&1 || fail "$(cat log)"
    moves_a_block build/shared
    moves_a_block build/static
    has_it_inside build/static
    # The library and its tools are installed only where that is asked for.
    [ "$(cd prefix && find . -type f)" = ./bin/shared ] || fail "$(find prefix -type f)"
    ;;
packager)
    # Another folder of libraries, files that are not yet where they will be, no debug information, and
    # no `cmake --build` before.
    cmake -S "$source" -B build -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib64 > log 2>&1 &&
        DESTDIR=$PWD/dest cmake --install build --strip > log 2>&1 || fail "$(cat log)"
    listed dest/usr lib64
    # It is this build's library that dt_perf is linked with, not one that cargo has left in the sources.
    [ "$(realpath build/tools/dt_perf/lib/$soname)" = "$PWD/build/lib/libdatatransport.so.$version" ] ||
        fail "dt_perf uses $(readlink build/tools/dt_perf/lib/$soname)"
    if readelf -S dest/usr/lib64/libdatatransport.so | grep debug_info > /dev/null; then
        fail "--strip has not stripped the library"
    fi
    for program in "$prefix/bin/dt_perf" dest/usr/bin/dt_perf; do
        "$program" --pool 4M --rounds 1 --transfers 4 --blocks 4 --subjects local --verify > out 2>&1 ||
            fail "$program has failed: $(cat out)"
    done
    uses "$PWD/dest/usr/bin/dt_perf" "$PWD/dest/usr/bin/../lib64/$soname"
    cc -D_GNU_SOURCE "$source/examples/minimal.c" -o minimal -Wl,-rpath,"$PWD/dest/usr/lib64" \
        $(PKG_CONFIG_PATH=$PWD/dest/usr/lib64/pkgconfig pkg-config --cflags --libs datatransport)
    moves_a_block ./minimal
    ;;
man_page)
    # Word for word what --help says, but for the headings that it has not.
    "$prefix/bin/dt_perf" --help | tr -s ' \n' '\n\n' | sed '1s/:$//' > help
    sed -e '/^[.]SH \(NAME\|SYNOPSIS\|DESCRIPTION\)$/d' -e 's/^[.]SH //' -e '/^[.]/d' \
        -e 's/\\-/-/g; s/\\e/\\/g; s/^\\&//' "$prefix/share/man/man1/dt_perf.1" |
        sed '1s/ - / /; 1s/$/./' | tr -s ' \n' '\n\n' | diff -u help - ||
        fail "the manual page does not say what dt_perf --help says"
    ;;
*)
    fail "there is no such test"
    ;;
esac
