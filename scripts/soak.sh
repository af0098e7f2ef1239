#!/usr/bin/env bash
# Long runs: what scripts/test.sh does for seconds, for as long as you say. Installs what is missing.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

usage() {
    cat >&2 << 'END'
usage: scripts/soak.sh sim [--programs N] [--seed S]
           random programs on simulated transports, against a model
       scripts/soak.sh chaos [--minutes N] [--seed S] [--backend local|nixl|nixl_tcp]
           real processes that are killed, stopped and restarted while they transfer
       scripts/soak.sh fuzz [--minutes N] [TARGET...]
           bytes and calls made up by a fuzzer, N minutes for each target
END
    exit 2
}

case ${1:-} in
    *) usage ;;
esac
