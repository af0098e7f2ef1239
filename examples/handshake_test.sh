#!/usr/bin/env bash
# handshake_test.sh PROGRAM: two programs that were started apart meet, and what a user may do wrong
# leads on. On the backend that $DT_BACKEND names, or else LOCAL.
set -euo pipefail

program=$1
export DT_BACKEND=${DT_BACKEND:-local}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

fail() { cat served connected; printf '%s\n' "$*"; exit 1; }

# both MODEL MODEL: `served` and `connected` are what they say, $serve and $connect how they end.
both() {
    local first
    : > connected
    exec 3< <("$program" serve socket "$1" 2>&1 && echo "rc 0" || echo "rc $?")
    read -r first <&3 && echo "$first" > served
    [ "$first" = "decode: waits at socket" ] || fail "serve does not wait for the other one"
    connect=0
    "$program" connect socket "$2" > connected 2>&1 || connect=$?
    cat <&3 >> served
    serve=$(sed -n 's/^rc //p' served)
    [ ! -e socket ] || fail "the socket has been left"
}

# says FILE LINE
says() { grep -qxE -- "$2" "$1" || fail "no line of $1 says: $2"; }

both llama llama
[ "$serve $connect" = "0 0" ] || fail "they have failed"
says served "decode: 16 blocks are here, every byte as it was written"
says connected "prefill: request 7, 262144 bytes written"

both llama qwen
[ "$serve $connect" = "1 1" ] || fail "two models are not refused"
says connected "prefill: DT_ERR_INCOMPATIBLE: .*fingerprint is .* the model configurations differ.*"
says served "decode: the other program has ended: what it has said tells why"

# What follows is the same on every backend, and NIXL takes half a second to start.
if [ "$DT_BACKEND" != local ]; then
    echo "met by the handshake, wrote 16 blocks; two models were refused"
    exit
fi

# refused SENTENCE ARGUMENT...
refused() {
    local sentence=$1
    shift
    : > served
    ! "$program" "$@" > connected 2>&1 || fail "handshake $* does not fail"
    says connected "$sentence"
}
refused 'prefill: socket: nobody serves there: start "handshake serve" first' connect socket
touch socket
refused 'prefill: socket: nobody serves there: .*' connect socket
refused 'prefill: socket/more: Not a directory' connect socket/more
refused 'decode: socket: it is there already: remove it, unless it is in use' serve socket
refused 'handshake: usage: .*' serve
refused 'handshake: usage: .*' push socket
refused 'prefill: DT_ERR_INVALID_ARG: .*config_json.*' connect socket 'a "model"'
DT_BACKEND=nonsense refused 'decode: DT_ERR_INVALID_ARG: .*nonsense.*' serve socket
echo "met by the handshake, wrote 16 blocks; two models and eight wrong calls were refused"
