#!/bin/sh
# Fetches NIXL for the tests: the PyPI wheel nixl-cu12 into third_party/nixl, and numpy, which its
# Python bindings want, into third_party/python. Both are pinned by hash, and are for one Python,
# whatever Python runs this: any from 3.9 on that has pip. Nothing is installed. Prints the folder for
# DT_NIXL_LIB_DIR.
set -eu

version=1.5.1
python=3.11
nixl="nixl-cu12==$version --hash=sha256:341d0dfa499f941c054614252f1d8047d1380e33f29c87707372ff5ec7d3779a"
numpy="numpy==1.26.4 --hash=sha256:666dbfb6ec68962c033a450943ded891bed2d54e6755e35e5835d63f4f6931d5"

root=$(cd "$(dirname "$0")/.." && pwd)
libs=$root/third_party/nixl/.nixl_cu12.mesonpy.libs

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "nixl.sh: the pinned wheels are for Linux x86_64; on $(uname -sm) install NIXL $version yourself" >&2
    exit 1
fi

# unpack FOLDER REQUIREMENT: that wheel, unpacked there, unless it is there already.
unpack() {
    folder=$root/third_party/$1
    [ "$(cat "$folder/.pinned" 2>/dev/null)" != "$2" ] || return 0
    rm -rf "$work"/*
    echo "$2" >"$work/requirements.txt"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary=:all: --python-version "$python" --implementation cp \
        --abi "cp3${python#3.}" --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux2014_x86_64 --dest "$work" --requirement "$work/requirements.txt" >&2
    rm -rf "$folder"
    mkdir -p "$folder"
    python3 -m zipfile -e "$work"/*.whl "$folder"
    # Written last: what was interrupted is fetched again.
    echo "$2" >"$folder/.pinned"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unpack nixl "$nixl"
unpack python "$numpy"
echo "$libs"
