#!/bin/sh
# Fetches NIXL for the tests: the PyPI wheel nixl-cu12, of a pinned version and hash, unpacked into
# third_party/nixl, and numpy, which its Python bindings want, into third_party/python. Nothing is
# installed. Prints the folder for DT_NIXL_LIB_DIR.
set -eu

version=1.5.1
python=3.11
sha256=341d0dfa499f941c054614252f1d8047d1380e33f29c87707372ff5ec7d3779a

root=$(cd "$(dirname "$0")/.." && pwd)
target=$root/third_party/nixl
libs=$target/.nixl_cu12.mesonpy.libs
stamp=$target/.sha256

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "nixl.sh: the pinned wheel is for Linux x86_64; on $(uname -sm) install NIXL $version yourself" >&2
    exit 1
fi
if [ ! -f "$libs/libnixl_capi.so" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$sha256" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    echo "nixl-cu12==$version --hash=sha256:$sha256" >"$work/requirements.txt"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary=:all: --python-version "$python" --implementation cp \
        --abi "cp3${python#3.}" --platform manylinux_2_28_x86_64 \
        --dest "$work" --requirement "$work/requirements.txt" >&2
    rm -rf "$target"
    mkdir -p "$target"
    python3 -m zipfile -e "$work"/nixl_cu12-*.whl "$target"
    echo "$sha256" >"$stamp"
fi
if [ ! -d "$root/third_party/python/numpy" ]; then
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --root-user-action=ignore --target "$root/third_party/python" numpy==1.26.4 >&2
fi
echo "$libs"
