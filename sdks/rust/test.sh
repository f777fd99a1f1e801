#!/usr/bin/env bash
# Runs the examples in Rust on tiny bundles, and the conformance suite through the Rust API.
#
#   cargo build --workspace --all-targets && sdks/rust/test.sh
#
# CACTUS_PROGRAM is the `cactus` that makes bundles (target/debug/cactus); examples and runner lie beside it.
set -euo pipefail
cd "$(dirname "$0")/../.."
skip() { echo "SKIPPED: $*" && exit 77; }
fail() { echo "FAILED: $*" >&2 && exit 1; }
target=${CARGO_TARGET_DIR:-target}/debug
cactus=${CACTUS_PROGRAM:-$target/cactus}
[[ -x $cactus ]] || skip "$cactus is not built (cargo build -p cactus-cli); CACTUS_PROGRAM names another"
[[ -x $target/examples/02-chat ]] || skip "the examples are not built (cargo build -p cactus-conformance --examples)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CACTUS_CACHE=$work/cache CACTUS_STATE=$work/state
bundles=$(python3 sdks/conformance/materials.py "$cactus")
run() {
    echo "== $*"
    "$target/examples/$1" "${@:2}" >"$work/said" 2>&1 || fail "$*: $(cat "$work/said")"
}
for example in 01-install 02-chat 03-stream 04-cancel 05-tools 06-structured 10-offline-and-lifecycle; do
    run $example "$bundles/chat"
done
run 07-picture-or-sound "$bundles/sees" golden/pictures/files/rgb.png
run 08-transcribe "$bundles/hears" "$bundles/sounds/short.wav" "$bundles/vad"
run 09-embed-and-search "$bundles/embeds" "$work/index"
# Nobody listens at the target, so that this machine answers after all.
echo y | run 11-hybrid "$bundles/chat" 'http://127.0.0.1:9/v1#m' "$work/state"
grep -q cloud_failed "$work/said" || fail "11-hybrid did not ask the target: $(cat "$work/said")"
[[ ${CACTUS_CONFORMANCE:-1} = 0 ]] || python3 sdks/conformance/run.py --only rust --require rust --cactus "$cactus"
