#!/usr/bin/env python3
"""Speech here beside other programs, on the same weights and recordings: are the words equal, and how long does it take.

    pip install faster-whisper pywhispercpp sherpa-onnx onnx-asr soundfile             # those that are compared with
    cactus convert whisper-tiny.en tiny32 --bits 32 && cactus convert whisper-tiny.en tiny8
    benches/speech.py --cactus target/release/cactus --bundle tiny32 --ct2 whisper-tiny.en --compare float32 CLIP.wav...
    benches/speech.py --cactus target/release/cactus --bundle tiny8 --ct2 whisper-tiny.en --compare int8 --threads 1 --times 9 CLIP.wav

    benches/ggml_whisper.py whisper-tiny.en ggml-tiny.en.bin && benches/onnx_whisper.py whisper-tiny.en tiny.en-onnx
    benches/speech.py ... --ggml ggml-tiny.en.bin --sherpa tiny.en-onnx/sherpa --onnx-asr base-onnx/asr CLIP.wav...

`--ct2` is the folder with `model.bin` (and `vocabulary.txt`) that the bundle was made of, for faster-whisper; `--ggml` a file of whisper.cpp;
`--sherpa` a folder with Whisper for sherpa-onnx, or Moonshine as its package carries it; `--onnx-asr` one with a multilingual Whisper. All
decode greedily, without the text before. Times take turns; each is a process of its own: here with everything from loading to the
last word, elsewhere without starting Python and importing the package. Medians. Words that differ are counted, without case and
punctuation; of faster-whisper tokens are compared, too. onnx-asr alone hears only the first half minute.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

BEGIN = """
import json, sys, time, wave
from pathlib import Path
model, clip, kind, threads = *sys.argv[1:4], int(sys.argv[4])
"""
END = "print(json.dumps([time.perf_counter() - begun, text, tokens]))"

FASTER_WHISPER = """
from faster_whisper import WhisperModel
begun = time.perf_counter()
loaded = WhisperModel(model, device="cpu", compute_type=kind, cpu_threads=threads)
segments = list(loaded.transcribe(clip, beam_size=1, condition_on_previous_text=False)[0])
text, tokens = "".join(s.text for s in segments), [token for s in segments for token in s.tokens]
"""
WHISPER_CPP = """
from faster_whisper.audio import decode_audio
from pywhispercpp.model import Model
begun = time.perf_counter()
loaded = Model(model, n_threads=threads, params_sampling_strategy=0, print_progress=False, redirect_whispercpp_logs_to=None)
text, tokens = "".join(s.text + " " for s in loaded.transcribe(decode_audio(clip), no_context=True)), None
"""
SHERPA = """
import base64, tempfile
import numpy, soundfile, sherpa_onnx
folder, mark = Path(model), "" if kind == "float32" else ".int8"
if (folder / "tokenizer.bin").is_file():
    data, at, lines = (folder / "tokenizer.bin").read_bytes(), 0, []
    while at < len(data):
        size, at = data[at], at + 1
        if size >= 128:
            size, at = data[at] * 128 + size - 128, at + 1
        lines.append(base64.b64encode(data[at : at + size]).decode() + f" {len(lines)}\\n")
        at += size
    tokens = Path(tempfile.mkdtemp()) / "tokens.txt"
    tokens.write_text("".join(lines))
    files = [str(folder / name) for name in ("encoder_model.ort", "decoder_model_merged.ort")]
    load = lambda: sherpa_onnx.OfflineRecognizer.from_moonshine_v2(*files, str(tokens), num_threads=threads)
else:
    files = [str(folder / name) for name in (f"encoder{mark}.onnx", f"decoder{mark}.onnx", "tokens.txt")]
    load = lambda: sherpa_onnx.OfflineRecognizer.from_whisper(*files, num_threads=threads)
begun = time.perf_counter()
loaded = load()
samples, rate = soundfile.read(clip, dtype="float32", always_2d=True)
stream = loaded.create_stream()
stream.accept_waveform(rate, samples.mean(axis=1))
loaded.decode_stream(stream)
text, tokens = stream.result.text, None
"""
ONNX_ASR = """
import onnx_asr, onnxruntime, soundfile
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.log_severity_level = threads, 3
begun = time.perf_counter()
loaded = onnx_asr.load_model("whisper", model, quantization=None if kind == "float32" else "int8", sess_options=options)
samples, rate = soundfile.read(clip, dtype="float32", always_2d=True)
text, tokens = loaded.recognize(samples.mean(axis=1), sample_rate=rate, language="en"), None
"""


def theirs(code: str, model: str, clip: Path, kind: str, threads: int) -> tuple[float, str, list[int] | None]:
    command = [sys.executable, "-c", BEGIN + code + END, model, str(clip), kind, str(threads)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(told.splitlines()[-1])


def ours(args: argparse.Namespace, clip: Path) -> tuple[float, str, list[int]]:
    command = [args.cactus, "transcribe", str(clip), "--model", args.bundle, "--format", "json"]
    begun = time.perf_counter()
    told = subprocess.run([*command, "--threads", str(args.threads)], check=True, capture_output=True, text=True)
    took, found = time.perf_counter() - begun, json.loads(told.stdout)
    return took, found["text"], [token for segment in found["segments"] for token in segment["tokens"]]


def words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


def differ(one: list[str], other: list[str]) -> int:
    """Least words to leave out, add or change (Levenshtein)."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        last, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (a != b))
    return row[-1]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", nargs="+", type=Path, metavar="CLIP")
    parser.add_argument("--cactus", required=True, metavar="PROGRAM")
    parser.add_argument("--bundle", required=True, metavar="FOLDER")
    parser.add_argument("--ct2", metavar="FOLDER")
    parser.add_argument("--ggml", metavar="FILE")
    parser.add_argument("--sherpa", metavar="FOLDER")
    parser.add_argument("--onnx-asr", metavar="FOLDER")
    parser.add_argument("--compare", default="float32", metavar="TYPE", help="compute type of faster-whisper; else float32 or int8")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--times", type=int, default=1)
    args = parser.parse_args(arguments)
    all_peers = [
        ("faster-whisper", FASTER_WHISPER, args.ct2),
        ("whisper.cpp", WHISPER_CPP, args.ggml),
        ("sherpa-onnx", SHERPA, args.sherpa),
        ("onnx-asr", ONNX_ASR, args.onnx_asr),
    ]
    peers = [(name, code, model) for name, code, model in all_peers if model]
    # Those that stand for times and tasks lie behind the text.
    text_tokens = 50257
    unequal = 0
    print(f"| clip | tokens | words | here, s | {' | '.join(f'{name}, s | ratio | words that differ' for name, _, _ in peers)} |")
    print(f"|{'---|' * (4 + 3 * len(peers))}")
    for clip in args.clips:
        times: dict[str, list[float]] = {}
        for _ in range(args.times):
            mine, said, tokens = ours(args, clip)
            times.setdefault("here", []).append(mine)
            found = {name: theirs(code, model, clip, args.compare, args.threads) for name, code, model in peers}
            for name, (took, _, _) in found.items():
                times.setdefault(name, []).append(took)
        middle = {name: statistics.median(each) for name, each in times.items()}
        cells = []
        for name, (_, heard, their_tokens) in found.items():
            apart = str(differ(words(said), words(heard)))
            if their_tokens is not None:
                equal = [token for token in their_tokens if token < text_tokens] == tokens
                unequal += not equal
                apart += ", tokens equal" if equal else ", tokens differ"
            cells.append(f"{middle[name]:.2f} | {middle['here'] / middle[name]:.2f} | {apart}")
        print(f"| {clip.stem} | {len(tokens)} | {len(words(said))} | {middle['here']:.2f} | {' | '.join(cells)} |", flush=True)
    return 1 if unequal and args.compare == "float32" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
