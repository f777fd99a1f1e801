#!/usr/bin/env bash
# Tests the package on real JSI, as far as this machine has it: the contract, reloads, Hermes' syntax, the config plugin, packing.
#
#   CACTUS_PREFIX=PREFIX sdks/react-native/test.sh     PREFIX as scripts/install_c.sh makes it; or CACTUS_LIB_PATH names the library
#
# CACTUS_SOAK=1000 makes the test of interleavings a long one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"
if [ -n "${CACTUS_PREFIX:-}" ]; then
    [ -n "${CACTUS_LIB_PATH:-}" ] || export CACTUS_LIB_PATH=$CACTUS_PREFIX/lib/libcactus.so
    [ ! -e "$CACTUS_PREFIX/include/cactus.h" ] || export CACTUS_INCLUDE=$CACTUS_PREFIX/include
fi
[ -e "${CACTUS_LIB_PATH:-}" ] || { echo "there is no library: set CACTUS_PREFIX or CACTUS_LIB_PATH" >&2; exit 1; }
command -v node > /dev/null || { echo "SKIPPED: there is no node"; exit 77; }

echo "== config plugin"
node --test test/plugin.test.mjs

echo "== JSI"
code=0
bash test/build.sh "$here/test/bundle.js" "$here/test/contract.js" "$here/test/reload.js" "$here/test/examples.js" || code=$?
[ "$code" -eq 0 ] || exit "$code"
build=${CACTUS_JSI_BUILD:-$here/build}
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
export CACTUS_CACHE=$cache/user CACTUS_STATE=$cache/state
# The tiny model with room for answers that are not over before somebody cancels them.
cp -r "$here/../../golden/models/qwen2_tied" "$cache/roomy"
sed -i 's/"max_position_embeddings": 512/"max_position_embeddings": 65536/' "$cache/roomy/config.json"
bundle=$("$build/host" "$CACTUS_LIB_PATH" "$build/bundle.js" "$cache/roomy" "$cache/models")
"$build/host" "$CACTUS_LIB_PATH" "$build/contract.js" "$bundle" "${CACTUS_SOAK:-100}"
"$build/host" "$CACTUS_LIB_PATH" "$build/examples.js" "$here/../../golden" "$cache"
"$build/host" "$CACTUS_LIB_PATH" "$build/reload.js" "$bundle" --reload 40 20
echo "== packages"
node scripts/pack.mjs
echo "SKIPPED: builds for Android and iOS, which need Gradle and Xcode"
