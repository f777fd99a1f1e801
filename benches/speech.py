#!/usr/bin/env python3
"""Whisper here beside faster-whisper, on the same weights and recordings: are the tokens equal, and how long does it take.

    pip install faster-whisper
    cactus convert whisper-tiny.en tiny32 --bits 32 && cactus convert whisper-tiny.en tiny8
    benches/speech.py --cactus target/release/cactus --ct2 whisper-tiny.en --bundle tiny32 --compare float32 CLIP.wav...
    benches/speech.py --cactus target/release/cactus --ct2 whisper-tiny.en --bundle tiny8 --compare int8 --threads 1 --times 9 CLIP.wav

`--ct2` is the folder with `model.bin` (and `vocabulary.txt`) that the bundle was made of. Both decode greedily, without the
text before. Times take turns; each is a process of its own with everything from loading to the last word, and beside it for
faster-whisper the time without starting Python and importing the package. Medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ALONE = """
import sys, time
from faster_whisper import WhisperModel
begun = time.perf_counter()
model = WhisperModel(sys.argv[1], device="cpu", compute_type=sys.argv[2], cpu_threads=int(sys.argv[3]))
segments, _ = model.transcribe(sys.argv[4], beam_size=1, condition_on_previous_text=False)
tokens = [token for segment in segments for token in segment.tokens]
print(time.perf_counter() - begun)
print(*tokens)
"""


def theirs(args: argparse.Namespace, clip: Path) -> tuple[float, list[int]]:
    command = [sys.executable, "-c", ALONE, args.ct2, args.compare, str(args.threads), str(clip)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return float(told[0]), [int(token) for token in (told[1] if len(told) > 1 else "").split()]


def ours(args: argparse.Namespace, clip: Path) -> tuple[float, list[int]]:
    command = [args.cactus, "transcribe", str(clip), "--model", args.bundle, "--format", "json"]
    begun = time.perf_counter()
    told = subprocess.run([*command, "--threads", str(args.threads)], check=True, capture_output=True, text=True)
    took = time.perf_counter() - begun
    return took, [token for segment in json.loads(told.stdout)["segments"] for token in segment["tokens"]]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", nargs="+", type=Path, metavar="CLIP")
    parser.add_argument("--cactus", required=True, metavar="PROGRAM")
    parser.add_argument("--bundle", required=True, metavar="FOLDER")
    parser.add_argument("--ct2", required=True, metavar="FOLDER")
    parser.add_argument("--compare", default="float32", metavar="TYPE", help="compute type of faster-whisper")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--times", type=int, default=1)
    args = parser.parse_args(arguments)
    # Those that stand for times and tasks lie behind the text.
    text = 50257
    differ = 0
    print("| clip | tokens | equal | here, s | faster-whisper, s | ratio |\n|---|---|---|---|---|---|")
    for clip in args.clips:
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(args.times):
            (mine, said), (other, heard) = ours(args, clip), theirs(args, clip)
            times[0].append(mine)
            times[1].append(other)
        heard = [token for token in heard if token < text]
        differ += said != heard
        here, there = (statistics.median(each) for each in times)
        equal = "yes" if said == heard else "no"
        print(f"| {clip.stem} | {len(said)} | {equal} | {here:.2f} | {there:.2f} | {here / there:.2f} |", flush=True)
    return 1 if differ and args.compare == "float32" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
