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

# is_number TEXT
is_number() {
    [[ $1 =~ ^(0|[1-9][0-9]*)$ ]]
}

# soak_sim [--programs N] [--seed S]: random programs on simulated transports. Replays one:
# --programs 1 --seed S.
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
    is_number "$programs" && is_number "${seed:-0}" || usage
    need_tools cc c++
    need_libclang
    need_rust
    export DT_SIM_PROGRAMS=$programs
    [ -z "$seed" ] || export DT_SIM_SEED=$seed
    mkdir -p build
    cargo test --locked --profile soak --lib -- --nocapture --exact \
        transport::tests::simulation::programs_of_seeds 2>&1 | tee build/soak-sim.log
    grep -q '^test result: ok. 1 passed' build/soak-sim.log || die "the simulation has not run"
}

# soak_chaos [--minutes N] [--seed S] [--backend B]: real processes, on one setting or on all three
# side by side. What a failed run did last is in build/chaos-SETTING.journal.
soak_chaos() {
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
    is_number "$minutes" && is_number "$seed" || usage
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

# soak_fuzz [--minutes N] [TARGET...]
soak_fuzz() {
    local minutes=10 target failed=0 targets=()
    while [ $# -gt 0 ]; do
        case $1 in
            --minutes) minutes=${2:?} && shift 2 ;;
            -*) usage ;;
            *) targets+=("$1") && shift ;;
        esac
    done
    is_number "$minutes" || usage
    need_rust
    need_libclang
    need_tools c++
    if ! cargo fuzz --version > /dev/null 2>&1; then
        say "installing cargo-fuzz, for this user"
        cargo install cargo-fuzz --locked --quiet ||
            die "cargo-fuzz could not be installed; do it in another way, then try again"
    fi
    # The sanitizer is no stable feature; it works all the same.
    export RUSTC_BOOTSTRAP=1
    [ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cargo fuzz list)
    [ ${#targets[@]} -gt 0 ] || die "there are no targets"
    say "building the targets"
    for target in "${targets[@]}"; do
        cargo fuzz build "$target" || die "there is no target $target, or it cannot be built"
    done
    for target in "${targets[@]}"; do
        fuzz_one "$target" "$minutes" || failed=1
    done
    return "$failed"
}

# fuzz_one TARGET MINUTES: what it finds goes to fuzz/found, what breaks to fuzz/artifacts.
fuzz_one() {
    local target=$1 log=build/fuzz-$1.log options=() status=0
    mkdir -p build "fuzz/found/$target"
    [ ! -f "fuzz/dictionaries/$target.dict" ] ||
        options+=("-dict=fuzz/dictionaries/$target.dict")
    say "$target, for $2 minutes; the log is $log"
    cargo fuzz run "$target" "fuzz/found/$target" "fuzz/corpus/$target" -- "${options[@]}" \
        -max_total_time=$(($2 * 60)) -timeout=60 -malloc_limit_mb=512 -print_final_stats=1 \
        > "$log" 2>&1 || status=$?
    awk '/ cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") last = $(i + 1) }
         / INITED / || first == "" { first = last }
         /^stat::number_of_executed_units/ { runs = $2 }
         /^stat::average_exec_per_sec/ { rate = $2 }
         /^stat::new_units_added/ { added = $2 }
         END { printf "%d executions, %d a second; edges covered: %d, %d of them new; %d new inputs\n",
                      runs, rate, last, last - first, added }' "$log"
    [ "$status" -eq 0 ] && return
    grep -E 'panicked at|ERROR: |Test unit written' -A 1 "$log" | head -n 20 || true
    say "$target: broken; the input is in fuzz/artifacts/$target"
    return 1
}

case ${1:-} in
    sim) shift && soak_sim "$@" ;;
    chaos) shift && soak_chaos "$@" ;;
    fuzz) shift && soak_fuzz "$@" ;;
    *) usage ;;
esac
