#!/usr/bin/env python3
"""Write a Whisper model of CTranslate2 as a file of whisper.cpp, with the same weights in half precision.

    benches/ggml_whisper.py whisper-tiny.en ggml-tiny.en.bin             # whisper-tiny.en has model.bin and tokenizer.json

It needs numpy, and faster-whisper for the bank of mel filters.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import numpy as np

TYPES = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2"}


def variables(path: Path) -> dict[str, np.ndarray]:
    data, at = path.read_bytes(), 0

    def read(form: str):
        nonlocal at
        found = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return found if len(found) > 1 else found[0]

    def text() -> str:
        nonlocal at
        size = read("H")
        at += size
        return data[at - size : at - 1].decode()

    read("I"), text(), read("I")
    found = {}
    for _ in range(read("I")):
        name, rank = text(), read("B")
        shape = [read("I") for _ in range(rank)]
        kind, size = read("BI")
        found[name] = np.frombuffer(data, TYPES[kind], size // np.dtype(TYPES[kind]).itemsize, at).reshape(shape)
        at += size
    return found


def tensors(v: dict[str, np.ndarray]):
    """Names and values as OpenAI has them."""

    def pair(name: str, source: str, parts: tuple[str, ...] = ("",)):
        weights = np.split(v[f"{source}/weight"], len(parts))
        biases = np.split(v[f"{source}/bias"], len(parts))
        for part, weight, bias in zip(parts, weights, biases, strict=True):
            yield f"{name}{part}.weight", weight
            if part != ".key":
                yield f"{name}{part}.bias", bias

    def norm(name: str, source: str):
        yield f"{name}.weight", v[f"{source}/gamma"]
        yield f"{name}.bias", v[f"{source}/beta"]

    for side in ("encoder", "decoder"):
        yield f"{side}.positional_embedding", v[f"{side}/position_encodings/encodings"].astype(np.float32)
        yield from norm("encoder.ln_post" if side == "encoder" else "decoder.ln", f"{side}/layer_norm")
        layers = sum(f"{side}/layer_{i}/ffn/linear_0/weight" in v for i in range(64))
        for i in range(layers):
            to, source = f"{side}.blocks.{i}", f"{side}/layer_{i}"
            yield from pair(f"{to}.attn", f"{source}/self_attention/linear_0", (".query", ".key", ".value"))
            yield from pair(f"{to}.attn.out", f"{source}/self_attention/linear_1")
            yield from norm(f"{to}.attn_ln", f"{source}/self_attention/layer_norm")
            if side == "decoder":
                yield from pair(f"{to}.cross_attn.query", f"{source}/attention/linear_0")
                yield from pair(f"{to}.cross_attn", f"{source}/attention/linear_1", (".key", ".value"))
                yield from pair(f"{to}.cross_attn.out", f"{source}/attention/linear_2")
                yield from norm(f"{to}.cross_attn_ln", f"{source}/attention/layer_norm")
            yield from pair(f"{to}.mlp.0", f"{source}/ffn/linear_0")
            yield from pair(f"{to}.mlp.2", f"{source}/ffn/linear_1")
            yield from norm(f"{to}.mlp_ln", f"{source}/ffn/layer_norm")
    for i in (1, 2):
        yield f"encoder.conv{i}.weight", v[f"encoder/conv{i}/weight"]
        yield f"encoder.conv{i}.bias", v[f"encoder/conv{i}/bias"].astype(np.float32)[:, None]
    yield "decoder.token_embedding.weight", v["decoder/embeddings/weight"]


def tokens(path: Path) -> list[bytes]:
    """The tokens of text, as bytes: letters stand for bytes in the file, as in GPT-2."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in plain]
    letters = {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(other)}
    model = json.loads(path.read_text())
    special = {token["id"] for token in model["added_tokens"]}
    vocab = sorted((id, text) for text, id in model["model"]["vocab"].items() if id not in special)
    return [bytes(letters[c] for c in text) for _, text in vocab]


def main(folder: Path, out: Path) -> None:
    from faster_whisper.feature_extractor import FeatureExtractor

    found = dict(tensors(variables(folder / "model.bin")))
    vocab, width = found["decoder.token_embedding.weight"].shape
    mels = found["encoder.conv1.weight"].shape[1]
    layers = [sum(f"{side}.blocks.{i}.mlp.0.weight" in found for i in range(64)) for side in ("encoder", "decoder")]
    contexts = [found[f"{side}.positional_embedding"].shape[0] for side in ("encoder", "decoder")]
    numbers = [vocab, *(n for c, l in zip(contexts, layers, strict=True) for n in (c, width, width // 64, l)), mels, 1]
    filters = FeatureExtractor(feature_size=mels).mel_filters.astype("<f4")
    words = tokens(folder / "tokenizer.json")
    with out.open("wb") as file:
        file.write(b"lmgg" + struct.pack("<11I", *numbers))
        file.write(struct.pack("<2I", *filters.shape) + filters.tobytes())
        file.write(struct.pack("<I", len(words)))
        for word in words:
            file.write(struct.pack("<I", len(word)) + word)
        for name, values in found.items():
            is_half = values.ndim > 1 and not name.endswith(("bias", "positional_embedding"))
            sizes = struct.pack(f"<{values.ndim}I", *reversed(values.shape))
            file.write(struct.pack("<3I", values.ndim, len(name), is_half) + sizes + name.encode())
            file.write(values.astype("<f2" if is_half else "<f4").tobytes())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
