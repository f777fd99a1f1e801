"""Times and errors of transpiled models beside PyTorch, ONNX Runtime and ExecuTorch: the same weights, inputs and threads, one run.

    python benches/transpile.py [--threads 2] [--rounds 7] [--only NAME ...] [--compile] [--executorch] [--json FILE]

The last table has how far results are from PyTorch's: the length of the difference, relative to that of the result.

Needs torch, torchvision, transformers, onnx, onnxscript and onnxruntime (and executorch for its columns), and the cactus program built with --release
(`CACTUS_PROGRAM`, or on the path). Engines take turns within a round, so that a machine that slows down slows all of
them; what is shown is the median over rounds, and ours relative to each. In its turn each engine is called for about half a
second, at least five times, and the median of its calls counts: with fewer, a network of some milliseconds is timed while the threads of whoever
was there before still wait for work, and the clock of the processor rises.
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

# Least calls of a turn, and about how many milliseconds it lasts.
CALLS, TURN_MS = 5, 500


def picture_model(name):
    def make():
        import torchvision

        return getattr(torchvision.models, name)(weights=None), (torch.randn(1, 3, 224, 224),), {}

    return make


def unet():
    def twice(inputs, outputs):
        layers = []
        for i in (inputs, outputs):
            layers += [nn.Conv2d(i, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        """Four levels of 32 to 256 channels, as in Ronneberger and others (2015), padded."""

        def __init__(self):
            super().__init__()
            widths = (32, 64, 128, 256)
            self.down = nn.ModuleList(twice(i, o) for i, o in zip((3, *widths), widths))
            self.up = nn.ModuleList(nn.ConvTranspose2d(o, i, 2, stride=2) for i, o in zip(widths, widths[1:]))
            self.join = nn.ModuleList(twice(2 * w, w) for w in widths[:-1])
            self.head = nn.Conv2d(widths[0], 2, 1)

        def forward(self, x):
            kept = []
            for i, down in enumerate(self.down):
                x = down(x if i == 0 else nn.functional.max_pool2d(x, 2))
                kept.append(x)
            for i in (2, 1, 0):
                x = self.join[i](torch.cat([kept[i], self.up[i](x)], 1))
            return self.head(x)

    return UNet(), (torch.randn(1, 3, 256, 256),), {}


def wavenet():
    class WaveNet(nn.Module):
        """Two stacks of eight gated layers of 64 channels, as in van den Oord and others (2016), over a quarter of a second."""

        def __init__(self):
            super().__init__()
            self.first = nn.Conv1d(1, 64, 1)
            self.gates = nn.ModuleList(nn.Conv1d(64, 128, 2, dilation=2 ** (i % 8)) for i in range(16))
            self.out = nn.ModuleList(nn.Conv1d(64, 128, 1) for _ in range(16))
            self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(64, 64, 1), nn.ReLU(), nn.Conv1d(64, 256, 1))

        def forward(self, x):
            x, said = self.first(x), 0
            for i, (gates, out) in enumerate(zip(self.gates, self.out)):
                a, b = gates(nn.functional.pad(x, (2 ** (i % 8), 0))).chunk(2, 1)
                kept, skipped = out(a.tanh() * b.sigmoid()).chunk(2, 1)
                x, said = x + kept, said + skipped
            return self.head(said)

    return WaveNet(), (torch.randn(1, 1, 4000),), {}


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


MODELS = {
    "ResNet-18, 224": picture_model("resnet18"),
    "MobileNetV3, 224": picture_model("mobilenet_v3_large"),
    "EfficientNet-B0, 224": picture_model("efficientnet_b0"),
    "ConvNeXt-tiny, 224": picture_model("convnext_tiny"),
    "U-Net, 256": unet,
    "WaveNet, 4000 samples": wavenet,
    "ViT-S/16, 224": vit,
    "MiniLM-L6, 128 tokens": minilm,
    "Whisper-tiny encoder": whisper,
}


def timed(call):
    times = []
    while len(times) < CALLS or sum(times) < TURN_MS:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def onnx_session(path, args, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = {i.name: a.numpy() for i, a in zip(session.get_inputs(), args)}
    return lambda: session.run(None, inputs)


def onnx_in_8_bits(path, args, to):
    """As ONNX Runtime's guide has it for such CPUs: QDQ, weights by channel, activations without sign, scales from the inputs."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Inputs(CalibrationDataReader):
        def __init__(self):
            names = [i.name for i in onnxruntime.InferenceSession(str(path)).get_inputs()]
            self.left = iter([{name: a.numpy() for name, a in zip(names, args)}])

        def get_next(self):
            return next(self.left, None)

    ready = to.with_suffix(".ready.onnx")
    quant_pre_process(str(path), str(ready), skip_symbolic_shape=True)
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(str(ready), str(to), Inputs(), quant_format=QuantFormat.QDQ, per_channel=True, **types)


def executorch_method(program, args, to, threads):
    """A call of an exported program with all that XNNPACK takes."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import _C as bindings
    from executorch.runtime import Runtime

    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    to.write_bytes(lowered.buffer)
    bindings._unsafe_reset_threadpool(threads)
    method = Runtime.get().load_program(str(to)).load_method("forward")
    return lambda: method.execute(list(args))


def for_xnnpack_in_8_bits(module, args):
    """As ExecuTorch's guide has it: weights by channel, activations with one scale, from the very input that is timed."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(module, args).module(), quantizer)
    prepared(*args)
    return torch.export.export(convert_pt2e(prepared), args)


def error(found, exact):
    """The length of the difference, relative to that of the result."""
    exact = exact.detach().double()
    return float((torch.as_tensor(found).reshape(exact.shape).double() - exact).norm() / exact.norm())


def measure(name, make, args):
    torch.manual_seed(0)
    module, inputs, _ = make()
    module.eval()
    errors = {}
    with torch.inference_mode():
        exact = module(*inputs)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        archive = capture_model(module, inputs).ir_graph.save(folder / "model.pt2")
        engines = {}
        for label, bits in (("cactus F32", 32), ("cactus INT8", 8)):
            bundle = folder / f"b{bits}"
            program.transpile(archive, bundle, "--task", "function", "--bits", bits)

            def ours(bundle=bundle, calls=CALLS):
                words = ("bench", bundle, "--json", "--reps", calls, "--threads", args.threads)
                return json.loads(program.call(*words))[0]["median_ms"]

            calls = max(CALLS, round(TURN_MS / ours()))
            engines[label] = lambda ours=ours, calls=calls: ours(calls=calls)
            names = [port["name"] for port in program.components(bundle)[0]["inputs"]]
            outputs = program.run(bundle, dict(zip(names, (x.numpy() for x in inputs))))
            errors[label] = error(outputs[0][1], exact)

        def eager():
            with torch.inference_mode():
                module(*inputs)

        engines["torch eager"] = lambda: timed(eager)
        onnx, in_8_bits = folder / "model.onnx", folder / "model.8.onnx"

        def export():
            torch.onnx.export(module, inputs, str(onnx), dynamo=True, verbose=False, external_data=False)
            return onnx

        def quantize():
            onnx_in_8_bits(onnx, inputs, in_8_bits)
            return in_8_bits

        for label, make in (("ONNX Runtime", export), ("ONNX Runtime INT8", quantize)):
            try:
                session = onnx_session(make(), inputs, args.threads)
                engines[label] = lambda session=session: timed(session)
                errors[label] = error(session()[0], exact)
            except Exception as e:
                print(f"{name}: no {label}: {type(e).__name__}: {e}", file=sys.stderr)
        if args.compile:
            compiled = torch.compile(module)

            def fast():
                with torch.inference_mode():
                    compiled(*inputs)

            try:
                fast()
                engines["torch.compile"] = lambda: timed(fast)
            except Exception as e:
                print(f"{name}: no torch.compile: {type(e).__name__}: {e}", file=sys.stderr)
        exports = {
            "ExecuTorch": lambda: torch.export.export(module, inputs),
            "ExecuTorch INT8": lambda: for_xnnpack_in_8_bits(module, inputs),
        }
        for label, export in exports.items() if args.executorch else ():
            try:
                call = executorch_method(export(), inputs, folder / f"{label}.pte", args.threads)
                errors[label] = error(call()[0], exact)
                engines[label] = lambda call=call: timed(call)
            except Exception as e:
                print(f"{name}: no {label}: {type(e).__name__}: {e}", file=sys.stderr)
        rounds = {label: [] for label in engines}
        for _ in range(args.rounds):
            for label, call in engines.items():
                rounds[label].append(call())
        return {label: statistics.median(times) for label, times in rounds.items()}, errors


def table(title, heads, rows, cell):
    print(f"\n| {title} | " + " | ".join(heads) + " |")
    print("|---|" + "---:|" * len(heads))
    for name, row in rows.items():
        print(f"| {name} | " + " | ".join(cell(row, head) for head in heads) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well, which takes minutes and a C++ compiler")
    parser.add_argument("--executorch", action="store_true", help="ExecuTorch with XNNPACK as well, from the package executorch")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results, errors = {}, {}
    for name, make in MODELS.items():
        if args.only and not any(word in name for word in args.only):
            continue
        results[name], errors[name] = measure(name, make, args)
        print(name, {k: round(v, 2) for k, v in results[name].items()}, flush=True)
    labels = ["cactus F32", "cactus INT8", "torch eager", "torch.compile", "ONNX Runtime", "ONNX Runtime INT8"]
    labels += ["ExecuTorch", "ExecuTorch INT8"]
    labels = [label for label in labels if any(label in row for row in results.values())]
    ratios = [("cactus F32", "torch eager"), ("cactus F32", "torch.compile"), ("cactus F32", "ONNX Runtime")]
    ratios += [("cactus F32", "ExecuTorch"), ("cactus INT8", "ONNX Runtime INT8"), ("cactus INT8", "ExecuTorch INT8")]
    ratios += [("cactus INT8", "cactus F32")]
    ratios = [pair for pair in ratios if pair[1] in labels]
    table("Milliseconds", labels, results, lambda row, label: f"{row[label]:.2f}" if label in row else "–")
    shown = {" to ".join(label.replace("cactus ", "") for label in pair): pair for pair in ratios}

    def ratio(row, name):
        ours, other = shown[name]
        return f"{row[other] / row[ours]:.2f}×" if other in row else "–"

    table("How much faster", shown, results, ratio)
    labels = [label for label in labels if any(label in row for row in errors.values())]
    table("Error", labels, errors, lambda row, label: f"{row[label]:.2g}" if label in row else "–")
    if args.json:
        args.json.write_text(json.dumps({"milliseconds": results, "errors": errors}, indent=1))


if __name__ == "__main__":
    main()
