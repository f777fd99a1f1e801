#!/usr/bin/env bash
# Runs tests of streams and of the raw layer with an addon that AddressSanitizer and UBSan watch: CACTUS_LIB_PATH=... test/sanitize.sh
#
# Node itself is not watched, and V8 leaks on purpose at its end, so leaks are not counted here: test/lifetime.test.mjs does.
set -euo pipefail
cd "$(dirname "$0")/.."
runtime=$("${CXX:-c++}" -print-file-name=libasan.so)
[ -e "$runtime" ] || { echo "SKIPPED: AddressSanitizer, as the compiler has none"; exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export CACTUS_ADDON=$folder/cactus.node
CXXFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1" node scripts/build.mjs addon
LD_PRELOAD=$runtime ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0:halt_on_error=1 \
    node --test test/stream.test.mjs test/native.test.mjs test/lifetime.test.mjs test/hearing.test.mjs test/vectors.test.mjs
