#!/usr/bin/env bash
# Runs a plan of the conformance suite: sdks/dart/conformance/run.sh PLAN RESULTS
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=../tool/environment.sh
source "$here/../tool/environment.sh"
tools dart-sdk dart-ffi
library
plan_folders "$1" "$2"
package_config "$work/packages.json" "cactus_engine=$repository/sdks/dart"
dart --packages="$work/packages.json" "$here/main.dart" "$(realpath "$1")" "$(realpath -m "$2")"
