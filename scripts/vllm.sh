#!/bin/sh
# Fetches from PyPI what is compared with, and must be compatible with: of vLLM's wheel the few files that
# are its two NIXL transports, the sessions that use them, and how it loads plugins and writes its log, into
# third_party/vllm, with the two packages that the sessions import (msgspec, pyzmq; for the Python that
# NIXL's wheel is for, see nixl.sh). All are pinned by hash; nothing is installed, and nothing of it is
# committed. pip fetches the whole wheel of vLLM (320 MiB), of which nothing else is kept. Prints the folder.
set -eu

vllm="vllm==0.33.0 --hash=sha256:4b6bdec4ab269990bf70d45a3c1e94c3760a27064513760193b26d6f0da883aa"
msgspec="msgspec==0.23.0 --hash=sha256:2e514e5b2a23e376f545f4962834b7312d9400705627c53330116b46daddfbe3"
pyzmq="pyzmq==27.3.0 --hash=sha256:477b8ad30d66fc905c5388351e83b9ac25824b00e82c0d052b72ea6392636dfd"
# Without the __init__.py of the folders above, which load all of vLLM.
files="vllm/envs.py
vllm/logger.py
vllm/logging_utils/*
vllm/plugins/__init__.py
vllm/distributed/nixl_utils.py
vllm/distributed/ec_transfer/ec_connector/cpu/__init__.py
vllm/distributed/ec_transfer/ec_connector/cpu/control/*
vllm/distributed/ec_transfer/ec_connector/cpu/data/*
vllm/distributed/ec_transfer/ec_connector/cpu/protocol.py
vllm/distributed/ec_transfer/ec_connector/cpu/scheduler/embedding_cache.py
vllm/distributed/ec_transfer/ec_connector/cpu/session.py
vllm/distributed/ec_transfer/ec_connector/cpu/utils.py
vllm/v1/kv_offload/tiering/p2p/__init__.py
vllm/v1/kv_offload/tiering/p2p/control/*
vllm/v1/kv_offload/tiering/p2p/data/*
vllm/v1/kv_offload/tiering/p2p/session/*
vllm-*.dist-info/licenses/LICENSE"

folder=$(cd "$(dirname "$0")/.." && pwd)/third_party/vllm

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "vllm.sh: the pinned wheels are for Linux x86_64, and this is $(uname -sm)" >&2
    exit 1
fi

pinned="$vllm
$msgspec
$pyzmq
$files"
if [ "$(cat "$folder/.pinned" 2> /dev/null)" != "$pinned" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    printf '%s\n' "$vllm" "$msgspec" "$pyzmq" > "$work/requirements.txt"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary=:all: --python-version 3.11 --implementation cp --abi abi3 --abi cp311 \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_26_x86_64 --dest "$work" \
        --requirement "$work/requirements.txt" >&2
    rm -rf "$folder"
    python3 - "$work" "$folder" "$files" << 'END'
import fnmatch
import pathlib
import sys
import zipfile

work, folder, files = sys.argv[1:]
patterns = files.split("\n")
for path in pathlib.Path(work).glob("*.whl"):
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        if path.name.startswith("vllm-"):
            for pattern in patterns:
                if not fnmatch.filter(names, pattern):
                    sys.exit(f"vllm.sh: the wheel has no {pattern}")
            names = [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
        wheel.extractall(folder, names)
END
    # Written last: what was interrupted is fetched again.
    printf '%s\n' "$pinned" > "$folder/.pinned"
fi
echo "$folder"
