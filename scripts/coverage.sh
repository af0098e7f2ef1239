#!/usr/bin/env bash
# How much of src/ the whole suite runs, in lines and branches, file by file; fails when a file of
# scripts/coverage/pure.txt is not run to its last line. Installs what is missing.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

case ${1:-} in
    "") rust=() left_out='' ;;
    # What tells about the pure modules.
    --short) rust=(--lib) left_out='|[.]nixl|^leak_|^integration_' ;;
    *) die "usage: scripts/coverage.sh [--short]   (--short: unit tests, and those of the C API on LOCAL)" ;;
esac

# need_llvm_tools: llvm_profdata and llvm_cov, which must be as new as the compiler's LLVM.
need_llvm_tools() {
    local folder major
    folder=$(rustc --print target-libdir)/../bin
    if [ ! -x "$folder/llvm-cov" ] && command -v rustup > /dev/null; then
        rustup component add llvm-tools > /dev/null 2>&1 || true
    fi
    llvm_profdata=$folder/llvm-profdata llvm_cov=$folder/llvm-cov
    [ -x "$llvm_cov" ] && return
    major=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
    command -v "llvm-cov-$major" > /dev/null || install_packages "llvm-$major"
    llvm_profdata=llvm-profdata-$major llvm_cov=llvm-cov-$major
}

need_tools cc c++ make nm cmake valgrind python3
need_libclang
need_rust
need_nixl
need_llvm_tools

folder=$PWD/build/coverage
rm -rf "$folder/raw"
mkdir -p "$folder/raw"
# Runs of one program share four files; children that are killed leave nothing.
export LLVM_PROFILE_FILE="$folder/raw/%4m.profraw"
export RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/coverage/rustc.sh

say "cargo test"
cargo test --locked "${rust[@]}" 2>&1 | tee "$folder/cargo-test.log"
cargo test --locked "${rust[@]}" --no-run --message-format=json 2> /dev/null |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' > "$folder/objects"
[ -s "$folder/objects" ] || die "no test program"

say "library"
cargo build --lib --locked
cp target/debug/libdatatransport.so "$folder/"
echo "$folder/libdatatransport.so" >> "$folder/objects"
unset RUSTC_WORKSPACE_WRAPPER

say "C and C++ programs"
cmake -S c_tests -B "$folder/c_tests" -DDT_LIBRARY="$folder/libdatatransport.so" \
    -DDT_INCLUDE_DIR="$PWD/include" -DDT_NIXL_LIB_DIR="$PWD/$nixl_lib_dir" -DDT_TEST_NIXL=ON > /dev/null
cmake --build "$folder/c_tests" --parallel "$(nproc)" -- --no-print-directory
say "ctest"
# The library is not what it is for users: it has what measures, which stays behind when it is unloaded, and is slow.
left_out="^link_(abi|needed|undefined|install)|^load_library|^integration_bounded_calls|^example_readme$left_out"
ctest --test-dir "$folder/c_tests" --parallel "$(nproc)" --output-on-failure -E "$left_out"

say "coverage"
"$llvm_profdata" merge --sparse -o "$folder/all.profdata" "$folder"/raw/*.profraw
objects=()
while read -r object; do
    objects+=(--object "$object")
done < "$folder/objects"
"$llvm_cov" export --format=lcov --instr-profile "$folder/all.profdata" "${objects[@]}" \
    --sources "$PWD/src" > "$folder/all.lcov"
python3 scripts/coverage/report.py "$folder/all.lcov" scripts/coverage/pure.txt | tee "$folder/report.txt"
