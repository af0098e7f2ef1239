#!/usr/bin/env bash
# pull_embeddings_test.sh PROGRAM: it reads and frees all, and wrong calls fail. On the backend that
# $DT_BACKEND names, or else LOCAL.
set -euo pipefail

program=$1
backend=${DT_BACKEND:-local}
output=$(mktemp)
trap 'rm -f "$output"' EXIT

"$program" --backend "$backend" > "$output" || { cat "$output"; exit 1; }
for line in "backend   ${backend^^}" \
            "read      100 images in 1600 blocks, every number as it was computed" \
            "freed     all of them, on the messages that went with the reads"; do
    grep -qxF -- "$line" "$output" || { cat "$output"; echo "no line says \"$line\""; exit 1; }
done

# refused SENTENCE ARGUMENT...: the program fails, and this is all on stderr.
refused() {
    local sentence=$1
    shift
    if "$program" "$@" > /dev/null 2> "$output"; then
        echo "pull_embeddings $* does not fail"
        exit 1
    fi
    grep -qF -- "$sentence" "$output" && [ "$(wc -l < "$output")" -eq 1 ] ||
        { cat "$output"; echo "pull_embeddings $* does not say once: $sentence"; exit 1; }
}
refused "pull_embeddings: usage" --blocks
refused "pull_embeddings: usage" --backend
refused "pull_embeddings: --backend must be" --backend none
echo "all was read and freed, three wrong calls were refused"
