"""Write `speech/silero_vad/`: a tiny model of Silero VAD's shape with made-up weights, sound, and what it makes of it.

The forward pass is that of `tinygrad_model.py` in the package silero-vad, written out in NumPy and computed in double precision.
With a file of weights, it prints the probabilities of a recording instead, one for each chunk, to compare `cactus vad` with:

    python golden/silero_vad.py                                            # needs numpy and safetensors
    python golden/silero_vad.py silero_vad_16k.safetensors CLIP.wav        # a WAV of 16 bits and one channel, or those samples alone
    python golden/silero_vad.py --spans DIR_OF_THE_PACKAGE                 # speech/silero_vad/spans.json, by the package itself
"""

import importlib.util
import json
import math
import sys
import types
import wave
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

OUT = Path(__file__).resolve().parent / "speech" / "silero_vad"
FFT, WIDTHS, HIDDEN = 32, [12, 8, 8, 10], 20
CHUNKS = 40


def conv(x, weight, bias, stride, pad):
    x = np.pad(x, ((0, 0), (pad, pad)))
    count = (x.shape[1] - weight.shape[2]) // stride + 1
    windows = np.stack([x[:, i * stride : i * stride + weight.shape[2]] for i in range(count)])
    return np.einsum("nck,ock->on", windows, weight) + (0 if bias is None else bias[:, None])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def probabilities(weights, sound):
    weights = {name: w.astype(np.float64) for name, w in weights.items()}
    fft, hidden = weights["stft_conv.weight"].shape[2], weights["lstm_cell.weight_hh"].shape[1]
    chunk, context, bins = 2 * fft, fft // 4, fft // 2 + 1
    count = math.ceil(len(sound) / chunk)
    sound = np.concatenate([np.zeros(context), sound, np.zeros(count * chunk - len(sound))])
    h = c = np.zeros(hidden)
    found = []
    for i in range(count):
        part = np.pad(sound[i * chunk :][: context + chunk], (0, context), mode="reflect")
        y = conv(part[None], weights["stft_conv.weight"], None, fft // 2, 0)
        y = np.sqrt(y[:bins] ** 2 + y[bins:] ** 2)
        for layer, stride in enumerate([1, 2, 2, 1], 1):
            y = np.maximum(conv(y, weights[f"conv{layer}.weight"], weights[f"conv{layer}.bias"], stride, 1), 0)
        gates = weights["lstm_cell.weight_ih"] @ y[:, 0] + weights["lstm_cell.bias_ih"]
        gates += weights["lstm_cell.weight_hh"] @ h + weights["lstm_cell.bias_hh"]
        i_, f, g, o = np.split(gates, 4)
        c = sigmoid(f) * c + sigmoid(i_) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        found.append(sigmoid(weights["final_conv.weight"][0, :, 0] @ np.maximum(h, 0) + weights["final_conv.bias"][0]))
    return np.array(found), h, c


def made_up(fft=FFT, widths=WIDTHS, hidden=HIDDEN):
    random = np.random.default_rng(5)

    def normal(*shape, scale=1.0):
        width = math.prod(shape[1:])
        return (random.standard_normal(shape) * scale / math.sqrt(width)).astype(np.float32)

    bins = fft // 2 + 1
    time, window = np.arange(fft), np.hanning(fft + 1)[:fft]
    angles = 2 * np.pi * np.outer(np.arange(bins), time) / fft
    weights = {"stft_conv.weight": np.concatenate([np.cos(angles), -np.sin(angles)])[:, None] * window}
    channels = bins
    for layer, width in enumerate(widths, 1):
        weights[f"conv{layer}.weight"] = normal(width, channels, 3, scale=1.5)
        weights[f"conv{layer}.bias"] = normal(width, 1, scale=0.1)[:, 0]
        channels = width
    weights["lstm_cell.weight_ih"] = normal(4 * hidden, channels, scale=2.0)
    weights["lstm_cell.weight_hh"] = normal(4 * hidden, hidden, scale=2.0)
    for name in ("ih", "hh"):
        weights[f"lstm_cell.bias_{name}"] = normal(4 * hidden, 1, scale=0.1)[:, 0]
    weights["final_conv.weight"] = normal(1, hidden, 1, scale=16.0)
    weights["final_conv.bias"] = np.array([-1.0])
    weights = {name: w.astype(np.float32) for name, w in weights.items()}
    # A tone that rises and swells, and stops now and then.
    t = np.arange(CHUNKS * 2 * fft - 17)
    sound = np.sin(t * t * 3e-4) * (0.5 + 0.5 * np.sin(t / 150)) * (np.sin(t / 400) > -0.4)
    sound = (sound + 0.01 * random.standard_normal(len(t))).astype(np.float32)
    return weights, sound


def write():
    weights, sound = made_up()
    found, h, c = probabilities(weights, sound)
    assert found.min() < 0.2 and found.max() > 0.8, (found.min(), found.max())
    OUT.mkdir(parents=True, exist_ok=True)
    save_file(weights, OUT / "silero_vad_16k.safetensors")
    f32 = np.float32
    expected = {"sound": sound, "probabilities": found.astype(f32), "state": np.stack([h, c])[:, None].astype(f32)}
    save_file(expected, OUT / "expected.safetensors")


def of_recording(weights, clip):
    if clip.endswith(".s16le"):
        samples = Path(clip).read_bytes()
    else:
        with wave.open(clip) as file:
            assert (file.getnchannels(), file.getsampwidth()) == (1, 2), "expected a WAV of 16 bits and one channel"
            samples = file.readframes(file.getnframes())
    found = probabilities(load_file(weights), np.frombuffer(samples, "<i2") / 32768)[0]
    print(json.dumps([round(p, 8) for p in found.tolist()]))


def spans(package):
    """What the package makes of probabilities that walk at random, by many options."""
    for name in ("torch", "packaging", "packaging.version"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["torch"].no_grad = lambda: lambda f: f
    sys.modules["torch"].Tensor = sys.modules["torch"].device = lambda *_: None
    sys.modules["packaging"].version = None
    spec = importlib.util.spec_from_file_location("utils_vad", Path(package) / "utils_vad.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    random = np.random.default_rng(7)
    cases = []
    for _ in range(60):
        count = int(random.integers(1, 160))
        walk = np.cumsum(random.standard_normal(count) * random.choice([0.4, 0.8, 1.5]))
        found = np.round(sigmoid(walk - walk.mean()), 3)
        options = {
            "threshold": float(random.choice([0.5, 0.3, 0.12, 0.7])),
            "min_speech_duration_ms": int(random.choice([250, 0, 64, 500])),
            "max_speech_duration_s": float(random.choice([math.inf, 0.7, 1.5, 3.0])),
            "min_silence_duration_ms": int(random.choice([100, 0, 300, 2000])),
            "speech_pad_ms": int(random.choice([30, 0, 100, 400])),
        }
        if random.random() < 0.3:
            options["neg_threshold"] = options["threshold"] * float(random.choice([0.4, 1.0]))
        samples = (count - 1) * 512 + int(random.integers(1, 513))
        single = [float(np.float32(p)) for p in found]
        told = module.get_speech_timestamps_from_probs(single, audio_length_samples=samples, **options)
        if options["max_speech_duration_s"] == math.inf:
            del options["max_speech_duration_s"]
        cases.append(
            {
                "options": options,
                "samples": samples,
                "probabilities": found.tolist(),
                "spans": [[s["start"], s["end"]] for s in told],
            }
        )
    OUT.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case) for case in cases)
    (OUT / "spans.json").write_text(f"[\n{lines}\n]\n")
    print(sum(len(case["spans"]) for case in cases), "spans")


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            write()
        case ["--spans", package]:
            spans(package)
        case [weights, clip]:
            of_recording(weights, clip)
        case _:
            sys.exit(__doc__)
