#!/usr/bin/env python3
"""Perplexity of llama.cpp and of Cactus on one fixed text, by one convention.

    benches/perplexity.py [--models smollm2-135m,...] [--kinds source,Q8_0] [--no-cactus]

The text is golden/real/alice29-64k.txt and the convention is that of `llama-perplexity`
(benches/README.md states it). llama.cpp's values come from golden/real/perplexity.json when
they are recorded there; --update measures them anew and rewrites that file. Prints a table,
writes perplexity.json to --out, and exits with 1 when Cactus INT8 is more than --limit
percent worse than llama.cpp at the published file.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from peers import ALICE, ROOT, Model, PeerError, Workshop, default_cache, models_named

RECORD = ROOT / "golden" / "real" / "perplexity.json"
# "perplexity", "tokens" and what else the engine says.
Row = dict[str, Any]
Results = dict[str, dict[str, Row]]

RUNNING = re.compile(r"\[(\d+)\]([0-9.]+|nan|inf),")


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def output_of(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise PeerError(f"{' '.join(command)}: exit code {done.returncode}\n{(done.stderr or done.stdout)[-800:]}")
    return done.stdout + "\n" + done.stderr


def llama_perplexity(shop: Workshop, model: Model, kind: str, context: int, threads: int) -> Row:
    """`running` holds the perplexity over windows 1..i, as llama-perplexity prints it."""
    path = shop.source(model) if kind == "source" else shop.quantized(model, kind)
    say(f"{model.name} {kind}: llama-perplexity")
    text = output_of(
        [str(shop.llama("llama-perplexity")), "-m", str(path), "-f", str(ALICE), "-c", str(context), "-t", str(threads)]
    )
    running = [float(value) for _, value in RUNNING.findall(text)]
    if not running or not all(map(math.isfinite, running)):
        raise PeerError(f"{path.name}: llama-perplexity printed no usable value")
    final = re.search(r"PPL = ([0-9.]+) \+/- ([0-9.]+)", text)
    return {
        "perplexity": float(final[1]) if final else running[-1],
        "standard_error": float(final[2]) if final else None,
        "windows": len(running),
        "tokens": len(running) * (context - context // 2 - 1),
        "running": running,
    }


def cactus_perplexity(shop: Workshop, model: Model, bits: int, context: int) -> Row:
    say(f"{model.name} INT{bits}: cactus score")
    command = [str(shop.cactus()), "score", str(shop.bundle(model, bits)), "--file", str(ALICE)]
    text = output_of([*command, "--context", str(context), "--json"])
    try:
        report, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
        return {key: report[key] for key in ("perplexity", "tokens", "nll")}
    except (ValueError, KeyError) as error:
        raise PeerError(f"cactus score: unexpected output ({error!r}): {text[:300]}") from error


def load_record(context: int) -> Results:
    if not RECORD.is_file():
        return {}
    record = json.loads(RECORD.read_text())
    return record["models"] if record["context"] == context else {}


def save_record(shop: Workshop, context: int, found: Results) -> None:
    record = {
        "text": str(ALICE.relative_to(RECORD.parent)),
        "context": context,
        "convention": "llama-perplexity: see benches/README.md",
        "llama_cpp": shop.llama_version(),
        "models": found,
    }
    # One line a list: the diff of a re-measured value stays readable.
    text = re.sub(r"\[\s+([^\[\]]*?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", json.dumps(record, indent=1))
    RECORD.write_text(text + "\n")


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="models and builds (default: %(default)s)")
    parser.add_argument("--cactus", type=Path, help="the cactus program (default: a release build of this checkout)")
    parser.add_argument("--no-cactus", action="store_true", help="llama.cpp only")
    parser.add_argument("--models", help="comma-separated model names (default: all)")
    parser.add_argument("--kinds", default="source,Q8_0", help="llama.cpp files: source, Q8_0, F16, F32 (default: %(default)s)")
    parser.add_argument("--bits", default="8", help="Cactus bundles, comma-separated bits (default: %(default)s)")
    parser.add_argument("--context", type=int, default=512, help="window length (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float, default=0.5, help="percent allowed (default: %(default)s)")
    parser.add_argument("--update", action="store_true", help="measure llama.cpp again and rewrite the record")
    parser.add_argument("--out", type=Path, default=ROOT / "benches" / "results", help="folder for the results")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    shop = Workshop(options.cache.resolve(), options.cactus)
    record = load_record(options.context)
    results: Results = {}
    worst = 0.0
    try:
        models = models_named(options.models)
        for model in models:
            rows: dict[str, Row] = {}
            for kind in options.kinds.split(","):
                known = record.get(model.name, {}).get(kind)
                if known is None or options.update:
                    known = llama_perplexity(shop, model, kind, options.context, options.threads)
                    record.setdefault(model.name, {})[kind] = known
                    if options.update:
                        save_record(shop, options.context, record)
                rows[f"llama.cpp {kind}"] = known
            if not options.no_cactus:
                for bits in map(int, options.bits.split(",")):
                    rows[f"cactus int{bits}"] = cactus_perplexity(shop, model, bits, options.context)
            results[model.name] = rows
    except PeerError as error:
        say(f"error: {error}")
        return 1
    print("| model | file | perplexity | scored tokens | against the published file |\n|---|---|---|---|---|")
    for model in models:
        rows = results[model.name]
        base = rows.get("llama.cpp source", {}).get("perplexity")
        for name, row in rows.items():
            change = None if base is None else 100 * (row["perplexity"] / base - 1)
            if name == "cactus int8" and change is not None:
                worst = max(worst, change)
            shown = "-" if change is None else f"{change:+.2f} %"
            print(f"| {model.title} | {name} | {row['perplexity']:.4f} | {row['tokens']} | {shown} |")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "perplexity.json").write_text(json.dumps(results, indent=1) + "\n")
    if worst > options.limit:
        say(f"error: Cactus INT8 is {worst:.2f} % worse than llama.cpp, more than {options.limit} %")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
