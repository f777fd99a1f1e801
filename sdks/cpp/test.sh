#!/usr/bin/env bash
# Tests of the C++ SDK: examples, contract, interleavings, conformance.
#
#   sdks/cpp/test.sh
#
# CACTUS_PREFIX is an install prefix (scripts/install_c.sh), CACTUS_PROGRAM the `cactus` that makes bundles (target/debug/cactus).
# CACTUS_SOAK=1000 makes the interleavings a thousand.
set -euo pipefail
cd "$(dirname "$0")/../.."
skip() { echo "SKIPPED: $*" && exit 77; }
fail() { echo "FAILED: $*" >&2 && exit 1; }
command -v c++ >/dev/null || skip "there is no C++ compiler"
command -v cmake >/dev/null || skip "there is no cmake"
[[ -n ${CACTUS_PREFIX:-} ]] || skip "CACTUS_PREFIX has to name an install prefix"
prefix=$(cd "$CACTUS_PREFIX" && pwd)
cactus=${CACTUS_PROGRAM:-${CARGO_TARGET_DIR:-target}/debug/cactus}
[[ -x $cactus ]] || skip "$cactus is not built (cargo build -p cactus-cli); CACTUS_PROGRAM names another"
soak=${CACTUS_SOAK:-100}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Nothing of this user is read or written.
export CACTUS_CACHE=$work/cache CACTUS_STATE=$work/state LD_LIBRARY_PATH=$prefix/lib

bundles=$(python3 sdks/conformance/materials.py "$cactus")

run() {
    local standard=$1
    shift
    echo "== C++$standard $*"
    "$@" >"$work/said" 2>&1 || fail "$* (C++$standard): $(cat "$work/said")"
}
# build STANDARD [TARGET...]
build() {
    local standard=$1 folder=$work/build-$1
    shift
    cmake -S sdks/cpp -B "$folder" -DCMAKE_PREFIX_PATH="$prefix" "-DCACTUS_CXX_STANDARD=$standard" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
    cmake --build "$folder" -j 2 ${1:+--target "$@"} >"$work/log" 2>&1 || fail "$(tail -n 40 "$work/log")"
}
build 17
made=$work/build-17
for example in 01-install 02-chat 03-stream 04-cancel 05-tools 06-structured 10-offline-and-lifecycle; do
    run 17 "$made/$example" "$bundles/chat"
done
run 17 "$made/07-picture-or-sound" "$bundles/sees" golden/pictures/files/rgb.png
run 17 "$made/08-transcribe" "$bundles/hears" "$bundles/sounds/short.wav" "$bundles/vad"
run 17 "$made/09-embed-and-search" "$bundles/embeds" "$work/index-example"
# Nobody listens at the target, so that this machine answers after all.
echo y >"$work/yes"
run 17 "$made/11-hybrid" "$bundles/chat" 'http://127.0.0.1:9/v1#m' "$work/state" <"$work/yes"
grep -q '"reason":"cloud_failed"' "$work/said" || fail "11-hybrid did not ask the target: $(cat "$work/said")"
run 17 "$made/contract" "$bundles/chat" "$bundles/embeds" "$bundles/hears" "$bundles/vad" "$work/index-17"
# Whose stop tokens C++17 does not have.
build 20 04-cancel contract interleavings
run 20 "$work/build-20/04-cancel" "$bundles/chat"
run 20 "$work/build-20/contract" "$bundles/chat" "$bundles/embeds" "$bundles/hears" "$bundles/vad" "$work/index-20"
run 20 "$work/build-20/interleavings" "$bundles/chat" "$soak"
cat "$work/said"

for sanitizer in address,undefined thread; do
    for test in contract interleavings; do
        c++ -std=c++20 -g -O1 -pthread "-fsanitize=$sanitizer" -Icrates/ffi/include "sdks/cpp/tests/$test.cpp" "$prefix/lib/libcactus.so" \
            -o "$work/$test" 2>"$work/log" || { echo "SKIPPED: $test with -fsanitize=$sanitizer: $(tail -n 1 "$work/log")" && continue; }
        export TSAN_OPTIONS="halt_on_error=1 suppressions=crates/ffi/tests/programs/tsan.txt"
        case $test in
        contract) run "20, $sanitizer" "$work/contract" "$bundles/chat" "$bundles/embeds" "$bundles/hears" "$bundles/vad" "$work/index-$sanitizer" ;;
        *) run "20, $sanitizer" "$work/interleavings" "$bundles/chat" $((soak / 5)) ;;
        esac
    done
done

[[ ${CACTUS_CONFORMANCE:-1} = 0 ]] || python3 sdks/conformance/run.py --only c,cpp --require c,cpp --prefix "$prefix" --cactus "$cactus"
