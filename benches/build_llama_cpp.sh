#!/usr/bin/env bash
# Builds the llama.cpp peer: a native Release build of the source vendored in the
# `llama-cpp-python` source package that scripts/fetch_models.py pins.
#
#   benches/build_llama_cpp.sh [CACHE] [--jobs N] [--ik]
#
# CACHE defaults to $CACTUS_TEST_MODELS, then to ~/.cache/cactus/test-models (the defaults of
# scripts/fetch_models.py). The binaries appear in CACHE/llama-build/bin; with --ik also
# those of ik_llama.cpp in CACHE/ik-build/bin. cmake and ninja come from pip, pinned, in a
# virtual environment inside CACHE. A build that is already there is left alone.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${CACTUS_TEST_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/cactus/test-models}
jobs=2
with_ik=0
python=${PYTHON:-python3}
while [ $# -gt 0 ]; do
    case $1 in
        --jobs) jobs=$2; shift ;;
        --ik) with_ik=1 ;;
        -h|--help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
        -*) echo "unknown option: $1" >&2; exit 2 ;;
        *) cache=$1 ;;
    esac
    shift
done
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

venv=$cache/build-venv
if ! [ -x "$venv/bin/cmake" ] || ! [ -x "$venv/bin/ninja" ]; then
    "$python" -m venv "$venv"
    "$venv/bin/pip" install -q cmake==4.4.4 ninja==1.13.2
fi
export PATH=$venv/bin:$PATH

# build SOURCE BUILD TARGET... : the flags are the same for every llama.cpp descendant.
# LLAMA_CURL is ik's name for what LLAMA_OPENSSL switches in mainline: no download code.
build() {
    local source=$1 out=$2
    shift 2
    local missing=0 target
    for target in "$@"; do [ -x "$out/bin/$target" ] || missing=1; done
    if [ $missing = 0 ]; then
        echo "already built: $out/bin"
        return
    fi
    cmake -S "$source" -B "$out" -G Ninja --no-warn-unused-cli \
        -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
        -DGGML_NATIVE=ON -DGGML_OPENMP=ON -DGGML_CCACHE=OFF \
        -DCMAKE_SUPPRESS_REGENERATION=ON \
        -DLLAMA_OPENSSL=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_APP=OFF >"$out.configure.log" 2>&1 ||
        { tail -30 "$out.configure.log" >&2; exit 1; }
    nice -n 10 cmake --build "$out" -j "$jobs" --target "$@"
    echo "built: $out/bin"
}

"$python" "$root/scripts/fetch_models.py" "$cache" --only llama-cpp-src
build "$cache/llama.cpp" "$cache/llama-build" \
    llama-bench llama-quantize llama-perplexity llama-imatrix llama-completion llama-tokenize llama-server

if [ $with_ik = 1 ]; then
    "$python" "$root/scripts/fetch_models.py" "$cache" --only ik-llama-cpp-src
    # The source package leaves out this file, which its own CMakeLists runs.
    stub=$cache/ik_llama.cpp/common/cmake/build-info-gen-cpp.cmake
    if ! [ -e "$stub" ]; then
        mkdir -p "$(dirname "$stub")"
        cat >"$stub" <<'CMAKE'
set(BUILD_NUMBER 0)
set(BUILD_COMMIT "unknown")
set(BUILD_COMPILER "${CMAKE_C_COMPILER_ID}")
set(BUILD_TARGET "unknown")
configure_file("${CMAKE_CURRENT_LIST_DIR}/../build-info.cpp.in" "${CMAKE_CURRENT_LIST_DIR}/../build-info.cpp")
CMAKE
    fi
    build "$cache/ik_llama.cpp" "$cache/ik-build" llama-bench llama-perplexity
fi
