#!/bin/sh
# Fetches from PyPI what scripts/bench.sh draws with, and what it compares with. Everything is pinned by
# hash and goes to third_party/; nothing is installed.
#
# fetch.sh charts: matplotlib, into third_party/python_bench, for the Python that runs this. Not Debian's package:
#   the same figures have to give the same charts everywhere, so it has to be the same matplotlib.
# fetch.sh vllm: of vLLM's wheel the few files that are its NIXL transport, into third_party/vllm. pip fetches
#   the whole wheel (320 MiB), of which nothing else is kept.
set -eu

vllm="vllm==0.33.0 --hash=sha256:4b6bdec4ab269990bf70d45a3c1e94c3760a27064513760193b26d6f0da883aa"

here=$(cd "$(dirname "$0")" && pwd)
third_party=$(cd "$here/../.." && pwd)/third_party

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "fetch.sh: the pinned wheels are for Linux x86_64, and this is $(uname -sm)" >&2
    exit 1
fi

# is_there FOLDER PINNED: what is written last has been written.
is_there() {
    [ "$(cat "$third_party/$1/.pinned" 2> /dev/null)" = "$2" ]
}

charts() {
    pinned="$(python3 -c 'import sys; print(sys.version_info[:2])') $(cat "$here/requirements.txt")"
    is_there python_bench "$pinned" && return
    rm -rf "$third_party/python_bench"
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary=:all: --no-compile --root-user-action=ignore \
        --target "$third_party/python_bench" \
        --requirement "$here/requirements.txt" >&2
    printf '%s\n' "$pinned" > "$third_party/python_bench/.pinned"
}

vllm() {
    is_there vllm "$vllm" && return
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    echo "$vllm" > "$work/requirements.txt"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary=:all: --python-version 3.11 --implementation cp --abi abi3 \
        --platform manylinux_2_28_x86_64 --dest "$work" --requirement "$work/requirements.txt" >&2
    rm -rf "$third_party/vllm"
    # Without the __init__.py of the folders above, which load all of vLLM.
    python3 - "$work"/*.whl "$third_party/vllm" << 'END'
import sys
import zipfile

wheel, folder = zipfile.ZipFile(sys.argv[1]), sys.argv[2]
for name in wheel.namelist():
    if (name == "vllm/distributed/nixl_utils.py" or name.endswith("dist-info/licenses/LICENSE")
            or name.startswith("vllm/v1/kv_offload/tiering/p2p/data/")):
        wheel.extract(name, folder)
END
    printf '%s\n' "$vllm" > "$third_party/vllm/.pinned"
}

case ${1:-} in
    charts) charts ;;
    vllm) vllm ;;
    *)
        echo "usage: fetch.sh charts|vllm" >&2
        exit 2
        ;;
esac
