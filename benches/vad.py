#!/usr/bin/env python3
"""Silero VAD here beside ONNX Runtime and sherpa-onnx: microseconds for a chunk of 32 ms, on one thread each, taking turns; medians.

    pip install onnxruntime sherpa-onnx numpy soundfile
    pip download silero-vad==6.2.3 --no-deps && unzip silero_vad-6.2.3-*.whl
    cactus convert silero_vad/data/silero_vad.onnx vad                   # with --sample-rate 8000 for --rate 8000
    cargo build --release -p cactus-speech --example vad
    benches/vad.py --example target/release/examples/vad --bundle vad --onnx silero_vad/data/silero_vad.onnx CLIP.wav
    benches/vad.py --cactus target/release/cactus --bundle vad --onnx silero_vad/data/silero_vad.onnx CLIP.wav...

With `--cactus` it prints how far probabilities are apart at most, of the same file and clips, instead of times. The rate of a clip should
be a multiple of `--rate`: samples are simply left out, for both. sherpa-onnx takes 16 kHz alone, and is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import soundfile


def read(clip: str, rate: int) -> np.ndarray:
    sound, found = soundfile.read(clip, dtype="float32", always_2d=True)
    return sound.mean(axis=1)[:: found // rate]


def theirs(session: onnxruntime.InferenceSession, sound: np.ndarray, rate: int) -> tuple[float, list[float]]:
    """Microseconds for a chunk, and the probability of each."""
    size = rate * 4 // 125
    sound = np.concatenate([np.zeros(size // 8, np.float32), sound, np.zeros(-len(sound) % size, np.float32)])
    chunks = [sound[i : i + size // 8 + size][None] for i in range(0, len(sound) - size // 8, size)]
    state = np.zeros((2, 1, 128), dtype=np.float32)
    more = {"sr": np.array(rate, np.int64)} if any(i.name == "sr" for i in session.get_inputs()) else {}
    found = []
    begun = time.perf_counter()
    for chunk in chunks:
        probability, state = session.run(None, {"input": chunk, "state": state, **more})
        found.append(probability)
    return (time.perf_counter() - begun) * 1e6 / len(chunks), [float(p[0, 0]) for p in found]


def by_sherpa(file: str):
    """What measures sherpa-onnx, if it is there."""
    try:
        import sherpa_onnx
    except ImportError:
        return None
    config = sherpa_onnx.VadModelConfig()
    config.silero_vad.model, config.sample_rate, config.num_threads = file, 16_000, 1
    model = sherpa_onnx.VadModel.create(config)

    def measure(sound: np.ndarray) -> float:
        # It takes the end of the chunk before with each chunk, as the network does.
        model.reset()
        chunks = [sound[i : i + model.window_size()] for i in range(0, len(sound) - model.window_size() + 1, 512)]
        begun = time.perf_counter()
        for chunk in chunks:
            model.is_speech(chunk)
        return (time.perf_counter() - begun) * 1e6 / len(chunks)

    return measure


def apart(args: argparse.Namespace, session: onnxruntime.InferenceSession) -> None:
    for clip in args.clips:
        sound = read(clip, args.rate)
        with tempfile.TemporaryDirectory() as folder:
            same = Path(folder) / "sound.wav"
            soundfile.write(same, sound, args.rate, subtype="FLOAT")
            command = [args.cactus, "vad", same, "--model", args.bundle, "--format", "json", "--probabilities"]
            told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        (_, want), found = theirs(session, sound, args.rate), told["probabilities"]
        assert told["sample_rate_hz"] == args.rate and len(found) == len(want), (told["sample_rate_hz"], len(found), len(want))
        worst = max(abs(a - b) for a, b in zip(found, want, strict=True))
        speech = sum(p >= 0.5 for p in want)
        print(f"{Path(clip).stem}: {len(want)} chunks, {speech} of them speech, at most {worst:.1e} apart", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", nargs="+", metavar="CLIP")
    parser.add_argument("--example", metavar="PROGRAM", help="measure times with it")
    parser.add_argument("--cactus", metavar="PROGRAM", help="compare probabilities with its")
    parser.add_argument("--rate", type=int, default=16_000, choices=[8_000, 16_000], help="samples a second")
    parser.add_argument("--bundle", required=True, metavar="FOLDER")
    parser.add_argument("--onnx", required=True, metavar="FILE")
    parser.add_argument("--times", type=int, default=9)
    args = parser.parse_args(arguments)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(args.onnx, options, providers=["CPUExecutionProvider"])
    if args.cactus:
        apart(args, session)
        return 0
    if not args.example:
        parser.error("give --example for times, or --cactus for probabilities")
    sherpa = by_sherpa(args.onnx) if args.rate == 16_000 else None
    [clip] = args.clips
    sound = read(clip, args.rate)
    times: dict[str, list[float]] = {}
    for _ in range(args.times):
        command = [args.example, args.bundle, clip]
        one, all_ = map(float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
        times.setdefault("here, chunk by chunk", []).append(one)
        times.setdefault("here, a recording", []).append(all_)
        times.setdefault("ONNX Runtime", []).append(theirs(session, sound, args.rate)[0])
        if sherpa:
            times.setdefault("sherpa-onnx", []).append(sherpa(sound))
    middle = {name: statistics.median(each) for name, each in times.items()}
    for name, value in middle.items():
        print(f"{name:22} {value:8.1f} us   {value / middle['ONNX Runtime']:.2f} of ONNX Runtime")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
