#!/usr/bin/env bash
# Runs a plan of the conformance suite in Flutter's headless engine: sdks/flutter/conformance/run.sh PLAN RESULTS
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=../../dart/tool/environment.sh
source "$here/../../dart/tool/environment.sh"
# shellcheck source=../tool/headless.sh
source "$here/../tool/headless.sh"
tools "${flutter_packages[@]}"
library
plan_folders "$1" "$2"
package_config "$work/packages.json" "cactus_engine=$repository/sdks/dart" "cactus_flutter=$repository/sdks/flutter"
CACTUS_PLAN=$(realpath "$1") CACTUS_RESULTS=$(realpath -m "$2")
export CACTUS_PLAN CACTUS_RESULTS
headless "$here/main.dart" "$work/packages.json"
tail -n 1 "$CACTUS_RESULTS" | grep -q '"end"' || {
    echo "the engine has ended without the end of the results" >&2
    exit 1
}
