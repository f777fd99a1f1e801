#!/usr/bin/env bash
# Runs a plan of the conformance suite: run.sh PLAN RESULTS. CACTUS_LIB_PATH names the library. It ends with 77 where tools are missing.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
plan="$(realpath "$1")"
mkdir -p "$(dirname "$2")"
results="$(realpath "$2")"
source "$HERE/build.sh" tests
[ -n "${CACTUS_LIB_PATH:-}" ] || export CACTUS_LIB_PATH="${CACTUS_PREFIX:?name the library: CACTUS_LIB_PATH}/lib/libcactus.so"
exec "$JDK/bin/java" -Xcheck:jni -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "-Dcactus.jni.path=$JNI" -cp "$STDLIB:$OUT/classes:$OUT/tests" \
    dev.cactusengine.conformance.Runner "$plan" "$results"
