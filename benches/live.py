#!/usr/bin/env python3
"""How far live text lags behind speech, in seconds of sound, and what it costs.

    benches/live.py --cactus target/release/cactus --bundle tiny8 --vad vad --steps 500 1000 -- CLIP.wav...

For each word of a final text: the time from its end, as `--words` says it, to the sound after which it was committed; a word that no
partial committed counts with the final. The machine's speed is no part of that: it adds the time of one step, which the last
columns have as processor seconds of one thread for each second of sound.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path


def lags(events: list[dict]) -> list[float]:
    found, commits = [], []
    for event in events:
        if event["event"] == "speech_start":
            commits = []
        elif event["event"] == "partial":
            commits.append((len(event["committed"]), event["until_s"]))
        elif event["event"] == "final":
            length, words = 0, event["segment"]["words"]
            for word in words:
                length += len(word["text"])
                at = next((until for size, until in commits if size >= length), None)
                if at is not None:
                    found.append(at - word["end_s"])
    return found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", nargs="+", type=Path, metavar="CLIP")
    parser.add_argument("--cactus", required=True, metavar="PROGRAM")
    parser.add_argument("--bundle", required=True, metavar="FOLDER")
    parser.add_argument("--vad", required=True, metavar="FOLDER")
    parser.add_argument("--commit", choices=["agreement", "attention"], default="agreement", help="as `cactus listen` has it")
    parser.add_argument("--steps", nargs="+", type=int, default=[500, 1000], metavar="MS")
    args = parser.parse_args(arguments)
    print("| step, ms | words | committed before the final | lag, median s | lag, 9 of 10 s | processor s/s |\n|---|---|---|---|---|---|")
    for step in args.steps:
        behind, words, seconds = [], 0, 0.0
        before = os.times()
        for clip in args.clips:
            command = [args.cactus, "listen", str(clip), "--model", args.bundle, "--vad", args.vad, "--words"]
            command += ["--format", "json", "--step-ms", str(step), "--threads", "1", "--commit", args.commit]
            told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            events = [json.loads(line) for line in told.splitlines()]
            behind += lags(events)
            finals = [event["segment"] for event in events if event["event"] == "final"]
            words += sum(len(segment["words"]) for segment in finals)
            seconds += sum(segment["end_s"] - segment["start_s"] for segment in finals)
        after = os.times()
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        deciles = statistics.quantiles(behind, n=10)
        share = f"{100 * len(behind) / max(words, 1):.0f} %"
        print(f"| {step} | {words} | {share} | {statistics.median(behind):.2f} | {deciles[8]:.2f} | {spent / seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
