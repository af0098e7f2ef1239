#!/bin/sh
# link_library.sh soname|needed|undefined LIBRARY SONAME
#
# What the shared library shows to a linker and asks from a loader.
set -eu
what=$1 library=$2 soname=$3

fail() {
    echo "$library: $*" >&2
    exit 1
}

# Names after a word in the dynamic section, for instance those of all NEEDED entries.
dynamic() {
    objdump -p "$library" | awk -v word="$1" '$1 == word { print $2 }'
}

case $what in
soname)
    [ "$(dynamic SONAME)" = "$soname" ] || fail "its SONAME is '$(dynamic SONAME)', not $soname"
    ;;
needed)
    for name in $(dynamic NEEDED); do
        case $name in
        libc.so.* | libgcc_s.so.* | libstdc++.so.* | ld-linux*.so.*) ;;
        *) fail "needs $name" ;;
        esac
    done
    ;;
undefined)
    # Nothing that acts on the whole process.
    if nm -D --undefined-only "$library" | awk '{ print $2 }' | sed 's/@.*//' |
        grep -E '^(atexit$|setenv$|putenv$|signal$)'; then
        fail "asks for these symbols"
    fi
    ;;
*)
    fail "$what is no test"
    ;;
esac
