#!/usr/bin/env bash
# Tests the adapters of the Python package against the real LangChain, LiteLLM, LlamaIndex and Haystack: ten seconds, and 650 MB of packages
# the first time.
#
#   scripts/test_adapters.sh [PROGRAM]     PROGRAM defaults to target/debug/cactus, which is built if it is not there
#
# CACTUS_TEST_CHROMA=1 tests against Chroma, too, which is 320 MB more; without it those tests are skipped, and say so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
program=${1:-$target/debug/cactus}
[ -x "$program" ] || cargo build --locked -p cactus-cli
if ! [ -e python/cactus/_native.abi3.so ]; then
    cargo build --locked -p cactus-python
    cp "$target/debug/lib_native.so" python/cactus/_native.abi3.so
fi
venv=$target/adapters-venv
packages=(langchain-core==1.7.2 langchain-tests==1.1.9 litellm==1.106.2 mcp==2.3.0 llama-index-core==0.14.25 haystack-ai==3.4.1
    numpy pydantic pytest)
if [ -n "${CACTUS_TEST_CHROMA:-}" ]; then packages+=(chromadb==1.5.9); fi
if [ "$(cat "$venv/complete" 2>/dev/null)" != "${packages[*]}" ]; then
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check "${packages[@]}"
    echo "${packages[*]}" >"$venv/complete"
fi
# A package that is not there would be skipped silently.
needed="langchain_core, langchain_tests, litellm, llama_index.core, haystack"
if [ -n "${CACTUS_TEST_CHROMA:-}" ]; then needed="$needed, chromadb"; fi
"$venv/bin/python" -c "import $needed"
CACTUS_PROGRAM=$(realpath "$program") exec "$venv/bin/python" -m pytest -q -rs \
    python/tests/test_adapters.py python/tests/test_adapters_retrieval.py
