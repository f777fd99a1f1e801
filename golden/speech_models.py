"""Write the tiny golden models that hear: random-weight Hugging Face folders and what transformers computes from them.

For every case in CASES this writes `speech/<case>/` with config.json, generation_config.json, model.safetensors, a byte-level BPE
tokenizer whose ids are its ranks (as Whisper's are), and two files of expected results:

  expected.safetensors   `input_features`, `encoder_hidden_states`, and `logits` of every position of `decoder_input_ids`
                         `alignment_shares` of the greedy text: what the alignment heads look at, `[1, heads, seq, positions]`
  expected.json          `decoder_input_ids`; `greedy`: prompt, tokens, and the smallest gap between the two best logits on the way

Expected results are computed from the folder as written, in F32 on one thread with eager attention.

Run: python golden/speech_models.py [case ...]

With --shares, `alignment_shares` are computed again for the folders as they are.

With --ctranslate2, the folders are converted to `ctranslate2/<case>/` instead, by CTranslate2 itself (pip install ctranslate2).
"""

import json
import math
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tiny_models import CORPUS, write_json
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import WhisperConfig, WhisperForConditionalGeneration

OUT = Path(__file__).resolve().parent / "speech"

TEXT_TOKENS = 320  # 256 bytes and what is merged of them
TIMESTAMPS = 61
GREEDY_STEPS = 32
MIN_MARGIN = 0.02
MIN_DISTINCT = 10
LANGUAGES = ["en", "zh", "de"]
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>"] + [f"<|{code}|>" for code in LANGUAGES]
SPECIAL += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>"]

CASES = {
    # Whisper as published by OpenAI: several languages, equal stacks.
    "whisper": dict(
        dtype="float32",
        multilingual=True,
        last=["<|nospeech|>", "<|notimestamps|>"],
        config=dict(encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2),
    ),
    # A distilled one of English: more layers in the encoder, other heads and widths on each side, F16.
    "whisper_en": dict(
        dtype="float16",
        multilingual=False,
        last=["<|nocaptions|>", "<|notimestamps|>"],
        config=dict(
            encoder_layers=3,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=2,
            encoder_ffn_dim=80,
            num_mel_bins=24,
        ),
    ),
}


def write_tokenizer(folder, last, stamps):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TEXT_TOKENS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tok.train_from_iterator([CORPUS.replace("\n", " ")], trainer)
    assert tok.get_vocab_size() == TEXT_TOKENS, tok.get_vocab_size()
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL + last])
    if stamps:
        tok.add_tokens([AddedToken(f"<|{i * 0.02:.2f}|>", normalized=False) for i in range(TIMESTAMPS)])
    tok.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {"add_bos_token": False, "bos_token": SPECIAL[0], "eos_token": SPECIAL[0], "tokenizer_class": "WhisperTokenizer"},
    )
    return {token: tok.token_to_id(token) for token in SPECIAL + last}


def config_of(case, ids):
    sizes = dict(
        vocab_size=TEXT_TOKENS + len(SPECIAL) + 2 + TIMESTAMPS,
        num_mel_bins=16,
        d_model=32,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=50,
        max_target_positions=64,
        activation_function="gelu",
        pad_token_id=ids["<|endoftext|>"],
        bos_token_id=ids["<|endoftext|>"],
        eos_token_id=ids["<|endoftext|>"],
        decoder_start_token_id=ids["<|startoftranscript|>"],
    )
    return WhisperConfig(**{**sizes, **case["config"]})


def generation_config(case, config, ids):
    heads = [[config.decoder_layers - 1, 0], [config.decoder_layers - 1, 1]]
    out = {
        "alignment_heads": heads,
        "begin_suppress_tokens": [220, ids["<|endoftext|>"]],
        "bos_token_id": ids["<|endoftext|>"],
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "eos_token_id": ids["<|endoftext|>"],
        "is_multilingual": case["multilingual"],
        "max_length": 64,
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "prev_sot_token_id": ids["<|startofprev|>"],
        "return_timestamps": False,
        "suppress_tokens": [1, 2, 7, ids["<|startoftranscript|>"], ids["<|startofprev|>"]],
    }
    if case["multilingual"]:
        out["lang_to_id"] = {f"<|{code}|>": ids[f"<|{code}|>"] for code in LANGUAGES}
        out["task_to_id"] = {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")}
    return out


def randomize(model, generator):
    """Weights of a size that makes attention peaked, cross attention felt and greedy text varied."""
    for name, p in model.named_parameters():
        mean, std = 0.0, 1.8 / math.sqrt(p.shape[-1] if p.dim() else 100)
        if "norm" in name:
            mean, std = (1.0, 0.25) if name.endswith("weight") else (0.0, 0.1)
        elif name.endswith("bias"):
            std = 0.3
        elif "embed_tokens" in name:
            std = 2.0 / math.sqrt(p.shape[-1])
        elif "conv" in name:
            std = 1.4 / math.sqrt(p.shape[1] * p.shape[2])
        elif "encoder_attn" in name:
            std = 2.6 / math.sqrt(p.shape[-1])
        p.data.copy_(mean + std * torch.randn(p.shape, generator=generator))


@torch.no_grad()
def greedy(model, outputs, prompt):
    ids, margin = list(prompt), math.inf
    for _ in range(GREEDY_STEPS):
        logits = model(encoder_outputs=outputs, decoder_input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
        top = logits.topk(2).values
        margin = min(margin, (top[0] - top[1]).item())
        ids.append(int(logits.argmax()))
    return ids[len(prompt) :], margin


@torch.no_grad()
def shares(model, outputs, ids, heads):
    inputs = dict(encoder_outputs=outputs, decoder_input_ids=torch.tensor([ids]), use_cache=False)
    attentions = model(**inputs, output_attentions=True).cross_attentions
    return torch.stack([attentions[layer][:, head] for layer, head in sorted(heads)], dim=1)


def add_shares(name):
    folder = OUT / name
    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    expected = load_file(folder / "expected.safetensors")
    greedy_json = json.loads((folder / "expected.json").read_text())["greedy"]
    heads = json.loads((folder / "generation_config.json").read_text())["alignment_heads"]
    ids = greedy_json["prompt_ids"] + greedy_json["tokens"]
    expected["alignment_shares"] = shares(model, (expected["encoder_hidden_states"],), ids, heads)
    save_file({k: v.contiguous() for k, v in expected.items()}, folder / "expected.safetensors")


@torch.no_grad()
def attempt(name, case, seed):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ids = write_tokenizer(folder, case["last"], stamps=not case["multilingual"])
    config = config_of(case, ids)
    generator = torch.Generator().manual_seed(seed)
    model = WhisperForConditionalGeneration(config)
    randomize(model, generator)
    dtype = getattr(torch, case["dtype"])
    state = {k: v.detach().to(dtype).contiguous() for k, v in model.state_dict().items() if k != "proj_out.weight"}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    about = {**config.to_dict(), "architectures": ["WhisperForConditionalGeneration"]}
    dropped = ("dtype", "transformers_version", "is_encoder_decoder", "_name_or_path")
    write_json(folder / "config.json", {k: v for k, v in about.items() if k not in dropped})
    write_json(folder / "generation_config.json", generation_config(case, config, ids))

    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    features = torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions, generator=generator)
    states = model.model.encoder(features).last_hidden_state
    prompt = ["<|startoftranscript|>"]
    prompt += ["<|de|>", "<|transcribe|>"] if case["multilingual"] else []
    prompt = [ids[t] for t in prompt + ["<|notimestamps|>"]]
    tokens, margin = greedy(model, (states,), prompt)
    if margin < MIN_MARGIN or len(set(tokens)) < MIN_DISTINCT:
        return None
    sequence = torch.randint(0, config.vocab_size, (1, 14), generator=generator)
    logits = model(encoder_outputs=(states,), decoder_input_ids=sequence, use_cache=False).logits
    expected = {"input_features": features, "encoder_hidden_states": states, "logits": logits}
    heads = generation_config(case, config, ids)["alignment_heads"]
    expected["alignment_shares"] = shares(model, (states,), prompt + tokens, heads)
    save_file({k: v.contiguous() for k, v in expected.items()}, folder / "expected.safetensors")
    greedy_json = {"prompt_ids": prompt, "tokens": tokens, "min_margin": margin}
    write_json(folder / "expected.json", {"decoder_input_ids": sequence[0].tolist(), "greedy": greedy_json})
    return margin


def to_ctranslate2():
    from ctranslate2.converters import TransformersConverter

    for case, quantization in (("whisper", "int8"), ("whisper_en", "float16")):
        folder = OUT.parent / "ctranslate2" / case
        TransformersConverter(str(OUT / case)).convert(str(folder), quantization=quantization, force=True)
        # The tokenizer beside the source says the same.
        (folder / "vocabulary.json").unlink()


def main():
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--ctranslate2"]:
        return to_ctranslate2()
    if sys.argv[1:] == ["--shares"]:
        return [add_shares(name) for name in CASES]
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
