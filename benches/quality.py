#!/usr/bin/env python3
"""Divergence of quantized models from their source: our bit widths against the types of llama.cpp.

Both engines start from the same F16 model, each is compared with itself in half precision, on the same windows of the same
text; importance matrices and our calibration are from the same other text. MB are those of the weights alone. Prints a
Markdown table, and with --json FILE keeps every figure.

  benches/quality.py MODEL.gguf --models FOLDER --imatrix --llama BUILD/bin --cactus target/release/cactus

FOLDER is the one that scripts/fetch_models.py fills; the texts are then made of those in it. --text and --calibrate name others.
"""
import argparse
import bz2
import json
import pathlib
import re
import subprocess
import tempfile

MIB = 1 << 20


def run(args, *command):
    return subprocess.run([*args.under, *(str(c) for c in command)], check=True, capture_output=True, text=True)


def number(pattern, text):
    found = re.search(pattern, text)
    return float(found[1]) if found else None


def texts(source, folder):
    """A held-out part of an encyclopedia, and to calibrate with a later part mixed with news and two books."""
    read = lambda name: (source / "text" / name).read_bytes().decode(errors="ignore")
    wiki = bz2.decompress((source / "text" / "enwiki-excerpt.xml.bz2").read_bytes()).decode(errors="ignore")
    held_out, calibration = folder / "held-out.txt", folder / "calibration.txt"
    held_out.write_text(wiki[20_000:90_000])
    parts = [(wiki[3_000_000:], 4000), (read("lee_background.cor"), 2000), (read("lcet10.txt"), 1000), (read("alice29.txt"), 1000)]
    calibration.write_text("\n".join(text[i * n : (i + 1) * n] for i in range(40) for text, n in parts))
    return held_out, calibration


def llama(args, folder, model):
    """Rows of llama.cpp."""
    tool = lambda name: args.llama / name
    base, source, matrix = folder / "base", folder / "f16.gguf", folder / "imatrix.gguf"
    run(args, tool("llama-quantize"), "--allow-requantize", model, source, "F16")
    common = ["-f", args.text, "-c", args.context, "--chunks", args.chunks, "-t", args.threads, "--kl-divergence-base", base]
    run(args, tool("llama-perplexity"), "-m", source, *common)
    importance = []
    if args.imatrix:
        chunks = int(args.calibration_tokens) // int(args.context)
        run(args, tool("llama-imatrix"), "-m", source, "-f", args.calibrate, "-c", args.context, "--chunks", chunks,
            "-t", args.threads, "-o", matrix)
        importance = ["--imatrix", matrix]
    for name in args.types:
        made = folder / f"{name}.gguf"
        # What cannot be made (some types need an importance matrix) is left out by name.
        try:
            done = run(args, tool("llama-quantize"), *importance, source, made, name)
        except subprocess.CalledProcessError:
            yield {"name": name}
            continue
        said = done.stdout + done.stderr
        size, bits = number(r"quant size\s*=\s*([\d.]+) MiB", said), number(r"quant size.*\(([\d.]+) BPW", said)
        size = size * MIB if size else made.stat().st_size
        out = run(args, tool("llama-perplexity"), "-m", made, *common, "--kl-divergence").stdout
        yield {
            "name": name,
            "bytes": size,
            "bits": bits,
            "kl": number(r"Mean\s+KLD:\s+([\d.]+)", out),
            "error": number(r"Mean\s+KLD:\s+[\d.]+\s+±\s+([\d.]+)", out),
            "top": number(r"Same top p:\s+([\d.]+)", out),
            "perplexity": number(r"Mean PPL\(Q\)\s*:\s+([\d.]+)", out),
            "source": number(r"Mean PPL\(base\)\s*:\s+([\d.]+)", out),
        }
        made.unlink()


def cactus(args, folder, model):
    """Rows of ours."""
    reference = folder / "reference"
    if not reference.exists():
        run(args, args.cactus, "convert", model, reference, "--bits", "16", "--offline", "--no-quality")
    elements = (reference / "model.weights").stat().st_size / 2
    for bits in args.bits:
        made = folder / f"bits-{bits}"
        command = [args.cactus, "convert", model, made, "--bits", bits, "--offline", "--no-quality", "--force"]
        if bits != "8":
            command += ["--calibrate", args.calibrate, "--calibration-tokens", args.calibration_tokens]
        if not made.exists():
            run(args, *command)
        compared = [args.cactus, "eval", made, "--against", reference, "--file", args.text]
        out = run(args, *compared, "--chunks", args.chunks, "--context", args.context, "--threads", args.threads, "--json")
        c = json.loads(out.stdout)
        size = (made / "model.weights").stat().st_size
        yield {
            "name": f"**ours, {bits}**",
            "bytes": size,
            "bits": 8 * size / elements,
            "kl": c["kl_mean"],
            "error": c["kl_error"],
            "top": 100 * c["top1"],
            "perplexity": c["perplexity"],
            "source": c["perplexity_reference"],
        }


def table(rows):
    lines = ["| Type | MB | Bits a weight | Divergence (nats) | Same first token | Perplexity |", "|---|---:|---:|---:|---:|---:|"]
    for r in sorted(rows, key=lambda row: -row.get("bytes", 0)):
        if "kl" not in r or r["kl"] is None:
            lines.append(f"| {r['name']} | – | – | cannot be made | | |")
            continue
        bits = f"{r['bits']:.2f}" if r["bits"] else "–"
        lines.append(
            f"| {r['name']} | {r['bytes'] / 1e6:.1f} | {bits} | {r['kl']:.4f} ± {r['error']:.4f} | {r['top']:.1f} % "
            f"| {r['perplexity']:.2f} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--models", type=pathlib.Path, help="folder with the texts of scripts/fetch_models.py")
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--calibrate", type=pathlib.Path)
    parser.add_argument("--calibration-tokens", default="16384")
    parser.add_argument("--llama", type=pathlib.Path, help="folder of llama.cpp's programs; without it only ours")
    parser.add_argument("--imatrix", action="store_true", help="importance matrices for llama.cpp, from the calibration text")
    parser.add_argument("--cactus", type=pathlib.Path, help="our program; without it only llama.cpp")
    parser.add_argument("--chunks", default="12")
    parser.add_argument("--context", default="512")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--bits", nargs="*", default=["8", "6", "5", "4", "3", "2"])
    parser.add_argument("--types", nargs="*", default=["Q8_0", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_XS", "Q3_K_M", "Q2_K"])
    parser.add_argument("--json", type=pathlib.Path, help="keep the figures here, and continue with those that it has")
    parser.add_argument("--under", nargs="*", default=[], help="command that every measured program is run under")
    parser.add_argument("--keep", type=pathlib.Path, help="make our bundles in this folder, one for each model, keep them, and take those that are there")
    args = parser.parse_args()
    if not args.models and not (args.text and args.calibrate):
        parser.error("--models, or --text and --calibrate")
    kept = json.loads(args.json.read_text()) if args.json and args.json.exists() else []
    have = {row["name"] for row in kept}
    args.types = [t for t in args.types if t not in have]
    args.bits = [b for b in args.bits if f"**ours, {b}**" not in have]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        if args.models:
            made = texts(args.models, folder)
            args.text, args.calibrate = args.text or made[0], args.calibrate or made[1]
        bundles = args.keep or folder
        bundles.mkdir(parents=True, exist_ok=True)
        for tool, rows, where in ((args.llama and args.types, llama, folder), (args.cactus and args.bits, cactus, bundles)):
            for row in rows(args, where, args.model) if tool else ():
                kept.append(row)
                if args.json:
                    args.json.write_text(json.dumps(kept, indent=1))
    print(table(kept))
    source = {r["source"] for r in kept if r.get("source")}
    print(f"\nPerplexity of the sources: {', '.join(f'{p:.2f}' for p in sorted(source))}")


if __name__ == "__main__":
    main()
