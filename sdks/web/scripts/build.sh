#!/usr/bin/env bash
# Builds the modules and the package: sdks/web/scripts/build.sh [--module-only]
#
# There are two modules, of which a page loads one: cactus.wasm for all engines with `simd128`, and cactus-fma.wasm for those that have
# relaxed SIMD with a fused multiply-add, which is faster and gives the same bits.
#
# Needs Rust (the target is added) and Node, for the package with npm. CACTUS_WEB_PROFILE=web leaves out optimization across crates,
# which makes a build of minutes one of fewer.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(cd ../.. && pwd)

rustup target list --installed | grep -qx wasm32-wasip1 || rustup target add wasm32-wasip1

# One stack serves everything, so it is as large as the largest that another system gives a thread: the grammar compiler's
# (crates/text). It lies below all data, so that what overflows it faults instead of writing over something.
stack=$((32 << 20))
profile=${CACTUS_WEB_PROFILE:-dist}
flags=(
    -C target-feature=+simd128,+bulk-memory,+sign-ext,+nontrapping-fptoint,+mutable-globals
    # Sizes have 32 bits, and files are not trusted.
    -C overflow-checks=yes
    -C link-arg=-zstack-size=$stack -C link-arg=--stack-first
    -C link-arg=--export=malloc -C link-arg=--export=free
    -C link-arg=--export-table -C link-arg=--growable-table
    -C link-arg=--max-memory=4294967296
    -C strip=symbols
)
# module NAME FOLDER [FLAG...]: other flags are another build of everything, in a folder of its own.
module() {
    local name=$1 folder=$2
    shift 2
    (
        cd "$root"
        export CARGO_TARGET_DIR=$folder CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS="${flags[*]} $*"
        cargo rustc --quiet --profile "$profile" --target wasm32-wasip1 -p cactus-ffi --lib \
            --crate-type cdylib --no-default-features --features forms,speech,pictures,search,graphs
    )
    cp "$folder/wasm32-wasip1/$profile/cactus_ffi.wasm" "$name.new"
    (($# == 0)) || node scripts/fuse.mjs "$name.new"
    mv "$name.new" "$name.wasm"
    printf '%s.wasm: %s bytes, %s with gzip\n' "$name" "$(stat -c %s "$name.wasm")" "$(gzip -9c "$name.wasm" | wc -c)"
}
target=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")
module cactus "$target"
module cactus-fma "$target/fma" --cfg cactus_fma
[ "${1:-}" = --module-only ] && exit 0

[ -x node_modules/.bin/tsc ] || npm install --silent --no-audit --no-fund
rm -rf dist
node_modules/.bin/tsc -p . ${TSC_FLAGS:-}
