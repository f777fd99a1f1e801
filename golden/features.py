"""Write golden/features: a short synthetic signal and what transformers and the ONNX graphs of onnx-asr make of it.

    python golden/features.py FOLDER_OF_ONNX_GRAPHS

needs torch, transformers, onnxruntime and numpy. The graphs whisper80, whisper128, nemo80 and nemo128 lie in the wheel of onnx-asr 0.12.0
(`pip download --no-deps onnx-asr==0.12.0`, then unzip), in onnx_asr/preprocessors/data. Both compute in F32. Of the two, the one that
is closer to F64 is written, which is transformers for the recipe of Whisper and the graphs for that of NeMo; the program says how far
the other is from it. The noise is strong because both lose digits where the bins of one frame differ by many orders of magnitude.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from transformers import Gemma3nAudioFeatureExtractor, ParakeetFeatureExtractor, WhisperFeatureExtractor
from transformers.audio_utils import mel_filter_bank

OUT = Path(__file__).parent / "features"
RATE = 16000
SAMPLES = 6420  # 40 frames and a part of one
FRAMES = [0, 1, 2, 19, 38, 39]


def signal():
    """A chirp from 100 Hz to 7 kHz that swells and fades, under noise of a linear congruential generator."""
    state, noise = 1, []
    for _ in range(SAMPLES):
        state = (state * 1664525 + 1013904223) % 2**32
        noise.append(state / 2**31 - 1)
    t = np.arange(SAMPLES) / RATE
    end = SAMPLES / RATE
    chirp = np.sin(2 * np.pi * (100 * t + (7000 - 100) / (2 * end) * t * t))
    envelope = np.sin(np.pi * np.arange(SAMPLES) / SAMPLES)
    return np.round(32768 * (0.2 * envelope * chirp + 0.2 * np.array(noise))).astype("<i2")


def whisper_recipe(bins, scope):
    return {
        "sample_rate_hz": RATE,
        "left_edge": "reflect",
        "right_edge": "zeros" if scope == "input" else "reflect",
        "window": "hann_periodic",
        "window_samples": 400,
        "fft_samples": 400,
        "hop_samples": 160,
        "spectrum": "power",
        "filters": {"bins": bins, "low_hz": 0.0, "high_hz": 8000.0, "scale": "slaney", "norm": "slaney"},
        "log": {"log10_floor": {"floor": 1e-10}},
        "normalization": {"peak": {"range": 8.0, "add": 4.0, "divide": 4.0, "scope": scope}},
    }


def nemo_recipe(bins):
    return {
        "sample_rate_hz": RATE,
        "preemphasis": 0.97,
        "left_edge": "zeros",
        "right_edge": "zeros",
        "window": "hann_symmetric",
        "window_samples": 400,
        "fft_samples": 512,
        "hop_samples": 160,
        "spectrum": "power",
        "filters": {"bins": bins, "low_hz": 0.0, "high_hz": 8000.0, "scale": "slaney", "norm": "slaney"},
        "log": {"ln_guard": {"guard": 2.0**-24}},
        "normalization": {"per_bin": {"epsilon": 1e-5}},
        "padding_frames": 1,
    }


def gemma3n_recipe():
    return {
        "sample_rate_hz": RATE,
        "preemphasis": 0.97,
        "emphasis": "window",
        "left_edge": "none",
        "right_edge": "none",
        "window": "hann_periodic",
        "window_samples": 512,
        "fft_samples": 1024,
        "hop_samples": 160,
        "spectrum": "magnitude",
        "filters": {"bins": 128, "low_hz": 125.0, "high_hz": 7600.0, "scale": "htk", "norm": "none"},
        "log": {"ln_floor": {"floor": 1e-5}},
        "normalization": "none",
    }


def whisper_whole_file(audio, bins):
    """The recipe of openai/whisper: 30 s of silence behind the file, one peak for all of it."""
    filters = mel_filter_bank(201, bins, 0.0, 8000.0, RATE, norm="slaney", mel_scale="slaney")
    padded = torch.nn.functional.pad(torch.from_numpy(audio), (0, 480000))
    stft = torch.stft(padded, 400, 160, window=torch.hann_window(400), return_complex=True)
    mel = torch.from_numpy(filters).float().T @ (stft[..., :-1].abs() ** 2)
    log = torch.clamp(mel, min=1e-10).log10()
    log = torch.maximum(log, log.max() - 8.0)
    return ((log + 4.0) / 4.0).T.numpy()


def graph(folder, name, audio):
    session = onnxruntime.InferenceSession(str(folder / f"{name}.onnx"))
    inputs = {"waveforms": audio[None], "waveforms_lens": np.array([len(audio)], dtype=np.int64)}
    return session.run(None, inputs)[0][0].T


def write(name, source, recipe, features, other=None, frames_shown=FRAMES):
    difference = None
    if other is not None:
        frames = min(len(features), len(other))
        difference = float(np.abs(features[:frames] - other[:frames]).max())
        print(f"{name}: {features.shape}, the other differs by {difference:.1e}")
    case = {
        "source": source,
        "recipe": recipe,
        "frames": frames_shown,
        "values": [[round(float(v), 6) for v in features[f]] for f in frames_shown],
    }
    text = json.dumps(case).replace("], [", "],\n[")
    (OUT / f"{name}.json").write_text(text + "\n")


def main():
    folder = Path(sys.argv[1])
    OUT.mkdir(exist_ok=True)
    samples = signal()
    (OUT / "signal.s16le").write_bytes(samples.tobytes())
    audio = samples.astype(np.float32) / 32768
    for bins in (80, 128):
        extractor = WhisperFeatureExtractor(feature_size=bins)
        features = extractor(audio, sampling_rate=RATE, return_tensors="np")["input_features"][0].T
        recipe = whisper_recipe(bins, {"window": {"samples": 480000}})
        source = "transformers WhisperFeatureExtractor"
        write(f"whisper_{bins}_window", source, recipe, features, graph(folder, f"whisper{bins}", audio))
        extractor = ParakeetFeatureExtractor(feature_size=bins)
        features = extractor(audio, sampling_rate=RATE, return_tensors="np")["input_features"][0]
        source = f"nemo{bins}.onnx of onnx-asr"
        write(f"nemo_{bins}", source, nemo_recipe(bins), graph(folder, f"nemo{bins}", audio), features)
    # Without what it fills the sound up with, which is another's to do.
    features = Gemma3nAudioFeatureExtractor()([audio], pad_to_multiple_of=None, return_tensors="np")["input_features"][0]
    write("gemma3n_128", "transformers Gemma3nAudioFeatureExtractor", gemma3n_recipe(), features, frames_shown=[0, 1, 2, 19, 35, 36])
    source = "torch.stft by the recipe of openai/whisper"
    write("whisper_80_input", source, whisper_recipe(80, "input"), whisper_whole_file(audio, 80))


main()
