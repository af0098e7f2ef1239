#!/usr/bin/env bash
# Everything that must hold: format, lints, Rust tests, the release library, C and C++ tests, examples.
# Installs what is missing. Stops at the first failure; the last lines are the counts.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

need_tools cc c++ make nm cmake valgrind python3
need_libclang
need_rust fmt clippy
need_nixl

mkdir -p build
say "cargo fmt"
cargo fmt --check
say "cargo clippy"
cargo clippy --all-targets --locked -- -D warnings
say "cargo test"
cargo test --locked 2>&1 | tee build/cargo-test.log
say "release library"
build_library
say "C and C++ programs"
build_programs c_tests build/c_tests -DDT_NIXL_LIB_DIR="$PWD/$nixl_lib_dir" -DDT_TEST_NIXL=ON
say "ctest"
ctest --test-dir build/c_tests --parallel 2 --output-on-failure 2>&1 | tee build/ctest.log
say "the report of scripts/bench.sh"
python3 -m unittest discover --start-directory scripts/bench 2>&1 | tee build/bench-tests.log
grep -q '^Ran [1-9]' build/bench-tests.log || die "no test of the report has run"

# What processes of a test run is called "process" and is no test of its own.
rust=$(awk '/^test result: ok/ { n += $4 } /^test process \.\.\. ok/ { n-- } END { print n + 0 }' \
    build/cargo-test.log)
ignored=$(awk '/^test result: ok/ { n += $8 } END { print n + 0 }' build/cargo-test.log)
c=$(grep -c ' Passed ' build/ctest.log)
[ "$rust" -gt 0 ] || die "no Rust test has run"
[ "$c" -gt 0 ] || die "no C test has run"
say "$rust Rust tests passed, $ignored ignored; $c C, C++ and example tests passed"
# A test that could not check something says so, and that is shown also when it passed.
grep -h '^SKIPPED' build/cargo-test.log build/bench-tests.log build/*/Testing/Temporary/LastTest.log || true
