#!/usr/bin/env bash
# Builds the runner in Swift, and runs a plan: run.sh PLAN RESULTS
set -euo pipefail
cd "$(dirname "$0")/../../.."
skip() { echo "SKIPPED: $*" && exit 77; }
prefix=${CACTUS_PREFIX:-}
[[ -n $prefix ]] || skip "CACTUS_PREFIX has to name where scripts/install_c.sh installed the library"
build=${CACTUS_SWIFT_BUILD:-${CACTUS_CONFORMANCE_BUILD:-$(mktemp -d)}/swift}
mkdir -p "$build"
# shellcheck source=../tools.sh
source sdks/swift/tools.sh
have_swift || skip "there is no Swift 6.2; sdks/swift/test.sh installs one where it can"
swift_build build --package-path sdks/swift --scratch-path "$build/package" --product conformance
exec "${run[@]}" "$build/package/debug/conformance" "$1" "$2"
