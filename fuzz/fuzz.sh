#!/usr/bin/env bash
# Fuzzes each target (or those named) for some seconds: fuzz/fuzz.sh SECONDS [TARGET...]
# Needs a C++ compiler, and neither the nightly toolchain nor cargo-fuzz, whose build flags it uses. A failing input is left in
# fuzz/artifacts. What reached something new is kept in fuzz/grown, or in the folder that FUZZ_CORPUS names.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:?usage: fuzz.sh SECONDS [TARGET...]}
shift
targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
    for file in fuzz_targets/*.rs; do
        targets+=("$(basename "$file" .rs)")
    done
fi
if ! command -v "${CXX:-c++}" >/dev/null; then
    echo "fuzz.sh: no C++ compiler for libFuzzer: apt-get install g++" >&2
    exit 1
fi

cp ../Cargo.lock Cargo.lock
build=${CARGO_TARGET_DIR:-target}
host=$(rustc --version --verbose | sed -n 's/^host: //p')
export FUZZ_CORPUS=${FUZZ_CORPUS:-grown}

# The pinned compiler has the sanitizers, behind flags that are unstable. With --target the flags reach what is fuzzed and not the
# build scripts. One codegen unit: coverage counters may not be split from the code they count.
bins=(--bin seeds)
for target in "${targets[@]}"; do
    bins+=(--bin "$target")
done
RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1 ${FUZZ_RUSTFLAGS:--Zsanitizer=address}" \
    cargo build --release --target "$host" "${bins[@]}"

"$build/$host/release/seeds" -runs=0 2>/dev/null

for target in "${targets[@]}"; do
    mkdir -p "$FUZZ_CORPUS/$target" "artifacts/$target"
    folders=("$FUZZ_CORPUS/$target")
    for folder in "corpus/$target" "regressions/$target"; do
        [[ -d $folder ]] && folders+=("$folder")
    done
    dictionary=()
    [[ -f dictionaries/$target.dict ]] && dictionary=("-dict=dictionaries/$target.dict")
    echo "== $target"
    "$build/$host/release/$target" "${folders[@]}" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
        -max_len=131072 -print_final_stats=1 -artifact_prefix="artifacts/$target/" "${dictionary[@]}"
done
