#!/usr/bin/env python3
"""How far live text lags behind speech, and what it costs.

    cargo build --release -p cactus-speech --example live
    benches/live.py --example target/release/examples/live --bundle base8 --vad vad --steps 500 1000 -- CLIP.wav...

For each word of a final text: the seconds of sound from its end, as times of words say it, to the sound after which it was committed; a word
that no partial committed counts with the final. These are exact, as they do not depend on the machine.

For each final text: the same from the end of its last word; and the seconds from where silence begins to when the text is there on one core
of this machine that has nothing else to do then: the sound that is waited for, and the processor time of the step that is taken in it.
Phrases that end with the recording are left out of this. `OPTION=VALUE` after `--with` goes to the example: sentence_ms, margin_ms, commit, silence_ms, language.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path


def tenths(values: list[float]) -> str:
    """The median, and what nine of ten do not pass."""
    if len(values) < 2:
        return "- | -"
    return f"{statistics.median(values):.2f} | {statistics.quantiles(values, n=10)[8]:.2f}"


def clips(told: str) -> list[list[dict]]:
    """The events of each recording, of which the last is its end."""
    found = [[]]
    for event in map(json.loads, told.splitlines()):
        found[-1].append(event)
        if event["event"] == "end":
            found.append([])
    return found[:-1]


def lags(events: list[dict]) -> tuple[list[float], list[float], int]:
    """Of the words, and of the last ones to the final text; and how many words there are."""
    words_behind, finals_behind, words, commits = [], [], 0, []
    for event in events:
        if event["event"] == "speech_start":
            commits = []
        elif event["event"] == "partial":
            commits.append((len(event["committed"]), event["until_s"]))
        elif event["event"] == "final":
            length, said = 0, event["segment"]["words"]
            words += len(said)
            for word in said:
                length += len(word["text"])
                at = next((until for size, until in commits if size >= length), None)
                if at is not None:
                    words_behind.append(at - word["end_s"])
            if said and event["reason"] == "silence":
                finals_behind.append(event["until_s"] - said[-1]["end_s"])
    return words_behind, finals_behind, words


def comes(events: list[dict]) -> list[float]:
    """From where silence begins to when the final text is there."""
    found, ready, final = [], 0.0, None
    for event in events:
        if event["event"] == "partial":
            ready = event["until_s"] + event["took_s"]
        elif event["event"] == "final":
            ready, final = max(ready, event["until_s"] + event["took_s"]), event
        elif event["event"] == "speech_end":
            if final is not None and final["reason"] == "silence":
                found.append(ready - event["end_s"])
            ready, final = 0.0, None
    return found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", nargs="+", type=Path, metavar="CLIP")
    parser.add_argument("--example", required=True, metavar="PROGRAM")
    parser.add_argument("--bundle", required=True, metavar="FOLDER")
    parser.add_argument("--vad", required=True, metavar="FOLDER")
    parser.add_argument("--steps", nargs="+", type=int, default=[500, 1000], metavar="MS")
    parser.add_argument("--with", nargs="+", default=[], metavar="OPTION=VALUE", dest="options", help="as the example has them")
    args = parser.parse_args(arguments)
    print("| step, ms | words | committed before the final | lag, median s | lag, 9 of 10 s | finals | within 0.3 s |", end="")
    print(" from the last word, median s | 9 of 10 | from silence, median s | 9 of 10 | processor s/s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for step in args.steps:
        words_behind, finals_behind, there, words, spent, spoken = [], [], [], 0, 0.0, 0.0
        command = [args.example, args.bundle, args.vad, *map(str, args.clips), f"step_ms={step}", *args.options]
        for extra in ["words=true"], []:
            told = subprocess.run([*command, *extra], check=True, capture_output=True, text=True).stdout
            for clip in clips(told):
                if extra:
                    found = lags(clip)
                    words_behind, finals_behind, words = words_behind + found[0], finals_behind + found[1], words + found[2]
                else:
                    there += comes(clip)
                    spent += clip[-1]["spent_s"]
                    finals = [event["segment"] for event in clip if event["event"] == "final"]
                    spoken += sum(segment["end_s"] - segment["start_s"] for segment in finals)
        share = f"{100 * len(words_behind) / max(words, 1):.0f} %"
        soon = f"{100 * sum(lag <= 0.3 for lag in there) / max(len(there), 1):.0f} %"
        row = [str(step), str(words), share, tenths(words_behind), str(len(there)), soon, tenths(finals_behind), tenths(there)]
        print(f"| {' | '.join(row)} | {spent / spoken:.2f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
