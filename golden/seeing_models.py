"""Write golden/seeing: models that write text about pictures, with random weights, and what transformers computes by them.

For each case this writes `seeing/<case>/` with config.json, weights, a small tokenizer, a chat template and preprocessor_config.json, and

  expected.json         messages, pictures (width, height, seed), the text and the ids of the prompt, and greedy tokens
  expected.safetensors  `logits` of every position, F32 [seq, vocab], and `rows.<picture>`, F32 [tokens, hidden]
  mmproj.gguf           where GGUF files are read: the encoder of pictures as llama.cpp's converter writes it, F32
  text.gguf             where no other case has it (golden/make_gguf.py): the text model in the same way
  sound.<i>.wav         where the model hears: the sounds of the conversation, 16 bits; their rows are `heard.<i>`, F32 [tokens, hidden]

    python golden/seeing_models.py LLAMA_CPP_FOLDER [case ...]

(Gemma 3n needs timm 1.0.31; the `vendor/llama.cpp` folder of the llama-cpp-python 0.3.36 source package)
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import wave
from pathlib import Path

import numpy
import torch
from pictures import References, picture
from PIL import Image
from safetensors.torch import load_file, save_file
from timm.models._efficientnet_builder import decode_arch_def
from tiny_models import CORPUS
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedTokenizerFast
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma3n.feature_extraction_gemma3n import Gemma3nAudioFeatureExtractor
from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.gemma4_unified.feature_extraction_gemma4_unified import Gemma4UnifiedAudioFeatureExtractor
from transformers.models.gemma4_unified.image_processing_gemma4_unified import Gemma4UnifiedImageProcessor, get_aspect_ratio_preserving_size
from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor, convert_image_to_patches
from transformers.models.lfm2_vl.processing_lfm2_vl import Lfm2VlProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import DEFAULT_CHAT_TEMPLATE, get_image_prompt_string

OUT = Path(__file__).resolve().parent / "seeing"
STEPS = 24
# Of Gemma 3 alone: others would get more tokens.
GEMMA_NAMES = ["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>", "<image_soft_token>"]
GEMMA = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{% if m.content is string %}"
    "{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'image' %}<start_of_image>{% else %}{{ p.text }}{% endif %}{% endfor %}"
    "{% endif %}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
GEMMA4_NAMES = ["<pad>", "<eos>", "<bos>", "<|turn>", "<turn|>", "<|image>", "<|image|>", "<image|>"]
GEMMA4 = GEMMA.replace("<start_of_turn>", "<|turn>").replace("<end_of_turn>", "<turn|>").replace("<start_of_image>", "<|image|>")
GEMMA4_HEARS = GEMMA4.replace("{% else %}{{ p.text }}", "{% elif p.type == 'audio' %}<|audio|>{% else %}{{ p.text }}")
GEMMA3N_NAMES = GEMMA_NAMES[:6] + ["<start_of_audio>"]
# Behind those of texts, as many of pictures as of sounds; the last stands for silence.
GEMMA3N_OTHERS = ["<end_of_image>", "<image_soft_token>", "<unused0>", "<end_of_audio>", "<audio_soft_token>", "<unused1>"]
GEMMA3N = GEMMA.replace("<start_of_image>", "<image_soft_token>").replace("{% else %}{{ p.text }}", "{% elif p.type == 'audio' %}<audio_soft_token>{% else %}{{ p.text }}")
QWEN_NAMES = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
NAMES = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<end_of_utterance>", "<image>", "<fake_token_around_image>", "<global-img>",
         "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"]
PLACES = [f"<row_{r}_col_{c}>" for r in range(1, 4) for c in range(1, 4)] + [
    f"<|img_row_{r}_col_{c}|>" for r in range(1, 4) for c in range(1, 4)]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN = CHATML.replace("<image>", "<|vision_start|><|image_pad|><|vision_end|>")
IMAGE = {"type": "image"}


def said(text):
    return {"type": "text", "text": text}


# Two pictures, one of them in the second turn, and what a user spells like the token of one.
CONVERSATION = [
    {"role": "user", "content": [IMAGE, said("What is this?")]},
    {"role": "assistant", "content": [said("the one and the other")]},
    {"role": "user", "content": [said("And"), IMAGE, said("that?")]},
]
SOUND = {"type": "audio"}
HEARING = [
    {"role": "user", "content": [SOUND, said("What is this?"), IMAGE]},
    {"role": "assistant", "content": [said("the one and the other")]},
    {"role": "user", "content": [said("And"), SOUND, said("that?")]},
]
VISION = dict(hidden_size=36, intermediate_size=56, num_hidden_layers=2, num_attention_heads=3)
# Of encoders that are those of other cases.
SMALL = dict(depth=2, hidden_size=24, intermediate_size=32)
TEXT = dict(hidden_size=48, intermediate_size=104, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=512,
            bos_token_id=1, eos_token_id=2, pad_token_id=0)


class SmolVlm:
    """SmolVLM 2: tiles of a picture that is enlarged, and the whole."""

    pictures = [(40, 30, 1), (9, 31, 2)]
    template = DEFAULT_CHAT_TEMPLATE
    names, word, special = NAMES + PLACES, "<image>", dict(bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|endoftext|>")

    def config(self, vocab):
        text = TEXT | dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=vocab, rms_norm_eps=1e-5, rope_theta=100000, tie_word_embeddings=False)
        vision = VISION | dict(image_size=32, patch_size=8)
        return AutoConfig.for_model("smolvlm", text_config=text, vision_config=vision, scale_factor=2, image_token_id=NAMES.index("<image>"))

    def processor(self):
        return SmolVLMImageProcessorPil(size={"longest_edge": 64}, max_image_size={"longest_edge": 32}, return_row_col_info=True)

    def prepare(self, processor, images):
        inputs, texts, sizes = [], [], []
        for image in images:
            made = processor(image, return_tensors=None)
            values = torch.tensor(numpy.asarray(made["pixel_values"], dtype=numpy.float32))
            values = values.reshape(-1, *values.shape[-3:])
            inputs.append(values)
            sizes.append(4 * len(values))
            texts.append(get_image_prompt_string(int(made["rows"][0][0]), int(made["cols"][0][0]), 4, "<fake_token_around_image>", "<image>",
                                                 "<global-img>"))
        values = torch.cat(inputs)
        return {"pixel_values": values[None]}, texts, sizes


class Lfm2Vl:
    """LFM2-VL: a picture as it is or tiles and the whole, a table of positions that is stretched, and convolutions in the decoder."""

    pictures = [(120, 80, 3), (66, 42, 4)]
    template = CHATML
    names, word, special = SmolVlm.names, SmolVlm.word, SmolVlm.special

    def config(self, vocab):
        text = TEXT | dict(model_type="lfm2", architectures=["Lfm2ForCausalLM"], hidden_size=32, num_attention_heads=2, vocab_size=vocab, norm_eps=1e-5, block_auto_adjust_ff_dim=False, layer_types=["conv", "full_attention"],
                           tie_word_embeddings=True)
        # llama.cpp's converter knows patches of 16, and takes the second product for a layer.
        vision = VISION | dict(model_type="siglip2_vision_model", num_hidden_layers=3, num_patches=16, patch_size=16, vision_use_head=False)
        return AutoConfig.for_model("lfm2_vl", text_config=text, vision_config=vision, downsample_factor=2, projector_hidden_size=40,
                                    image_token_id=NAMES.index("<image>"), tie_word_embeddings=True)

    def processor(self):
        return Lfm2VlImageProcessor(encoder_patch_size=16, downsample_factor=2, tile_size=64, min_tiles=2, max_tiles=4, min_image_tokens=2,
                                    max_image_tokens=6, max_pixels_tolerance=1.2, use_thumbnail=True)

    def prepare(self, processor, images):
        names = ["downsample_factor", "min_tiles", "max_tiles", "use_thumbnail", "min_image_tokens", "max_image_tokens", "encoder_patch_size",
                 "tile_size", "max_pixels_tolerance", "resample"]
        views, shapes, texts, sizes = [], [], [], []
        for image in images:
            pixels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1)[None]
            found, rows, columns, (size, *_) = processor.resize_and_split(pixels, **{name: getattr(processor, name) for name in names})
            before = len(views)
            for view in found[0]:
                view = view.reshape(1, *view.shape[-3:])
                scaled = processor.rescale_and_normalize(view, True, 1 / 255, True, [0.5] * 3, [0.5] * 3)
                views.append(convert_image_to_patches(scaled, 16)[0])
                shapes.append([view.shape[-2] // 16, view.shape[-1] // 16])
            sizes.append(sum(r * c // 4 for r, c in shapes[before:]))
            own = object.__new__(Lfm2VlProcessor)
            own.image_token, own.image_start_token, own.image_end_token = "<image>", "<|image_start|>", "<|image_end|>"
            own.image_thumbnail_token = "<|img_thumbnail|>"
            whole = (size[0] // 32) * (size[1] // 32)
            texts.append(own._build_image_tokens(int(rows[0]), int(columns[0]), 4, whole, True, True))
        most = max(len(view) for view in views)
        values = torch.zeros(len(views), most, views[0].shape[-1])
        mask = torch.zeros(len(views), most, dtype=torch.int64)
        for i, view in enumerate(views):
            values[i, : len(view)] = view
            mask[i, : len(view)] = 1
        return {"pixel_values": values, "pixel_attention_mask": mask, "spatial_shapes": torch.tensor(shapes)}, texts, sizes


class Gemma3:
    """Gemma 3: a picture in one size, whose rows see each other, also beyond the window of the layers that have one."""

    pictures = [(50, 30, 5), (20, 44, 6)]
    template = GEMMA
    names, word = GEMMA_NAMES, "<start_of_image>"
    special = dict(bos_token="<bos>", eos_token="<end_of_turn>", pad_token="<pad>")

    def config(self, vocab):
        text = TEXT | dict(model_type="gemma3_text", vocab_size=vocab, hidden_size=32, num_attention_heads=2, head_dim=16, num_hidden_layers=3, query_pre_attn_scalar=16, sliding_window=6,
                           layer_types=["sliding_attention", "full_attention", "sliding_attention"], bos_token_id=2, eos_token_id=4,
                           tie_word_embeddings=True)
        vision = VISION | dict(model_type="siglip_vision_model", image_size=48, patch_size=8, vision_use_head=False)
        return AutoConfig.for_model("gemma3", text_config=text, vision_config=vision, mm_tokens_per_image=9, boi_token_index=5, eoi_token_index=6,
                                    image_token_index=7, eos_token_id=[1, 4], bos_token_id=2, tie_word_embeddings=True)

    def processor(self):
        return Gemma3ImageProcessorPil(size={"height": 48, "width": 48}, image_seq_length=9)

    def prepare(self, processor, images):
        values = torch.tensor(numpy.asarray(processor(images, return_tensors=None)["pixel_values"], dtype=numpy.float32))
        text = "\n\n<start_of_image>" + 9 * "<image_soft_token>" + "<end_of_image>\n\n"
        return {"pixel_values": values}, [text] * len(images), [9] * len(images)

    def adjust(self, model):
        # As the head is the embedding, which is large here, the model would always write the token before.
        model.get_input_embeddings().weight.mul_(0.1)
        model.model.language_model.norm.weight.add_(8)

    def beside(self, ids):
        """What transformers' processor says of the ids: which of them are rows."""
        return {"token_type_ids": torch.tensor([[int(id == 7) for id in ids]])}


class Qwen3Vl:
    """Qwen3-VL: pictures of any shape in grids, positions on three axes, and rows of lower layers that early layers add."""

    pictures = [(120, 80, 7), (20, 44, 8)]
    template = QWEN
    names, word, text = QWEN_NAMES, "<|image_pad|>", True
    special = dict(bos_token="<|endoftext|>", eos_token="<|im_end|>", pad_token="<|endoftext|>")

    def config(self, vocab):
        rope = dict(rope_type="default", rope_theta=5000000.0, mrope_section=[4, 2, 2], mrope_interleaved=True)
        text = TEXT | dict(model_type="qwen3_vl_text", vocab_size=vocab, hidden_size=32, num_attention_heads=2, head_dim=16, num_hidden_layers=4,
                           rms_norm_eps=1e-6, rope_parameters=rope, bos_token_id=0, eos_token_id=2)
        # llama.cpp's converter knows patches of 16.
        vision = dict(model_type="qwen3_vl", depth=3, hidden_size=48, intermediate_size=56, num_heads=3, patch_size=16, out_hidden_size=32,
                      num_position_embeddings=36, deepstack_visual_indexes=[0, 1])
        return AutoConfig.for_model("qwen3_vl", text_config=text, vision_config=vision, image_token_id=3, video_token_id=4, vision_start_token_id=5,
                                    vision_end_token_id=6, tie_word_embeddings=True)

    def processor(self):
        return Qwen2VLImageProcessorPil(size={"shortest_edge": 4096, "longest_edge": 262144}, patch_size=16, temporal_patch_size=2, merge_size=2,
                                        image_mean=[0.5] * 3, image_std=[0.5] * 3)

    def prepare(self, processor, images):
        made = processor(images, return_tensors="pt")
        sizes = [int(rows * columns // 4) for _, rows, columns in made["image_grid_thw"]]
        return {"pixel_values": made["pixel_values"], "image_grid_thw": made["image_grid_thw"]}, [n * "<|image_pad|>" for n in sizes], sizes

    def beside(self, ids):
        """What transformers' processor says of the ids: which of them are rows."""
        return {"mm_token_type_ids": torch.tensor([[int(id == 3) for id in ids]])}

    def adjust(self, model):
        # Two products over many numbers follow each other here, whose results would be as large as no trained model's.
        for merger in [model.model.visual.merger, *model.model.visual.deepstack_merger_list]:
            merger.linear_fc1.weight.mul_(0.2)
            merger.linear_fc2.weight.mul_(0.2)

    def rows(self, made):
        """What stands in the prompt, and behind it what early layers add."""
        return torch.cat([torch.cat(list(made.pooler_output)), *(torch.cat(list(f)) if isinstance(f, (list, tuple)) else f for f in made.deepstack_features)], dim=-1)


class Qwen35(Qwen3Vl):
    """Qwen3.5: layers with a state that forgets and is corrected, attention with gates of which a part of each head is turned."""

    pictures = [(40, 90, 9), (70, 70, 10)]
    loudness = 0.3

    def config(self, vocab):
        rope = dict(rope_type="default", rope_theta=10000000.0, mrope_section=[2, 1, 1], mrope_interleaved=True, partial_rotary_factor=0.5)
        text = TEXT | dict(model_type="qwen3_5_text", vocab_size=vocab, hidden_size=32, num_attention_heads=2, head_dim=16, num_hidden_layers=4,
                           rms_norm_eps=1e-6, rope_parameters=rope, bos_token_id=0, eos_token_id=2, tie_word_embeddings=True,
                           linear_key_head_dim=8, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4)
        vision = dict(model_type="qwen3_5_vision", depth=3, hidden_size=48, intermediate_size=56, num_heads=3, patch_size=16, out_hidden_size=32,
                      num_position_embeddings=36)
        return AutoConfig.for_model("qwen3_5", text_config=text, vision_config=vision, image_token_id=3, video_token_id=4, vision_start_token_id=5,
                                    vision_end_token_id=6, tie_word_embeddings=True)

    def adjust(self, model):
        model.model.visual.merger.linear_fc2.weight.mul_(self.loudness)
        # Numbers of which llama.cpp's converter makes others that can be taken back to the bit.
        for name, weight in model.model.language_model.named_parameters():
            if name.endswith("A_log"):
                for _ in range(9):
                    weight.copy_(torch.exp(weight).double().log())
                assert torch.equal(torch.exp(weight).double().log().float(), weight)
            elif "norm" in name:
                # No zero with a sign.
                weight.copy_((weight * 1024).round() / 1024 + 0.0)

    def rows(self, made):
        return torch.cat(list(made.pooler_output))


class Gemma4:
    """Gemma 4 E2B: pictures as large as a budget of tokens, products within bounds, inputs for each layer, shared keys and values."""

    pictures = [(50, 30, 11), (20, 44, 12)]
    template = GEMMA4
    names, word, text = GEMMA4_NAMES, "<|image|>", True
    special = dict(bos_token="<bos>", eos_token="<turn|>", pad_token="<pad>")
    text_more = dict(num_kv_shared_layers=2, use_double_wide_mlp=True, hidden_size_per_layer_input=8)
    vision_more = dict(use_clipped_linears=True)

    def config(self, vocab):
        text = TEXT | dict(model_type="gemma4_text", vocab_size=vocab, hidden_size=32, num_attention_heads=2, head_dim=16, global_head_dim=32, num_hidden_layers=5,
                           sliding_window=6, layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
                           vocab_size_per_layer_input=vocab, bos_token_id=2, eos_token_id=4, tie_word_embeddings=True, final_logit_softcapping=30.0)
        vision = VISION | dict(model_type="gemma4_vision", hidden_size=48, num_key_value_heads=3, head_dim=16, patch_size=8, pooling_kernel_size=3, position_embedding_size=64)
        return AutoConfig.for_model("gemma4", text_config=text | self.text_more, vision_config=vision | self.vision_more, audio_config=None, boi_token_id=5,
                                    eoi_token_id=7, image_token_id=6, video_token_id=vocab + 1, audio_token_id=vocab + 2, eos_token_id=[1, 4], tie_word_embeddings=True)

    def processor(self):
        return Gemma4ImageProcessorPil(patch_size=8, max_soft_tokens=70, pooling_kernel_size=3)

    def prepare(self, processor, images):
        made = processor(images, return_tensors="pt")
        sizes = [int(n) for n in made["num_soft_tokens_per_image"]]
        inputs = {"pixel_values": made["pixel_values"].float(), "image_position_ids": made["image_position_ids"]}
        return inputs, ["<|image>" + n * "<|image|>" + "<image|>" for n in sizes], sizes

    def beside(self, ids):
        """What transformers' processor says of the ids: which of them are rows."""
        return {"mm_token_type_ids": torch.tensor([[int(id == 6) for id in ids]])}

    def adjust(self, model):
        # As the head is the embedding, which is large here, the model would always write the token before.
        model.get_input_embeddings().weight.mul_(0.1)
        model.model.language_model.norm.weight.mul_(8)
        for layer in model.model.language_model.layers:
            # Nothing divides scores here, so that keys in half precision would tell.
            layer.self_attn.q_norm.weight.mul_(0.25)
        for name, x in model.named_buffers():
            if name.endswith(("put_min", "put_max")):
                # Some values are beyond.
                x.copy_((-1 if name.endswith("min") else 1) * (1.5 + torch.rand(())))
            if name.endswith("layer_scalar"):
                x.copy_(0.8 + 0.4 * torch.rand(x.shape))
            if name.endswith(("std_bias", "std_scale")):
                x.copy_(float(name.endswith("scale")) + 0.3 * torch.randn(x.shape))

    def rows(self, made):
        return torch.cat(list(made.pooler_output))


class Gemma4Moe(Gemma4):
    """Gemma 4 26B-A4B: rows of a picture see each other in layers with a window, experts, keys that are values, tokens that are standardized."""

    pictures = [(30, 50, 13), (44, 20, 14)]
    # One whose experts are ranked alike with keys in half precision.
    seed = 3
    text_more = dict(use_bidirectional_attention="vision", enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=24, attention_k_eq_v=True,
                     num_global_key_value_heads=1, num_key_value_heads=2, hidden_size_per_layer_input=0)
    vision_more = dict(standardize=True)


class Gemma4Hears(Gemma4):
    """Gemma 4 E2B with what it hears with: a spectrogram, two convolutions, and positions that see some before them."""

    pictures = [(50, 30, 15)]
    sounds = [8_000, 20_900]
    conversation, template = HEARING, GEMMA4_HEARS
    names = GEMMA4_NAMES + ["<|audio>", "<|audio|>", "<audio|>"]

    def config(self, vocab):
        config = super().config(vocab)
        audio = dict(model_type="gemma4_audio", hidden_size=32, num_hidden_layers=2, num_attention_heads=2, subsampling_conv_channels=[16, 8], conv_kernel_size=3,
                     output_proj_dims=24)
        own = {key: value.to_dict() for key, value in (("text_config", config.text_config), ("vision_config", config.vision_config))}
        return AutoConfig.for_model("gemma4", **own, audio_config=audio, boi_token_id=5, eoi_token_id=7, image_token_id=6, video_token_id=vocab + 1,
                                    boa_token_id=8, audio_token_id=9, eoa_token_index=10, eos_token_id=[1, 4], tie_word_embeddings=True)

    def extractor(self):
        return Gemma4AudioFeatureExtractor(feature_size=16)

    def hear(self, sounds):
        made = [self.extractor()([sound], return_tensors="np") for sound in sounds]
        longest = max(one["input_features"].shape[1] for one in made)
        features, mask = torch.zeros(len(made), longest, 16), torch.zeros(len(made), longest, dtype=torch.bool)
        sizes = []
        for i, one in enumerate(made):
            frames = one["input_features"].shape[1]
            features[i, :frames], mask[i, :frames] = torch.from_numpy(one["input_features"][0]), torch.from_numpy(one["input_features_mask"][0])
            sizes.append(int(mask[i, ::2][::2].sum()))
        return {"input_features": features, "input_features_mask": mask}, ["<|audio>" + n * "<|audio|>" + "<audio|>" for n in sizes], sizes

    def beside(self, ids):
        return {"mm_token_type_ids": torch.tensor([[{6: 1, 9: 3}.get(id, 0) for id in ids]])}

    def adjust(self, model):
        super().adjust(model)
        for name, x in model.model.audio_tower.named_parameters():
            if name.endswith("conv.weight"):
                # Logarithms of quiet bands are far from zero.
                x.mul_(0.3)


class Gemma4Unified(Gemma4Hears):
    """Gemma 4 12B: squares of pixels and stretches of samples in place of encoders; rows of a picture see each other, those of a sound do not."""

    pictures = [(50, 30, 16)]
    sounds = [6_400, 20_900]
    # The converter asks for it.
    released_text = dict(moe_intermediate_size=None)

    def config(self, vocab):
        whole = super().config(vocab).text_config.to_dict()
        own = ("num_kv_shared_layers", "hidden_size_per_layer_input", "vocab_size_per_layer_input", "enable_moe_block", "num_experts", "top_k_experts",
               "moe_intermediate_size", "use_double_wide_mlp", "model_type", "use_bidirectional_attention", "per_layer_config")
        text = {key: value for key, value in whole.items() if key not in own} | dict(attention_k_eq_v=True, num_key_value_heads=2, num_global_key_value_heads=1, global_head_dim=32)
        vision = dict(patch_size=8, pooling_kernel_size=3, mm_embed_dim=32, mm_posemb_size=16, output_proj_dims=32)
        return AutoConfig.for_model("gemma4_unified", text_config=text, vision_config=vision, audio_config=dict(audio_embed_dim=640), boi_token_id=5, eoi_token_id=7,
                                    image_token_id=6, video_token_id=vocab + 1, boa_token_id=8, audio_token_id=9, eoa_token_index=10, eos_token_id=[1, 4],
                                    tie_word_embeddings=True)

    def processor(self):
        def by_pillow(self, image, patch_size, max_patches, pooling_kernel_size, resample):
            height, width = get_aspect_ratio_preserving_size(*image.shape[-2:], patch_size, max_patches, pooling_kernel_size)
            made = Image.fromarray(image.permute(1, 2, 0).numpy()).resize((width, height), Image.BICUBIC)
            return torch.from_numpy(numpy.array(made)).permute(2, 0, 1)

        Gemma4UnifiedImageProcessor.aspect_ratio_preserving_resize = by_pillow
        return Gemma4UnifiedImageProcessor(patch_size=8, max_soft_tokens=70, pooling_kernel_size=3)

    def extractor(self):
        return Gemma4UnifiedAudioFeatureExtractor()

    def hear(self, sounds):
        made = self.extractor()(sounds, return_tensors="pt")
        sizes = [int(n) for n in made["input_features_mask"].sum(dim=-1)]
        return {key: made[key] for key in ("input_features", "input_features_mask")}, ["<|audio>" + n * "<|audio|>" + "<audio|>" for n in sizes], sizes

    def beside(self, ids):
        """As it is generated: called alone, the model of transformers 5.23 lets rows of a picture see each other in layers without a window, too."""
        kinds = super().beside(ids)
        masks = self.model.create_masks_for_generate(self.model.config, torch.zeros(1, len(ids), 32), None, None, torch.arange(len(ids))[None], **kinds)
        return kinds | {"attention_mask": masks}

    def adjust(self, model):
        self.model = model
        Gemma4.adjust(self, model)
        for name, x in model.named_parameters():
            if name.endswith("pos_embedding"):
                x.mul_(3)


class Gemma3n:
    """Gemma 3n, which also hears: a network of convolutions and attention with one key of each place, and tokens that are no text."""

    pictures = [(50, 30, 17), (20, 44, 18)]
    template = GEMMA3N
    # What hears also has them.
    gguf = False
    names, others = GEMMA3N_NAMES, GEMMA3N_OTHERS
    word = "<image_soft_token>"
    sound_word = "<audio_soft_token>"
    special = dict(bos_token="<bos>", eos_token="<end_of_turn>", pad_token="<pad>")
    text, all_rows, side = True, 188, 4

    def config(self, vocab):
        others = len(self.others) // 2
        texts = vocab - 2 * others
        text = dict(model_type="gemma3n_text", activation_sparsity_pattern=[0.95, 0.0, 0.0, 0.0, 0.0], altup_num_inputs=4, final_logit_softcapping=30.0, head_dim=16, hidden_size=32,
                    hidden_size_per_layer_input=8, intermediate_size=[64] * 5, laurel_rank=8, max_position_embeddings=512, num_attention_heads=2, num_hidden_layers=5,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"], num_key_value_heads=1, num_kv_shared_layers=2,
                    sliding_window=6, vocab_size=vocab, vocab_size_per_layer_input=texts, bos_token_id=2, eos_token_id=4, pad_token_id=0, tie_word_embeddings=True)
        # So wide that matrices of layers may have few bits.
        blocks = [["er_r1_k3_s2_e4_c24", "er_r1_k3_s1_e1_c24"], ["uir_r1_a3_k5_s2_e2_c24", "uir_r1_a5_k0_s1_e1_c24"],
                  ["uir_r1_a5_k5_s2_e2_c24", "uir_r1_a0_k0_s1_e1_c24", "mqa_r1_k3_h3_v2_s1_d8_c24", "uir_r1_a0_k0_s1_e2_c24"],
                  ["uir_r1_a5_k5_s2_e2_c32", "mqa_r1_k3_h3_s1_d8_c32", "uir_r1_a0_k0_s1_e2_c32"]]
        vision = dict(model_type="gemma3n_vision", architecture="mobilenetv5_300m_enc", hidden_size=2048, vocab_size=others, vocab_offset=texts,
                      model_args=self.model_args(blocks))
        self.blocks = blocks
        audio = dict(model_type="gemma3n_audio", hidden_size=32, input_feat_size=16, conf_num_attention_heads=2, conf_num_hidden_layers=2, conf_conv_kernel_size=3,
                     sscp_conv_channel_size=[8, 4], vocab_size=others, vocab_offset=texts + others)
        return AutoConfig.for_model("gemma3n", text_config=text, vision_config=vision, audio_config=audio, audio_soft_tokens_per_image=self.all_rows,
                                    vision_soft_tokens_per_image=self.side**2, boi_token_id=5, boa_token_id=6, eoi_token_id=texts, image_token_id=texts + 1,
                                    eoa_token_id=texts + others, audio_token_id=texts + others + 1, eos_token_id=[1, 4], tie_word_embeddings=True)

    def model_args(self, blocks):
        return dict(block_args=decode_arch_def(blocks), stem_size=8, msfa_output_resolution=self.side)

    def processor(self):
        return SiglipImageProcessorPil(size={"height": 192, "width": 192}, resample=2, do_normalize=False, image_seq_length=self.side**2)

    def prepare(self, processor, images):
        values = torch.tensor(numpy.asarray(processor(images, return_tensors=None)["pixel_values"], dtype=numpy.float32))
        n = self.side**2
        return {"pixel_values": values}, ["\n\n<start_of_image>" + n * self.word + "<end_of_image>\n\n"] * len(images), [n] * len(images)

    def extractor(self):
        return Gemma3nAudioFeatureExtractor(feature_size=16)

    def hear(self, sounds):
        made = [self.extractor()([sound], return_tensors="np") for sound in sounds]
        longest = max(one["input_features"].shape[1] for one in made)
        features, mask = torch.zeros(len(made), longest, 16), torch.zeros(len(made), longest, dtype=torch.bool)
        for i, one in enumerate(made):
            frames = one["input_features"].shape[1]
            assert one["input_features_mask"].all()
            features[i, :frames], mask[i, :frames] = torch.from_numpy(one["input_features"][0]), True
        text = "\n\n<start_of_audio>" + self.all_rows * self.sound_word + "<end_of_audio>\n\n"
        return {"input_features": features, "input_features_mask": mask}, [text] * len(sounds), [self.all_rows] * len(sounds)

    def heard(self, model, inputs):
        """As the model puts them into a prompt."""
        id = model.config.audio_token_id
        made = model.model(input_ids=torch.tensor([[id] * len(inputs["input_features"]) * self.all_rows]), **inputs)
        return list(made.audio_hidden_states)

    def rows(self, made):
        return made.pooler_output.flatten(0, 1)

    def adjust(self, model):
        # timm has made others of them.
        model.config.vision_config.model_args = self.model_args(self.blocks)
        tower = model.model.audio_tower
        together = tower.forward

        def one_by_one(features, mask, **more):
            """A short sound beside a longer one would hear what it is filled up with."""
            made = [together(one[None, ~unheard], unheard[None, ~unheard], **more) for one, unheard in zip(features, mask)]
            longest = max(one.last_hidden_state.shape[1] for one in made)
            first = made[0]
            pad = [longest - one.last_hidden_state.shape[1] for one in made]
            first.last_hidden_state = torch.cat([torch.nn.functional.pad(one.last_hidden_state, (0, 0, 0, n)) for one, n in zip(made, pad)])
            first.audio_mel_mask = torch.cat([torch.nn.functional.pad(one.audio_mel_mask, (0, n), value=True) for one, n in zip(made, pad)])
            return first

        tower.forward = one_by_one
        for name, x in model.named_parameters():
            if name.startswith("model.language_model.") and "norm" in name:
                # Sparse gates make what is rounded larger, so that sublayers are quiet.
                x.add_(2.0 if name.endswith("language_model.norm.weight") else -0.7 if "post_" in name else -0.5 if "_norm.weight" in name and "self_attn" in name else 0)
            elif "embed_tokens.weight" in name:
                x.mul_(0.3)
            elif "correct_output_scale" in name:
                x.add_(1)
            elif "modality_router" in name:
                x.mul_(20)
            elif name.endswith("input_proj_linear.weight"):
                # llama.cpp's converter writes it in half precision.
                x.copy_(x.half())
            elif "layer_scale" in name:
                x.copy_(0.3 + 0.1 * torch.randn(x.shape))


class Gemma3nHears(Gemma3n):
    """The same with sounds, which always have as many rows."""

    pictures = [(50, 30, 19)]
    sounds = [4_000, 20_900]
    conversation, gguf = HEARING, True


def sound(samples, seed):
    """Two tones that rise, and some noise, from -1 to 1 in 16 bits."""
    at, noise = numpy.arange(samples) / 16_000, numpy.random.default_rng(seed).standard_normal(samples)
    made = 0.3 * numpy.sin(2 * numpy.pi * (200 + 300 * at) * at) + 0.2 * numpy.sin(2 * numpy.pi * (1500 + 2000 * at * seed) * at) + 0.05 * noise
    return (made * 32767).round().astype(numpy.int16)


class Qwen3VlMoe(Qwen3Vl):
    """Qwen3-VL with experts, which released checkpoints store with rows and columns exchanged."""

    pictures = [(90, 40, 11), (44, 44, 12)]

    def config(self, vocab):
        config = super().config(vocab)
        experts = dict(model_type="qwen3_vl_moe_text", num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24, decoder_sparse_step=1,
                       norm_topk_prob=True)
        text = {key: value for key, value in config.text_config.to_dict().items() if key not in ("pad_token_id", "dtype", "transformers_version")}
        vision = config.vision_config.to_dict() | SMALL | dict(model_type="qwen3_vl_moe_vision", deepstack_visual_indexes=[0])
        return AutoConfig.for_model("qwen3_vl_moe", text_config=text | experts, vision_config=vision, image_token_id=3, video_token_id=4,
                                    vision_start_token_id=5, vision_end_token_id=6, tie_word_embeddings=True)

    def release(self, weights):
        """What transformers exchanges when it reads."""
        return {key: value.transpose(1, 2).contiguous() if ".experts." in key else value for key, value in weights.items()}


class Qwen35Moe(Qwen35):
    """Qwen3.5 with experts, and beside them one that every position has, times a share of its own."""

    pictures = [(50, 70, 13), (33, 80, 14)]
    loudness = 1.5

    def config(self, vocab):
        config = super().config(vocab)
        experts = dict(model_type="qwen3_5_moe_text", num_experts=6, num_experts_per_tok=3, moe_intermediate_size=24,
                       shared_expert_intermediate_size=40)
        text = {key: value for key, value in config.text_config.to_dict().items() if key not in ("intermediate_size", "dtype", "transformers_version")}
        vision = config.vision_config.to_dict() | SMALL | dict(model_type="qwen3_5_moe_vision")
        return AutoConfig.for_model("qwen3_5_moe", text_config=text | experts, vision_config=vision, image_token_id=3, video_token_id=4,
                                    vision_start_token_id=5, vision_end_token_id=6, tie_word_embeddings=True)


def tokenizer(folder, case):
    names = case.names
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    special = [AddedToken(name, special=True, normalized=False) for name in names]
    alphabet = [chr(c) for c in range(33, 127)] + ["\u0120", "\u010a"]
    trainer = trainers.BpeTrainer(vocab_size=160, initial_alphabet=alphabet, special_tokens=special, show_progress=False)
    tok.train_from_iterator([CORPUS.replace("\n", " ")], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tok, **case.special)
    if hasattr(case, "others"):
        fast.add_special_tokens({"additional_special_tokens": case.others})
    fast.chat_template = case.template
    fast.save_pretrained(folder)
    return fast


def write(name, case):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(getattr(case, "seed", 1))
    tok, processor = tokenizer(folder, case), case.processor()
    processor.save_pretrained(folder)
    config = case.config(len(tok))
    config._attn_implementation = "eager"
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.3)
            elif weight.ndim == 1:
                weight.add_(torch.randn_like(weight) * 0.2)
        if hasattr(case, "adjust"):
            case.adjust(model)
    model.save_pretrained(folder)
    if hasattr(case, "release"):
        save_file(case.release(load_file(folder / "model.safetensors")), folder / "model.safetensors", metadata={"format": "pt"})
        again = AutoModelForImageTextToText.from_pretrained(folder).state_dict()
        assert all(torch.equal(value, again[key]) for key, value in model.state_dict().items())
    images = [picture(*sizes) for sizes in case.pictures]
    inputs, texts, sizes = case.prepare(processor, images)
    conversation = getattr(case, "conversation", CONVERSATION)
    rendered = tok.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    pieces = rendered.split(case.word)
    text = pieces[0] + "".join(t + p for t, p in zip(texts, pieces[1:], strict=True))
    heard_inputs, heard_sizes = {}, []
    if hasattr(case, "sounds"):
        both = {"feature_extractor": json.loads(case.extractor().to_json_string()), "image_processor": json.loads(processor.to_json_string())}
        if hasattr(case, "sound_word"):
            # As its folders have it, in one.
            both = both["image_processor"] | {key: value for key, value in both["feature_extractor"].items() if key not in ("window", "mel_filters")}
            (folder / "preprocessor_config.json").write_text(json.dumps(both, indent=2) + "\n", encoding="utf-8")
        else:
            (folder / "processor_config.json").write_text(json.dumps(both, indent=2) + "\n", encoding="utf-8")
            (folder / "preprocessor_config.json").unlink()
        sounds = [sound(samples, i + 1) for i, samples in enumerate(case.sounds)]
        for i, samples in enumerate(sounds):
            with wave.open(str(folder / f"sound.{i}.wav"), "wb") as file:
                file.setnchannels(1), file.setsampwidth(2), file.setframerate(16_000), file.writeframes(samples.tobytes())
        heard_inputs, heard_texts, heard_sizes = case.hear([samples.astype(numpy.float32) / 32768 for samples in sounds])
        pieces = text.split(getattr(case, "sound_word", "<|audio|>"))
        text = pieces[0] + "".join(t + p for t, p in zip(heard_texts, pieces[1:], strict=True))
    ids = tok(text, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        heard = []
        if heard_inputs and hasattr(case, "heard"):
            heard = case.heard(model, heard_inputs)
        elif heard_inputs:
            made = model.model.get_audio_features(**heard_inputs)
            heard = [rows[mask].contiguous() for rows, mask in zip(made.pooler_output, made.attention_mask)]
        assert [len(rows) for rows in heard] == heard_sizes
        made = model.model.get_image_features(**inputs)
        if hasattr(case, "rows"):
            features = case.rows(made)
        else:
            features = made.pooler_output if hasattr(made, "pooler_output") else made
            features = torch.cat([f.reshape(-1, f.shape[-1]) for f in features])
        inputs = inputs | heard_inputs
        beside = getattr(case, "beside", lambda ids: {})
        logits = model(input_ids=torch.tensor([ids]), **inputs, **beside(ids)).logits[0]
        greedy, all_ids = [], list(ids)
        for _ in range(STEPS):
            last = model(input_ids=torch.tensor([all_ids]), **inputs, **beside(all_ids)).logits[0, -1]
            # No token that would end the answer.
            last[: len(case.names)] = float("-inf")
            last[len(tok) - len(getattr(case, "others", [])) :] = float("-inf")
            greedy.append(int(last.argmax()))
            all_ids.append(greedy[-1])
    expected = {"logits": logits.contiguous()}
    for i, rows in enumerate(features.split(sizes)):
        expected[f"rows.{i}"] = rows.contiguous()
    for i, rows in enumerate(heard):
        expected[f"heard.{i}"] = rows.contiguous()
    save_file(expected, folder / "expected.safetensors")
    about = {"messages": conversation, "pictures": case.pictures, "text": text, "ids": ids, "greedy": greedy}
    (folder / "expected.json").write_text(json.dumps(about) + "\n", encoding="utf-8")
    print(name, len(ids), sizes, logits.std().item(), len(set(greedy)))
    llama_cpp = Path(sys.argv[1])
    if not getattr(case, "gguf", True):
        return
    with tempfile.TemporaryDirectory() as temporary:
        # Released checkpoints have longer names, which the converter knows alone.
        released = Path(temporary) / name
        shutil.copytree(folder, released)
        weights = load_file(folder / "model.safetensors")
        if not isinstance(case, (Gemma4, Gemma3n)):
            weights = {key.replace("vision_tower.", "vision_tower.vision_model."): value for key, value in weights.items()}
        save_file(weights, released / "model.safetensors", metadata={"format": "pt"})
        mmproj(llama_cpp, released, folder / "mmproj.gguf")
        if hasattr(case, "released_text"):
            config = json.loads((released / "config.json").read_text())
            config["text_config"] |= case.released_text
            (released / "config.json").write_text(json.dumps(config))
        if getattr(case, "text", False):
            text_model(llama_cpp, released, folder / "text.gguf")


# The converter has the name of this tensor in its list, and forgets what Gemma 3n calls it.
FORGOTTEN = """
import runpy
from gguf.constants import MODEL_TENSOR
from gguf.tensor_mapping import TensorNameMap
for names in (TensorNameMap.mappings_cfg, TensorNameMap.block_mappings_cfg):
    if MODEL_TENSOR.A_ENC_CONV1D_NORM in names:
        names[MODEL_TENSOR.A_ENC_CONV1D_NORM] += ("model.audio_tower.subsample_conv_projection.conv_{bid}.norm",)
runpy.run_path("convert_hf_to_gguf.py", run_name="__main__")
"""


def mmproj(llama_cpp, folder, out):
    command = [sys.executable, "-c", FORGOTTEN, folder, "--mmproj", "--outtype", "f32", "--outfile", out]
    subprocess.run(command, check=True, cwd=llama_cpp, env=os.environ | {"PYTHONPATH": f"{llama_cpp / 'gguf-py'}:{llama_cpp}"}, stderr=subprocess.DEVNULL)



def text_model(llama_cpp, folder, out):
    """As golden/make_gguf.py does it: the converter does not know the tiny tokenizer."""
    sys.path[:0] = [str(llama_cpp / "gguf-py"), str(llama_cpp)]
    import gguf
    from conversion import ModelBase, get_model_class
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    model = get_model_class(ModelBase.load_hparams(folder, False)["architectures"][0])
    # Layers that guess tokens ahead.
    model.no_mtp = True
    model.set_vocab = TextModel._set_vocab_gpt2
    with torch.inference_mode():
        model(folder, gguf.LlamaFileType.ALL_F32, out, model_name="tiny").write()


if __name__ == "__main__":
    # Pillow's resize in place of torchvision's.
    References()
    cases = {"smolvlm": SmolVlm(), "lfm2_vl": Lfm2Vl(), "gemma3": Gemma3(), "qwen3_vl": Qwen3Vl(), "qwen3_5": Qwen35(),
             "qwen3_vl_moe": Qwen3VlMoe(), "qwen3_5_moe": Qwen35Moe(), "gemma4": Gemma4(), "gemma4_moe": Gemma4Moe(), "gemma4_hears": Gemma4Hears(), "gemma4_unified": Gemma4Unified(),
             "gemma3n": Gemma3n(), "gemma3n_hears": Gemma3nHears()}
    for name in sys.argv[2:] or cases:
        write(name, cases[name])
