#!/usr/bin/env bash
# Tests the Swift package: builds it, runs its unit tests, the examples, the conformance suite, the check of Foundation Models with
# stand-ins, and that of the xcframework.
#
#   CACTUS_PREFIX=PREFIX sdks/swift/test.sh
#
# PREFIX is where scripts/install_c.sh has installed the library. CACTUS_PROGRAM names the `cactus` command, which makes bundles
# (target/debug/cactus without it). CACTUS_SOAK=1000 runs so many random interleavings, CACTUS_TSAN=1 runs them with ThreadSanitizer, too,
# and CACTUS_BENCH=1 measures what streams cost. Where there is no Swift 6.2, one is installed if that is possible (see tools.sh); where it
# is not, this ends with 77.
set -euo pipefail
cd "$(dirname "$0")/../.."
prefix=$(realpath "${CACTUS_PREFIX:?CACTUS_PREFIX has to name where scripts/install_c.sh installed the library}")
program=$(realpath "${CACTUS_PROGRAM:-${CARGO_TARGET_DIR:-target}/debug/cactus}")
build=${CACTUS_SWIFT_BUILD:-$PWD/target/sdks/swift}
mkdir -p "$build"
skipped() { echo "SKIPPED: $*"; }
# What is said, without what is said of each file and test.
brief() { grep -vE '^Test (Case|Suite) .*(started|passed)|^\[[0-9]+/|^warning: .*(pkg-config|pc file)' || true; }
# shellcheck source=tools.sh
source sdks/swift/tools.sh
if ! have_swift install; then
    skipped "there is no Swift 6.2, and none can be installed"
    exit 77
fi
"${run[@]}" swift --version 2>&1 | head -n 1

# Bundles of tiny models with random weights, and a sound.
bundles=$build/bundles
# One with room for answers that are not over before somebody cancels them.
roomy=$build/qwen2_roomy
rm -rf "$roomy"
cp -r golden/models/qwen2_tied "$roomy"
sed -i 's/"max_position_embeddings": 512/"max_position_embeddings": 65536/' "$roomy/config.json"
while read -r name source; do
    [[ -e $bundles/$name ]] && continue
    mkdir -p "$bundles"
    rm -rf "$bundles/$name.new"
    "$program" convert "$source" "$bundles/$name.new" >/dev/null 2>&1 || "$program" convert "$source" "$bundles/$name.new"
    mv "$bundles/$name.new" "$bundles/$name"
done <<END
chat $roomy
embeds golden/embedding/bert
pictures golden/embedding/clip_pictures
sees golden/seeing/smolvlm
hears golden/speech/whisper
END
if [[ ! -e $bundles/vad ]]; then
    # One that hears a tone, at the rate of the model that writes.
    python3 -c "import pathlib, sys; sys.path.insert(0, 'sdks/conformance'); import materials; materials._detector(pathlib.Path('$bundles'))"
    "$program" convert "$bundles/silero_vad_16k.safetensors" "$bundles/vad" >/dev/null
fi
python3 - "$bundles/tone.wav" <<'END'
import math, struct, sys, wave
with wave.open(sys.argv[1], "wb") as file:
    file.setnchannels(1), file.setsampwidth(2), file.setframerate(16000)
    file.writeframes(b"".join(struct.pack("<h", int(16000 * math.sin(i * i * 1e-5))) for i in range(32000)))
END

echo "== format"
"${run[@]}" swift format lint --strict --configuration sdks/swift/.swift-format -r sdks/swift/{Package.swift,Sources,Tests,examples,conformance,benches}

echo "== build"
flags=(--package-path sdks/swift --disable-swift-testing)
swift_build build --build-tests "${flags[@]}" --scratch-path "$build/package" 2>&1 | brief

echo "== documentation"
rm -rf "$build/graph"
mkdir -p "$build/graph"
triple=$("${run[@]}" swift -print-target-info | sed -n 's/^ *"triple": "\(.*\)",$/\1/p' | head -n 1)
tools=$("${run[@]}" swift -print-target-info | sed -n 's/^ *"runtimeResourcePath": "\(.*\)\/lib\/swift".*$/\1\/bin/p' | head -n 1)
"${run[@]}" "$tools/swift-symbolgraph-extract" -module-name Cactus -target "$triple" -minimum-access-level public \
    -I "$build/package/debug/Modules" -I sdks/swift/Sources/CCactus/include -output-dir "$build/graph"
"${run[@]}" "$tools/docc" convert sdks/swift/Sources/Cactus/Cactus.docc --fallback-display-name Cactus --warnings-as-errors \
    --fallback-bundle-identifier org.example.cactus --additional-symbol-graph-dir "$build/graph" --output-path "$build/documentation" >/dev/null

echo "== unit tests"
CACTUS_TEST_BUNDLES=$bundles swift_build test --skip-build "${flags[@]}" --scratch-path "$build/package" 2>&1 | brief

echo "== xcframework"
"${run[@]}" python3 sdks/swift/Tests/test_xcframework.py

state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
coproc TARGET { python3 sdks/swift/Tests/target.py; }
read -r port <&"${TARGET[0]}"

echo "== Foundation Models, with stand-ins"
"${run[@]}" "$build/package/debug/foundation-models-check" "$bundles/chat" "http://127.0.0.1:$port/v1#half" "$state/check"

echo "== examples"
example() { # NAME WHAT-IT-HAS-TO-SAY ARGUMENTS...
    local name=$1 wanted=$2 said
    shift 2
    said=$("${run[@]}" "$build/package/debug/$name" "$@" </dev/null 2>&1) || { echo "$name failed:"; echo "$said"; exit 1; }
    grep -qE "$wanted" <<<"$said" || { echo "$name does not say \"$wanted\":"; echo "$said"; exit 1; }
    echo "$name: passed"
}
example 01-install 'can be used' "$bundles/chat"
example 02-chat '5 messages' "$bundles/chat"
example 03-stream '(stop|length), [0-9]+ tokens' "$bundles/chat"
example 04-cancel 'the task was cancelled' "$bundles/chat"
example 05-tools 'it is told: (yes|no)' "$bundles/chat"
example 06-structured '(Ada|Grace|Barbara), [0-9]+, likes' "$bundles/chat"
example 07-picture-or-sound '^\([1-9][0-9]* tokens read\)$' "$bundles/sees" golden/pictures/files/rgba.png
example 08-transcribe '^live: .' "$bundles/hears" "$bundles/tone.wav" "$bundles/vad"
example 09-embed-and-search '^[01]\.[0-9]+: .*(cat|train|Bread)' "$bundles/embeds" "$state/index"
example 10-offline-and-lifecycle 'a closed model says: handle' "$bundles/chat"
example 11-hybrid 'from afar' "$bundles/chat" "http://127.0.0.1:$port/v1#m" "$state/state"

if [[ ${CACTUS_CONFORMANCE:-1} = 0 ]]; then
    skipped "conformance, as CACTUS_CONFORMANCE=0 says"
elif [[ -f sdks/conformance/run.py ]]; then
    echo "== conformance"
    CACTUS_SWIFT_BUILD=$build python3 sdks/conformance/run.py --only swift --require swift --cactus "$program" --prefix "$prefix"
else
    skipped "conformance: there is no sdks/conformance/run.py"
fi

if [[ -n ${CACTUS_TSAN:-} ]]; then
    echo "== ThreadSanitizer"
    # Debian's runtime names the size of something that its C library has no more.
    "${run[@]}" gcc -c -x assembler - -o "$build/termio.o" <<'END'
.weak _ZN11__sanitizer16struct_termio_szE
.data
_ZN11__sanitizer16struct_termio_szE: .long 17
.section .note.GNU-stack,"",@progbits
END
    sanitized=("${flags[@]}" --sanitize=thread --scratch-path "$build/tsan" -Xlinker "$build/termio.o")
    swift_build build --build-tests "${sanitized[@]}" >/dev/null
    CACTUS_TEST_BUNDLES=$bundles TSAN_OPTIONS="halt_on_error=1 suppressions=$PWD/crates/ffi/tests/programs/tsan.txt" \
        swift_build test --skip-build "${sanitized[@]}" --filter 'StreamTests|SessionTests|SoakTests' 2>&1 | brief
fi
if [[ -n ${CACTUS_BENCH:-} ]]; then
    echo "== overhead"
    swift_build build -c release --package-path sdks/swift --scratch-path "$build/package" --product overhead >/dev/null
    "${run[@]}" "$build/package/release/overhead" "$bundles/chat"
fi
skipped "Apple: nothing here is compiled for or run on iOS and macOS"
echo "sdks/swift: passed"
