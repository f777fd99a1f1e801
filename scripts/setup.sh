#!/usr/bin/env bash
# Installs what building and testing this project need. Safe to run again: what is there is left alone.
#
#   scripts/setup.sh         to build, run and test
#   scripts/setup.sh --ci    also the optional tools that the build server uses: cargo-deny, Python packages
#
# A missing optional tool is reported, and the step that wants it skips itself; a missing needed one is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

optional=false
case "${1:-}" in
"") ;;
--ci) optional=true ;;
*)
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

say() { printf 'setup: %s\n' "$*" >&2; }
has() { command -v "$1" >/dev/null 2>&1; }

# Packages of the operating system, by the command that shows whether they are there.
missing=()
has cc || missing+=(build-essential)
has git || missing+=(git)
has python3 || missing+=(python3)
python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing+=(python3-venv)
if ((${#missing[@]})); then
    as_root=()
    if [[ $(id -u) != 0 ]]; then as_root=(sudo); fi
    if ! has apt-get; then
        say "this system has no apt-get; install what these Debian packages hold: ${missing[*]}"
        exit 1
    fi
    say "installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

if ! has cargo; then
    say "cargo is not installed: https://rustup.rs says how, and rust-toolchain.toml then picks the version"
    exit 1
fi

if $optional; then
    deny_version=0.20.2
    if ! cargo deny --version >/dev/null 2>&1; then
        say "installing cargo-deny $deny_version (a few minutes)"
        cargo install --quiet --locked --version "$deny_version" cargo-deny ||
            say "cargo-deny could not be installed; its step will be skipped"
    fi

    [[ -x .venv/bin/python ]] || python3 -m venv .venv
    if ! .venv/bin/python -c 'import gguf, numpy' 2>/dev/null; then
        # The pinned versions that wrote the golden files; torch and transformers are too large for every run.
        mapfile -t wanted < <(grep -E '^(gguf|numpy)==' golden/requirements.txt)
        say "installing ${wanted[*]} into .venv"
        .venv/bin/python -m pip install --quiet --disable-pip-version-check "${wanted[@]}" ||
            say "the Python packages could not be installed; the step golden will be skipped"
    fi
fi
