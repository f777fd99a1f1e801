#!/usr/bin/env bash
# The conformance runner of the web build: sdks/web/conformance/run.sh PLAN RESULTS
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
[ -f "$here/cactus.wasm" ] && [ -f "$here/dist/web/src/node.js" ] || "$here/scripts/build.sh" >&2
exec node "$here/conformance/run.mjs" "$@"
