#!/usr/bin/env python3
"""Records what llama.cpp answers for the published GGUF files, as an oracle.

    golden/real/make.py [--cache DIR] [--models smollm2-135m,...]

Writes golden/real/<model>.json: token ids of a list of texts, and greedy continuations of three prompts
with ids, text and the margin (best logit less second best) of every step. The continuations are
made twice: from the published file, where llama.cpp also rounds activations to 8 bits, and
from the same weights widened to F32 ("f32"), which is the reference for our F32 arithmetic. An INT8 run may
leave either at a step whose margin is small; before that step it should not.

Needs the llama.cpp build of benches/build_llama_cpp.sh and about 3 GB for the F32 files.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "benches"))

from peers import PeerError, Workshop, default_cache, models_named  # noqa: E402

MAX_TOKENS = 64

TEXTS = [
    "",
    " ",
    "Hello world",
    "Hello, world!  Two  spaces,\ttabs\n\nand newlines.\r\n",
    " leading and trailing ",
    "The year 2024 has 366 days; pi is 3.14159265358979 and 1,000,000 is a million.",
    "I'll say we've been told it's what they'd DON'T don’t.",
    "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n",
    "Ünïcödé: naïve café, Straße, ŒUVRE, e\u0301 (decomposed)",
    "日本語のテキストと漢字、そして中文字符。한국어 문장입니다.",
    "Привет, мир! Γειά σου Κόσμε! שלום עולם مرحبا بالعالم हिन्दी ไทย",
    "🙂🚀👩‍👩‍👧‍👦🏳️‍🌈 ✓ ∑∞≠ €£¥",
    "<|im_start|>user\nHi<|im_end|>\n<bos><start_of_turn>model<eos><|endoftext|></s>",
    "a" * 70 + " " * 40 + "!" * 20,
    "https://example.com/path?query=1&other=%20#fragment user@example.com",
    "\u0000control\u0007\u200bzero\ufeffwidth\u00a0space"[1:],
]

CHATML = "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
SMOLLM2_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
QWEN_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

PROMPTS = {
    "smollm2-135m": [
        CHATML.format(system=SMOLLM2_SYSTEM, user="What is the capital of France?"),
        CHATML.format(system=SMOLLM2_SYSTEM, user="Write a haiku about rain."),
        "Once upon a time, in a small village by the sea,",
    ],
    "gemma-3-270m": [
        "The capital of France is",
        "Once upon a time, in a small village by the sea,",
        "Photosynthesis is the process by which plants",
    ],
    "qwen2.5-0.5b": [
        CHATML.format(system=QWEN_SYSTEM, user="What is the capital of France?"),
        CHATML.format(system=QWEN_SYSTEM, user="Write a Python function that checks whether a number is prime."),
        "def quicksort(items):\n",
    ],
}


def build_oracle(shop: Workshop) -> Path:
    """Compiles oracle.cpp against the static libraries of the llama.cpp build."""
    source, out = HERE / "oracle.cpp", shop.cache / "llama-oracle"
    if out.is_file() and out.stat().st_mtime >= source.stat().st_mtime:
        return out
    shop.llama("llama-bench")
    tree, build = shop.cache / "llama.cpp", shop.cache / "llama-build"
    libraries = [build / "src" / "libllama.a"]
    libraries += [build / "ggml" / "src" / name for name in ("libggml.a", "libggml-cpu.a", "libggml-base.a")]
    command = ["c++", "-std=c++17", "-O2", f"-I{tree / 'include'}", f"-I{tree / 'ggml' / 'include'}", str(source)]
    command += [*map(str, libraries), "-fopenmp", "-pthread", "-ldl", "-lm", "-o", str(out)]
    if subprocess.run(command, check=False).returncode != 0:
        raise PeerError("oracle.cpp did not compile")
    return out


def ask(oracle: Path, model: Path, mode: list[str], texts: list[str]) -> list[dict]:
    done = subprocess.run(
        [str(oracle), str(model), *mode], input="\0".join(texts).encode(), capture_output=True, check=False
    )
    if done.returncode != 0:
        raise PeerError(f"oracle {model.name} {mode[0]}: {done.stderr.decode(errors='replace').strip()}")
    rows = [json.loads(line) for line in done.stdout.decode().splitlines()]
    if len(rows) != len(texts):
        raise PeerError(f"oracle {model.name}: {len(rows)} answers for {len(texts)} texts")
    return rows


def continuation(row: dict) -> dict:
    text = bytes.fromhex(row["text_hex"]).decode(errors="replace")
    return {"token_ids": row["token_ids"], "text": text} | {k: row[k] for k in ("ended", "margins", "first_top")}


def record(shop: Workshop, oracle: Path, model) -> dict:
    source = shop.source(model)
    tokens = ask(oracle, source, ["tokenize"], TEXTS)
    greedy = ["greedy", str(MAX_TOKENS)]
    published = ask(oracle, source, greedy, PROMPTS[model.name])
    widened = ask(oracle, shop.quantized(model, "F32"), greedy, PROMPTS[model.name])
    return {
        "file": model.source,
        "llama_cpp": shop.llama_version(),
        "tokenize": [{"text": text} | row for text, row in zip(TEXTS, tokens, strict=True)],
        "greedy": [
            {"prompt": prompt, "prompt_ids": a["prompt_ids"], "published": continuation(a), "f32": continuation(b)}
            for prompt, a, b in zip(PROMPTS[model.name], published, widened, strict=True)
        ],
    }


def compact(value: object) -> str:
    """Indented JSON with each innermost list on one line."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    inner = re.compile(r"\[\n\s+([-0-9.,\s]*?)\n\s+\]")
    return inner.sub(lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text) + "\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="models and builds (default: %(default)s)")
    parser.add_argument("--models", help="comma-separated model names (default: all)")
    options = parser.parse_args(arguments)
    shop = Workshop(options.cache.resolve())
    try:
        oracle = build_oracle(shop)
        for model in models_named(options.models):
            path = HERE / f"{model.name}.json"
            path.write_text(compact(record(shop, oracle, model)))
            print(path)
    except PeerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
