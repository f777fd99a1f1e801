#!/usr/bin/env bash
# What sanitizers say: CACTUS_LIB_PATH=... test/sanitize.sh
#
# The core without JavaScript runs under ThreadSanitizer, and under AddressSanitizer with leaks counted. Then the tests run in Node with
# an addon that AddressSanitizer and UBSan watch; V8 leaks on purpose at its end, so leaks are not counted there.
set -euo pipefail
cd "$(dirname "$0")/.."
include=${CACTUS_INCLUDE:-$PWD/../../crates/ffi/include}
runtime=$("${CXX:-c++}" -print-file-name=libasan.so)
[ -e "$runtime" ] || { echo "SKIPPED: sanitizers, as the compiler has none"; exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export CACTUS_TEST_CACHE=${CACTUS_TEST_CACHE:-$folder/models}
bundle=$(node --input-type=module --eval 'import { chatBundle } from "./test/support.mjs"; console.log(await chatBundle());')

core() {
    "${CXX:-c++}" -std=c++17 -g -O1 -Wall -Wextra -pthread "-fsanitize=$1" -Inative "-I$include" \
        test/core_test.cpp native/{raw,by_hand,call,pool,port,library}.cpp -ldl -o "$folder/core"
    echo "== the core under $1"
    "$folder/core" "$CACTUS_LIB_PATH" "$bundle" 20
}
TSAN_OPTIONS=ignore_noninstrumented_modules=1 core thread
ASAN_OPTIONS=detect_leaks=1 core address,undefined

echo "== Node with an addon under AddressSanitizer"
export CACTUS_ADDON=$folder/cactus.node
CXXFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1" node scripts/build.mjs addon
LD_PRELOAD=$runtime ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0:halt_on_error=1 \
    node --test test/stream.test.mjs test/native.test.mjs test/lifetime.test.mjs test/hearing.test.mjs test/vectors.test.mjs
