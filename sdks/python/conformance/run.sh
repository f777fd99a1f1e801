#!/usr/bin/env bash
# Runs a plan through the Python package: run.sh PLAN RESULTS
#
# The package is the one of this repository. CACTUS_PYTHON names an interpreter that has NumPy, CACTUS_PYTHON_EXTENSION a built
# lib_native.so, where there is no python/cactus/_native.abi3.so.
set -euo pipefail
cd "$(dirname "$0")/../../.."
skip() { echo "SKIPPED: $*" && exit 77; }
python=${CACTUS_PYTHON:-}
for each in $python .venv/bin/python .venv-torch/bin/python python3; do
    if "$each" -c 'import numpy' 2>/dev/null; then
        python=$each
        break
    fi
    python=
done
[[ -n $python ]] || skip "no Python with NumPy; scripts/setup.sh --ci makes one, CACTUS_PYTHON names one"
extension=${CACTUS_PYTHON_EXTENSION:-${CARGO_TARGET_DIR:-target}/debug/lib_native.so}
build=${CACTUS_CONFORMANCE_BUILD:-$(mktemp -d)}
if [[ -f $extension ]]; then
    # A package of its own: the sources, and the extension beside them.
    rm -rf "$build/python"
    mkdir -p "$build/python"
    cp -r python/cactus "$build/python/"
    cp "$extension" "$build/python/cactus/_native.abi3.so"
    package=$build/python
elif [[ -f python/cactus/_native.abi3.so ]]; then
    package=python
else
    skip "the extension is not built (cargo build -p cactus-python)"
fi
PYTHONPATH=$package exec "$python" sdks/python/conformance/runner.py "$1" "$2"
