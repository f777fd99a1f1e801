#!/usr/bin/env bash
# What each feature of the C library adds to libcactus.so: bytes beside the library for text alone, as docs/reference/c-abi.md has them.
#
#   benches/c_sizes.sh [TARGET]      default aarch64-unknown-linux-gnu; CC and STRIP are those of scripts/install_c.sh
#
# Every row is a build of some minutes. The last is text alone with the profile `small`.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-aarch64-unknown-linux-gnu}
if [[ $target == aarch64-unknown-linux-gnu && $(uname -m) != aarch64 ]]; then
    export CC=${CC:-aarch64-linux-gnu-gcc} STRIP=${STRIP:-aarch64-linux-gnu-strip}
fi
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT

# bytes FEATURES
bytes() {
    CACTUS_TARGET=$target CACTUS_FEATURES=$1 scripts/install_c.sh "$prefix" >&2
    wc -c <"$prefix/lib/libcactus.so"
}

text=$(bytes "")
printf '%-10s %10d\n' text "$text"
for feature in forms speech pictures search graphs store cloud; do
    with=$(bytes "$feature")
    printf '%-10s %+10d\n' "$feature" $((with - text))
done
printf '%-10s %10d\n' all "$(bytes default)"
printf '%-10s %10d\n' small "$(CACTUS_PROFILE=small bytes "")"
