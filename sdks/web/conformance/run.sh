#!/usr/bin/env bash
# The conformance runners of the web build: sdks/web/conformance/run.sh node|chromium PLAN RESULTS
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
case ${1:-} in
node) runner=run.mjs ;;
chromium) runner=chromium.mjs ;;
*) echo "usage: run.sh node|chromium PLAN RESULTS" >&2 && exit 2 ;;
esac
shift
[ -f "$here/cactus.wasm" ] && [ -f "$here/cactus-fma.wasm" ] && [ -f "$here/dist/web/src/node.js" ] || "$here/scripts/build.sh" >&2
exec node "$here/conformance/$runner" "$@"
