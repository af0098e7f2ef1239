#!/usr/bin/env bash
# Everything that must hold: format, lints, Rust tests, the release library, C and C++ tests, examples,
# the installation, the reference, the Python package, and what can be seen in short with AddressSanitizer.
# Installs what is missing. Stops at the first failure; the last lines are the counts.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

need_tools cc c++ make nm cmake pkg-config valgrind python3 clang doxygen
need_libclang
need_rust fmt clippy
need_nixl
need_vllm

mkdir -p build
say "cargo fmt"
cargo fmt --check
say "cargo clippy"
cargo clippy --all-targets --locked -- -D warnings
say "third-party notices"
scripts/notices.py | diff -u THIRD_PARTY_NOTICES - ||
    die "the notices are not those of Cargo.lock: scripts/notices.py > THIRD_PARTY_NOTICES"
say "cargo test; besides, in the background, the builds for what comes after it: build/builds.log"
# Most tests wait for processes and not for the processor.
build_the_rest() {
    renice -n 10 $BASHPID
    build_library
    build_programs c_tests build/c_tests -DDT_NIXL_LIB_DIR="$PWD/$nixl_lib_dir" -DDT_TEST_NIXL=ON
    scripts/sanitize.sh address --build
}
# In a group of its own, to be ended with all that it has started.
set -m
build_the_rest > build/builds.log 2>&1 < /dev/null &
builds=$!
set +m
trap 'kill -- -$builds 2> /dev/null || true' EXIT
cargo test --locked 2>&1 | tee build/cargo-test.log
say "release library, C and C++ programs, library with sanitizer"
wait "$builds" || die "a build has failed: $(tail -n 40 build/builds.log)"
tail -n 1 build/builds.log
say "ctest"
# More than there are cores: many of them wait, for the end of a process or for UCX to find it out.
ctest --test-dir build/c_tests --parallel $((2 * $(nproc))) --output-on-failure 2>&1 | tee build/ctest.log
say "the report of scripts/bench.sh"
python3 -m unittest discover --start-directory scripts/bench --pattern test_report.py 2>&1 |
    tee build/bench-tests.log
grep -q '^Ran [1-9]' build/bench-tests.log || die "no test of the report has run"
say "reference and guide"
scripts/docs.sh
say "Python package"
PYTHONPATH=python python3 -m unittest discover --start-directory python/tests 2>&1 | tee build/python-tests.log
grep -q '^Ran [1-9]' build/python-tests.log || die "no test of the Python package has run"
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
python=$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' build/python-tests.log)
say "$python tests of the Python package passed"
sed -n 's/^== \([0-9]* tests passed with\)/\1/p' build/sanitize.log
# A test that could not check something says so, and that is shown also when it passed.
grep -h '^SKIPPED' build/{cargo-test,python-tests}.log \
    build/{c_tests,sanitize/address}/Testing/Temporary/LastTest.log || true
