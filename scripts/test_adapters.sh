#!/usr/bin/env bash
# Tests the adapters of the Python package against the real LangChain, LiteLLM and LlamaIndex: half a minute, and 620 MB of packages the
# first time.
#
#   scripts/test_adapters.sh [PROGRAM]     PROGRAM defaults to target/debug/cactus, which is built if it is not there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
program=${1:-$target/debug/cactus}
[ -x "$program" ] || cargo build --locked -p cactus-cli
if ! [ -e python/cactus/_native.abi3.so ]; then
    cargo build --locked -p cactus-python
    cp "$target/debug/lib_native.so" python/cactus/_native.abi3.so
fi
venv=target/adapters-venv
if ! [ -e "$venv/complete" ]; then
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check \
        langchain-core==1.7.2 litellm==1.106.2 mcp==2.3.0 llama-index-core==0.14.25 numpy pydantic pytest
    touch "$venv/complete"
fi
# A package that is not there would be skipped silently.
"$venv/bin/python" -c "import langchain_core, litellm, llama_index.core"
CACTUS_PROGRAM=$(realpath "$program") exec "$venv/bin/python" -m pytest -q python/tests/test_adapters.py
