"""Write golden/embedding/clip_pictures and golden/embedding/siglip: models of texts and pictures with random weights, and what transformers
computes by them. The tokenizers are those of other golden folders, which golden/embedding_models.py writes.

    python golden/picture_models.py
"""

import json
import shutil
from pathlib import Path

import numpy
import torch
from pictures import picture
from safetensors.torch import save_file
from tokenizers import Tokenizer, normalizers, processors
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

OUT = Path(__file__).resolve().parent / "embedding"
TEXTS = ["the and", "To be or not to be, that is the question", "a", "in this which they had from you with his", "Hello, World! 2 + 2 = 4"]
# Width, height and seed; as golden/pictures.py makes them.
PICTURES = [(40, 30, 1), (30, 52, 2), (24, 24, 3), (200, 7, 4), (1, 1, 5)]


def clip_tokenizer():
    return PreTrainedTokenizerFast.from_pretrained(OUT / "clip")


def siglip_tokenizer():
    """An end and no begin, filled up to the whole context. Whoever calls it puts texts into lower case."""
    t = Tokenizer.from_file(str(OUT / "xlm_roberta" / "tokenizer.json"))
    t.normalizer = normalizers.NFKC()
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A $B </s>", special_tokens=[("</s>", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=t, model_max_length=24, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


SIZES = dict(num_hidden_layers=2, num_attention_heads=3, intermediate_size=56)
CASES = {
    # A patch is no multiple of 32 numbers, and the widths of both sides differ.
    "clip_pictures": dict(
        tokenizer=clip_tokenizer,
        text=dict(hidden_size=48, projection_dim=40, max_position_embeddings=64, bos_token_id=2, eos_token_id=3, pad_token_id=0),
        picture=dict(hidden_size=36, image_size=24, patch_size=8),
        more=dict(projection_dim=40),
        processor=lambda: CLIPImageProcessorPil(size={"shortest_edge": 24}, crop_size={"height": 24, "width": 24}),
    ),
    # Patches do not fill the picture.
    "siglip": dict(
        tokenizer=siglip_tokenizer,
        text=dict(hidden_size=48, max_position_embeddings=24, projection_size=48),
        picture=dict(hidden_size=48, image_size=20, patch_size=6),
        more={},
        fill=True,
        processor=lambda: SiglipImageProcessorPil(size={"height": 20, "width": 20}),
    ),
}


def write(name, case):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    torch.manual_seed(1)
    tokenizer, processor = case["tokenizer"](), case["processor"]()
    tokenizer.save_pretrained(folder)
    processor.save_pretrained(folder)
    text = case["text"] | SIZES | dict(vocab_size=len(tokenizer))
    config = AutoConfig.for_model(name.split("_")[0], text_config=text, vision_config=case["picture"] | SIZES, **case["more"])
    model = AutoModel.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.3)
            elif weight.ndim == 1:
                weight.add_(torch.randn_like(weight) * 0.2)
    model.save_pretrained(folder)
    normalize = torch.nn.functional.normalize
    rows, vectors = [], []
    for one in TEXTS:
        written = one.lower() if case.get("fill") else one
        ids = tokenizer(written)["input_ids"]
        rows.append(dict(text=one, prompt=None, ids=ids))
        whole = tokenizer(written, padding="max_length")["input_ids"] if case.get("fill") else ids
        with torch.no_grad():
            vectors.append(normalize(model.get_text_features(input_ids=torch.tensor([whole])).pooler_output)[0])
    pixels = [processor(picture(*one), return_tensors="np")["pixel_values"][0] for one in PICTURES]
    with torch.no_grad():
        seen = normalize(model.get_image_features(torch.from_numpy(numpy.stack(pixels))).pooler_output)
    expected = dict(texts=rows, pictures=PICTURES)
    if case.get("fill"):
        expected["fill"] = dict(token=tokenizer.pad_token_id, length=text["max_position_embeddings"])
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    tensors = dict(vectors=torch.stack(vectors), pictures=seen.contiguous(), pixels=torch.from_numpy(numpy.stack(pixels)))
    save_file(tensors, folder / "expected.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(name, sorted({key.split(".")[0] for key in model.state_dict()}), (seen @ seen.T)[0].tolist())


if __name__ == "__main__":
    for name, case in CASES.items():
        write(name, case)
