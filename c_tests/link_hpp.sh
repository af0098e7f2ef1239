#!/usr/bin/env bash
# link_hpp.sh compilers|functions INCLUDE_DIR NAMES
#
# What dt.hpp asks of a compiler, and whether it has all of dt.h: the file NAMES has a line for each function.
set -euo pipefail
what=$1 include=$2 names=$3
here=$(cd "$(dirname "$0")" && pwd)

case $what in
compilers)
    # The compiler that builds the tests is not the only one. Of clang's warnings all but those that
    # no header of C++17 can be without: what is old, what is padded, a class without a source file.
    if ! command -v clang++ > /dev/null; then
        echo "SKIPPED: dt.hpp with clang++, which is not installed"
        [ "${CI:-}" != true ] || exit 1
        exit 0
    fi
    check() {
        clang++ -Weverything -Wno-c++98-compat -Wno-c++98-compat-pedantic -Wno-padded \
            -Wno-weak-vtables -Wno-unknown-warning-option -Wno-unsafe-buffer-usage -Werror \
            -I"$include" -fsyntax-only "$@"
    }
    for standard in c++17 c++20 c++2b; do
        check -std=$standard -Wno-c++20-compat "$here/link_hpp.cpp"
    done
    check -std=c++17 -fno-exceptions -fno-rtti "$here/link_hpp_bare.cpp"
    if refusal=$(clang++ -std=c++14 -I"$include" -fsyntax-only "$here/link_hpp_bare.cpp" 2>&1) ||
        ! grep -m 1 'error: ' <<< "$refusal" | grep -q 'needs C++17'; then
        echo "an older standard is not refused first of all"
        exit 1
    fi
    for part in basics region; do
        echo "#include \"dt/$part.hpp\"" | check -x c++ -std=c++17 -
    done
    ;;
functions)
    # It says :: before each name of C that it uses.
    missing=$(grep -ohE '::dt_[a-z_]+' "$include"/dt.hpp "$include"/dt/*.hpp | tr -d : |
        LC_ALL=C sort -u | LC_ALL=C comm -13 - <(LC_ALL=C sort "$names"))
    [ -z "$missing" ] || { echo "dt.hpp has nothing for ${missing//$'\n'/, }"; exit 1; }
    ;;
*)
    echo "$what is no test"
    exit 1
    ;;
esac
