#!/usr/bin/env bash
# Builds the runner in C++, and runs a plan: run.sh PLAN RESULTS
set -euo pipefail
cd "$(dirname "$0")/../../.."
skip() { echo "SKIPPED: $*" && exit 77; }
command -v c++ >/dev/null || skip "there is no C++ compiler"
[[ -n ${CACTUS_LIB_PATH:-} ]] || skip "CACTUS_LIB_PATH or CACTUS_PREFIX has to name the library"
echo '#include <nlohmann/json.hpp>' | c++ -std=c++17 -fsyntax-only -x c++ - 2>/dev/null || skip "nlohmann-json3-dev is not installed"
build=${CACTUS_CONFORMANCE_BUILD:-$(mktemp -d)}
program=$build/runner-cpp
if [[ ! $program -nt sdks/cpp/conformance/runner.cpp || ! $program -nt crates/ffi/include/cactus.hpp ||
    ! $program -nt crates/ffi/include/cactus_tools.hpp || ! $program -nt $CACTUS_LIB_PATH ]]; then
    c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -O1 -pthread -Icrates/ffi/include sdks/cpp/conformance/runner.cpp \
        "$CACTUS_LIB_PATH" -Wl,-rpath,"$(dirname "$CACTUS_LIB_PATH")" -o "$program.new"
    mv "$program.new" "$program"
fi
exec "$program" "$1" "$2"
