#!/usr/bin/env bash
# Builds the runner in C, and runs a plan: run.sh PLAN RESULTS
set -euo pipefail
cd "$(dirname "$0")/../../.."
skip() { echo "SKIPPED: $*" && exit 77; }
command -v cc >/dev/null || skip "there is no C compiler"
[[ -n ${CACTUS_LIB_PATH:-} ]] || skip "CACTUS_LIB_PATH or CACTUS_PREFIX has to name the library"
echo '#include <cjson/cJSON.h>' | cc -fsyntax-only -x c - 2>/dev/null || skip "libcjson-dev is not installed"
build=${CACTUS_CONFORMANCE_BUILD:-$(mktemp -d)}
program=$build/runner-c
if [[ ! $program -nt sdks/conformance/c/runner.c || ! $program -nt crates/ffi/include/cactus.h || ! $program -nt $CACTUS_LIB_PATH ]]; then
    cc -std=c11 -Wall -Wextra -Wpedantic -Werror -O1 -Icrates/ffi/include sdks/conformance/c/runner.c \
        "$CACTUS_LIB_PATH" -Wl,-rpath,"$(dirname "$CACTUS_LIB_PATH")" -lcjson -o "$program.new"
    mv "$program.new" "$program"
fi
exec "$program" "$1" "$2"
