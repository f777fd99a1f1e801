"""Write a tiny folder of Moonshine as its package carries it: programs of ONNX Runtime, and what their weights are.

`ort/moonshine/` has `encoder_model.ort`, `decoder_model_merged.ort` and `tokenizer.bin` in the form of `moonshine-voice` 0.0.59 (the nodes
that use weights and the constants alone; nothing runs them), and `expected.safetensors`: the weights by the names of
transformers. `ort/moonshine_sums/` is the same in the form of `moonshine-cpp` 0.1.4: convolutions of 8 bits, too, a sum in place of a zero
point, other names, the head tied, and heads as numbers. All is made up.

Run: python golden/ort_models.py      (pip install flatbuffers numpy safetensors)
"""

import struct
from pathlib import Path

import flatbuffers
import numpy as np
from safetensors.numpy import save_file

OUT = Path(__file__).resolve().parent / "ort"
HIDDEN, HEADS, PAIRS, INNER = 12, 2, 2, 20
PIECES = ["▁t", "he", "▁the", "▁a", "▁th", "é", "<<ST_0>>"]
LETTERS = "▁ahet"
TOKENS = ["<unk>", "<s>", "</s>"] + [bytes([i]) for i in range(256)] + list(LETTERS) + PIECES + [b""]
TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int64": 7}


class Program:
    """Nodes and constants, written as ONNX Runtime's `ort.fbs` has them."""

    def __init__(self):
        self.b = flatbuffers.Builder(1 << 16)
        self.constants, self.nodes = [], []

    def offsets(self, all):
        self.b.StartVector(4, len(all), 4)
        for offset in reversed(all):
            self.b.PrependUOffsetTRelative(offset)
        return self.b.EndVector()

    def table(self, count, fields):
        self.b.StartObject(count)
        for i, offset in fields.items():
            self.b.PrependUOffsetTRelativeSlot(i, offset, 0)
        return self.b.EndObject()

    def constant(self, name, value):
        value = np.asarray(value)
        name = self.b.CreateString(name)
        dims = self.b.CreateNumpyVector(np.asarray(value.shape, np.int64)) if value.shape else None
        data = self.b.CreateByteVector(value.tobytes())
        self.b.StartObject(6)
        self.b.PrependUOffsetTRelativeSlot(0, name, 0)
        if dims:
            self.b.PrependUOffsetTRelativeSlot(2, dims, 0)
        self.b.PrependInt32Slot(3, TYPES[value.dtype.name], 0)
        self.b.PrependUOffsetTRelativeSlot(4, data, 0)
        self.constants.append(self.b.EndObject())

    def node(self, name, kind, inputs, branch=None):
        texts = {0: self.b.CreateString(name), 5: self.b.CreateString(kind)}
        texts[8] = self.offsets([self.b.CreateString(i) for i in inputs])
        if branch:
            attribute = self.table(14, {0: self.b.CreateString("else_branch"), 7: branch})
            texts[10] = self.offsets([attribute])
        return self.table(13, texts)

    def graph(self, constants, nodes):
        return self.table(9, {0: self.offsets(constants), 2: self.offsets(nodes)})

    def write(self, path, graph):
        model = self.table(10, {7: graph})
        self.b.Finish(self.table(3, {0: self.b.CreateString("6"), 1: model}), file_identifier=b"ORTM")
        path.write_bytes(self.b.Output())


class Weights:
    def __init__(self, sums):
        self.random, self.expected, self.count, self.sums = np.random.default_rng(7), {}, 2000, sums

    def name(self, of_transformers, of_sums):
        return of_sums if self.sums else of_transformers

    def plain(self, p, name, shape, stored, kept=None):
        value = self.random.normal(0, 0.3, shape).astype(np.float32)
        self.expected[name] = value
        p.constant(stored, value.reshape(kept or shape))

    def quantized(self, p, name, shape, transposed, stored):
        q = self.random.integers(-127, 128, shape, np.int8) if self.sums else self.random.integers(0, 256, shape, np.uint8)
        scale, zero = np.float32(self.random.uniform(0.001, 0.01)), np.uint8(self.random.integers(100, 150))
        if self.sums:
            scale, zero = np.array([scale]), np.array([(np.float32(zero) - 125) * scale], np.float32)
            self.expected[name] = q.astype(np.float32) * scale + zero
        else:
            self.expected[name] = (q.astype(np.float32) - np.float32(zero)) * scale
        for suffix, value in (("quantized", q.T if transposed else q), ("scale", scale), ("zero_point", zero)):
            p.constant(f"{stored}_{suffix}", np.ascontiguousarray(value) if suffix == "quantized" else value)

    def linear(self, p, path, shape, name, mark=""):
        self.count += 7
        stored = f"onnx::MatMul_{self.count}{mark}"
        self.quantized(p, f"{name}.weight", shape, True, stored)
        if self.sums:
            return p.node(f"{path}/MatMul", "MatMul", ["x", f"{stored}_add_tensor"])
        inputs = ["x", *(f"{stored}_{s}" for s in ("quantized", "scale", "zero_point"))]
        return p.node(f"{path}/MatMul_quant", "DynamicQuantizeMatMul", inputs)


def attention(w, p, at, prefix, mark=""):
    name = at.strip("/").replace("/", ".")
    parts = ("q_proj", "k_proj", "v_proj", "o_proj")
    other = {"o_proj": w.name("o_proj", "dense")}
    return [w.linear(p, f"{at}/{other.get(part, part)}", (HIDDEN, HIDDEN), f"{prefix}{name}.{part}", mark) for part in parts]


def encoder(w, folder):
    p, e = Program(), "model.encoder."
    for i, (shape, bias) in enumerate([((HIDDEN, 1, 127), 0), ((2 * HIDDEN, HIDDEN, 7), 1), ((HIDDEN, 2 * HIDDEN, 3), 1)], 1):
        if w.sums:
            w.quantized(p, f"{e}conv{i}.weight", shape, False, f"conv{i}.weight")
        else:
            w.plain(p, f"{e}conv{i}.weight", shape, f"conv{i}.weight_add_tensor")
        if bias:
            w.plain(p, f"{e}conv{i}.bias", shape[:1], f"conv{i}.bias")
    w.plain(p, f"{e}groupnorm.weight", (HIDDEN,), "onnx::Mul_2080", (HIDDEN, 1))
    w.plain(p, f"{e}groupnorm.bias", (HIDDEN,), "onnx::Add_2081", (HIDDEN, 1))
    nodes = [p.node("/groupnorm/Mul", "Mul", ["y", "onnx::Mul_2080"]), p.node("/groupnorm/Add", "Add", ["z", "onnx::Add_2081"])]
    inverse = np.float32(10000.0) ** (-np.arange(PAIRS, dtype=np.float32) / PAIRS)
    p.constant("onnx::Expand_202", inverse.reshape(1, PAIRS, 1))
    kind = w.name("Expand", "MatMul")
    nodes.append(p.node(f"/rotary_emb/{kind}", kind, ["onnx::Expand_202", "sizes"]))
    if w.sums:
        p.constant("heads", np.array([HEADS]))
        p.constant("width", np.array([HIDDEN // HEADS]))
        nodes.append(p.node("/layers.0/self_attn/Concat", "Concat", ["batch", "length", "heads", "width"]))
    p.constant("sizes", np.array([1, PAIRS, 1]))
    nodes += attention(w, p, "/layers.0/self_attn", e)
    for part, shape in (("fc1", (INNER, HIDDEN)), ("fc2", (HIDDEN, INNER))):
        nodes.append(w.linear(p, f"/layers.0/mlp/{part}", shape, f"{e}layers.0.mlp.{part}"))
        w.plain(p, f"{e}layers.0.mlp.{part}.bias", shape[:1], f"layers.0.mlp.{part}.bias")
    for norm in ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "layer_norm"):
        w.plain(p, f"{e}{norm}.weight", (HIDDEN,), f"{norm}.weight")
    p.write(folder / "encoder_model.ort", p.graph(p.constants, nodes))


def decoder(w, folder):
    p, mark = Program(), "_merged_0"
    d = "model.decoder.layers.0"
    w.quantized(p, "model.decoder.embed_tokens.weight", (len(TOKENS), HIDDEN), False, f"model.decoder.embed_tokens.weight{mark}")
    nodes = attention(w, p, "/model/decoder/layers.0/self_attn", "", mark)
    nodes += attention(w, p, "/model/decoder/layers.0/encoder_attn", "", mark)
    for part, shape in (("fc1", (2 * INNER, HIDDEN)), ("fc2", (HIDDEN, INNER))):
        there = w.name(part, {"fc1": "up_proj", "fc2": "down_proj"}[part])
        nodes.append(w.linear(p, f"/model/decoder/layers.0/mlp/{there}", shape, f"{d}.mlp.{part}", mark))
        w.plain(p, f"{d}.mlp.{part}.bias", shape[:1], f"{d}.mlp.{there}.bias{mark}")
    for norm in (f"{d}.input_layernorm", f"{d}.post_attention_layernorm", f"{d}.final_layernorm", "model.decoder.norm"):
        w.plain(p, f"{norm}.weight", (HIDDEN,), f"{norm}.weight{mark}")
    if w.sums:
        nodes.append(p.node("/proj_out/MatMul", "MatMul", ["x", "model.decoder.embed_tokens.weight_transposed"]))
    else:
        nodes.append(w.linear(p, "/proj_out", (len(TOKENS), HIDDEN), "proj_out", mark))
    top, p.constants = p.constants, []
    if not w.sums:
        p.constant("present.0.encoder.key", np.zeros((0, HEADS, 1, HIDDEN // HEADS), np.float32))
    branch = p.graph(p.constants, nodes)
    p.write(folder / "decoder_model_merged.ort", p.graph(top, [p.node("optimum::if", "If", ["use_cache_branch"], branch)]))


def write(folder, sums):
    folder.mkdir(parents=True, exist_ok=True)
    w = Weights(sums)
    encoder(w, folder)
    decoder(w, folder)
    save_file(w.expected, folder / "expected.safetensors")
    tokens = b""
    for token in (t if isinstance(t, bytes) else t.encode() for t in TOKENS):
        length = bytes([len(token)]) if len(token) < 128 else struct.pack("BB", len(token) % 128 + 128, len(token) // 128)
        tokens += length + token
    (folder / "tokenizer.bin").write_bytes(tokens)


def main():
    write(OUT / "moonshine", False)
    write(OUT / "moonshine_sums", True)


if __name__ == "__main__":
    main()
