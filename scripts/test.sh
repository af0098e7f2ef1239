#!/usr/bin/env bash
# Everything that must hold: format, lints, Rust tests, the release library, C and C++ tests, examples,
# and what can be seen in short with AddressSanitizer.
# Installs what is missing. Stops at the first failure; the last lines are the counts.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

need_tools cc c++ make nm cmake pkg-config valgrind python3 clang
need_libclang
need_rust fmt clippy
need_nixl

mkdir -p build
say "cargo fmt"
cargo fmt --check
say "cargo clippy"
cargo clippy --all-targets --locked -- -D warnings
say "third-party notices"
scripts/notices.py | diff -u THIRD_PARTY_NOTICES - ||
    die "the notices are not those of Cargo.lock: scripts/notices.py > THIRD_PARTY_NOTICES"
say "cargo test"
cargo test --locked 2>&1 | tee build/cargo-test.log
say "release library"
build_library
say "C and C++ programs"
build_programs c_tests build/c_tests -DDT_NIXL_LIB_DIR="$PWD/$nixl_lib_dir" -DDT_TEST_NIXL=ON
say "ctest"
# More than there are cores: many of them wait, for the end of a process or for UCX to find it out.
ctest --test-dir build/c_tests --parallel $((2 * $(nproc))) --output-on-failure 2>&1 | tee build/ctest.log
say "the report of scripts/bench.sh"
python3 -m unittest discover --start-directory scripts/bench --pattern test_report.py 2>&1 |
    tee build/bench-tests.log
grep -q '^Ran [1-9]' build/bench-tests.log || die "no test of the report has run"
# The one for threads is another build of the library, for which there is no time here.
scripts/sanitize.sh address --short 2>&1 | tee build/sanitize.log

# What processes of a test run is called "process" and is no test of its own.
rust=$(awk '/^test result: ok/ { n += $4 } /^test process \.\.\. ok/ { n-- } END { print n + 0 }' \
    build/cargo-test.log)
ignored=$(awk '/^test result: ok/ { n += $8 } END { print n + 0 }' build/cargo-test.log)
c=$(grep -c ' Passed ' build/ctest.log)
[ "$rust" -gt 0 ] || die "no Rust test has run"
[ "$c" -gt 0 ] || die "no C test has run"
say "$rust Rust tests passed, $ignored ignored; $c C, C++ and example tests passed"
sed -n 's/^== \([0-9]* tests passed with\)/\1/p' build/sanitize.log
# A test that could not check something says so, and that is shown also when it passed.
grep -h '^SKIPPED' build/cargo-test.log build/{c_tests,sanitize/address}/Testing/Temporary/LastTest.log || true
