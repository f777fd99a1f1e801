"""Write golden/gguf_embedding/<case>/: what llama.cpp's own converter makes of golden/embedding/<case> (F32), without the numbers that
the folder has already.

  head.gguf     the file up to the data: metadata, tokenizer, names, shapes and places of tensors
  recipe.json   of each tensor: where its data begin, of which tensor of the folder they are made and how; the SHA-256 of the whole file

A test puts both together and gets the file that the converter wrote, to the byte. How a tensor is made is found by comparing numbers
with what the converter wrote, so that nothing here knows names.

What is not the converter's: the tiny tokenizers are not those that it expects of these models. Unigram tokenizers get compiled rules
for characters in place of `NFKC` (`rules` below), and every model gets its tokenizer written as the converter writes that kind. The
names of Nomic's fields are those of their makers, which is what it reads.

Run: python golden/gguf_embedding.py LLAMA_CPP_FOLDER [--files FOLDER]
(the `vendor/llama.cpp` folder of the llama-cpp-python 0.3.36 source package); `--files` keeps the whole files there.
"""

import argparse
import base64
import hashlib
import json
import shutil
import struct
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
OUT = ROOT / "gguf_embedding"
CASES = [
    "bert",
    "bert_ranker",
    "xlm_roberta",
    "xlm_roberta_ranker",
    "nomic_bert",
    "nomic_bert_moe",
    "modernbert",
    "modernbert_ranker",
    "qwen3",
    "qwen3_ranker",
    "gemma3_text",
    "lfm2",
    "lfm2_tokens",
]


def rules(pairs):
    """Compiled rules for characters, as SentencePiece has them: a trie of Darts, in blocks of 256 units, and the texts."""
    nodes = [{}]
    texts = b""
    for text, other in pairs:
        node = 0
        for byte in text.encode():
            if byte not in nodes[node]:
                nodes[node][byte] = len(nodes)
                nodes.append({})
            node = nodes[node][byte]
        nodes[node][0] = len(texts)
        texts += other.encode() + b"\0"
    # The children of a node have a block of their own.
    units = [0] * (256 * (len(nodes) + 1))
    place = lambda node: 256 * (node + 1)
    wide = lambda far: (far << 10) if far < 1 << 21 else (far >> 8 << 10) | 1 << 9
    units[0] = wide(place(0))
    for node, children in enumerate(nodes):
        for byte, child in children.items():
            at = place(node) ^ byte
            if byte == 0:
                units[at] = 1 << 31 | child
            else:
                ends = 1 << 8 if 0 in nodes[child] else 0
                units[at] = byte | ends | wide(at ^ place(child))
    blob = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(blob)) + blob + texts


def prepared(case, folder):
    """A copy of the golden folder that the converter understands."""
    shutil.copytree(ROOT / "embedding" / case, folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    if tokenizer["model"]["type"] == "Unigram":
        compiled = base64.b64encode(rules([("\u00a0", " "), ("\uff01", "!")])).decode()
        tokenizer["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": compiled}
        path.write_text(json.dumps(tokenizer))
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if case == "nomic_bert":
        new = ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "layer_norm_eps"]
        old = ["n_embd", "n_layer", "n_head", "n_inner", "layer_norm_epsilon"]
        config |= {o: config.pop(n) for o, n in zip(old, new, strict=True)}
        config |= dict(activation_function="swiglu", qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False)
        config |= dict(prenorm=False, causal=False, rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None)
        config |= dict(n_positions=8192, max_trained_positions=2048)
        del config["max_position_embeddings"]
        config |= dict(rotary_emb_base=1000)
    if case == "nomic_bert_moe":
        config |= dict(n_positions=2048, max_trained_positions=2048)
    if "modernbert" in case:
        # Published folders have both names of it.
        config |= dict(layer_norm_eps=config["norm_eps"])
    path.write_text(json.dumps(config))
    return config


def written(case, config, folder, path, dense):
    """The file that llama.cpp's converter writes."""
    import gguf
    from conversion import ModelBase, get_model_class
    from conversion.base import TextModel
    from conversion.bert import BertModel

    hparams = ModelBase.load_hparams(folder, False)
    name = config["architectures"][0]
    if case == "qwen3_ranker":
        name = "Qwen3ForCausalLM"
    base = get_model_class(name)
    kind = json.loads((folder / "tokenizer.json").read_text())["model"]["type"]

    class Converter(base):
        model_arch = base.model_arch

        def set_vocab(self):
            self.vocab_size = None
            if kind == "WordPiece":
                return BertModel.set_vocab(self)
            BertModel._xlmroberta_set_vocab(self)
            if "qwen3" in case:
                # Its texts have line breaks, which tokenizers of XLM-RoBERTa do not see.
                self.gguf_writer.add_string("tokenizer.huggingface.json", (ROOT / "embedding" / case / "tokenizer.json").read_text())

        def _is_qwen3_reranker(self):
            return case == "qwen3_ranker"

    TextModel.get_vocab_base_pre = lambda self, tokenizer: "default"
    if case == "qwen3_ranker":
        # The tiny tokenizer has no `yes` and `no`.
        score = json.loads((folder / "1_LogitScore" / "config.json").read_text())

        def find(self):
            self.is_rerank = True
            self.is_tied_embeddings = self.hparams.get("tie_word_embeddings", False)
            self.token_true_id, self.token_false_id = score["true_token_id"], score["false_token_id"]

        Converter._find_rerank_config = find
    more = dict(sentence_transformers_dense_modules=True) if dense else {}
    if case.startswith("nomic"):
        # Newer versions of transformers would put defaults in place of what the makers' names say.
        more["hparams"] = config
    Converter(folder, gguf.LlamaFileType.ALL_F32, path, model_name=f"tiny {case}", **more).write()


def tensors_of(folder):
    from safetensors.numpy import load_file

    found = {}
    for path in sorted(folder.rglob("model.safetensors")):
        at = "" if path.parent == folder else path.parent.name + "."
        found |= {at + name: value for name, value in load_file(path).items()}
    return found


def made_of(data, tensors):
    """Which tensor these numbers are, and what was done to it."""
    import numpy as np

    for name, value in tensors.items():
        flat, other = data.reshape(-1), value.reshape(-1)
        if flat.size == other.size and np.array_equal(flat, other):
            return {"of": name}
        if flat.size == other.size and np.array_equal(flat, other + np.float32(1)):
            return {"of": name, "plus_one": True}
        if data.ndim == 2 == value.ndim and data.shape[1] == value.shape[1] and data.shape[0] < value.shape[0]:
            rows = [int(i) for row in data for i in np.flatnonzero((value == row).all(axis=1))[:1]]
            if len(rows) == data.shape[0]:
                return {"of": name, "rows": rows}
        if data.ndim == 3 and flat.size == other.size:
            turned = np.ascontiguousarray(data.transpose(0, 2, 1)).reshape(-1)
            if np.array_equal(turned, other):
                return {"of": name, "experts": data.shape[0], "columns": data.shape[1]}
    raise SystemExit(f"no tensor of the folder has the numbers of a tensor of shape {data.shape}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("--files", type=Path)
    args = parser.parse_args()
    sys.path[:0] = [str(args.llama_cpp / "gguf-py"), str(args.llama_cpp)]
    import gguf
    import torch

    shutil.rmtree(OUT, ignore_errors=True)
    for case in CASES:
        with tempfile.TemporaryDirectory() as name, torch.inference_mode():
            folder, path = Path(name) / case, Path(name) / f"{case}.gguf"
            config = prepared(case, folder)
            written(case, config, folder, path, case == "gemma3_text")
            data, reader = path.read_bytes(), gguf.GGUFReader(path)
            tensors = tensors_of(folder)
            parts = []
            for tensor in reader.tensors:
                made = made_of(tensor.data, tensors)
                parts.append({"at": int(tensor.data_offset), "bytes": int(tensor.n_bytes), **made})
            out = OUT / case
            out.mkdir(parents=True)
            (out / "head.gguf").write_bytes(data[: reader.data_offset])
            recipe = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "tensors": parts}
            (out / "recipe.json").write_text(json.dumps(recipe, indent=1) + "\n")
            if args.files:
                args.files.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, args.files)
            print(case, len(data), sum(f.stat().st_size for f in out.iterdir()))


if __name__ == "__main__":
    main()
