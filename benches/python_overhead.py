#!/usr/bin/env python3
"""What Python costs: an answer through the package beside `cactus run`, prompt and all, with one thread, interleaved; prints the ratio of the medians.

    python benches/python_overhead.py MODEL [--program cactus] [--rounds 25] [--tokens 128]

MODEL is a bundle. Run it on an idle machine, with the package and the program of the same release build.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

from cactus import Model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--program", default="cactus")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--tokens", type=int, default=128)
    args = parser.parse_args()
    model = Model.load(args.model, threads=1, prefix_cache=False)
    asked = {"max_tokens": args.tokens, "ignore_eos": True}
    command = [args.program, "run", args.model, "--threads", "1", "--json", "--temperature", "0", "--ignore-eos"]
    command += ["--max-new-tokens", str(args.tokens), "--prompt", "Hello"]
    ways: dict[str, list[float]] = {"program": [], "whole": [], "streamed": []}
    for _ in range(args.rounds):
        made = subprocess.run(command, check=True, capture_output=True, text=True)
        ways["program"].append(args.tokens / json.loads(made.stdout)["total_time_ms"] * 1e3)
        # Prefixes are not kept, so each computes the whole prompt, as the program does.
        begun = time.perf_counter()
        model.chat("Hello", **asked)
        ways["whole"].append(args.tokens / (time.perf_counter() - begun))
        begun = time.perf_counter()
        for _piece in model.chat("Hello", stream=True, **asked):
            pass
        ways["streamed"].append(args.tokens / (time.perf_counter() - begun))
    program = statistics.median(ways["program"])
    for name, found in ways.items():
        median = statistics.median(found)
        print(f"{name:<10} {median:8.1f} tokens/s  {median / program:6.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
