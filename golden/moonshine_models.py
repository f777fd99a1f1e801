"""Write the tiny golden models of both generations of Moonshine: random-weight Hugging Face folders and what transformers computes
from them.

For every case in CASES this writes `speech/<case>/` as `speech_models.py` does, with `input_values` (samples) in place of
`input_features`, and a BPE tokenizer with byte fallback, as Llama's and Moonshine's are.

Run: python golden/moonshine_models.py [case ...]

With --shares, `alignment_shares` are computed again for the folders as they are: what all heads of the later half of the decoder's layers look at.
"""

import json
import shutil
import sys
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file
from speech_models import MIN_DISTINCT, MIN_MARGIN, OUT, greedy, randomize, shares
from tiny_models import CORPUS, write_json
from tokenizers import Tokenizer, decoders, models, normalizers, trainers
from transformers import (
    MoonshineConfig,
    MoonshineForConditionalGeneration,
    MoonshineStreamingConfig,
    MoonshineStreamingForConditionalGeneration,
)

TEXT_TOKENS = 340  # three special tokens, 256 bytes, and what is merged
SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{i:02X}>" for i in range(256)]
SAMPLES = 9000

CASES = {
    # As published: equal stacks, no biases, the head is the embedding.
    "moonshine": dict(dtype="float32", config=dict(tie_word_embeddings=True)),
    # Everything else that a configuration can say.
    "moonshine_wide": dict(
        dtype="float16",
        config=dict(
            tie_word_embeddings=False,
            attention_bias=True,
            encoder_num_hidden_layers=1,
            decoder_num_hidden_layers=3,
            intermediate_size=56,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0},
        ),
    ),
    # As published: the encoder as wide as the decoder, the head apart from the embedding.
    "moonshine_streaming": dict(
        dtype="float16",
        streaming=True,
        config=dict(tie_word_embeddings=False, pad_head_dim_to_multiple_of=None),
        encoder=dict(sliding_windows=[[4, 3], [4, 0], [3, 2]]),
    ),
    # Everything else that a configuration can say: an encoder of another width, heads that are no part of it, other frames.
    "moonshine_streaming_wide": dict(
        dtype="float16",
        streaming=True,
        config=dict(
            tie_word_embeddings=True,
            attention_bias=True,
            pad_head_dim_to_multiple_of=8,
            num_hidden_layers=1,
            intermediate_size=72,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0},
        ),
        encoder=dict(
            hidden_size=40, num_attention_heads=2, num_key_value_heads=2, head_dim=12, intermediate_size=72, attention_bias=True,
            num_hidden_layers=2, sliding_windows=[[1, 1], [9, 4]], sample_rate=8000, frame_ms=6.0,
        ),
    ),
}


def write_tokenizer(folder):
    tok = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token=SPECIAL[0]))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=TEXT_TOKENS, special_tokens=SPECIAL + BYTES, show_progress=False, max_token_length=5
    )
    tok.train_from_iterator([CORPUS.replace("\n", " ")], trainer)
    assert tok.get_vocab_size() == TEXT_TOKENS, tok.get_vocab_size()
    # Bytes are tokens of the vocabulary, and none of them is special.
    about = json.loads(tok.to_str())
    about["added_tokens"] = [t for t in about["added_tokens"] if t["content"] in SPECIAL]
    write_json(folder / "tokenizer.json", about)
    write_json(
        folder / "tokenizer_config.json",
        {"add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"},
    )


def streaming_config_of(case):
    encoder = dict(
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
    )
    sizes = dict(
        vocab_size=TEXT_TOKENS,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.7},
        pad_token_id=2,
    )
    return MoonshineStreamingConfig(encoder_config={**encoder, **case["encoder"]}, **{**sizes, **case["config"]})


def config_of(case):
    if case.get("streaming"):
        return streaming_config_of(case)
    sizes = dict(
        vocab_size=TEXT_TOKENS,
        hidden_size=48,
        intermediate_size=96,
        encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2,
        encoder_num_attention_heads=4,
        decoder_num_attention_heads=4,
        max_position_embeddings=64,
        pad_head_dim_to_multiple_of=8,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.7},
        pad_token_id=2,
    )
    return MoonshineConfig(**{**sizes, **case["config"]})


def kind_of(case):
    return MoonshineStreamingForConditionalGeneration if case.get("streaming") else MoonshineForConditionalGeneration


def without_places(model, config):
    """A decoder of the second generation adds the places of states to them, in place, whenever it is called."""
    places = model.model.decoder.pos_emb.weight
    model.model.decoder.pos_emb.weight = torch.nn.Parameter(torch.zeros(len(places), config.hidden_size))
    model.model.decoder.proj = torch.nn.Identity()


def heads_of(model):
    layers = model.model.decoder.layers
    heads = layers[0].encoder_attn.config.num_attention_heads if hasattr(layers[0].encoder_attn.config, "num_attention_heads") else None
    heads = heads or layers[0].encoder_attn.config.decoder_num_attention_heads
    return [(layer, head) for layer in range(len(layers) // 2, len(layers)) for head in range(heads)]


def add_shares(name, case):
    folder = OUT / name
    model = kind_of(case).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    expected = load_file(folder / "expected.safetensors")
    if case.get("streaming"):
        without_places(model, model.config)
    greedy_json = json.loads((folder / "expected.json").read_text())["greedy"]
    ids = greedy_json["prompt_ids"] + greedy_json["tokens"]
    heard = SimpleNamespace(last_hidden_state=expected["encoder_hidden_states"].clone(), attention_mask=None)
    heard.hidden_states = heard.attentions = None
    expected["alignment_shares"] = shares(model, heard, ids, heads_of(model))
    save_file({k: v.contiguous() for k, v in expected.items()}, folder / "expected.safetensors")


@torch.no_grad()
def attempt(name, case, seed):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_tokenizer(folder)
    config = config_of(case)
    generator = torch.Generator().manual_seed(seed)
    streaming = case.get("streaming")
    kind = kind_of(case)
    model = kind(config)
    randomize(model, generator)
    if not streaming:
        # Samples are small numbers.
        model.model.encoder.conv1.weight.mul_(3.0)
    elif not isinstance(model.model.decoder.proj, torch.nn.Identity):
        # States as large as they were, or keys are so large that half precision shows.
        model.model.decoder.proj.weight.mul_(0.5)
    dtype = getattr(torch, case["dtype"])
    tied = config.tie_word_embeddings
    state = {k: v.detach().to(dtype).contiguous() for k, v in model.state_dict().items() if not (tied and k == "proj_out.weight")}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    about = {**config.to_dict(), "architectures": [kind.__name__]}
    dropped = ("dtype", "transformers_version", "is_encoder_decoder", "_name_or_path")
    write_json(folder / "config.json", {k: v for k, v in about.items() if k not in dropped})
    ids = dict(bos_token_id=1, decoder_start_token_id=1, eos_token_id=2, pad_token_id=2, max_length=64)
    write_json(folder / "generation_config.json", ids)

    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    samples = 0.3 * torch.randn(1, SAMPLES, generator=generator)
    if not streaming:
        heard = model.model.encoder(samples)
    else:
        # Its layers see everything unless they are told what is sound, which its processor does. Samples that fill no frame are
        # left out here, where it would fill them up.
        frame = model.model.encoder.embedder.frame_len
        whole = samples[:, : SAMPLES // frame * frame]
        heard = model.model.encoder(whole, attention_mask=torch.ones(whole.shape, dtype=torch.long))
        heard.attention_mask = None
        plain, places = heard.last_hidden_state, model.model.decoder.pos_emb.weight
        placed = model.model.decoder.proj(plain + places[: plain.shape[1]])
        without_places(model, config)
        heard.last_hidden_state = placed
    prompt = [1]
    tokens, margin = greedy(model, heard, prompt)
    if margin < MIN_MARGIN or len(set(tokens)) < MIN_DISTINCT:
        return None
    sequence = torch.randint(0, config.vocab_size, (1, 14), generator=generator)
    logits = model(encoder_outputs=heard, decoder_input_ids=sequence, use_cache=False).logits
    expected = {"input_values": samples, "encoder_hidden_states": heard.last_hidden_state, "logits": logits}
    save_file({k: v.contiguous() for k, v in expected.items()}, folder / "expected.safetensors")
    greedy_json = {"prompt_ids": prompt, "tokens": tokens, "min_margin": margin}
    write_json(folder / "expected.json", {"decoder_input_ids": sequence[0].tolist(), "greedy": greedy_json})
    add_shares(name, case)
    return margin


def main():
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--shares"]:
        return [add_shares(name, case) for name, case in CASES.items()]
    for name in sys.argv[1:] or CASES:
        for seed in range(1, 100):
            margin = attempt(name, CASES[name], seed)
            if margin is not None:
                print(f"{name}: seed {seed}, margin {margin:.3f}")
                break
        else:
            sys.exit(f"{name}: no healthy seed")


if __name__ == "__main__":
    main()
