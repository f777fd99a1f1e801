#!/usr/bin/env bash
# Tests the Dart package: analysis, unit tests, examples, compiled programs, the web, documentation, conformance. tool/environment.sh
# says what it needs. An argument runs the unit tests alone whose names contain it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tool/environment.sh
source "$here/tool/environment.sh"
cd "$here"
step() { printf '== %s (%s s)\n' "$*" "$SECONDS"; }

step tools
tools dart-sdk dart-ffi dart-matcher
library
bundles
bound="$bound $repository"
package_config .dart_tool/package_config.json "cactus_engine=$here"

if [[ -z ${1:-} ]]; then
    step format and analysis
    dart format --output none --set-exit-if-changed .
    dart analyze --fatal-infos
    if [[ ! -d $sid$packages/hooks && ! -d $packages/hooks ]]; then
        echo "SKIPPED: hook/build.dart is not analyzed or run: the packages hooks and code_assets are not among Debian's"
    fi
fi

step unit tests
dart test/all.dart ${1:+"$1"}
[[ -z ${1:-} ]] || exit 0

step bundled library
# The library as a code asset, as a build hook brings it: the compiler is told where it is, which else the hook does.
cat >"$work/assets.yaml" <<END
format-version: [1, 0, 0]
native-assets:
  linux_x64:
    package:cactus_engine/cactus: [absolute, "$CACTUS_LIB_PATH"]
END
inside /usr/lib/dart/bin/dartaotruntime /usr/lib/dart/bin/snapshots/gen_kernel_aot.dart.snapshot \
    --platform=/usr/lib/dart/lib/_internal/vm_platform.dill --packages=.dart_tool/package_config.json \
    --native-assets="$work/assets.yaml" -o "$work/bundled.dill" tool/bundled.dart
CACTUS_LIB_PATH='' dart "$work/bundled.dill" | grep -x 'bundled: ABI 1'

step examples, compiled
dart compile exe --packages=.dart_tool/package_config.json tool/examples.dart -o "$work/examples" >/dev/null
declare -A arguments=(
    [01-install]="chat" [02-chat]="chat" [03-stream]="chat" [04-cancel]="chat" [05-tools]="tools" [06-structured]="chat"
    [07-picture-or-sound]="sees" [08-transcribe]="hears" [09-embed-and-search]="embeds" [10-offline-and-lifecycle]="chat"
    [11-hybrid]="chat")
python3 -B tool/target.py >"$work/target" &
target=$!
for _ in {1..100}; do [[ ! -s $work/target ]] || break; sleep 0.2; done
trap 'kill "$target"; rm -rf "$work"' EXIT
python3 -B - "$work/tone.wav" <<'END'
import math, struct, sys, wave

with wave.open(sys.argv[1], "wb") as file:
    file.setparams((1, 2, 16000, 0, "NONE", ""))
    file.writeframes(b"".join(struct.pack("<h", int(16000 * math.sin(i * i * 1e-5))) for i in range(64000)))
END
for example in examples/*.dart; do
    name=$(basename "$example" .dart)
    rest=()
    case $name in
    07-*) rest=("$CACTUS_TEST_GOLDEN/pictures/files/rgb.png") ;;
    08-*) rest=("$work/tone.wav") && [[ ! -d $CACTUS_TEST_BUNDLES/vad ]] || rest+=("$CACTUS_TEST_BUNDLES/vad") ;;
    11-*) rest=("$(cat "$work/target")") ;;
    esac
    inside timeout 60 "$work/examples" "$name" "$CACTUS_TEST_BUNDLES/${arguments[$name]}" "${rest[@]}" >"$work/said"
    [[ -s $work/said ]] || { echo "$name said nothing" >&2 && exit 1; }
    printf '%s: %s\n' "$name" "$(head -n 1 "$work/said" | cut -c 1-100)"
done

step the web
dart compile js --packages=.dart_tool/package_config.json -o "$work/web.js" tool/web.dart >/dev/null
if command -v node >/dev/null; then
    # Node.js stands for the browser: what does not draw is the same.
    node -e 'globalThis.self = globalThis; require(process.argv[1])' "$work/web.js" | grep -x 'web: UnsupportedError'
else
    echo "SKIPPED: the web build is compiled and not run: there is no node"
fi

step documentation
if [[ -n ${CACTUS_DART_DOC:-} ]]; then
    dart doc --output "$work/api" . | tail -n 3
else
    echo "SKIPPED: dart doc takes half a minute: set CACTUS_DART_DOC=1"
fi

step conformance
if [[ -f $repository/sdks/conformance/run.py && ${CACTUS_CONFORMANCE:-1} != 0 ]]; then
    python3 -B "$repository/sdks/conformance/run.py" --only dart --cactus "$program" --lib "$CACTUS_LIB_PATH"
else
    echo "SKIPPED: conformance, as CACTUS_CONFORMANCE=0 says"
fi
step done
