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

# stage NAME: where the time goes can be read off.
stage() { say "$1 (after $((SECONDS / 60)) min $((SECONDS % 60)) s)"; }

mkdir -p build
stage "cargo fmt"
cargo fmt --check
stage "cargo clippy"
cargo clippy --all-targets --locked -- -D warnings
stage "third-party notices"
scripts/notices.py | diff -u THIRD_PARTY_NOTICES - ||
    die "the notices are not those of Cargo.lock: scripts/notices.py > THIRD_PARTY_NOTICES"
stage "Rust tests; besides, in the background, what comes after them is built: build/builds.log"
build_the_rest() {
    renice -n 10 $BASHPID
    need_vllm
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
scripts/rust_tests.py 2>&1 | tee build/rust-tests.log
stage "release library, C and C++ programs, library with sanitizer"
wait "$builds" || die "a build has failed: $(tail -n 40 build/builds.log)"
tail -n 1 build/builds.log
stage "ctest"
# More than there are cores: many of them wait, for the end of a process or for UCX to find it out.
ctest --test-dir build/c_tests --parallel $((2 * $(nproc))) --output-on-failure 2>&1 | tee build/ctest.log
stage "the report of scripts/bench.sh"
python3 -m unittest discover --start-directory scripts/bench --pattern test_report.py 2>&1 |
    tee build/bench-tests.log
grep -q '^Ran [1-9]' build/bench-tests.log || die "no test of the report has run"
stage "reference and guide"
scripts/docs.sh
stage "Python package"
PYTHONPATH=python python3 -m unittest discover --start-directory python/tests 2>&1 | tee build/python-tests.log
grep -q '^Ran [1-9]' build/python-tests.log || die "no test of the Python package has run"
stage "AddressSanitizer, in short"
# The one for threads is another build of the library, for which there is no time here.
scripts/sanitize.sh address --short 2>&1 | tee build/sanitize.log

c=$(grep -c ' Passed ' build/ctest.log)
[ "$c" -gt 0 ] || die "no C test has run"
stage "everything has passed"
tail -n 1 build/rust-tests.log
printf '%s C, C++ and example tests passed\n' "$c"
printf '%s tests of the Python package passed\n' \
    "$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' build/python-tests.log)"
sed -n 's/^== \([0-9]* tests passed with\)/\1/p' build/sanitize.log
# A test that could not check something says so, and that is shown also when it passed.
grep -h '^SKIPPED' build/rust/*.log build/python-tests.log \
    build/{c_tests,sanitize/address}/Testing/Temporary/LastTest.log || true
