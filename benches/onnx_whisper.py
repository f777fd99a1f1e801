#!/usr/bin/env python3
"""Write a Whisper model of CTranslate2 as programs in ONNX, in the layouts that sherpa-onnx and onnx-asr take, with the same weights.

    pip install onnx onnxruntime numpy faster-whisper
    benches/onnx_whisper.py whisper-tiny.en tiny.en-onnx                 # whisper-tiny.en has model.bin and tokenizer.json

The folder gets `sherpa/` (`encoder.onnx`, `decoder.onnx`, `tokens.txt`) and `asr/` (`encoder_model.onnx`, `decoder_model_merged.onnx`,
`vocab.json`, `added_tokens.json`), each program also as `*.int8.onnx`: matrices in 8 bits by ONNX Runtime's dynamic quantization, as the
published ones are. Both decoders keep keys and values: sherpa-onnx's in buffers of full length, onnx-asr's as they grow.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import numpy as np
import onnx
from ggml_whisper import tensors, tokens, variables
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
HEAD = 64


class Program:
    def __init__(self, weights: dict[str, np.ndarray]):
        self.weights, self.nodes, self.constants, self.count = weights, [], {}, 0

    def add(self, op: str, *inputs: str, to: str | None = None, **attributes) -> str:
        self.count += 1
        name = to or f"v{self.count}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, name: str, values) -> str:
        self.constants.setdefault(name, np.asarray(values, order="C"))
        return name

    def i64(self, *values: int) -> str:
        return self.constant("i64 " + " ".join(map(str, values)), np.array(values, np.int64))

    def weight(self, name: str, transposed: bool = False) -> str:
        values = self.weights[name].astype(np.float32)
        return self.constant(f"{name} transposed", values.T) if transposed else self.constant(name, values)

    def linear(self, x: str, name: str) -> str:
        x = self.add("MatMul", x, self.weight(f"{name}.weight", True))
        return self.add("Add", x, self.weight(f"{name}.bias")) if f"{name}.bias" in self.weights else x

    def norm(self, x: str, name: str) -> str:
        return self.add("LayerNormalization", x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"), axis=-1, epsilon=1e-5)

    def heads(self, x: str) -> str:
        return self.add("Transpose", self.add("Reshape", x, self.i64(0, 0, -1, HEAD)), perm=[0, 2, 1, 3])

    def slice(self, x: str, start: str, end: str, axis: int) -> str:
        return self.add("Slice", x, start, end, self.i64(axis))

    def attend(self, q: str, k: str, v: str, mask: str | None, name: str) -> str:
        scores = self.add("MatMul", q, self.add("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.add("Mul", scores, self.constant("scale", np.float32(HEAD**-0.5)))
        scores = self.add("Add", scores, mask) if mask else scores
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), v)
        mixed = self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), self.i64(0, 0, -1))
        return self.linear(mixed, name)

    def feed_forward(self, x: str, at: str) -> str:
        y = self.linear(self.norm(x, f"{at}.mlp_ln"), f"{at}.mlp.0")
        return self.add("Add", x, self.linear(self.add("Gelu", y), f"{at}.mlp.2"))

    def layers(self, side: str) -> list[str]:
        return [f"{side}.blocks.{i}" for i in range(64) if f"{side}.blocks.{i}.mlp.0.weight" in self.weights]

    def encoder(self, mel: str) -> str:
        x = mel
        for i in (1, 2):
            bias = self.constant(f"bias {i}", self.weights[f"encoder.conv{i}.bias"][:, 0].astype(np.float32))
            x = self.add("Conv", x, self.weight(f"encoder.conv{i}.weight"), bias, strides=[i], pads=[1, 1])
            x = self.add("Gelu", x)
        x = self.add("Transpose", x, perm=[0, 2, 1])
        length = self.add("Slice", self.add("Shape", x), self.i64(1), self.i64(2))
        x = self.add("Add", x, self.slice(self.weight("encoder.positional_embedding"), self.i64(0), length, 0))
        for at in self.layers("encoder"):
            y = self.norm(x, f"{at}.attn_ln")
            q, k, v = (self.heads(self.linear(y, f"{at}.attn.{part}")) for part in ("query", "key", "value"))
            x = self.feed_forward(self.add("Add", x, self.attend(q, k, v, None, f"{at}.attn.out")), at)
        return self.norm(x, "encoder.ln_post")

    def decoder(self, ids: str, past: str, own, cross) -> None:
        """`own` makes keys and values of all positions so far of those of the new ones, and `cross` gives those of the sound."""
        count = self.add("Slice", self.add("Shape", ids), self.i64(1), self.i64(2))
        end = self.add("Add", past, count)
        x = self.add("Gather", self.weight("decoder.token_embedding.weight"), ids, axis=0)
        x = self.add("Add", x, self.slice(self.weight("decoder.positional_embedding"), past, end, 0))
        context = self.weights["decoder.positional_embedding"].shape[0]
        mask = self.constant("mask", np.triu(np.full((context, context), -np.inf, np.float32), 1))
        mask = self.slice(self.slice(mask, past, end, 0), self.i64(0), end, 1)
        for i, at in enumerate(self.layers("decoder")):
            y = self.norm(x, f"{at}.attn_ln")
            q, k, v = (self.linear(y, f"{at}.attn.{part}") for part in ("query", "key", "value"))
            k, v = own(i, k, v, past, end)
            x = self.add("Add", x, self.attend(self.heads(q), k, v, mask, f"{at}.attn.out"))
            y = self.heads(self.linear(self.norm(x, f"{at}.cross_attn_ln"), f"{at}.cross_attn.query"))
            x = self.add("Add", x, self.attend(y, *cross(i, at), None, f"{at}.cross_attn.out"))
            x = self.feed_forward(x, at)
        x = self.norm(x, "decoder.ln")
        self.add("MatMul", x, self.weight("decoder.token_embedding.weight", True), to="logits")

    def save(self, path: Path, inputs: list, outputs: list, about: dict[str, object] | None = None) -> None:
        info = [[helper.make_tensor_value_info(*value) for value in side] for side in (inputs, outputs)]
        constants = [numpy_helper.from_array(values, name) for name, values in self.constants.items()]
        graph = helper.make_graph(self.nodes, "whisper", *info, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        helper.set_model_props(model, {key: str(value) for key, value in (about or {}).items()})
        onnx.save(model, path)
        quantize_dynamic(path, path.with_suffix(".int8.onnx"), op_types_to_quantize=["MatMul"], weight_type=QuantType.QInt8)


def for_sherpa(weights: dict[str, np.ndarray], about: dict[str, object], out: Path) -> None:
    d = weights["encoder.positional_embedding"].shape[1]
    program = Program(weights)
    sound = program.encoder("mel")
    layers = program.layers("decoder")
    for part, name in (("key", "n_layer_cross_k"), ("value", "n_layer_cross_v")):
        each = [program.add("Unsqueeze", program.linear(sound, f"{at}.cross_attn.{part}"), program.i64(0)) for at in layers]
        program.add("Concat", *each, axis=0, to=name)
    crosses = [(f"n_layer_cross_{x}", FLOAT, [len(layers), "batch", "positions", d]) for x in "kv"]
    program.save(out / "encoder.onnx", [("mel", FLOAT, ["batch", about["n_mels"], "frames"])], crosses, about)

    program = Program(weights)
    kept: dict[str, list[str]] = {"k": [], "v": []}

    def layer(name: str, i: int) -> str:
        return program.add("Gather", name, program.constant(f"layer {i}", np.int64(i)), axis=0)

    def own(i: int, k: str, v: str, past: str, end: str):
        all_ = []
        for x, new in (("k", k), ("v", v)):
            before = layer(f"in_n_layer_self_{x}_cache", i)
            first = program.slice(before, program.i64(0), past, 1)
            last = program.slice(before, end, program.i64(1 << 40), 1)
            so_far = program.add("Concat", first, new, axis=1)
            kept[x].append(program.add("Unsqueeze", program.add("Concat", so_far, last, axis=1), program.i64(0)))
            all_.append(program.heads(so_far))
        return all_

    program.decoder("tokens", "offset", own, lambda i, at: [program.heads(layer(f"n_layer_cross_{x}", i)) for x in "kv"])
    for x, each in kept.items():
        program.add("Concat", *each, axis=0, to=f"out_n_layer_self_{x}_cache")
    shape = [len(layers), "batch", about["n_text_ctx"], d]
    inputs = [("tokens", INT64, ["batch", "count"])] + [(f"in_n_layer_self_{x}_cache", FLOAT, shape) for x in "kv"]
    outputs = [("logits", FLOAT, ["batch", "count", about["n_vocab"]])] + [(f"out_n_layer_self_{x}_cache", FLOAT, shape) for x in "kv"]
    program.save(out / "decoder.onnx", [*inputs, *crosses, ("offset", INT64, [1])], outputs)


def for_onnx_asr(weights: dict[str, np.ndarray], about: dict[str, object], out: Path) -> None:
    d = weights["encoder.positional_embedding"].shape[1]
    program = Program(weights)
    program.add("Identity", program.encoder("input_features"), to="last_hidden_state")
    states = [("last_hidden_state", FLOAT, ["batch", "positions", d])]
    program.save(out / "encoder_model.onnx", [("input_features", FLOAT, ["batch", about["n_mels"], "frames"])], states)

    program = Program(weights)
    shape = ["batch", d // HEAD, "so_far", HEAD]

    def either(name: str, then: list, other: list, what: str) -> str:
        """What is kept where the sequence goes on, else what begins it."""
        made = [helper.make_tensor_value_info(f"{what}.{side}", FLOAT, None) for side in ("then", "other")]
        graphs = [helper.make_graph(nodes, name, [], [value]) for nodes, value in zip((then, other), made, strict=True)]
        return program.add("If", "use_cache_branch", to=name, then_branch=graphs[0], else_branch=graphs[1])

    def own(i: int, k: str, v: str, past: str, end: str):
        found = []
        for part, new in (("key", k), ("value", v)):
            new, what = program.heads(new), f"{i}.decoder.{part}"
            then = [helper.make_node("Concat", [f"past_key_values.{what}", new], [f"{what}.then"], axis=2)]
            found.append(either(f"present.{what}", then, [helper.make_node("Identity", [new], [f"{what}.other"])], what))
        return found

    def cross(i: int, at: str):
        found = []
        for part in ("key", "value"):
            what = f"{i}.encoder.{part}"
            inner = Program(weights)
            inner.constants, inner.count = program.constants, 1000 * (i + 1) + 500 * (part == "key")
            inner.add("Identity", inner.heads(inner.linear("encoder_hidden_states", f"{at}.cross_attn.{part}")), to=f"{what}.other")
            then = [helper.make_node("Identity", [f"past_key_values.{what}"], [f"{what}.then"])]
            found.append(either(f"present.{what}", then, inner.nodes, what))
        return found

    past = program.add("Slice", program.add("Shape", "past_key_values.0.decoder.key"), program.i64(2), program.i64(3))
    program.decoder("input_ids", past, own, cross)
    kept = [f"{i}.{side}.{part}" for i in range(len(program.layers("decoder"))) for side in ("decoder", "encoder") for part in ("key", "value")]
    inputs = [("input_ids", INT64, ["batch", "count"]), ("encoder_hidden_states", FLOAT, ["batch", "positions", d])]
    inputs += [(f"past_key_values.{what}", FLOAT, shape) for what in kept] + [("use_cache_branch", BOOL, [1])]
    outputs = [("logits", FLOAT, ["batch", "count", about["n_vocab"]])] + [(f"present.{what}", FLOAT, shape) for what in kept]
    program.save(out / "decoder_model_merged.onnx", inputs, outputs)


def main(folder: Path, out: Path) -> None:
    weights = dict(tensors(variables(folder / "model.bin")))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    vocab, d = weights["decoder.token_embedding.weight"].shape
    languages = [(text[2:-2], id) for text, id in special.items() if len(text) in (6, 7) and text[2:-2].islower() and text[2:-2].isalpha()]
    is_multilingual = int(vocab > 51864)
    named = {name: special[f"<|{text}|>"] for name, text in [
        ("sot", "startoftranscript"), ("eot", "endoftext"), ("transcribe", "transcribe"), ("translate", "translate"),
        ("sot_prev", "startofprev"), ("sot_lm", "startoflm"), ("no_timestamps", "notimestamps"),
    ]}  # fmt: skip
    begins = [named["sot"], *([languages[0][1], named["transcribe"]] if is_multilingual else [])]
    layers = {side: len(Program(weights).layers(side)) for side in ("encoder", "decoder")}
    about: dict[str, object] = {
        "model_type": f"whisper-{folder.name.removeprefix('whisper-')}", "version": "1", "maintainer": "benches/onnx_whisper.py",
        "n_mels": weights["encoder.conv1.weight"].shape[1], "n_audio_ctx": 1500, "n_audio_state": d, "n_audio_head": d // HEAD,
        "n_audio_layer": layers["encoder"], "n_vocab": vocab, "n_text_ctx": 448, "n_text_state": d, "n_text_head": d // HEAD,
        "n_text_layer": layers["decoder"], "sot_sequence": ",".join(map(str, begins)), "sot_index": 0, "blank_id": 220,
        "all_language_tokens": ",".join(str(id) for _, id in languages), "all_language_codes": ",".join(code for code, _ in languages),
        "is_multilingual": is_multilingual, "no_speech": named["no_timestamps"] - 1, "non_speech_tokens": "", **named,
    }  # fmt: skip
    for name in ("sherpa", "asr"):
        (out / name).mkdir(parents=True, exist_ok=True)
    for_sherpa(weights, about, out / "sherpa")
    for_onnx_asr(weights, about, out / "asr")
    words = tokens(folder / "tokenizer.json")
    lines = (f"{base64.b64encode(word).decode()} {id}\n" for id, word in enumerate(words))
    (out / "sherpa" / "tokens.txt").write_text("".join(lines))
    (out / "asr" / "vocab.json").write_text(json.dumps({text: id for text, id in tokenizer["model"]["vocab"].items() if text not in special}))
    times = {f"<|{i * 0.02:.2f}|>": named["no_timestamps"] + 1 + i for i in range(1501)}
    (out / "asr" / "added_tokens.json").write_text(json.dumps(special | times))
    (out / "asr" / "config.json").write_text(json.dumps({"model_type": "whisper", "num_mel_bins": int(about["n_mels"])}))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
