#!/usr/bin/env bash
# The reference of dt.h and dt.hpp, and the guide, as web pages in build/docs/html. Installs Doxygen if
# it is missing. Whatever is not documented, or is documented wrongly, stops it.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

need_tools doxygen

mkdir -p build/docs
# Headings get the names by which git hosts know them, and links to other files become plain text.
awk '
    /^ *```/ { code = !code }
    !code && /^##+ / {
        id = tolower($0)
        gsub(/^#+ |[^a-z0-9 -]/, "", id)
        gsub(/ /, "-", id)
        $0 = $0 " {#" id "}"
    }
    { print }' docs/guide.md | sed -E 's/\[([^]]*)\]\(\.\.\/[^)]*\)/\1/g' > build/docs/guide.md
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
{ cat docs/Doxyfile; echo "PROJECT_NUMBER = $version"; } | doxygen - ||
    die "the documentation has the faults above"
[ -f build/docs/html/dt_8h.html ] || die "doxygen has made nothing of dt.h"
say "build/docs/html/index.html"
