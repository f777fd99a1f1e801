"""Models that see, of the sizes of released ones and with random weights, to measure with: their weights are in no package.

    python benches/picture_models.py FOLDER [--llama-cpp LLAMA_CPP_FOLDER] [smolvlm_256m] [lfm2_vl_450m] [gemma3_encoder] [gemma3n_encoders]
        [gemma4_encoders] [qwen3_vl_encoder]

Each becomes FOLDER/NAME as a Hugging Face folder in BF16, with the tokenizer of golden/seeing and the image processor of the release; with the
sources of llama.cpp also FOLDER/NAME.gguf and FOLDER/NAME-mmproj.gguf in Q8_0, by its own converter. Needs torch, torchvision, pillow and transformers, for Gemma 3n timm, too. What they write means nothing; times and sizes are those of the real ones.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

ROOT = Path(__file__).resolve().parent.parent
VISION = dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)
HALF = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3, do_resize=True, do_rescale=True, do_normalize=True, rescale_factor=1 / 255)
MODELS = {
    # Of Gemma 3 only the encoder has its size: all sizes of the model have the same one.
    "gemma3_encoder": (
        "gemma3",
        lambda vocab: AutoConfig.for_model(
            "gemma3",
            mm_tokens_per_image=256,
            boi_token_index=5,
            eoi_token_index=6,
            image_token_index=7,
            vision_config=dict(model_type="siglip_vision_model", hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, num_attention_heads=16,
                               image_size=896, patch_size=14, vision_use_head=False),
            text_config=dict(model_type="gemma3_text", hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=2,
                             num_key_value_heads=1, head_dim=128, max_position_embeddings=8192, sliding_window=1024, vocab_size=512, bos_token_id=2,
                             eos_token_id=4, pad_token_id=0),
        ),
        HALF | dict(image_processor_type="Gemma3ImageProcessor", size={"height": 896, "width": 896}, resample=2, image_seq_length=256),
    ),
    # The encoders of pictures and of sounds of both sizes, with rows as wide as theirs.
    "gemma3n_encoders": (
        "gemma3n_hears",
        lambda vocab: AutoConfig.for_model(
            "gemma3n",
            boi_token_id=5,
            boa_token_id=6,
            eoi_token_id=160,
            image_token_id=161,
            eoa_token_id=163,
            audio_token_id=164,
            audio_config=dict(model_type="gemma3n_audio", vocab_size=3, vocab_offset=163),
            vision_config=dict(model_type="gemma3n_vision", vocab_size=3, vocab_offset=160),
            text_config=dict(model_type="gemma3n_text", hidden_size=2048, intermediate_size=[512] * 2, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                             head_dim=128, max_position_embeddings=8192, sliding_window=512, vocab_size=166, vocab_size_per_layer_input=160, num_kv_shared_layers=0,
                             hidden_size_per_layer_input=16, layer_types=["sliding_attention", "full_attention"], activation_sparsity_pattern=[0.0] * 2,
                             bos_token_id=2, eos_token_id=4, pad_token_id=0),
        ),
        dict(image_processor_type="SiglipImageProcessor", do_resize=True, do_rescale=True, do_normalize=False, rescale_factor=1 / 255, resample=2,
             size={"height": 768, "width": 768}),
    ),
    # The encoders of pictures and of sounds of E2B and E4B, with rows as wide as those of E2B.
    "gemma4_encoders": (
        "gemma4_hears",
        lambda vocab: AutoConfig.for_model(
            "gemma4",
            boi_token_id=5,
            eoi_token_id=7,
            image_token_id=6,
            video_token_id=510,
            boa_token_id=8,
            audio_token_id=9,
            eoa_token_index=10,
            audio_config=dict(model_type="gemma4_audio"),
            vision_config=dict(model_type="gemma4_vision", hidden_size=768, intermediate_size=3072, num_hidden_layers=16, num_attention_heads=12,
                               num_key_value_heads=12, head_dim=64, patch_size=16, pooling_kernel_size=3, position_embedding_size=10240,
                               use_clipped_linears=True),
            text_config=dict(model_type="gemma4_text", hidden_size=1536, intermediate_size=512, num_hidden_layers=2, num_attention_heads=2,
                             num_key_value_heads=1, head_dim=128, global_head_dim=128, max_position_embeddings=8192, sliding_window=512, vocab_size=512,
                             vocab_size_per_layer_input=512, hidden_size_per_layer_input=16, bos_token_id=2, eos_token_id=4, pad_token_id=0),
        ),
        dict(image_processor_type="Gemma4ImageProcessor", do_resize=True, do_rescale=True, do_normalize=False, rescale_factor=1 / 255, resample=3,
             patch_size=16, pooling_kernel_size=3, max_soft_tokens=280),
    ),
    # The encoder of 2B and 4B, with rows as wide as those of 2B.
    "qwen3_vl_encoder": (
        "qwen3_vl",
        lambda vocab: AutoConfig.for_model(
            "qwen3_vl",
            image_token_id=3,
            video_token_id=4,
            vision_start_token_id=5,
            vision_end_token_id=6,
            tie_word_embeddings=True,
            vision_config=dict(model_type="qwen3_vl", depth=24, hidden_size=1024, intermediate_size=4096, num_heads=16, patch_size=16,
                               out_hidden_size=2048, num_position_embeddings=2304, deepstack_visual_indexes=[5, 11, 17]),
            text_config=dict(model_type="qwen3_vl_text", hidden_size=2048, intermediate_size=512, num_hidden_layers=4, num_attention_heads=2,
                             num_key_value_heads=1, head_dim=128, max_position_embeddings=8192, vocab_size=512, bos_token_id=0, eos_token_id=2,
                             pad_token_id=0, rope_parameters=dict(rope_type="default", rope_theta=5000000.0, mrope_section=[24, 20, 20],
                                                                  mrope_interleaved=True)),
        ),
        HALF | dict(image_processor_type="Qwen2VLImageProcessor", size={"shortest_edge": 65536, "longest_edge": 16777216}, patch_size=16,
                    merge_size=2, temporal_patch_size=2, resample=3),
    ),
    "smolvlm_256m": (
        "smolvlm",
        lambda vocab: AutoConfig.for_model(
            "smolvlm",
            scale_factor=4,
            image_token_id=4,
            tie_word_embeddings=False,
            vision_config=VISION | dict(image_size=512, patch_size=16),
            text_config=dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
                             num_key_value_heads=3, max_position_embeddings=8192, rope_theta=100000, rms_norm_eps=1e-5, vocab_size=49280,
                             bos_token_id=1, eos_token_id=2, pad_token_id=0),
        ),
        HALF | dict(image_processor_type="SmolVLMImageProcessor", size={"longest_edge": 2048}, max_image_size={"longest_edge": 512}, resample=1,
                    do_image_splitting=True),
    ),
    "lfm2_vl_450m": (
        "lfm2_vl",
        lambda vocab: AutoConfig.for_model(
            "lfm2_vl",
            downsample_factor=2,
            projector_hidden_size=2560,
            image_token_id=4,
            vision_config=VISION | dict(model_type="siglip2_vision_model", num_patches=256, patch_size=16, vision_use_head=False),
            text_config=dict(model_type="lfm2", architectures=["Lfm2ForCausalLM"], hidden_size=1024, intermediate_size=6656, num_hidden_layers=16, num_attention_heads=16,
                             num_key_value_heads=8, max_position_embeddings=32768, norm_eps=1e-5, vocab_size=65536, bos_token_id=1,
                             eos_token_id=2, pad_token_id=0,
                             layer_types=["full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)]),
        ),
        HALF | dict(image_processor_type="Lfm2VlImageProcessor", resample=2, tile_size=512, min_tiles=2, max_tiles=10, min_image_tokens=64,
                    max_image_tokens=256, encoder_patch_size=16, downsample_factor=2, use_thumbnail=False, max_pixels_tolerance=2.0,
                    do_image_splitting=True),
    ),
}


def converted(llama_cpp, folder, out, *more):
    """Runs llama.cpp's converter, which would otherwise ask which published tokenizer this one is."""
    code = (
        "import runpy, sys; sys.path[:0] = [sys.argv[1] + '/gguf-py', sys.argv[1]]; from conversion.base import TextModel;"
        "from conversion.llama import LlamaModel; LlamaModel.set_vocab = TextModel._set_vocab_gpt2;"
        "TextModel.get_vocab_base_pre = lambda self, tokenizer: 'gpt-2'; sys.argv = sys.argv[2:];"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", code, llama_cpp, llama_cpp / "convert_hf_to_gguf.py", folder, "--outtype", "q8_0", "--outfile", out, *more]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def gguf(llama_cpp, folder):
    """Both files. Released checkpoints have longer names, which the converter knows alone."""
    with tempfile.TemporaryDirectory() as temporary:
        released = Path(temporary) / folder.name
        shutil.copytree(folder, released)
        weights = load_file(folder / "model.safetensors")
        weights = {key.replace("vision_tower.", "vision_tower.vision_model."): value for key, value in weights.items()}
        save_file(weights, released / "model.safetensors", metadata={"format": "pt"})
        converted(llama_cpp, released, folder.with_suffix(".gguf"))
        converted(llama_cpp, released, folder.with_name(folder.name + "-mmproj.gguf"), "--mmproj")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*MODELS, []])
    parser.add_argument("--llama-cpp", type=Path)
    args = parser.parse_args()
    folder = args.folder
    for name in args.names or MODELS:
        golden, config, processor = MODELS[name]
        out = folder / name
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        torch.manual_seed(1)
        torch.set_default_dtype(torch.bfloat16)
        model = AutoModelForImageTextToText.from_config(config(0)).eval()
        for key, x in model.named_buffers():
            # Bounds of products, which are infinite before training.
            if key.endswith(("put_min", "put_max")):
                x.fill_(-60 if key.endswith("min") else 60)
        model.save_pretrained(out)
        for file in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]:
            shutil.copy(ROOT / "golden" / "seeing" / golden / file, out / file)
        (out / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")
        if args.llama_cpp:
            gguf(args.llama_cpp, out)
        print(out, sum(p.numel() for p in model.parameters()) / 1e6, "M")


if __name__ == "__main__":
    main()
