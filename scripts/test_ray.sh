#!/usr/bin/env bash
# Tests deploy/on_ray on a local Ray cluster of three nodes: about two minutes, and 750 MB of packages the first time.
#
#   scripts/test_ray.sh [PROGRAM]     PROGRAM defaults to target/debug/cactus, which is built if it is not there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=${1:-target/debug/cactus}
[ -x "$program" ] || cargo build --locked -p cactus-cli
venv=target/ray-venv
if ! [ -e "$venv/complete" ]; then
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install -q "ray[serve,data]==2.60.0" httpx==0.28.1 pytest
    touch "$venv/complete"
fi
CACTUS_PROGRAM=$(realpath "$program") exec "$venv/bin/python" -m pytest -q python/tests/test_ray.py
