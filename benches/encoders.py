"""Encoders of models that hear, alone, beside ONNX Runtime in single precision: the same weights, inputs and threads, one run.

    python benches/encoders.py WORK --cactus target/release/cactus --whisper whisper-tiny.en whisper-base --moonshine moonshine-tiny
    python benches/encoders.py WORK --cactus target/release/cactus --parakeet 4                # layers, random weights

Needs torch, transformers, onnx, onnxscript and onnxruntime. The folders are what `cactus convert` takes (docs/speech.md). What is made
of them is kept in WORK: bundles with 32 and 8 bits, a bundle captured from torch, and an ONNX file that torch writes of the same
module. Weights of the module are those of the bundle with 32 bits; that states are the same is checked first.

Engines take turns within a round, so that a machine that slows down slows all of them; what is shown is the median over rounds.
Each round counts the median of a few calls.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python")]

import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402
import transformers as T  # noqa: E402
from cactus.transpile import program  # noqa: E402
from cactus.transpile.capture_pytorch import capture_model  # noqa: E402
from torch import nn  # noqa: E402

CALLS = 3
RATE_HZ = 16_000


def stored(bundle):
    """The weights of a bundle with 32 bits, by the names of the checkpoint (docs/reference/format.md)."""
    weights = {}
    for name, at in json.loads((bundle / "weights_manifest.json").read_text())["weights"].items():
        record = np.memmap(bundle / at["file"], np.uint8, "r", at["offset"], at["bytes"])
        start, size = record[80:96].view("<u8")
        data, dims = record[int(start) : int(start + size)].view("<f4"), at["dims"]
        if at["packing"] == "f32_n16":
            # Blocks of 16 outputs, in which the inputs follow one another.
            data = data.reshape(-1, dims[1], 16).transpose(0, 2, 1).reshape(-1, dims[1])[: dims[0]]
        tensor = torch.from_numpy(np.array(data).reshape(dims))
        # What shares an operand was joined: `attn.q_proj+k_proj.weight`.
        first, *more = name.split("+")
        if more:
            prefix, suffix = first.rpartition(".")[0], more[-1].partition(".")[2]
            names = [first, *(f"{prefix}.{m}" for m in more[:-1]), f"{prefix}.{more[-1].partition('.')[0]}"]
            weights |= {f"{n}.{suffix}": part for n, part in zip(names, tensor.chunk(len(names)))}
        else:
            weights[name] = tensor
    return weights


def load(module, bundle, prefix):
    """Gives `module` the weights below `prefix`, all of them."""
    shapes = {name: w.shape for name, w in module.state_dict().items()}
    weights = {name.removeprefix(prefix): w for name, w in stored(bundle).items() if name.startswith(prefix)}
    # Filters may be stored as a matrix.
    weights = {name: w.reshape(shapes[name]) for name, w in weights.items() if name in shapes}
    missing, _ = module.load_state_dict(weights, strict=False)
    if missing:
        raise SystemExit(f"{bundle} has no {', '.join(missing)}")
    return module.eval()


class States(nn.Module):
    """An encoder that gives its states alone."""

    def __init__(self, encoder, **more):
        super().__init__()
        self.encoder, self.more = encoder, more

    def forward(self, x):
        return self.encoder(x, **self.more)[0]


def whisper(bundle):
    config = T.WhisperConfig.from_dict(json.loads((bundle / "config.json").read_text()))
    encoder = load(T.WhisperModel(config).encoder, bundle, "model.encoder.")
    return States(encoder, return_dict=False).eval(), torch.randn(1, config.num_mel_bins, 3000), 3000


def moonshine(bundle):
    config = T.MoonshineConfig.from_dict(json.loads((bundle / "config.json").read_text()))
    encoder = load(T.MoonshineModel(config).encoder, bundle, "model.encoder.")
    return States(encoder).eval(), 0.1 * torch.randn(1, 11 * RATE_HZ), 11 * RATE_HZ


def parakeet(folder):
    model = T.ParakeetForCTC.from_pretrained(folder, dtype=torch.float32).eval()

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = model

        def forward(self, x):
            return self.m(x)[0]

    return Encoder().eval(), torch.randn(1, 2000, 80), 2000


def ours(cactus, bundle, component, size, threads):
    words = [cactus, "bench", bundle, "--component", component, "--prefill", size, "--threads", threads, "--reps", CALLS, "--json"]
    told = subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True).stdout
    return json.loads(told)[0]["median_ms"]


def session_of(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def timed(session, x):
    name, times = session.get_inputs()[0].name, []
    for _ in range(CALLS):
        start = time.perf_counter()
        session.run(None, {name: x.numpy()})
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def made(path, make):
    """`path`, made by `make` where it is not there."""
    if not path.exists():
        make(path)
    return path


def largest_difference(cactus, bundle, component, module, x, work):
    """Between the states of both, in units of the largest."""
    with torch.inference_mode():
        theirs = module(x).numpy()
    np.save(work / "input.npy", x.numpy())
    [port] = [c for c in program.inspect(bundle)["components"] if c["name"] == component]
    name = port["inputs"][0]["name"]
    words = [cactus, "run", bundle, "--component", component, "--input", f"{name}={work / 'input.npy'}", "--output-dir", work]
    subprocess.run([str(w) for w in words], check=True, capture_output=True)
    mine = np.load(work / f"{port['outputs'][0]['name']}.npy")
    return float(np.abs(mine - theirs).max() / np.abs(theirs).max())


def measure(name, work, args, source, make):
    """Milliseconds of every engine, by threads."""
    convert = lambda bits: lambda to: program.call("convert", source, to, "--bits", bits, "--offline", "--no-quality")  # noqa: E731
    work.mkdir(parents=True, exist_ok=True)
    bundles = {bits: made(work / f"b{bits}", convert(bits)) for bits in (32, 8)}
    torch.manual_seed(0)
    module, x, size = make(bundles[32] if make is not parakeet else source)
    captured = work / "captured"
    if not captured.exists():
        archive = capture_model(module, (x,)).ir_graph.save(work / "model.pt2")
        program.transpile(archive, captured, "--task", "function", "--bits", 32)
    onnx = made(work / "model.onnx", lambda to: torch.onnx.export(module, (x,), str(to), dynamo=True, verbose=False))
    far = largest_difference(args.cactus, bundles[32], "encoder", module, x, work)
    print(f"{name}: states differ by {far:.1e} of the largest", file=sys.stderr)
    component = program.inspect(captured)["components"][0]["name"]
    rows = {}
    for threads in args.threads:
        session = session_of(onnx, threads)
        engines = {
            "F32": lambda: ours(args.cactus, bundles[32], "encoder", size, threads),
            "captured": lambda: ours(args.cactus, captured, component, size, threads),
            "INT8": lambda: ours(args.cactus, bundles[8], "encoder", size, threads),
            "ONNX Runtime": lambda: timed(session, x),
        }
        rounds = {label: [] for label in engines}
        for _ in range(args.rounds):
            for label, call in engines.items():
                rounds[label].append(call())
        row = {label: statistics.median(times) for label, times in rounds.items()}
        theirs = row["ONNX Runtime"]
        cells = [f"{row[label]:.1f} ({theirs / row[label]:.2f}×)" for label in ("F32", "captured", "INT8")]
        print(f"| {name} | {threads} | {' | '.join(cells)} | {theirs:.1f} |", flush=True)
        rows[threads] = row
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--cactus", default=os.environ.get("CACTUS_PROGRAM", "cactus"))
    parser.add_argument("--whisper", nargs="*", type=Path, default=[], metavar="FOLDER")
    parser.add_argument("--moonshine", nargs="*", type=Path, default=[], metavar="FOLDER")
    parser.add_argument("--parakeet", type=int, metavar="LAYERS")
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    os.environ["CACTUS_PROGRAM"] = args.cactus
    models = [(folder.name, folder, whisper) for folder in args.whisper]
    models += [(folder.name, folder, moonshine) for folder in args.moonshine]
    if args.parakeet:
        shape = args.work / f"parakeet-{args.parakeet}-shape"
        words = [sys.executable, ROOT / "benches" / "parakeet_shape.py", shape, "--ctc", "--layers", str(args.parakeet)]
        made(shape, lambda _: subprocess.run(words, check=True))
        models.append((f"parakeet-{args.parakeet}", shape, parakeet))
    print("| encoder | threads | F32, ms (ONNX Runtime's to it) | captured | INT8 | ONNX Runtime, ms |\n|---|---|---|---|---|---|")
    results = {name: measure(name, args.work / name, args, source, make) for name, source, make in models}
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
