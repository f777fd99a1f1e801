#!/usr/bin/env bash
# Tries the wheels of the Python package: with every Python from 3.10 on that is on the path, each in a new environment, they import
# and answer. A wheel for ARM64 is tried under emulation on other CPUs, with Debian's Python.
#
#   scripts/test_wheel.sh [FOLDER] [PYTHON...]     FOLDER defaults to target/wheels; further Pythons by name or path
#
# The model that answers is the tiny one of golden/, so what is tried is the package, not its speed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
wheels=$(realpath "${1:-target/wheels}")
shift || true
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

try=$work/try.py
cat >"$try" <<'PYTHON'
import platform, sys
from cactus import Model, UnsupportedError
with Model.load(sys.argv[1], progress=False, threads=1) as model:
    answer = model.chat("Hello", max_tokens=8, ignore_eos=True, temperature=0)
    pieces = list(model.chat("Hello", stream=True, max_tokens=8, ignore_eos=True, temperature=0))
    assert "".join(pieces) == answer.text and len(answer.token_ids) == 8
    try:
        model.embed("x")
    except UnsupportedError:
        pass
print(f"{platform.python_implementation()} {platform.python_version()} {platform.machine()}: {answer.token_ids}")
PYTHON
export CACTUS_CACHE=$work/cache
model=$root/golden/models/smollm3

shopt -s nullglob
tried=0
cd "$work"
for wheel in "$wheels"/cactus_engine-*"$(uname -m)".whl; do
    for python in python3.10 python3.11 python3.12 python3.13 python3.14 python3.15 "$@"; do
        "$python" -c 'import sys; assert sys.version_info >= (3, 10)' 2>/dev/null || continue
        rm -rf environment
        "$python" -m venv environment
        environment/bin/pip install --quiet --disable-pip-version-check --no-deps "$wheel"
        environment/bin/python "$try" "$model"
        tried=$((tried + 1))
    done
done

if [[ $(uname -m) != aarch64 ]]; then
    for wheel in "$wheels"/cactus_engine-*aarch64.whl; do
        if ! command -v qemu-aarch64 apt-get >/dev/null || ! [[ -e /lib/ld-linux-aarch64.so.1 ]]; then
            echo "no emulator of ARM64, or no Debian: $wheel is not tried (scripts/setup.sh --ci installs the emulator)" >&2
            continue
        fi
        arm=$root/target/ci-tools/arm-python
        if ! [[ -x $arm/usr/bin/python3.11 ]]; then
            mkdir -p "$arm" "$work/packages"
            chmod 755 "$work"
            (cd "$work/packages" && apt-get download -q -o APT::Sandbox::User=root \
                {python3.11-minimal,libpython3.11-minimal,libpython3.11-stdlib,libexpat1,zlib1g,libffi8,libssl3}:arm64 >/dev/null)
            for package in "$work"/packages/*.deb; do
                dpkg --fsys-tarfile "$package" | tar -x -C "$arm"
            done
        fi
        python3 -m zipfile -e "$wheel" "$work/arm-wheel"
        PYTHONPATH=$work/arm-wheel PYTHONHOME=$arm/usr qemu-aarch64 -E LD_LIBRARY_PATH="$arm/usr/lib/aarch64-linux-gnu:$arm/lib/aarch64-linux-gnu" \
            "$arm/usr/bin/python3.11" "$try" "$model"
        tried=$((tried + 1))
    done
fi
((tried > 0)) || { echo "no wheel in $wheels fits a Python on this machine; scripts/build_wheels.sh makes them" >&2 && exit 1; }
echo "$tried tried"
