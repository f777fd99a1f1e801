#!/usr/bin/env bash
# What decoding through the C library costs beside `cactus bench`: medians of interleaved runs, with one thread.
#
#   benches/c_overhead.sh BUNDLE [RUNS] [TOKENS]     defaults 41 and 128
set -euo pipefail
bundle=$(realpath "$1")
runs=${2:-41}
tokens=${3:-128}
cd "$(dirname "$0")/.."

prefix=target/c-overhead
scripts/install_c.sh "$PWD/$prefix" 2>/dev/null
cargo build --quiet --release --locked --package cactus-cli
cc -O2 -o "$prefix/c_decode" benches/c_decode.c -I"$prefix/include" "$prefix/lib/libcactus.so" -Wl,-rpath,"$PWD/$prefix/lib"

declare -a c cli
for ((run = 0; run < runs; run++)); do
    c+=("$("$prefix/c_decode" "$bundle" "$tokens" 1)")
    cli+=("$(target/release/cactus bench "$bundle" --threads 1 --prefill 0 --decode "$tokens" --reps 1 --json |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["rows"][0]["tok_s_median"])')")
done
python3 - "${c[*]}" "${cli[*]}" <<'PYTHON'
import statistics
import sys

c, cli = (statistics.median(map(float, values.split())) for values in sys.argv[1:])
print(f"C {c:.1f} tokens/s, cactus bench {cli:.1f} tokens/s: {c / cli:.4f}")
PYTHON
