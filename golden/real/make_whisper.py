"""Write `whisper-tiny.en.safetensors`: what CTranslate2 computes of Whisper tiny.en on the first sentence that everybody tries.

    python golden/real/make_whisper.py FOLDER JFK.wav

FOLDER is `whisper-tiny.en` of `scripts/fetch_models.py`; the clip is `tests/data/clips/jfk.wav` of the crate cactus-rs 0.2.1 (public
domain, 16 kHz). Needs `faster-whisper==1.2.1` and `transformers`, whose feature extractor makes the spectrogram.

  mel      F16 [80, frames]: the log-mel spectrogram; `silence` stands for all frames up to 3000 behind it
  silence  F32 [1]
  states   F32 [rows, 384]: rows `rows` of the encoder's output, in single precision
  rows     I64
  tokens   I64: greedy, after <|startoftranscript|><|notimestamps|>, with <|endoftext|>
"""

import sys
import wave
from pathlib import Path

import ctranslate2
import numpy as np
from safetensors.numpy import save_file
from transformers import WhisperFeatureExtractor

ROWS = [0, 1, 250, 549, 550, 1000, 1499]
START, NO_TIMESTAMPS, END = 50257, 50362, 50256


def main():
    folder, clip = sys.argv[1:]
    with wave.open(clip) as w:
        assert (w.getframerate(), w.getnchannels(), w.getsampwidth()) == (16000, 1, 2)
        sound = np.frombuffer(w.readframes(w.getnframes()), np.int16).astype(np.float32) / 32768
    features = WhisperFeatureExtractor(feature_size=80)(sound, sampling_rate=16000, return_tensors="np").input_features
    features = features.astype(np.float16).astype(np.float32)
    silence = features[0, 0, -1]
    frames = int(np.max(np.nonzero((features != silence).any(axis=(0, 1)))[0])) + 1
    model = ctranslate2.models.Whisper(folder, compute_type="float32", intra_threads=1)
    states = model.encode(ctranslate2.StorageView.from_array(features), to_cpu=True)
    result = model.generate(states, [[START, NO_TIMESTAMPS]], beam_size=1)
    out = {
        "mel": features[0, :, :frames].astype(np.float16),
        "silence": np.array([silence], np.float32),
        "states": np.array(states)[0, ROWS],
        "rows": np.array(ROWS),
        "tokens": np.array(result[0].sequences_ids[0] + [END]),
    }
    save_file({k: np.ascontiguousarray(v) for k, v in out.items()}, Path(__file__).parent / "whisper-tiny.en.safetensors")


if __name__ == "__main__":
    main()
