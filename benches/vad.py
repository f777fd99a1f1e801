#!/usr/bin/env python3
"""Silero VAD here beside ONNX Runtime: microseconds for a chunk of 512 samples, on one thread each, taking turns; medians.

    pip install onnxruntime numpy soundfile
    pip download silero-vad==6.2.3 --no-deps && unzip silero_vad-6.2.3-*.whl
    cactus convert silero_vad/data vad
    cargo build --release -p cactus-speech --example vad
    benches/vad.py --example target/release/examples/vad --bundle vad --onnx silero_vad/data/silero_vad.onnx CLIP.wav

The weights of the ONNX file are not those of the bundle (the package mixes generations); the network is the same.
The rate of the clip should be a multiple of 16 kHz: for ONNX Runtime samples are simply left out.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import numpy as np
import onnxruntime
import soundfile


def theirs(session: onnxruntime.InferenceSession, sound: np.ndarray) -> float:
    chunks = [sound[i : i + 576][None] for i in range(0, len(sound) - 575, 512)]
    rate, state = np.array(16000, dtype=np.int64), np.zeros((2, 1, 128), dtype=np.float32)
    begun = time.perf_counter()
    for chunk in chunks:
        _, state = session.run(None, {"input": chunk, "state": state, "sr": rate})
    return (time.perf_counter() - begun) * 1e6 / len(chunks)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clip")
    parser.add_argument("--example", required=True, metavar="PROGRAM")
    parser.add_argument("--bundle", required=True, metavar="FOLDER")
    parser.add_argument("--onnx", required=True, metavar="FILE")
    parser.add_argument("--times", type=int, default=9)
    args = parser.parse_args(arguments)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(args.onnx, options, providers=["CPUExecutionProvider"])
    sound, rate = soundfile.read(args.clip, dtype="float32", always_2d=True)
    sound = np.concatenate([np.zeros(64, dtype=np.float32), sound.mean(axis=1)[:: rate // 16000]])
    found: list[tuple[float, float, float]] = []
    for _ in range(args.times):
        command = [args.example, args.bundle, args.clip]
        one, all_ = map(float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
        found.append((one, all_, theirs(session, sound)))
    one, all_, other = (statistics.median(row[i] for row in found) for i in range(3))
    print(f"here, chunk by chunk  {one:6.1f} us   {one / other:.2f}")
    print(f"here, a recording     {all_:6.1f} us   {all_ / other:.2f}")
    print(f"ONNX Runtime          {other:6.1f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
