#!/usr/bin/env bash
# Every peer in one go: fetches and builds llama.cpp and ik_llama.cpp, installs OpenVINO GenAI, and prints the tables of
# compare.py for 8 and for 4 bits. About an hour and a half on two cores, most of it measuring.
#
#   benches/peers.sh [options of compare.py]
set -euo pipefail
cd "$(dirname "$0")"

cache=${CACTUS_TEST_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/cactus/test-models}
./build_llama_cpp.sh "$cache" --ik
for bits in 8 4; do
    ./compare.py --cache "$cache" --openvino --bits "$bits" "$@"
done
