#!/usr/bin/env bash
# Runs the published Python bindings of Cactus (cactus-compute 2.2.2), unmodified, with our library.
#
#   scripts/test_cactus_compute.sh LIBRARY BUNDLE
#
# The package is installed into target/ci-tools/cactus-compute. Exit code 77: it could not be installed.
set -euo pipefail
library=$(realpath "$1")
bundle=$(realpath "$2")
cd "$(dirname "$0")/.."

venv=target/ci-tools/cactus-compute
if ! "$venv/bin/python" -c 'import importlib.metadata as m; m.version("cactus-compute")' 2>/dev/null; then
    python3 -m venv "$venv"
    # What it depends on is for its other commands; the bindings need numpy alone.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check numpy setuptools wheel &&
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps cactus-compute==2.2.2 || exit 77
fi
# Away from this folder, whose `cactus` is another.
cd "$venv"
CACTUS_LIB_PATH=$library bin/python "$OLDPWD/scripts/test_cactus_compute.py" "$bundle"
