#!/usr/bin/env bash
# Runs a plan through the Rust API: run.sh PLAN RESULTS
set -euo pipefail
cd "$(dirname "$0")/../../.."
program=${CACTUS_CONFORMANCE_RUST:-${CARGO_TARGET_DIR:-target}/debug/cactus-conformance}
if [[ ! -x $program ]]; then
    echo "SKIPPED: $program is not built (cargo build -p cactus-conformance)"
    exit 77
fi
exec "$program" "$1" "$2"
