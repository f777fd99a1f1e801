#!/usr/bin/env python3
"""Make the tiny golden tokenizers, and record what Python's tokenizers package does with real ones.

    golden/tokenizers_golden.py [FOLDER]

Writes golden/tokenizers/<name>/ for the tiny tokenizers, and golden/tokenizers/<name>.json with texts, their
ids, and ids with their texts for the tiny ones and for those of `scripts/fetch_tokenizers.py` in FOLDER
(default: $CACTUS_TEST_MODELS/tokenizers).
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = Path(__file__).resolve().parent / "tokenizers"
FETCHED = ["qwen3", "gemma3", "llama3"]

TEXTS = [
    "",
    " ",
    "a",
    "Hello world!",
    " leading and trailing ",
    "  two  spaces   three    four",
    "\n",
    "\n\n\n\ttabs\t\tand\nlines\r\nwindows\r\n\r\n",
    "The quick brown fox jumps over the lazy dog. THE QUICK BROWN FOX!",
    "don't can't we'll I'm you've he'd it's 'S 'RE",
    "0 1 12 123 1234 12345 3.14159 1,000,000 0x1F 1e-9",
    "def f(x: int) -> str:\n    return f\"{x!r}\\n\"  # comment\n\n\tif a != b && c <= d { x[0]++; }\n",
    "https://example.com/a_b?c=d&e=%20#f user@example.org",
    "Zürich, naïve café, Åse, Łódź, Ωμέγα, Привет мир, שלום, مرحبا, नमस्ते दुनिया, สวัสดี",
    "你好，世界。東京は日本の首都です。안녕하세요 세계",
    "🙂🚀👩‍👩‍👧‍👦🏳️‍🌈 👍🏽 ☃️ 🇨🇭",
    "e\u0301 vs \u00e9, ﬁ ligature, Ａ fullwidth, Å Å",
    "zero\u200bwidth\u200dnon\u00a0breaking\ufeffbom soft\u00adhyphen",
    "control \u0000\u0001\u001b[0m\u007f end",
    "𝕳𝖊𝖑𝖑𝖔 𒀀 𓀀 🀄 \U0010ffff",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|><bos><eos><start_of_turn>user\nx<end_of_turn><|begin_of_text|>"
    "<|eot_id|></s><s><pad> <0x41> <unk> [UNK] ##ing",
    "▁under▁bar _ __ ___ ¡ ¢ Ġ Ċ ĠĠ",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    " " * 100 + "x" + "\n" * 40,
    "-----=====*****#####.....!!!!!?????",
    "|a|b|\n|---|---|\n| 1 | 2 |\n\n- [ ] item\n1. *x* **y** `z`\n```rust\nfn main() {}\n```",
]

CORPUS = [
    "The rain in Spain stays mainly in the plain. The quick brown fox jumps over the lazy dog.",
    "A language model reads tokens and predicts the next token, again and again, until it stops.",
    "Hello world! Hello there, how are you? I'm fine, thanks; and you? We'll see what the day brings.",
    "def main(args):\n    for index in range(10):\n        print(index, args[index])\n    return None\n",
    "0 1 2 3 4 5 6 7 8 9 10 11 12 100 1000 1234 5678 3.14 2.71",
    "Zürich liegt in der Schweiz. Café, naïve, Łódź, Привет мир, 你好世界, 日本語",
    "What is the capital of France? The capital of France is Paris. Is it? Yes, it is.",
]

CHAT = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"


def special(*tokens: str) -> list[AddedToken]:
    return [AddedToken(token, special=True, normalized=False) for token in tokens]


def byte_level() -> tuple[Tokenizer, dict]:
    """As Qwen, SmolLM and LFM2 have it: splits by GPT-4's pattern, bytes as letters, ChatML tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
    config = {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False}
    return tokenizer, config | {"chat_template": CHAT}


def pieces() -> tuple[Tokenizer, dict]:
    """As Llama 2 and TinyLlama have it: spaces as letters, byte fallback, a space before the first word."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=tokens, limit_alphabet=60, show_progress=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.train_from_iterator(CORPUS, trainer)
    # Byte tokens are ordinary tokens of the model; only the first three are special.
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = state["added_tokens"][:3]
    state["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer, {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": "<unk>", "add_bos_token": True}


def metaspace() -> tuple[Tokenizer, dict]:
    """As T5 and newer SentencePiece conversions have it: a unigram model with the metaspace decoder."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer, {"eos_token": "</s>", "unk_token": "<unk>", "add_eos_token": True}


def word_piece() -> tuple[Tokenizer, dict]:
    """As BERT has it: a decoder that is left to the tokenizers package."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=250, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer, {"cls_token": "[CLS]", "sep_token": "[SEP]"}


def record(tokenizer: Tokenizer, source: bytes) -> dict:
    texts = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        texts.append({"text": text, "ids": ids, "with_special": tokenizer.encode(text).ids})
    # Ids at random, so that characters break off anywhere. Byte tokens of a fallback vocabulary are drawn apart,
    # in runs that are characters or no character at all.
    draw = random.Random(1)
    vocabulary = tokenizer.get_vocab()
    is_byte = {id for token, id in vocabulary.items() if len(token) == 6 and token.startswith("<0x")}
    plain = sorted(set(vocabulary.values()) - is_byte)
    lists = [draw.choices(plain, k=draw.randrange(1, 24)) for _ in range(60)]
    if is_byte:
        ordinary = draw.choices(plain, k=6)
        for run in ["é".encode(), "你好🙂".encode(), b"\xff", b"\xe4\xbd", b"\x80\x80\x80", b"\xf0\x9f\x99", b" "]:
            ids = [vocabulary[f"<0x{byte:02X}>"] for byte in run]
            lists += [ids, ordinary + ids, ids + ordinary, ordinary + ids + ordinary]
    ids = [
        {"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False), "skipped": tokenizer.decode(ids)}
        for ids in lists
    ]
    return {"sha256": hashlib.sha256(source).hexdigest(), "encode": texts, "decode": ids}


def main() -> None:
    tiny = {"tiny_byte_level": byte_level, "tiny_pieces": pieces, "tiny_metaspace": metaspace, "tiny_word_piece": word_piece}
    for name, make in tiny.items():
        tokenizer, config = make()
        folder = HERE / name
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
        (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n")
        write(name, folder / "tokenizer.json")
    default = Path(os.environ.get("CACTUS_TEST_MODELS", "test-models")) / "tokenizers"
    fetched = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    for name in FETCHED:
        path = fetched / name / "tokenizer.json"
        if path.exists():
            write(name, path)
        else:
            print(f"{path} is missing: {name}.json stays as it is", file=sys.stderr)


def write(name: str, path: Path) -> None:
    source = path.read_bytes()
    result = record(Tokenizer.from_str(source.decode()), source)
    lines = {key: "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in result[key]) + "\n]" for key in ("encode", "decode")}
    text = f'{{"sha256": "{result["sha256"]}",\n"encode": {lines["encode"]},\n"decode": {lines["decode"]}}}\n'
    (HERE / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
