"""Write a Hugging Face folder of the shape of Moonshine 2 tiny with random weights, for times: there is no package with the published ones,
and what a multiplication takes does not depend on its numbers.

The tokenizer comes from a golden case, so the text is nonsense. It needs torch, transformers and safetensors.

Run: python benches/moonshine_shape.py FOLDER
Then: cactus convert FOLDER shape.cactus && cactus bench shape.cactus --component streaming_encoder
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import MoonshineStreamingConfig, MoonshineStreamingForConditionalGeneration

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "speech" / "moonshine_streaming"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    # What stands in the class is the shape of tiny.
    config = MoonshineStreamingConfig(encoder_config={"num_key_value_heads": 8}, num_key_value_heads=8)
    torch.manual_seed(1)
    model = MoonshineStreamingForConditionalGeneration(config)
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, asked.folder / "model.safetensors")
    (asked.folder / "config.json").write_text(json.dumps(config.to_dict(), indent=2, default=str) + "\n")
    for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]:
        shutil.copy(GOLDEN / name, asked.folder / name)


if __name__ == "__main__":
    main()
