#!/usr/bin/env bash
# Tests the Flutter package in Flutter's headless engine. ../dart/tool/environment.sh says what it needs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=../dart/tool/environment.sh
source "$here/../dart/tool/environment.sh"
# shellcheck source=tool/headless.sh
source "$here/tool/headless.sh"
cd "$here"
step() { printf '== %s (%s s)\n' "$*" "$SECONDS"; }

step tools
tools "${flutter_packages[@]}"
library
bundles
bound="$bound $repository"
package_config .dart_tool/package_config.json "cactus_engine=$repository/sdks/dart" "cactus_flutter=$here"

step format and analysis
dart format --output none --set-exit-if-changed .
dart analyze --fatal-infos

step tests in the headless engine
export CACTUS_TEST_RESULTS=$work/results.txt
headless "$here/test/headless.dart" .dart_tool/package_config.json >"$work/log" 2>&1 || true
# The engine's exit code proves nothing: the last line of the results does.
cat "$CACTUS_TEST_RESULTS" 2>/dev/null || true
last=$(tail -n 1 "$CACTUS_TEST_RESULTS" 2>/dev/null || true)
if ! grep -Eq '^all: [1-9][0-9]* passed, 0 failed$' <<<"$last"; then
    tail -n 60 "$work/log" >&2
    echo "the tests have failed, or have not come to their end" >&2
    exit 1
fi

step conformance
if [[ -f $repository/sdks/conformance/run.py && ${CACTUS_CONFORMANCE:-1} != 0 ]]; then
    python3 -B "$repository/sdks/conformance/run.py" --only flutter --cactus "$program" --lib "$CACTUS_LIB_PATH"
else
    echo "SKIPPED: conformance, as CACTUS_CONFORMANCE=0 says"
fi
echo "SKIPPED: building for a phone, the build hook, and the Swift package: their tools are not here"
step done
