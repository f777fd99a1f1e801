#!/usr/bin/env bash
# The conformance runner on real JSI: run.sh PLAN RESULTS
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
# The tests' own folder: what is compiled takes a minute, and is the same.
export CACTUS_JSI_BUILD=${CACTUS_JSI_BUILD:-$here/build}
if [ -n "${CACTUS_PREFIX:-}" ] && [ -e "$CACTUS_PREFIX/include/cactus.h" ]; then export CACTUS_INCLUDE=$CACTUS_PREFIX/include; fi
bash "$here/test/build.sh" "$here/conformance/entry.js"
: > "$2"
exec "$CACTUS_JSI_BUILD/host" "${CACTUS_LIB_PATH:?names the library}" "$CACTUS_JSI_BUILD/entry.js" "$1" "$2"
