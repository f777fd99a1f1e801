#!/usr/bin/env python3
"""Times of words here beside faster-whisper's, of the same weights and recordings: how far apart they are.

    pip install faster-whisper
    cactus convert whisper-tiny.en tiny32 --bits 32
    benches/word_times.py --cactus target/release/cactus --ct2 whisper-tiny.en --bundle tiny32 CLIP.wav...

`--ct2` is the folder with `model.bin` (and `vocabulary.txt`) that the bundle was made of. Both decode greedily in single
precision, without the text before. A time is near where it is at most 40 ms from the other's. With `--hallucination-silence` both leave out what
nobody may have said, beside so many seconds of silence.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from faster_whisper import WhisperModel

NEAR_S = 0.04 + 1e-6


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", nargs="+", type=Path, metavar="CLIP")
    parser.add_argument("--cactus", required=True, metavar="PROGRAM")
    parser.add_argument("--bundle", required=True, metavar="FOLDER")
    parser.add_argument("--ct2", required=True, metavar="FOLDER")
    parser.add_argument("--list", action="store_true", help="print every word that is not near")
    parser.add_argument("--hallucination-silence", type=float, metavar="SECONDS")
    args = parser.parse_args(arguments)
    silence = args.hallucination_silence
    more = [] if silence is None else ["--hallucination-silence", str(silence)]
    peer = WhisperModel(args.ct2, device="cpu", compute_type="float32")
    away = 0
    print("| clip | words | equal | near | worst, ms |\n|---|---|---|---|---|")
    for clip in args.clips:
        options = {"word_timestamps": True, "hallucination_silence_threshold": silence}
        segments, _ = peer.transcribe(str(clip), beam_size=1, condition_on_previous_text=False, **options)
        theirs = [(word.word, word.start, word.end) for segment in segments for word in segment.words]
        command = [args.cactus, "transcribe", str(clip), "--model", args.bundle, "--words", "--format", "json", *more]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        ours = [(w["text"], w["start_s"], w["end_s"]) for s in told["segments"] for w in s["words"]]
        equal = [word for word, _, _ in theirs] == [word for word, _, _ in ours]
        pairs = list(zip(theirs, ours)) if equal else []
        apart = [max(abs(a[1] - b[1]), abs(a[2] - b[2])) for a, b in pairs]
        near = sum(each <= NEAR_S for each in apart)
        away += not equal or near < len(apart)
        worst = round(1000 * max(apart, default=0.0))
        print(f"| {clip.stem} | {len(theirs)} | {'yes' if equal else 'no'} | {near} | {worst} |", flush=True)
        if args.list:
            for (a, b), each in zip(pairs, apart):
                if each > NEAR_S:
                    print(f"  {a} {b}")
            if not equal:
                print(f"  {theirs}\n  {ours}")
    return 1 if away else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
