"""Write a Hugging Face folder of the shape of Parakeet TDT 0.6B v3 (or CTC) with random weights, for times and memory: there is no
package with the published ones, and what a multiplication takes does not depend on its numbers.

The tokenizer and the processor come from a golden case, so the text is nonsense. It needs torch, transformers and safetensors.

Run: python benches/parakeet_shape.py FOLDER [--layers 24] [--ctc]
Then: cactus convert FOLDER shape.cactus && /usr/bin/time -v cactus transcribe sound.wav --model shape.cactus
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import ParakeetCTCConfig, ParakeetEncoderConfig, ParakeetForCTC, ParakeetForTDT, ParakeetTDTConfig

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "speech" / "parakeet_tdt"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--ctc", action="store_true")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    encoder = ParakeetEncoderConfig(
        num_hidden_layers=asked.layers,
        num_mel_bins=80 if asked.ctc else 128,
        attention_bias=asked.ctc,
        convolution_bias=asked.ctc,
        scale_input=asked.ctc,
    )
    kind, about = (ParakeetForCTC, ParakeetCTCConfig) if asked.ctc else (ParakeetForTDT, ParakeetTDTConfig)
    config = about(encoder_config=encoder)
    with torch.device("meta"):
        shapes = {name: v.shape for name, v in kind(config).state_dict().items()}
    generator = torch.Generator().manual_seed(1)

    def values(name, shape):
        if name.endswith("num_batches_tracked"):
            return torch.zeros(shape, dtype=torch.int64)
        if name.endswith("running_var") or (name.endswith("weight") and "norm" in name):
            return torch.ones(shape, dtype=torch.bfloat16)
        fan_in = max(1, shape[1:].numel()) if len(shape) > 1 else 100
        return (torch.randn(shape, generator=generator) / fan_in**0.5).to(torch.bfloat16)

    save_file({name: values(name, shape) for name, shape in shapes.items()}, asked.folder / "model.safetensors")
    (asked.folder / "config.json").write_text(json.dumps(config.to_diff_dict(), indent=2, default=str) + "\n")
    for name in ["tokenizer.json", "tokenizer_config.json"]:
        shutil.copy(GOLDEN / name, asked.folder / name)


if __name__ == "__main__":
    main()
