#!/usr/bin/env bash
# push_file_test.sh PROGRAM: files of awkward sizes arrive whole, and wrong calls fail.
set -euo pipefail

program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

block=2097152
for size in 0 1 $((block - 1)) $block $((block + 1)) $((7 * block + 12345)); do
    head -c "$size" /dev/urandom > "$folder/file"
    "$program" --backend local --window 3 "$folder/file" > "$folder/out" ||
        { cat "$folder/out"; echo "push_file fails with a file of $size bytes"; exit 1; }
    sum=$(sha256sum < "$folder/file" | cut -d ' ' -f 1)
    for line in "sent      $sum" "received  $sum" "result    the same, $size bytes" \
                ": refused, another model" ": accepted"; do
        grep -qF -- "$line" "$folder/out" ||
            { cat "$folder/out"; echo "no line says \"$line\" for $size bytes"; exit 1; }
    done
done

for wrong in "" "--backend none $folder/file" "--window 0 $folder/file" "$folder/missing" "$folder"; do
    # Unquoted, to become several arguments.
    if "$program" $wrong > /dev/null 2> "$folder/err"; then
        echo "push_file $wrong does not fail"
        exit 1
    fi
    grep -q "^push_file: " "$folder/err"
done
echo "six files arrived whole, five wrong calls were refused"
