"""Times of transpiled models beside PyTorch and ONNX Runtime: the same weights, inputs and threads, one run.

    python benches/transpile.py [--threads 2] [--rounds 7] [--only NAME ...] [--json FILE]

Needs torch, transformers, onnx, onnxscript and onnxruntime, and the cactus program built with --release
(`CACTUS_PROGRAM`, or on the path). Engines take turns within a round, so that a machine that slows down slows all of
them; what is shown is the median over rounds, and ours relative to each. Of `cactus bench` each round counts the median
of its repetitions, of the others the same number of calls.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "tools")]

import torch  # noqa: E402
from cactus.transpile import program  # noqa: E402
from cactus.transpile.capture_pytorch import capture_model  # noqa: E402
from torch import nn  # noqa: E402

CALLS = 5


def cnn():
    from torchvision.models import resnet18

    return resnet18(weights=None), (torch.randn(1, 3, 224, 224),), {}


def vit():
    import transformers as T

    config = T.ViTConfig(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536)

    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = T.ViTModel(config, add_pooling_layer=False)

        def forward(self, pixel_values):
            return self.m(pixel_values=pixel_values, return_dict=False)[0]

    return Tower(), (torch.randn(1, 3, 224, 224),), {}


def minilm():
    import transformers as T

    config = T.BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = T.BertModel(config, add_pooling_layer=False)

        def forward(self, input_ids, attention_mask):
            return self.m(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]

    ids = torch.ones(1, 128, dtype=torch.long)
    return Encoder(), (ids, torch.ones_like(ids)), {}


def whisper():
    import transformers as T

    config = T.WhisperConfig(
        d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536, decoder_layers=1
    )

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = T.WhisperModel(config).encoder

        def forward(self, input_features):
            return self.m(input_features, return_dict=False)[0]

    return Encoder(), (torch.randn(1, 80, 3000),), {}


MODELS = {"ResNet-18, 224": cnn, "ViT-S/16, 224": vit, "MiniLM-L6, 128 tokens": minilm, "Whisper-tiny encoder": whisper}


def timed(call, calls=CALLS):
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def onnx_session(module, args, folder, threads):
    import onnxruntime

    path = folder / "model.onnx"
    torch.onnx.export(module, args, str(path), dynamo=True, verbose=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = {i.name: a.numpy() for i, a in zip(session.get_inputs(), args)}
    return lambda: session.run(None, inputs)


def measure(name, make, args):
    torch.manual_seed(0)
    module, inputs, _ = make()
    module.eval()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        archive = capture_model(module, inputs).ir_graph.save(folder / "model.pt2")
        engines = {}
        for label, bits in (("cactus F32", 32), ("cactus INT8", 8)):
            bundle = folder / f"b{bits}"
            program.transpile(archive, bundle, "--task", "function", "--bits", bits)

            def ours(bundle=bundle):
                words = ("bench", bundle, "--json", "--reps", CALLS, "--threads", args.threads)
                return json.loads(program.call(*words))[0]["median_ms"]

            engines[label] = ours

        def eager():
            with torch.inference_mode():
                module(*inputs)

        engines["torch eager"] = lambda: timed(eager)
        try:
            session = onnx_session(module, inputs, folder, args.threads)
            engines["ONNX Runtime"] = lambda: timed(session)
        except Exception as e:
            print(f"{name}: no ONNX Runtime: {type(e).__name__}: {e}", file=sys.stderr)
        rounds = {label: [] for label in engines}
        for _ in range(args.rounds):
            for label, call in engines.items():
                rounds[label].append(call())
        return {label: statistics.median(times) for label, times in rounds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results = {}
    for name, make in MODELS.items():
        if args.only and not any(word in name for word in args.only):
            continue
        results[name] = measure(name, make, args)
        print(name, {k: round(v, 2) for k, v in results[name].items()}, flush=True)
    labels = ["cactus F32", "cactus INT8", "torch eager", "ONNX Runtime"]
    print("\n| Model | " + " | ".join(f"{label}, ms" for label in labels) + " | F32 to eager | F32 to ONNX Runtime |")
    print("|---|" + "---|" * (len(labels) + 2))
    for name, row in results.items():
        cells = [f"{row[label]:.2f}" if label in row else "–" for label in labels]
        for other in ("torch eager", "ONNX Runtime"):
            cells.append(f"{row[other] / row['cactus F32']:.2f}×" if other in row else "–")
        print(f"| {name} | " + " | ".join(cells) + " |")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
