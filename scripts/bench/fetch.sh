#!/bin/sh
# Fetches from PyPI what scripts/bench.sh draws with: matplotlib, into third_party/python_bench, for the Python
# that runs this. Everything is pinned by hash; nothing is installed. Not Debian's package: the same figures
# have to give the same charts everywhere, so it has to be the same matplotlib.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=$(cd "$here/../.." && pwd)/third_party/python_bench

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "fetch.sh: the pinned wheels are for Linux x86_64, and this is $(uname -sm)" >&2
    exit 1
fi

pinned="$(python3 -c 'import sys; print(sys.version_info[:2])') $(cat "$here/requirements.txt")"
[ "$(cat "$folder/.pinned" 2> /dev/null)" != "$pinned" ] || exit 0
rm -rf "$folder"
python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
    --only-binary=:all: --no-compile --root-user-action=ignore --target "$folder" \
    --requirement "$here/requirements.txt" >&2
# Written last: what was interrupted is fetched again.
printf '%s\n' "$pinned" > "$folder/.pinned"
