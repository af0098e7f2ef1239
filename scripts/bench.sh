#!/usr/bin/env bash
# Measures the library beside the machine's limit and beside raw NIXL, and writes the report; --help says how.
set -euo pipefail

caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

usage='usage: scripts/bench.sh [--quick] [--with-vllm] [--no-charts] [--output FOLDER]'

help() {
    cat << END
$usage

Builds the library and dt_perf, measures the standard matrix (less than 20 minutes on 2 idle cores), and
writes performance.md and its charts into docs/. All figures are in build/bench/*.json.

  --quick          fewer shapes and rounds, 2 minutes: rough, and written to build/bench
  --with-vllm      vLLM's own NIXL transport, too, in turns with dt_perf: fetches vLLM's wheel (320 MiB) from PyPI
  --no-charts      tables only, without matplotlib, which is fetched from PyPI (40 MiB) otherwise
  --output FOLDER  where to write

Needs 8 GiB of memory, and a machine that does nothing else.
END
}

# Everything about the arguments is said before anything is installed or built.
quick=
with_vllm=
charts=1
output=
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) help; exit ;;
        --quick) quick=1 ;;
        --with-vllm) with_vllm=1 ;;
        --no-charts) charts= ;;
        --output)
            [ $# -ge 2 ] && [ -n "$2" ] || die "--output needs a folder"
            output=$2
            # Named as seen from where the caller is.
            [ "${output#/}" != "$output" ] || output=$caller/$output
            shift ;;
        *) die "there is no option $1; $usage" ;;
    esac
    shift
done
if [ -z "$output" ]; then
    output=docs
    [ -z "$quick" ] || output=build/bench
fi

load=$(cut -d ' ' -f 1 /proc/loadavg)
started=$(date -u '+%Y-%m-%d %H:%M UTC')
begin=$SECONDS

need_tools cc c++ make cmake python3
# What need_tools installs is only the smallest part of it.
python3 -c 'import json, statistics' 2> /dev/null || install_packages python3
need_libclang
need_rust
[ -n "${DT_NIXL_LIB_DIR:-}" ] || need_nixl
export DT_NIXL_LIB_DIR=${DT_NIXL_LIB_DIR:-$PWD/$nixl_lib_dir}
if [ -n "$charts$with_vllm" ]; then
    python3 -m pip --version > /dev/null 2>&1 || install_packages python3-pip
fi
if [ -n "$charts" ] && ! scripts/bench/fetch.sh; then
    die "matplotlib could not be fetched: see above, or leave the charts out with --no-charts"
fi
if [ -n "$charts" ]; then
    (cd scripts/bench && PYTHONPATH=../../third_party/python_bench python3 -m unittest --buffer test_charts)
fi
[ -z "$with_vllm" ] || scripts/vllm.sh > /dev/null || die "vLLM could not be fetched: see above"
build_library
build_programs tools/dt_perf build/dt_perf

# cpu_times: jiffies of all processors: idle, and all.
cpu_times() {
    awk '/^cpu / { for (i = 2; i <= 9; i++) all += $i; print $5 + $6, all }' /proc/stat
}

# busy_percent: what others use of all processors, for two seconds; the load average also knows our own build.
busy_percent() {
    local idle_before all_before idle all
    read -r idle_before all_before < <(cpu_times)
    sleep 2
    read -r idle all < <(cpu_times)
    echo $((100 - 100 * (idle - idle_before) / (all - all_before)))
}

# python_of_nixl: a Python for which the bindings of the wheel are.
python_of_nixl() {
    local python
    for python in python3.11 python3 /usr/bin/python3; do
        PYTHONPATH=third_party/nixl:third_party/python "$python" -c 'import numpy, nixl_cu12._bindings, os; os._exit(0)' \
            > /dev/null 2>&1 && echo "$python" && return
    done
    die "vLLM's transport needs Python 3.11, for which NIXL's wheel is"
}

# perf NAME OPTION...: one run of dt_perf, into build/bench/NAME.json.
perf() {
    local name=$1 from=$SECONDS
    shift
    printf '%-24s' "$name"
    build/dt_perf/dt_perf --json --quiet "$@" > "build/bench/$name.json" ||
        die "dt_perf $* has failed: see above"
    printf '%4d s\n' $((SECONDS - from))
}

rm -rf build/bench
mkdir -p build/bench
# Settings of the caller's would be measured otherwise, and called the default.
unset UCX_TLS DT_BACKEND

python=
[ -z "$with_vllm" ] || python=$(python_of_nixl)
busy=$(busy_percent)
if [ "$busy" -gt 10 ]; then
    say "this machine is not idle: others use $busy % of its processors, so the figures will be rough"
fi
commit=$(git rev-parse --short HEAD 2> /dev/null || echo unknown)
[ -z "$(git status --porcelain --untracked-files=no 2> /dev/null)" ] || commit="$commit with changes"
python3 - "$commit" "$started" "$(rustc --version); $(cc --version | head -n 1)" \
    "$load, and others used $busy % of the processors" "$busy" "$with_vllm" "$quick" > build/bench/run.json << 'END'
import json
import sys

commit, started, compilers, load, busy, vllm, quick = sys.argv[1:]
with open("scripts/vllm.sh", encoding="utf-8") as text:
    version = next(line.split('"')[1].split()[0] for line in text if line.startswith("vllm="))
print(json.dumps({
    "commit": commit, "started": started, "compilers": compilers, "load": load, "busy": int(busy) > 10,
    "vllm": version if vllm else None, "quick": bool(quick),
}))
END

# The matrix. Names are what the report looks for: matrix, latency, submit, scaling.
say "measuring"
if [ -n "$quick" ]; then
    sizes=(4 64 2048) sizes_tcp=(64)
    depths=1,100,10000 peers=(1 10) peers_nixl=(1 4) blocks=1,100,10000 regions=(1 64) calls=20
    rest=(--rounds=1 --seconds=1.5)
    round=(--rounds=3 --seconds=0.05 --pool=128M) curve=("${round[@]}") again=(--rounds=5 "${round[@]:1}")
else
    sizes=(4 16 64 256 2048) sizes_tcp=("${sizes[@]}")
    depths=1,10,100,1000,10000,100000 peers=(1 10 100 1000) peers_nixl=(1 4 16)
    blocks=1,10,100,1000,10000,100000,1000000 regions=(1 16 256 2048 16384) calls=100
    rest=(--rounds=2 --seconds=2)
    round=(--rounds=7 --seconds=0.15 --pool=512M) again=(--rounds=21 "${round[@]:1}")
    # A million blocks are seconds, and nothing is compared here.
    curve=(--rounds=3 --seconds=0.15 --pool=512M)
fi
both=(--op="write,read" --pattern="scattered,contiguous")
ours=local,local-unmapped,nixl
for size in "${sizes[@]}"; do
    perf "matrix-$size-KiB" "${both[@]}" "${round[@]}" --block-size="${size}K" --blocks=$((65536 / size))
done
for size in "${sizes_tcp[@]}"; do
    perf "matrix-tcp-$size-KiB" "${both[@]}" "${round[@]}" --block-size="${size}K" --blocks=$((65536 / size)) \
        --ucx-tls=tcp --subjects=nixl,nixl-raw
done
one=(--op="write,read" --blocks=1 --block-size="4K,64K" "${round[@]}")
perf latency "${one[@]}"
perf latency-tcp "${one[@]}" --ucx-tls=tcp --subjects=nixl,nixl-raw
# Enough calls for a p99.
perf submit --pattern=scattered,contiguous --blocks=8192 --block-size=4K --subjects="$ours" \
    --rounds=5 --transfers=$calls --pool=64M
perf add-peer --test=add-peer --subjects="$ours,nixl-raw"
perf in-flight --test=in-flight --subjects="$ours,nixl-raw"
perf idle --test=idle --subjects=local,nixl "${rest[@]}"
# What it costs to have more of something; a later --pool is the one that counts.
# So many runs are queued: fewer have moved when their submission returns, and then nothing is in flight.
queued=(--block-size=256 --blocks=20)
perf scaling-depth "${curve[@]}" --depth="$depths" "${queued[@]}" --subjects="$ours"
for count in "${peers[@]}"; do
    perf "scaling-peers-$count" "${curve[@]}" --pool=16M --peers="$count" "${queued[@]}" --depth=64 \
        --subjects=local,local-unmapped
done
# Each is a process with a NIXL of its own.
for count in "${peers_nixl[@]}"; do
    perf "scaling-peers-nixl-$count" "${curve[@]}" --pool=16M --peers="$count" "${queued[@]}" --depth=64 \
        --subjects=nixl
done
perf scaling-blocks "${curve[@]}" --blocks="$blocks" --block-size=256 --subjects="$ours"
# Larger than the memory: what is not used is not touched.
for region in "${regions[@]}"; do
    perf "scaling-region-$region-MiB" "${curve[@]}" --pool=1M --region="${region}M" --block-size=4K --blocks=16 \
        --subjects="$ours"
done
if [ -n "$with_vllm" ]; then
    printf '%-24s' vllm
    from=$SECONDS
    PYTHONPATH=third_party/vllm:third_party/nixl:third_party/python NIXL_LOG_LEVEL=FATAL \
        "$python" scripts/bench/vllm_rounds.py build/bench/vllm.json build/dt_perf/dt_perf \
        ${quick:+--rounds=3 --seconds=0.2 --pool=134217728} || die "vLLM's transport could not be measured: see above"
    printf '%4d s\n' $((SECONDS - from))
else
    say "vLLM's transport is left out: --with-vllm measures it, too"
fi

say "once more: transfers that fell short of a gate"
shapes=$(python3 scripts/bench/gates.py build/bench)
number=0
while read -r -a shape; do
    [ ${#shape[@]} -eq 0 ] || perf "again-$((++number))" "${shape[@]}" "${again[@]}"
done <<< "$shapes"

say "report"
PYTHONPATH=${charts:+third_party/python_bench} python3 scripts/bench/report.py build/bench "$output" \
    ${charts:+--charts}
say "written to $output/performance.md, after $(((SECONDS - begin + 59) / 60)) minutes"
