#!/usr/bin/env python3
"""Divergence of quantized models from their source: our bit widths against the types of llama.cpp.

Both engines start from the same F16 model, each is compared with itself in half precision, on the same windows of the same
text. Prints a Markdown table.

  benches/quality.py MODEL.gguf --text held-out.txt --calibrate calibration.txt --llama BUILD/bin --cactus target/release/cactus
"""
import argparse
import json
import pathlib
import re
import subprocess
import tempfile


def run(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True)


def llama(args, folder, model):
    """Rows of llama.cpp: name, bytes, divergence, its error, same first token."""
    tool = lambda name: args.llama / name
    base, source = folder / "base", folder / "f16.gguf"
    run(tool("llama-quantize"), "--allow-requantize", model, source, "F16")
    common = ["-f", args.text, "-c", "512", "--chunks", args.chunks, "-t", args.threads, "--kl-divergence-base", base]
    run(tool("llama-perplexity"), "-m", source, *common)
    for name in args.types:
        made = folder / f"{name}.gguf"
        # What cannot be made (some types need an importance matrix) is left out by name.
        done = subprocess.run([str(tool("llama-quantize")), str(source), str(made), name], capture_output=True, text=True)
        if done.returncode != 0:
            yield name, 0, None, None, None
            continue
        out = run(tool("llama-perplexity"), "-m", made, *common, "--kl-divergence").stdout
        mean = re.search(r"Mean\s+KLD:\s+([\d.]+)\s+±\s+([\d.]+)", out)
        top = re.search(r"Same top p:\s+([\d.]+)", out)
        yield name, made.stat().st_size, float(mean[1]), float(mean[2]), float(top[1])
        made.unlink()


def cactus(args, folder, model):
    """Rows of ours."""
    reference = folder / "reference"
    run(args.cactus, "convert", model, reference, "--bits", "16", "--offline", "--no-quality")
    for bits in args.bits:
        made = folder / f"bits-{bits}"
        command = [args.cactus, "convert", model, made, "--bits", bits, "--offline", "--no-quality"]
        if bits != "8":
            command += ["--calibrate", args.calibrate, "--calibration-tokens", args.calibration_tokens]
        run(*command)
        out = run(args.cactus, "eval", made, "--against", reference, "--file", args.text, "--chunks", args.chunks, "--json")
        c = json.loads(out.stdout)
        size = (made / "model.weights").stat().st_size
        yield f"ours, {bits}", size, c["kl_mean"], c["kl_error"], 100 * c["top1"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--calibrate", type=pathlib.Path, required=True)
    parser.add_argument("--calibration-tokens", default="16384")
    parser.add_argument("--llama", type=pathlib.Path, required=True)
    parser.add_argument("--cactus", type=pathlib.Path, required=True)
    parser.add_argument("--chunks", default="6")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--bits", nargs="*", default=["8", "4", "3", "2"])
    parser.add_argument("--types", nargs="*", default=["Q8_0", "Q4_K_M", "Q4_0", "IQ4_XS", "Q3_K_M", "Q2_K"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        rows = [*llama(args, folder, args.model), *cactus(args, folder, args.model)]
    print("| Type | MB | Divergence (nats) | Same first token |")
    print("|---|---:|---:|---:|")
    for name, size, mean, error, top in sorted(rows, key=lambda row: -row[1]):
        if mean is None:
            print(f"| {name} | – | cannot be made | |")
        else:
            print(f"| {name} | {size / 1e6:.1f} | {mean:.4f} ± {error:.4f} | {top:.1f} % |")


if __name__ == "__main__":
    main()
