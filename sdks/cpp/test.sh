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

for made in chat=models/qwen2_tied embeds=embedding/bert hears=speech/whisper sees=seeing/smolvlm vad=speech/silero_vad/silero_vad_16k.safetensors; do
    "$cactus" convert "golden/${made#*=}" "$work/${made%%=*}" >/dev/null 2>"$work/log" || fail "$(cat "$work/log")"
done
# A second of silence.
python3 - "$work/silence.wav" <<'END'
import sys, wave
with wave.open(sys.argv[1], "wb") as file:
    file.setnchannels(1), file.setsampwidth(2), file.setframerate(16000), file.writeframes(bytes(32000))
END

run() {
    local standard=$1
    shift
    echo "== C++$standard $*"
    "$@" >"$work/said" 2>&1 || fail "$* (C++$standard): $(cat "$work/said")"
}
for standard in 17 20; do
    build=$work/build-$standard
    cmake -S sdks/cpp -B "$build" -DCMAKE_PREFIX_PATH="$prefix" -DCACTUS_CXX_STANDARD=$standard -DCMAKE_BUILD_TYPE=Release >"$work/log" 2>&1 &&
        cmake --build "$build" -j 2 >>"$work/log" 2>&1 || fail "$(tail -n 40 "$work/log")"
    for example in 01-install 02-chat 03-stream 04-cancel 05-tools 06-structured 10-offline-and-lifecycle; do
        run $standard "$build/$example" "$work/chat"
    done
    run $standard "$build/07-picture-or-sound" "$work/sees" golden/pictures/files/rgb.png
    run $standard "$build/08-transcribe" "$work/hears" "$work/silence.wav" "$work/vad"
    run $standard "$build/09-embed-and-search" "$work/embeds" "$work/index-example-$standard"
    # Nobody listens at the target, so that this machine answers after all.
    echo y >"$work/yes"
    run $standard "$build/11-hybrid" "$work/chat" 'http://127.0.0.1:9/v1#m' "$work/state" <"$work/yes"
    grep -q '"reason":"cloud_failed"' "$work/said" || fail "11-hybrid did not ask the target: $(cat "$work/said")"
    run $standard "$build/contract" "$work/chat" "$work/embeds" "$work/hears" "$work/vad" "$work/index-$standard"
done
run 20 "$work/build-20/interleavings" "$work/chat" "$soak"
cat "$work/said"

for sanitizer in address,undefined thread; do
    for test in contract interleavings; do
        c++ -std=c++20 -g -O1 -pthread "-fsanitize=$sanitizer" -Icrates/ffi/include "sdks/cpp/tests/$test.cpp" "$prefix/lib/libcactus.so" \
            -o "$work/$test" 2>"$work/log" || { echo "SKIPPED: $test with -fsanitize=$sanitizer: $(tail -n 1 "$work/log")" && continue; }
        export TSAN_OPTIONS="halt_on_error=1 suppressions=crates/ffi/tests/programs/tsan.txt"
        case $test in
        contract) run "20, $sanitizer" "$work/contract" "$work/chat" "$work/embeds" "$work/hears" "$work/vad" "$work/index-$sanitizer" ;;
        *) run "20, $sanitizer" "$work/interleavings" "$work/chat" $((soak / 5)) ;;
        esac
    done
done

python3 sdks/conformance/run.py --only c,cpp --require c,cpp --prefix "$prefix" --cactus "$cactus"
