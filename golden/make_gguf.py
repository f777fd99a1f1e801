"""Write golden/gguf/<case>.gguf (F32) from golden/models/<case> with llama.cpp's own converter.

Only the tokenizer check is replaced: the converter knows tokenizers by the hash of one encoding, and the tiny ones
are not in its list. Their pre-tokenizer is GPT-2's, so that is what it is told. Tensor names, permutations, norm
offsets and metadata are the converter's.

Run: python golden/make_gguf.py LLAMA_CPP_FOLDER [case ...]
(the `vendor/llama.cpp` folder of the llama-cpp-python 0.3.36 source package)
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
CASES = [
    "llama",
    "llama32",
    "smollm3",
    "qwen2",
    "qwen3",
    "gemma3_text",
    "gemma3n_text",
    "gemma4_text",
    "gemma4_moe",
    "lfm2",
    "olmo2",
    "phi3",
    "phi3_window",
    "gpt_oss",
    "granite",
    "granitemoe",
    "glm4",
    "qwen3_moe",
    "olmoe",
    "lfm2_moe",
]


def main():
    sys.path.insert(0, str(Path(sys.argv[1]) / "gguf-py"))
    sys.path.insert(0, sys.argv[1])
    import gguf
    import torch
    from conversion import ModelBase, get_model_class
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    # These want a tokenizer of SentencePiece or special tokens of their own.
    for other in ("Phi3ForCausalLM", "GraniteForCausalLM", "GraniteMoeForCausalLM", "Glm4ForCausalLM", "Gemma3nForCausalLM", "Gemma4ForCausalLM"):
        get_model_class(other).set_vocab = TextModel._set_vocab_gpt2
    (ROOT / "gguf").mkdir(exist_ok=True)

    def write(folder, out):
        hparams = ModelBase.load_hparams(folder, False)
        cls = get_model_class(hparams["architectures"][0])
        cls(folder, gguf.LlamaFileType.ALL_F32, out, model_name=f"tiny {folder.name}").write()

    with torch.inference_mode():
        for case in sys.argv[2:] or CASES:
            write(ROOT / "models" / case, ROOT / "gguf" / f"{case}.gguf")
            packed = ROOT / "mxfp4" / case
            if packed.exists():
                write(packed, packed.with_suffix(".gguf"))


if __name__ == "__main__":
    main()
