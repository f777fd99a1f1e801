#!/usr/bin/env bash
# Tests of the Python package as an SDK: examples, interleavings, conformance.
#
#   sdks/python/test.sh
#
# CACTUS_PROGRAM is the `cactus` that makes bundles (target/debug/cactus), CACTUS_PYTHON an interpreter with NumPy, CACTUS_PYTHON_EXTENSION a
# built lib_native.so. CACTUS_SOAK=1000 makes the interleavings a thousand.
set -euo pipefail
cd "$(dirname "$0")/../.."
skip() { echo "SKIPPED: $*" && exit 77; }
fail() { echo "FAILED: $*" >&2 && exit 1; }
target=${CARGO_TARGET_DIR:-target}/debug
cactus=${CACTUS_PROGRAM:-$target/cactus}
extension=${CACTUS_PYTHON_EXTENSION:-$target/lib_native.so}
[[ -x $cactus ]] || skip "$cactus is not built (cargo build -p cactus-cli); CACTUS_PROGRAM names another"
[[ -f $extension ]] || skip "$extension is not built (cargo build -p cactus-python); CACTUS_PYTHON_EXTENSION names another"
for python in ${CACTUS_PYTHON:-} .venv/bin/python .venv-torch/bin/python python3 none; do
    ! "$python" -c 'import numpy' 2>/dev/null || break
done
[[ $python != none ]] || skip "no Python with NumPy; CACTUS_PYTHON names one"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CACTUS_CACHE=$work/cache CACTUS_STATE=$work/state PYTHONPATH=$work/package
mkdir "$work/package"
cp -r python/cactus "$work/package/"
cp "$extension" "$work/package/cactus/_native.abi3.so"

bundles=$(python3 sdks/conformance/materials.py "$cactus")

run() {
    echo "== $*"
    "$python" "$@" >"$work/said" 2>&1 || fail "$*: $(cat "$work/said")"
}
for example in 01-install 02-chat 03-stream 04-cancel 05-tools 06-structured 10-offline-and-lifecycle; do
    run sdks/python/examples/$example.py "$bundles/chat"
done
run sdks/python/examples/07-picture-or-sound.py "$bundles/sees" golden/pictures/files/rgb.png
run sdks/python/examples/08-transcribe.py "$bundles/hears" "$bundles/sounds/short.wav" "$bundles/vad"
run sdks/python/examples/09-embed-and-search.py "$bundles/embeds" "$work/index"
echo y | run sdks/python/examples/11-hybrid.py "$bundles/chat" 'http://127.0.0.1:9/v1#m' "$work/state"
grep -q cloud_failed "$work/said" || fail "11-hybrid did not ask the target: $(cat "$work/said")"
run sdks/python/interleavings.py "$bundles/chat" "${CACTUS_SOAK:-100}"
cat "$work/said"
[[ ${CACTUS_CONFORMANCE:-1} = 0 ]] || CACTUS_PYTHON=$python CACTUS_PYTHON_EXTENSION=$extension \
    "$python" sdks/conformance/run.py --only python --require python --cactus "$cactus"
