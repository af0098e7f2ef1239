#!/usr/bin/env bash
# push_file_test.sh PROGRAM: files of awkward sizes arrive whole, and wrong calls fail. On the backend
# that $DT_BACKEND names, or else LOCAL.
set -euo pipefail

program=$1
backend=${DT_BACKEND:-local}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

block=2097152
sizes=(0 1 $((block - 1)) $block $((block + 1)) $((7 * block + 12345)))
# How a file is cut is the same on every backend, and each file needs two processes that load NIXL.
[ "$backend" = local ] || sizes=(0 $((7 * block + 12345)))
for size in "${sizes[@]}"; do
    head -c "$size" /dev/urandom > "$folder/file"
    "$program" --backend "$backend" --window 3 "$folder/file" > "$folder/out" ||
        { cat "$folder/out"; echo "push_file fails with a file of $size bytes"; exit 1; }
    sum=$(sha256sum < "$folder/file" | cut -d ' ' -f 1)
    unit=bytes
    [ "$size" -ne 1 ] || unit=byte
    for line in "sent      $sum" "received  $sum" "result    the same, $size $unit" \
                ": refused, another model" ": accepted"; do
        grep -qF -- "$line" "$folder/out" ||
            { cat "$folder/out"; echo "no line says \"$line\" for $size bytes"; exit 1; }
    done
done

# Nothing has been measured when nothing has moved.
if grep -F ' 0 %' "$folder/out" | grep -F 'GB/s'; then
    echo "a rate is shown before the first block"
    exit 1
fi

# A window is not larger than the file: this one would be 8 GiB on each side.
printf x > "$folder/file"
"$program" --backend "$backend" --window 4096 "$folder/file" > "$folder/out"
grep -qF ' 1 in the file, 1 in a window' "$folder/out" ||
    { cat "$folder/out"; echo "the window is not cut to the file"; exit 1; }

# refused SENTENCE ARGUMENT...: the program fails, and this is the first line on stderr.
refused() {
    local sentence=$1
    shift
    if "$program" "$@" > /dev/null 2> "$folder/err"; then
        echo "push_file $* does not fail"
        exit 1
    fi
    grep -qF -- "$sentence" <(head -n 1 "$folder/err") ||
        { cat "$folder/err"; echo "push_file $* does not say: $sentence"; exit 1; }
}
refused 'push_file: no file was named'
refused 'push_file: --backend is "none", but must be' --backend none "$folder/file"
refused 'push_file: --window is "0", but must be' --window 0 "$folder/file"
refused 'push_file: --window is "3x", but must be' --window 3x "$folder/file"
refused 'push_file: --window needs a value' "$folder/file" --window
refused 'push_file: there is no option --blocks' --blocks 3 "$folder/file"
refused 'push_file: two files' "$folder/file" "$folder/file"
refused "push_file: cannot open $folder/missing" "$folder/missing"
refused "push_file: $folder is not a regular file" "$folder"

# What fails in both processes is told by one.
DT_BACKEND=nonsense refused 'DT_ERR_INVALID_ARG' "$folder/file"
[ "$(wc -l < "$folder/err")" -eq 1 ] ||
    { cat "$folder/err"; echo "one error is told more than once"; exit 1; }
echo "${#sizes[@]} files arrived whole, ten wrong calls were refused"
