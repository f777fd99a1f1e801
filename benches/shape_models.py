"""Language models of the sizes of released ones with random weights in Q4_0, as GGUF files: for decoders whose weights are in no package here.

    python benches/shape_models.py LLAMA_CPP_FOLDER FOLDER [lfm2_8b_a1b] [gemma4_e2b]

What they write means nothing; bytes and products are those of the real ones. LLAMA_CPP_FOLDER is the source of llama.cpp, whose `gguf` package writes the
files. Needs numpy. Every matrix is in Q4_0, embeddings and experts too, so that other engines read as many bytes as they do with files of that kind.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parent.parent
BLOCK = 32


def lfm2_8b_a1b():
    n, ff, expert_ff, experts, heads, kv_heads, width, vocab, layers = 2048, 7168, 1792, 32, 32, 8, 64, 65536, 24
    attention = {2, 6, 10, 14, 18, 21}
    numbers = {
        "block_count": layers, "embedding_length": n, "feed_forward_length": ff, "attention.head_count": heads,
        "attention.head_count_kv": [kv_heads if i in attention else 0 for i in range(layers)], "expert_count": experts, "expert_used_count": 4,
        "expert_feed_forward_length": expert_ff, "leading_dense_block_count": 2, "vocab_size": vocab, "context_length": 32768,
    }
    tensors = {"token_embd.weight": (vocab, n), "token_embd_norm.weight": (n,)}
    for i in range(layers):
        at = f"blk.{i}."
        tensors |= {at + "attn_norm.weight": (n,), at + "ffn_norm.weight": (n,)}
        if i in attention:
            tensors |= {at + "attn_q.weight": (heads * width, n), at + "attn_k.weight": (kv_heads * width, n), at + "attn_v.weight": (kv_heads * width, n),
                        at + "attn_output.weight": (n, heads * width), at + "attn_q_norm.weight": (width,), at + "attn_k_norm.weight": (width,)}
        else:
            tensors |= {at + "shortconv.conv.weight": (n, 3), at + "shortconv.in_proj.weight": (3 * n, n), at + "shortconv.out_proj.weight": (n, n)}
        if i < 2:
            tensors |= {at + "ffn_gate.weight": (ff, n), at + "ffn_up.weight": (ff, n), at + "ffn_down.weight": (n, ff)}
        else:
            tensors |= {at + "ffn_gate_inp.weight": (experts, n), at + "exp_probs_b.bias": (experts,), at + "ffn_gate_exps.weight": (experts, expert_ff, n),
                        at + "ffn_up_exps.weight": (experts, expert_ff, n), at + "ffn_down_exps.weight": (experts, n, expert_ff)}
    return ROOT / "golden/gguf/lfm2_moe.gguf", numbers, tensors, vocab


def gemma4_e2b():
    n, ff, heads, local, full, vocab, layers, shared, own = 1536, 6144, 8, 256, 512, 262144, 35, 20, 256
    windows = [(i + 1) % 5 != 0 for i in range(layers)]
    units = [ff if i < layers - shared else 2 * ff for i in range(layers)]
    numbers = {
        "block_count": layers, "embedding_length": n, "feed_forward_length": units, "attention.head_count": heads, "attention.head_count_kv": 1,
        "attention.key_length": full, "attention.value_length": full, "attention.key_length_swa": local, "attention.value_length_swa": local,
        "attention.sliding_window": 512, "attention.shared_kv_layers": shared, "attention.sliding_window_pattern": windows,
        "embedding_length_per_layer_input": own, "rope.dimension_count": full, "rope.dimension_count_swa": local, "context_length": 32768,
    }
    tensors = {"token_embd.weight": (vocab, n), "per_layer_token_embd.weight": (vocab, layers * own), "per_layer_model_proj.weight": (layers * own, n),
               "per_layer_proj_norm.weight": (own,), "output_norm.weight": (n,), "rope_freqs.weight": (full // 2,)}
    for i in range(layers):
        at, width = f"blk.{i}.", local if windows[i] else full
        tensors |= {at + f"{name}.weight": (n,) for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm")}
        tensors |= {at + "layer_output_scale.weight": (1,), at + "attn_q_norm.weight": (width,), at + "attn_k_norm.weight": (width,),
                    at + "attn_q.weight": (heads * width, n), at + "attn_k.weight": (width, n), at + "attn_v.weight": (width, n),
                    at + "attn_output.weight": (n, heads * width), at + "ffn_gate.weight": (units[i], n), at + "ffn_up.weight": (units[i], n),
                    at + "ffn_down.weight": (n, units[i]), at + "inp_gate.weight": (own, n), at + "proj.weight": (n, own)}
    return ROOT / "golden/seeing/gemma4/text.gguf", numbers, tensors, vocab


MODELS = {"lfm2_8b_a1b": lfm2_8b_a1b, "gemma4_e2b": gemma4_e2b}
# Read as they are by every engine.
PLAIN = ("norm.weight", "bias", "shortconv.conv.weight", "ffn_gate_inp.weight", "rope_freqs.weight", "layer_output_scale.weight")


def q4_0(shape: tuple[int, ...], random: numpy.random.Generator) -> numpy.ndarray:
    """Blocks of a scale in half precision and 32 indices, whose values deviate by `1 / sqrt(columns)`."""
    rows, columns = int(numpy.prod(shape[:-1])), shape[-1]
    blocks = random.integers(0, 256, (rows * columns // BLOCK, 18), dtype=numpy.uint8)
    blocks[:, :2] = numpy.frombuffer(numpy.float16(columns**-0.5 / 4.6).tobytes(), numpy.uint8)
    return blocks.reshape(*shape[:-1], columns // BLOCK * 18)


def plain(name: str, shape: tuple[int, ...], random: numpy.random.Generator) -> numpy.ndarray:
    if name == "rope_freqs.weight":
        # A quarter of a head turns.
        return numpy.where(numpy.arange(shape[0]) < shape[0] // 4, 1, 1e30).astype(numpy.float32)
    made = random.standard_normal(shape, dtype=numpy.float32) * 0.02
    return made + 1 if name.endswith(("norm.weight", "scale.weight")) else made


def write(gguf, template: Path, numbers: dict, tensors: dict, vocab: int, out: Path) -> None:
    reader = gguf.GGUFReader(template)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out, architecture)
    for key, field in reader.fields.items():
        name = key.removeprefix(architecture + ".")
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = numbers.get(name, field.contents()) if key != name else field.contents()
        if key == "tokenizer.ggml.tokens":
            value = value + [f"<unused{i}>" for i in range(vocab - len(value))]
        if key == "tokenizer.ggml.token_type":
            value = value + [3] * (vocab - len(value))
        kind = field.types[0]
        if isinstance(value, list):
            writer.add_key_value(key, value, gguf.GGUFValueType.ARRAY, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else gguf.GGUFValueType.INT32)
        else:
            kind = gguf.GGUFValueType.UINT32 if kind == gguf.GGUFValueType.ARRAY else kind
            writer.add_key_value(key, value, kind)
    random = numpy.random.default_rng(1)
    is_plain = {name: name.endswith(PLAIN) for name in tensors}
    for name, shape in tensors.items():
        if is_plain[name]:
            writer.add_tensor_info(name, shape, numpy.dtype(numpy.float32), int(numpy.prod(shape)) * 4)
        else:
            packed = (*shape[:-1], shape[-1] // BLOCK * 18)
            writer.add_tensor_info(name, packed, numpy.dtype(numpy.uint8), int(numpy.prod(packed)), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, shape in tensors.items():
        writer.write_tensor_data(plain(name, shape, random) if is_plain[name] else q4_0(shape, random))
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    args = parser.parse_args()
    sys.path.insert(0, str(args.llama_cpp / "gguf-py"))
    import gguf

    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.models or MODELS:
        out = args.folder / f"{name}.gguf"
        write(gguf, *MODELS[name](), out)
        print(f"{out}: {out.stat().st_size / 1e9:.2f} GB", file=sys.stderr)


main()
