#!/usr/bin/env bash
# Builds the web package and tests all of it: engine, examples, Chromium and the conformance suite: sdks/web/test.sh [--kernels]
#
# The program that converts the tiny models is CACTUS_PROGRAM, else `cactus` of the install prefix CACTUS_PREFIX, else the workspace's.
# With --kernels, the kernels' own tests run in WebAssembly, too, which takes minutes. What is left out is said in lines that begin
# with "SKIPPED:". Exit code 77: nothing was tested, as there are no tools.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)

absent() {
    echo "SKIPPED: web: $1"
    exit 77
}
for tool in node npm cargo rustup python3; do
    command -v "$tool" >/dev/null || absent "there is no $tool"
done
node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20 ? 1 : 0)' || absent "needs Node 20"
rustup target list --installed | grep -qx wasm32-wasip1 || rustup target add wasm32-wasip1 || absent "rustup cannot add wasm32-wasip1 now"
[ -x node_modules/.bin/tsc ] || npm install --silent --no-audit --no-fund || absent "npm cannot install typescript now"
scripts/build.sh

program=${CACTUS_PROGRAM:-${CACTUS_PREFIX:+$CACTUS_PREFIX/bin/cactus}}
if [ -z "$program" ]; then
    (cd "$root" && cargo build --quiet -p cactus-cli)
    program=${CARGO_TARGET_DIR:-$root/target}/debug/cactus
fi
export CACTUS_PROGRAM=$program
node test/bundles.mjs
command -v "${CACTUS_CHROMIUM:-chromium}" >/dev/null || echo "SKIPPED: web: there is no Chromium; bundles in a browser are not tested"
node --test --test-reporter=spec test/*.test.mjs

(cd "$root" && python3 sdks/conformance/run.py --only web,chromium --cactus "$program")

# The tests of the crates with vectors, with the instructions of either module where this Node has them.
cd "$root"
vectors() { # FOLDER FLAGS OPTION...
    local folder=$1 flags=$2 crates=(-p cactus-simd)
    shift 2
    ! $kernels || crates+=(-p cactus-kernels)
    CARGO_TARGET_DIR=$folder CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS="-C target-feature=+simd128 -C link-arg=-zstack-size=8388608 $flags" \
        CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings $* $root/sdks/web/scripts/wasi.mjs" \
        cargo test --quiet --target wasm32-wasip1 "${crates[@]}"
}
kernels=false
if [ "${1:-}" = --kernels ]; then kernels=true; else echo "SKIPPED: web: the kernels' tests in WebAssembly; --kernels runs them"; fi
target=${CARGO_TARGET_DIR:-$root/target}
vectors "$target" ""
fused='import("./sdks/web/dist/web/src/fusion.js").then(({ isFused }) => process.exit(isFused() ? 0 : 1))'
fma="--cfg cactus_fma -C link-arg=--export=cactus_fma_f32x4"
relaxed=--experimental-wasm-relaxed-simd
if node -e "$fused"; then
    vectors "$target/fma" "$fma"
elif node "$relaxed" -e "$fused" 2>/dev/null; then
    vectors "$target/fma" "$fma" "$relaxed"
else
    echo "SKIPPED: web: tests of the fused multiply-add, which this Node or this CPU does not have"
fi
