#!/usr/bin/env python3
"""How far the states of a speech encoder are from those of the same encoder in 32 bits, for each recording and bundle.

    pip install faster-whisper numpy
    benches/states.py --cactus target/release/cactus --exact tiny32 --bundles tiny8 tiny4 -- jfk.wav beckett.wav

A number is the length of the difference, relative to that of the exact states. Recordings have 16,000 samples a second; of Whisper the first half minute is taken, with the
features of faster-whisper, of Moonshine as much of the samples.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import wave
from pathlib import Path

import numpy as np

RATE, MOST_S = 16_000, 30


def samples(path: Path) -> np.ndarray:
    with wave.open(str(path)) as file:
        form = file.getframerate(), file.getnchannels(), file.getsampwidth()
        if form != (RATE, 1, 2):
            raise SystemExit(f"{path}: expected {RATE} samples a second, one channel and 16 bits, found {form}")
        data = np.frombuffer(file.readframes(MOST_S * RATE), dtype="<i2")
    return data.astype(np.float32) / 32768


def features(x: np.ndarray) -> np.ndarray:
    from faster_whisper.feature_extractor import FeatureExtractor

    padded = np.pad(x, (0, MOST_S * RATE - len(x)))
    return FeatureExtractor()(padded)[:, : MOST_S * 100].astype(np.float32)


def states(cactus: str, bundle: str, x: np.ndarray) -> np.ndarray:
    told = subprocess.run([cactus, "inspect", bundle, "--json"], check=True, capture_output=True, text=True).stdout
    [encoder] = [c for c in json.loads(told)["components"] if c["name"] == "encoder"]
    port = encoder["inputs"][0]["name"]
    given = features(x) if port == "input_features" else x
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/in.npy", given[None])
        to = Path(folder) / "out"
        command = [cactus, "run", bundle, "--component", "encoder", "--input", f"{port}={folder}/in.npy", "--output-dir", str(to)]
        subprocess.run(command, check=True, capture_output=True)
        return np.load(sorted(to.glob("*.npy"))[0]).astype(np.float64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cactus", required=True, metavar="PROGRAM")
    parser.add_argument("--exact", required=True, metavar="BUNDLE", help="in 32 bits")
    parser.add_argument("--bundles", required=True, nargs="+", metavar="BUNDLE")
    parser.add_argument("recordings", nargs="+", type=Path)
    args = parser.parse_args()
    print("| recording | " + " | ".join(args.bundles) + " |\n|---|" + "---|" * len(args.bundles))
    for path in args.recordings:
        x = samples(path)
        exact = states(args.cactus, args.exact, x)
        off = [np.linalg.norm(states(args.cactus, bundle, x) - exact) / np.linalg.norm(exact) for bundle in args.bundles]
        print(f"| {path.stem} | " + " | ".join(f"{100 * x:.2f} %" for x in off) + " |")


if __name__ == "__main__":
    main()
