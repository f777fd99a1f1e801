#!/usr/bin/env bash
# Builds the wheels of the Python package for Linux: for this CPU's architecture, and for ARM64 where a cross compiler is there.
# scripts/test_wheel.sh tries them.
#
#   scripts/build_wheels.sh [FOLDER]      FOLDER defaults to target/wheels
#
# It uses an environment of its own for maturin. A wheel over 15 MB is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
out=${1:-target/wheels}
venv=$root/target/wheel-venv
maturin_version=1.16.0
profile=${CACTUS_WHEEL_PROFILE:-dist}
if ! [[ -x $venv/bin/maturin ]]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "maturin==$maturin_version"
fi
mkdir -p "$out"
out=$(realpath "$out")
rm -f "$out"/cactus_engine-*.whl

# In the folder of pyproject.toml, which names the package and says that the library is stripped.
build() (
    cd python
    "$venv/bin/maturin" build --locked --profile "$profile" --compatibility linux --out "$out" "$@"
)

build
arm=aarch64-unknown-linux-gnu
if [[ $(uname -m) != aarch64 ]]; then
    if command -v aarch64-linux-gnu-gcc >/dev/null && [[ -d $(rustc --print target-libdir --target $arm) ]]; then
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
            build --target $arm
    else
        echo "no cross compiler or standard library of $arm: its wheel is not built (scripts/setup.sh --ci installs both)" >&2
    fi
fi

wheels=("$out"/cactus_engine-*.whl)
[[ -e ${wheels[0]} ]] || { echo "no wheel of the package cactus-engine was made" >&2 && exit 1; }
for wheel in "${wheels[@]}"; do
    bytes=$(stat -c %s "$wheel")
    echo "$wheel: $((bytes / 1000)) kB"
    if [[ $profile == dist ]] && ((bytes > 15000000)); then
        echo "$wheel is over 15 MB" >&2
        exit 1
    fi
done
