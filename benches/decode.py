"""Decode and prefill of one bundle beside llama.cpp with one GGUF file, in one interleaved run; a table of medians.

    python benches/decode.py BUNDLE FILE.gguf [--cactus target/release/cactus] [--llama-bench CACHE/llama-build/bin/llama-bench]
        [--threads 1 2] [--rounds 3] [--prefill 128] [--decode 32]

How processes are made comparable is in measure.py. The table gives tokens a second, and what ours divided by llama.cpp's are.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import measure

CACHE = Path.home() / ".cache" / "cactus" / "test-models"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--cactus", type=Path, default=Path("target/release/cactus"))
    parser.add_argument("--llama-bench", type=Path, default=CACHE / "llama-build" / "bin" / "llama-bench")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prefill", type=int, default=128)
    parser.add_argument("--decode", type=int, default=32)
    parser.add_argument("--no-realtime", action="store_true", help="pin only: on a machine that others need")
    args = parser.parse_args()
    machine = measure.Machine.detect(not args.no_realtime)
    print(json.dumps(machine.describe()))

    def ours(threads: int) -> dict[str, float]:
        command = [args.cactus, "bench", args.bundle, "--json", "--threads", threads, "--reps", 1, "--prefill", args.prefill, "--decode", args.decode]
        found = json.loads(measure.run(machine, [str(part) for part in command], threads))
        rates = {row["name"].split("-")[0]: row["tok_s_median"] for row in found["rows"]}
        return rates | {"anonymous MB": found["anon_mb"]}

    def llama(threads: int) -> dict[str, float]:
        command = [args.llama_bench, "-m", args.gguf, "-o", "json", "-r", 1, "-t", threads, "-p", args.prefill, "-n", args.decode]
        found = json.loads(measure.run(machine, [str(part) for part in command], threads))
        return {"prefill" if row["n_prompt"] else "decode": row["avg_ts"] for row in found}

    engines = {"cactus": ours, "llama.cpp": llama}
    print("| threads | | prefill, tokens/s | decode, tokens/s | anonymous MB |\n|---:|---|---:|---:|---:|")
    for threads in args.threads:
        found: dict[str, list[dict[str, float]]] = {name: [] for name in engines}
        for turn in range(args.rounds):
            for name in list(engines) if turn % 2 == 0 else reversed(engines):
                found[name].append(engines[name](threads))
        median = {name: {key: statistics.median(one[key] for one in all_) for key in all_[0]} for name, all_ in found.items()}
        for name, own in median.items():
            ratio = lambda key: f" ({own[key] / median['llama.cpp'][key]:.2f}×)" if name == "cactus" else ""
            anonymous = f"{own['anonymous MB']:.0f}" if "anonymous MB" in own else ""
            print(f"| {threads} | {name} | {own['prefill']:.1f}{ratio('prefill')} | {own['decode']:.2f}{ratio('decode')} | {anonymous} |", flush=True)


main()
