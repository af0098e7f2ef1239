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

# Random programs on simulated transports. Replays one: --programs 1 --seed S.
soak_sim() {
    local programs=1000000 seed=
    while [ $# -gt 0 ]; do
        case $1 in
            --programs) programs=${2:?} ;;
            --seed) seed=${2:?} ;;
            *) usage ;;
        esac
        shift 2
    done
    need_tools cc c++
    need_libclang
    need_rust
    export DT_SIM_PROGRAMS=$programs
    [ -z "$seed" ] || export DT_SIM_SEED=$seed
    cargo test --locked --profile soak --lib -- --nocapture --exact \
        transport::tests::simulation::programs_of_seeds
}

case ${1:-} in
    sim) soak_sim "${@:2}" ;;
    *) usage ;;
esac
