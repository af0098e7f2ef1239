#!/usr/bin/env bash
# The C suite on a library with a sanitizer, and that the sanitizer is at work. Installs what is missing.
#
# A stable compiler can do so, with a switch, and has the sanitizers' runtimes. Programs are compiled by
# clang, but linked with the runtime that the library was made for. The standard library comes as it
# is, without sanitizer: what our code and our crates do is seen, and all that goes through malloc.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

usage() {
    cat >&2 << 'END'
usage: scripts/sanitize.sh address [--short] [--build] [-R PATTERN]
           AddressSanitizer and LeakSanitizer, in the programs also UndefinedBehaviorSanitizer
       scripts/sanitize.sh thread [--short] [--build] [-R PATTERN]
           ThreadSanitizer: the tests in which threads meet, on LOCAL
--short leaves out what takes long; --build builds, and runs nothing; PATTERN is ctest's, for names of tests.
END
    exit 2
}

case ${1:-} in
    address | thread) sanitizer=$1 ;;
    *) usage ;;
esac
shift
short=false build_only=false
tests=()
while [ $# -gt 0 ]; do
    case $1 in
        --short) short=true ;;
        --build) build_only=true ;;
        -R) tests=(-R "${2:-}"); shift ;;
        *) usage ;;
    esac
    shift
done

need_tools cc c++ make nm cmake clang python3
need_libclang
need_rust
need_nixl

target=$(rustc -vV | sed -n 's/^host: //p')
# The compiler of a distribution may have none.
runtime=$(find "$(rustc --print target-libdir)" -name "librustc*_rt.${sanitizer:0:1}san.a" | head -n 1)
[ -n "$runtime" ] || die "$(rustc --version) comes without the runtime of this sanitizer"

say "library with $sanitizer sanitizer"
RUSTC_WRAPPER="$PWD/scripts/sanitize/rustc.sh" CARGO_PROFILE_DEV_OPT_LEVEL=1 \
    RUSTFLAGS="-Zsanitizer=$sanitizer -Cunsafe-allow-abi-mismatch=sanitizer" \
    cargo build --lib --locked --target "$target"
folder=build/sanitize/$sanitizer
mkdir -p "$folder"
# The other sanitizer's library goes where this one is.
cp "target/$target/debug/libdatatransport.so" "$folder/"

say "C and C++ programs"
cmake -S c_tests -B "$folder" -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
    -DDT_LIBRARY="$PWD/$folder/libdatatransport.so" -DDT_INCLUDE_DIR="$PWD/include" \
    -DDT_SANITIZER="$sanitizer" -DDT_SANITIZER_RUNTIME="$runtime" \
    -DDT_NIXL_LIB_DIR="$PWD/$nixl_lib_dir" -DDT_TEST_NIXL=ON > /dev/null
cmake --build "$folder" --parallel "$(nproc)" -- --no-print-directory

if $build_only; then
    exit
fi

# listed NAME: what the list has for that sanitizer, or for its short version.
listed() {
    sed -n "s/^$1  *//p" scripts/sanitize/left_out.txt
}

left_out=$(listed "$sanitizer")
if $short; then
    left_out+=$'\n'$(listed "$sanitizer-short")
fi
say "left out"
printf '%s\n' "$left_out"
pattern=$(printf '%s\n' "$left_out" | awk 'NF { printf "%s%s", sep, $1; sep = "|" }')
if [ "$sanitizer" = thread ] && [ ${#tests[@]} -eq 0 ]; then
    tests=(-L threads)
fi

say "ctest"
here=$PWD/scripts/sanitize
symbolizer=$(command -v llvm-symbolizer || true)
export ASAN_OPTIONS="detect_leaks=1:detect_stack_use_after_return=1:external_symbolizer_path=$symbolizer"
export LSAN_OPTIONS="suppressions=$here/lsan.supp:print_suppressions=0"
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="suppressions=$here/tsan.supp:second_deadlock_stack=1:external_symbolizer_path=$symbolizer"
# UCX's change of the C library's memory functions takes longer than the rest of its loading, and is not looked at here.
export UCX_MEM_MMAP_HOOK_MODE=none
ctest --test-dir "$folder" --parallel "$(nproc)" --output-on-failure \
    "${tests[@]}" -E "^($pattern)\$" 2>&1 | tee "$folder/ctest.log"
# It can have nine groups in parentheses, and leaves out nothing if there are more.
! grep -q 'RegularExpression' "$folder/ctest.log" || die "ctest cannot read the list of what is left out"
passed=$(grep -c ' Passed ' "$folder/ctest.log" || true)
[ "$passed" -gt 0 ] || die "no test has run"
if [ "$sanitizer" = thread ] || [ ${#tests[@]} -gt 0 ]; then
    ctest --test-dir "$folder" --output-on-failure -R '^sanitizer_' > "$folder/sanitizer.log" ||
        die "the sanitizer is not at work: $(cat "$folder/sanitizer.log")"
fi
say "$passed tests passed with $sanitizer sanitizer"
