"""Write film.json and film.safetensors into folders of golden/seeing: what transformers computes of a film by the models there.

    python golden/seeing_films.py [case ...]

  film.json         frames (width, height, seeds of all frames, frames a second), messages, the text and the ids of the prompt, and greedy tokens
  film.safetensors  `logits` of every position, F32 [seq, vocab], and `rows`, F32 [tokens, hidden], of all frames

Frames are made by the formula of golden/pictures.py. Which of them are seen, in which size and with which text is said by transformers'
video processors; pixels are resized by Pillow, as those of pictures are. Around the film of Qwen3-VL stand no more marks than those of its
frames, as Qwen's own code and transformers up to 4.57 have it; transformers 5.23 leaves a pair around the whole.
"""

import json
import sys

import numpy
import torch
from pictures import picture
from PIL import Image
from safetensors.torch import save_file
from seeing_models import OUT, STEPS, said
from transformers import AutoModelForImageTextToText, PreTrainedTokenizerFast
from transformers.models.gemma4 import processing_gemma4, video_processing_gemma4
from transformers.models.qwen3_vl import processing_qwen3_vl, video_processing_qwen3_vl
from transformers.models.smolvlm import processing_smolvlm, video_processing_smolvlm
from transformers.video_utils import VideoMetadata

VIDEO = {"type": "video"}
CONVERSATION = [
    {"role": "user", "content": [VIDEO, said("What is this?")]},
    {"role": "assistant", "content": [said("the one and the other")]},
    {"role": "user", "content": [said("And that?")]},
]


def frames_of(processor, case, **sampling):
    """The frames that are seen, and what is known of the film."""
    width, height, seeds, rate = case["film"]
    metadata = VideoMetadata(total_num_frames=len(seeds), fps=rate, duration=len(seeds) / rate)
    metadata.frames_indices = processor.sample_frames(metadata, **sampling)
    return [picture(width, height, seeds[i]) for i in metadata.frames_indices], metadata


def tensors(images, width, height, filter):
    made = [numpy.array(image.resize((width, height), filter)) for image in images]
    return torch.from_numpy(numpy.stack(made)).permute(0, 3, 1, 2)


def smolvlm(model, case):
    read = json.loads((OUT / "smolvlm/preprocessor_config.json").read_text())
    processor = video_processing_smolvlm.SmolVLMVideoProcessor(size=read["size"], max_image_size=read["max_image_size"])
    images, metadata = frames_of(processor, case, num_frames=64, fps=1)
    height, width = video_processing_smolvlm.get_resize_output_image_size(torch.zeros(1, 3, images[0].height, images[0].width), read["size"]["longest_edge"])
    tile = read["max_image_size"]["longest_edge"]
    images = [image.resize((width, height), Image.LANCZOS) for image in images]
    values = processor.rescale_and_normalize(tensors(images, tile, tile, Image.LANCZOS), True, 1 / 255, True, (0.5,) * 3, (0.5,) * 3)
    own = object.__new__(processing_smolvlm.SmolVLMProcessor)
    own.image_seq_len, own.image_token, own.fake_image_token, own.global_image_token = 4, "<image>", "<fake_token_around_image>", "<global-img>"
    text = own.replace_video_token({"pixel_values": values[None], "video_metadata": [metadata]}, 0)
    return {"pixel_values": values[None]}, text, lambda: model.model.get_image_features(values[None])


def qwen3_vl(model, case):
    read = json.loads((OUT / "qwen3_vl/preprocessor_config.json").read_text())
    processor = video_processing_qwen3_vl.Qwen3VLVideoProcessor(size=read["size"], image_mean=[0.5] * 3, image_std=[0.5] * 3)
    images, metadata = frames_of(processor, case)
    most = max(min(processor.max_video_tokens * 32 * 32, read["size"]["longest_edge"] // len(images)), int(read["size"]["shortest_edge"] * 1.05))
    height, width = video_processing_qwen3_vl.smart_resize(len(images), images[0].height, images[0].width, factor=32,
                                                           min_pixels=read["size"]["shortest_edge"], max_pixels=most * len(images))
    pixels = tensors(images, width, height, Image.BICUBIC)
    made = processor(pixels, do_resize=False, do_sample_frames=False, return_tensors="pt")
    own = object.__new__(processing_qwen3_vl.Qwen3VLProcessor)
    own.video_processor, own.video_token = processor, "<|video_pad|>"
    own.vision_start_token, own.vision_end_token = "<|vision_start|>", "<|vision_end|>"
    text = own.replace_video_token({"video_grid_thw": made["video_grid_thw"], "video_metadata": [metadata]}, 0)
    return {"pixel_values_videos": made["pixel_values_videos"], "video_grid_thw": made["video_grid_thw"]}, text, lambda: model.model.get_video_features(
        made["pixel_values_videos"], made["video_grid_thw"])


def gemma4(model, case):
    processor = video_processing_gemma4.Gemma4VideoProcessor(patch_size=8)
    images, metadata = frames_of(processor, case, num_frames=min(32, len(case["film"][2])))
    height, width = video_processing_gemma4.get_aspect_ratio_preserving_size(images[0].height, images[0].width, 8, 70 * 9, 3)
    pixels = tensors(images, width, height, Image.BICUBIC)
    made = processor(pixels, do_resize=False, do_sample_frames=False, return_tensors="pt")
    own = object.__new__(processing_gemma4.Gemma4Processor)
    # The rows' token matters to no model: released tokenizers need not know another.
    own.boi_token, own.eoi_token, own.video_token = "<|image>", "<image|>", "<|image|>"
    text = own.replace_video_token(made | {"video_metadata": [metadata]}, 0)
    inputs = {key: made[key] for key in ("pixel_values_videos", "video_position_ids")} | {"num_frames_per_video": torch.tensor([len(images)])}
    return inputs, text, lambda: model.model.get_video_features(**inputs)


CASES = {
    # Width, height, seeds of the frames, frames a second; what a template writes; the token of rows, that of films to the model, and their kind.
    "smolvlm": dict(film=(40, 30, [1, 2, 3, 4, 5, 6, 7, 8], 2.0), make=smolvlm, word="<video>", token="<image>"),
    "qwen3_vl": dict(film=(70, 100, [1, 2, 3, 4, 5], 2.0), make=qwen3_vl, word="<|vision_start|><|video_pad|><|vision_end|>", token="<|video_pad|>", kind=2),
    "qwen3_5": dict(film=(120, 40, [1, 2, 3, 4, 5, 6, 7], 3.0), make=qwen3_vl, word="<|vision_start|><|video_pad|><|vision_end|>", token="<|video_pad|>", kind=2),
    "gemma4": dict(film=(50, 30, [1, 2, 3], 0.04), make=gemma4, word="<|video|>", token="<|image|>", kind=2),
    "gemma4_moe": dict(film=(30, 50, [4, 5, 6], 0.04), make=gemma4, word="<|video|>", token="<|image|>", kind=2),
}


def rows_of(made):
    rows = torch.cat([f.reshape(-1, f.shape[-1]) for f in made.pooler_output])
    deep = getattr(made, "deepstack_features", None)
    return rows if not deep else torch.cat([rows, *(torch.cat(list(f)) if isinstance(f, (list, tuple)) else f for f in deep)], dim=-1)


def rendered(tok, word):
    """What the template makes of the conversation, or of texts with the word where it knows no films."""
    made = tok.apply_chat_template(CONVERSATION, tokenize=False, add_generation_prompt=True)
    if word in made:
        return made
    texts = [{"role": m["role"], "content": "".join(word if p == VIDEO else p["text"] for p in m["content"])} for m in CONVERSATION]
    return tok.apply_chat_template(texts, tokenize=False, add_generation_prompt=True)


def write(name, case):
    folder = OUT / name
    tok = PreTrainedTokenizerFast.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        inputs, film, features = case["make"](model, case)
        text = rendered(tok, case["word"]).replace(case["word"], film)
        ids = tok(text, add_special_tokens=False)["input_ids"]
        token = tok.convert_tokens_to_ids(case["token"])
        own = getattr(model.config, "video_token_id", token) if "kind" in case else token
        kinds = (lambda ids: {"mm_token_type_ids": torch.tensor([[case["kind"] * int(id == token) for id in ids]])}) if "kind" in case else lambda ids: {}
        given = lambda ids: torch.tensor([[own if id == token else id for id in ids]])
        rows = rows_of(features())
        assert len(rows) == ids.count(token), (len(rows), ids.count(token))
        logits = model(input_ids=given(ids), **inputs, **kinds(ids)).logits[0]
        greedy, all_ids = [], list(ids)
        special = len(tok.added_tokens_decoder)
        for _ in range(STEPS):
            last = model(input_ids=given(all_ids), **inputs, **kinds(all_ids)).logits[0, -1]
            # No token that would end the answer.
            last[:special] = float("-inf")
            greedy.append(int(last.argmax()))
            all_ids.append(greedy[-1])
    save_file({"logits": logits.contiguous(), "rows": rows.contiguous()}, folder / "film.safetensors")
    about = {"film": case["film"], "messages": CONVERSATION, "text": text, "ids": ids, "greedy": greedy}
    (folder / "film.json").write_text(json.dumps(about) + "\n", encoding="utf-8")
    print(name, len(ids), len(rows), logits.std().item(), len(set(greedy)))


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        write(name, CASES[name])
