#!/usr/bin/env bash
# Fuzzes each target (or those named) for some seconds: fuzz/fuzz.sh SECONDS [TARGET...]
# Needs the nightly toolchain and no cargo-fuzz, whose build flags it uses. A failing input is left in fuzz/artifacts.
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

cp ../Cargo.lock Cargo.lock
build=${CARGO_TARGET_DIR:-target}
host=$(rustc +nightly --version --verbose | sed -n 's/^host: //p')

if ! compgen -G 'corpus/*/seed-*' >/dev/null; then
    (cd .. && cargo test -p cactus-fuzzing --test seeds -- --ignored write_seeds)
fi

# With --target the flags reach what is fuzzed and not the build scripts. One codegen unit: coverage counters may not be
# split from the code they count.
RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1 ${FUZZ_RUSTFLAGS:--Zsanitizer=address}" \
    cargo +nightly build --release --target "$host" --bins

for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    dictionary=()
    [[ -f dictionaries/$target.dict ]] && dictionary=("-dict=dictionaries/$target.dict")
    echo "== $target"
    "$build/$host/release/$target" "corpus/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
        -max_len=131072 -print_final_stats=1 -artifact_prefix="artifacts/$target/" "${dictionary[@]}"
done
