#!/usr/bin/env bash
# Builds the module and the package: sdks/web/scripts/build.sh [--module-only]
#
# Needs Rust (the target is added) and, for the package, Node with npm. CACTUS_WEB_PROFILE=web leaves out optimization across crates,
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
cd "$root"
CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS="${flags[*]}" cargo rustc --quiet --profile "$profile" --target wasm32-wasip1 -p cactus-ffi --lib \
    --crate-type cdylib --no-default-features --features forms,speech,pictures,search,graphs
cp "${CARGO_TARGET_DIR:-target}/wasm32-wasip1/$profile/cactus_ffi.wasm" sdks/web/cactus.wasm
cd sdks/web
printf 'cactus.wasm: %s bytes, %s with gzip\n' "$(stat -c %s cactus.wasm)" "$(gzip -9c cactus.wasm | wc -c)"
[ "${1:-}" = --module-only ] && exit 0

[ -x node_modules/.bin/tsc ] || npm install --silent --no-audit --no-fund
rm -rf dist
node_modules/.bin/tsc -p . ${TSC_FLAGS:-}
