#!/usr/bin/env bash
# Long runs: what scripts/test.sh does for seconds, for as long as you say. Installs what is missing.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

usage() {
    cat >&2 << 'END'
usage: scripts/soak.sh sim [--programs N] [--seed S]
           random programs on simulated transports, against a model
       scripts/soak.sh chaos [--minutes N] [--seed S] [--backend local|nixl|nixl_tcp]
           real processes that are killed, stopped and restarted while they transfer
       scripts/soak.sh fuzz [--minutes N] [TARGET...]
           bytes and calls made up by a fuzzer, N minutes for each target
END
    exit 2
}

# Real processes for some minutes, on one setting or on all three side by side. What a failed run did
# last is in build/chaos-SETTING.journal.
chaos() {
    local minutes=10 seed=0 backend="" settings=(local nixl nixl_tcp) setting program pids=() failed=0
    while [ $# -gt 0 ]; do
        [ $# -ge 2 ] || usage
        case $1 in
            --minutes) minutes=$2 ;;
            --seed) seed=$2 ;;
            --backend) backend=$2 ;;
            *) usage ;;
        esac
        shift 2
    done
    [[ $minutes =~ ^[0-9]+$ && $seed =~ ^[0-9]+$ ]] || usage
    case $backend in
        "") ;;
        local | nixl | nixl_tcp) settings=("$backend") ;;
        *) usage ;;
    esac
    need_tools cc c++ make cmake valgrind python3
    need_libclang
    need_rust
    need_nixl
    build_library
    build_programs c_tests build/c_tests -DDT_NIXL_LIB_DIR="$PWD/$nixl_lib_dir" -DDT_TEST_NIXL=ON
    program=build/c_tests/chaos/chaos
    for setting in "${settings[@]}"; do
        (
            export DT_BACKEND=${setting%_tcp} DT_NIXL_LIB_DIR=$PWD/$nixl_lib_dir NIXL_LOG_LEVEL=FATAL
            [ "$setting" != nixl_tcp ] || export UCX_TLS=tcp
            rm -f "build/chaos-$setting.journal"
            "$program" --seconds $((minutes * 60)) --seed "$seed" \
                --journal "build/chaos-$setting.journal" 2>&1 | sed -u "s/^/$setting: /"
        ) &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || failed=1
    done
    return $failed
}

case ${1:-} in
    chaos) shift && chaos "$@" ;;
    *) usage ;;
esac
