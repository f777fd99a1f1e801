#!/usr/bin/env python3
"""What guessing ahead is worth: plain greedy decoding beside `--prompt-lookup`, on tasks that rewrite their prompt.

    benches/speculation.py [--models smollm2-135m,...] [--threads 1] [--rounds 3]

Each task asks for its text again with a small change. Runs are interleaved; figures are medians. The answers must be
the same to the letter, or the run fails: guessing may change when a token comes, never which. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

import measure
from peers import PeerError, Workshop, default_cache, models_named

CODE = """\
def mean(values):
    total = 0.0
    for value in values:
        total += value
    return total / len(values)

def variance(values):
    center = mean(values)
    total = 0.0
    for value in values:
        total += (value - center) ** 2
    return total / len(values)

def normalize(values):
    center = mean(values)
    spread = variance(values) ** 0.5
    return [(value - center) / spread for value in values]
"""
PROSE = (
    "The harbor opened at six. Fishing boats came in one after another, and the men threw their lines to the boys on "
    "the quay, who made them fast and waited for coins. By eight the market was full. Women weighed the catch on brass "
    "scales, cats sat under the tables, and the gulls walked between the baskets as if they had paid for them."
)
TASKS = {
    "code": f"Rename the variable `total` to `amount` in this code. Answer with the code only.\n\n```python\n{CODE}```",
    "prose": f"Repeat the following text word for word:\n\n{PROSE}",
}
NEW_TOKENS = 160


def answer(machine: measure.Machine, program: Path, bundle: Path, threads: int, prompt: str, extra: list[str]) -> dict:
    command = [str(program), "run", str(bundle), "--threads", str(threads), "--prompt", prompt, "--temperature", "0"]
    command += ["--max-new-tokens", str(NEW_TOKENS), "--json", *extra]
    return json.loads(measure.run(machine, command, threads))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="models and builds (default: %(default)s)")
    parser.add_argument("--cactus", type=Path, help="the cactus program (default: a release build of this checkout)")
    parser.add_argument("--models", help="comma-separated model names (default: all)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-realtime", action="store_true", help="pin only: on a machine that others need")
    options = parser.parse_args()
    machine = measure.Machine.detect(not options.no_realtime)
    try:
        shop = Workshop(options.cache.resolve(), options.cactus)
        program = shop.cactus()
        print("| model | task | plain tok/s | prompt lookup tok/s | ratio | tokens |")
        print("|---|---|---|---|---|---|")
        for model in models_named(options.models):
            bundle = shop.bundle(model, 8)
            for task, prompt in TASKS.items():
                speeds: dict[bool, list[float]] = {False: [], True: []}
                texts = set()
                tokens = 0
                for _ in range(options.rounds):
                    for guess in (False, True):
                        extra = ["--prompt-lookup"] if guess else []
                        found = answer(machine, program, bundle, options.threads, prompt, extra)
                        speeds[guess].append(found["decode_tps"])
                        texts.add(found["response"])
                        tokens = found["decode_tokens"]
                if len(texts) != 1:
                    print(f"error: {model.name}, {task}: the answers differ", file=sys.stderr)
                    return 1
                plain, guessed = (statistics.median(speeds[guess]) for guess in (False, True))
                print(f"| {model.title} | {task} | {plain:.1f} | {guessed:.1f} | **{guessed / plain:.2f}** | {tokens} |")
    except (PeerError, measure.RunError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
