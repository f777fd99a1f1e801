#!/usr/bin/env bash
# Builds interleavings.c and runs it.
#
#   sdks/conformance/interleavings.sh BUNDLE [ROUNDS [SEED [THREADS]]]     100 rounds unless told otherwise; 10000 are the long form
#
# CACTUS_SANITIZER=thread (the default where the compiler has it), address, or none. CACTUS_LIB_PATH names the library. What is instrumented
# is the program and the border; a library that was instrumented itself (see README.md) is seen whole.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
skip() { echo "SKIPPED: $*" && exit 77; }
command -v cc >/dev/null || skip "there is no C compiler"
[[ -n ${CACTUS_LIB_PATH:-} ]] || skip "CACTUS_LIB_PATH has to name the library"
sanitizer=${CACTUS_SANITIZER:-thread}
build=${CACTUS_CONFORMANCE_BUILD:-$(mktemp -d)}
mkdir -p "$build"
program=$build/interleavings-$sanitizer
flags=()
[[ $sanitizer == none ]] || flags=("-fsanitize=$sanitizer")
[[ -z ${CACTUS_SANITIZED_LIBRARY:-} ]] || flags+=(-DLIBRARY_IS_INSTRUMENTED)
cc -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Werror -g -O1 -pthread "${flags[@]}" -I"$here/../../crates/ffi/include" \
    "$here/interleavings.c" "$CACTUS_LIB_PATH" -Wl,-rpath,"$(dirname "$CACTUS_LIB_PATH")" -o "$program"
suppressions=$here/../../crates/ffi/tests/programs/tsan.txt
[[ -z ${CACTUS_SANITIZED_LIBRARY:-} ]] || suppressions=/dev/null
export TSAN_OPTIONS="halt_on_error=1 suppressions=$suppressions ${TSAN_OPTIONS:-}"
export ASAN_OPTIONS="detect_leaks=1 ${ASAN_OPTIONS:-}"
exec "$program" "$@"
