"""The command as a whole: find, capture, transpile, compare, and say what was made.

Purpose: what `python -m cactus.transpile` and `cactus transpile` do with a source that is Python's. Components are
captured one after another and handed over together, so they become one bundle, which runs them as a chain. It imports
torch through the modules that need it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from . import compare, program, sources
from .capture_pytorch import CapturedModel, capture_model
from .errors import TranspileError, wrapped
from .model_adapters import Component


def run(args: argparse.Namespace, say) -> dict:
    """Does what the arguments ask for; `say` gets lines for the user. Gives what `--json` prints."""
    begun = time.monotonic()
    weights = weights_of(args.weights_dir)
    with wrapped(f"`{args.source}` cannot be prepared for the capture"):
        found = sources.find(request(args))
    if found.prepared and (args.image_file or args.audio_file):
        say("pictures and sounds are prepared by the engine: the capture takes any, and does not need these files")
    parts = chosen(found.components, args)
    several = len(found.components) > 1
    if several and args.component_pipeline == "off":
        names = ", ".join(c.name for c in found.components)
        raise TranspileError(
            f"this model has several components ({names}), which cannot be captured as one program; use --component-pipeline auto"
        )
    destination = Path(args.destination or args.artifact_dir or Path("weights") / found.name)
    destination.parent.mkdir(parents=True, exist_ok=True)
    seconds = {"find": time.monotonic() - begun}
    with tempfile.TemporaryDirectory(prefix="cactus-capture-") as folder:
        begun = time.monotonic()
        captured = [capture(part, Path(folder), say) for part in parts]
        seconds["capture"] = time.monotonic() - begun
        begun = time.monotonic()
        archive = Path(folder) / f"{parts[0].name}.pt2"
        if several:
            archive = describe(Path(folder), found, parts)
        outcome = program.transpile(archive, destination, *options(found, parts, args))
        for note in outcome["notes"]:
            say(f"warning: {note}")
        seconds["transpile"] = time.monotonic() - begun
        made = program.inspect(destination)
        rows = []
        for part, model in zip(parts, captured):
            component = made["components"][0] if not several else written(made, part.name)
            if component is None:
                # A warning has said why.
                continue
            ops = component["ops"]
            say(f"{part.name}: {model.ir_graph.operations} operations captured, {sum(ops.values())} in the bundle")
            row = {"ports": {"name": part.name, "inputs": model.ir_graph.input_names, "outputs": list(part.outputs)}}
            row |= {"captured_operations": model.ir_graph.operations, "operations": ops, "notes": model.notes}
            if args.execute_after_transpile or not args.skip_reference_compare:
                bundle = whole(archive, destination, made, found, args)
                row["outputs"] = compared(
                    model, part, bundle, component["name"] if several else None, args, weights, say
                )
            rows.append(row)
    if args.explain:
        say(outcome["explanation"])
    result = {"path": str(destination), "name": found.name, "task": found.task, "seconds": seconds, "components": rows}
    result |= {k: outcome[k] for k in ("tensors", "weights_bytes", "quality")}
    if args.execute_after_transpile:
        (destination / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    if args.result_json:
        Path(args.result_json).write_text(json.dumps(result, indent=2) + "\n")
    return result


def request(args: argparse.Namespace) -> sources.Request:
    return sources.Request(
        source=args.source,
        task="auto" if args.task == "function" else args.task,
        prompt=args.prompt,
        images=[Path(p) for p in args.image_file],
        audio=Path(args.audio_file) if args.audio_file else None,
        state_dict=Path(args.state_dict) if args.state_dict else None,
        init=sources.read_json(args.init) if args.init else {},
        examples=args.example,
        static=args.static,
        trust_remote_code=args.trust_remote_code,
        local_files_only=args.local_files_only,
    )


def chosen(parts: list[Component], args: argparse.Namespace) -> list[Component]:
    if not args.components:
        return parts
    wanted = [name.strip() for name in args.components.split(",")]
    have = {c.name: c for c in parts}
    if unknown := [name for name in wanted if name not in have]:
        raise TranspileError(f"there is no component `{unknown[0]}`; the model has {', '.join(have)}")
    return [have[name] for name in wanted]


def capture(part: Component, folder: Path, say) -> CapturedModel:
    """Captures a component into an archive of its name."""
    captured = capture_model(
        part.module, tuple(part.inputs.values()), dynamic_shapes=part.dynamic_shapes(), name=part.name
    )
    for note in captured.notes:
        say(f"{part.name}: {note}")
    captured.ir_graph.save(folder / f"{part.name}.pt2")
    return captured


def written(made: dict, name: str) -> dict | None:
    """What the bundle has under this name."""
    return next((c for c in made["components"] if c["name"] == name), None)


def describe(folder: Path, found: sources.Found, parts: list[Component]) -> Path:
    """Writes which archives are which components, in the order in which they run."""
    entries = [{"name": c.name, "file": f"{c.name}.pt2", "outputs": list(c.outputs)} for c in parts]
    path = folder / "capture.json"
    path.write_text(json.dumps({"name": found.name, "task": found.task, "components": entries}, indent=2))
    return path


def options(found: sources.Found, parts: list[Component], args) -> list[str]:
    """The same choices for the cactus program."""
    causal = any(c.task == "causal_lm_logits" for c in found.components) and args.task != "function"
    out = ["--task", "auto" if causal else "function", "--name", found.name, *fusions(args)]
    if args.force:
        out.append("--force")
    if args.weights_dir is not None:
        out += ["--weights-dir", str(args.weights_dir)]
    out += precision(found, args)
    if args.calibrate is not None:
        out += ["--calibrate", args.calibrate] if args.calibrate else ["--calibrate"]
    if args.no_calibrate:
        out.append("--no-calibrate")
    if args.calibration_tokens is not None:
        out += ["--calibration-tokens", args.calibration_tokens]
    if args.quality_text is not None:
        out += ["--quality-text", args.quality_text]
    if args.no_quality:
        out.append("--no-quality")
    if causal and found.tokenizer is not None:
        out += ["--tokenizer", str(found.tokenizer)]
    return out


def fusions(args) -> list[str]:
    return [
        f"--no-fuse-{p}" for p in ("rms-norm", "rope", "attention") if getattr(args, f"no_fuse_{p.replace('-', '_')}")
    ]


def precision(found: sources.Found, args) -> list[str]:
    """What says how many bits the weights have."""
    wanted = {"--bits": wanted_bits(found, args), "--embedding-bits": args.embedding_bits, "--policy": args.policy}
    return [text for option, value in wanted.items() if value is not None for text in (option, str(value))]


def wanted_bits(found: sources.Found, args) -> int | str | None:
    # A folder of weights has its own.
    return args.bits or (found.bits if args.weights_dir is None else None)


def whole(archive: Path, bundle: Path, made: dict, found: sources.Found, args) -> Path:
    """The bundle or, where that continues a sequence call by call, one that computes it at once."""
    if not any(c["states"] for c in made["components"]):
        return bundle
    path = archive.with_name("whole")
    # One call computes the same whatever the weights lost, so nothing is calibrated; an average of bits is near its floor.
    more = [text.split(":")[1][0] if text.startswith("auto:") else text for text in precision(found, args)]
    more += ["--no-calibrate", "--no-quality"]
    if args.weights_dir is not None:
        more += ["--weights-dir", str(args.weights_dir)]
    program.transpile(archive, path, "--task", "function", "--force", *more, *fusions(args))
    return path


@dataclass
class Weights:
    """What a folder of `cactus convert` has: bits, and whether the weights are taken by name or only their bits."""

    bits: str
    by_name: bool


def weights_of(folder: str | None) -> Weights | None:
    """What the folder that the user named has."""
    if folder is None:
        return None
    manifest, provenance = Path(folder) / "components" / "manifest.json", Path(folder) / "provenance.json"
    if not manifest.is_file() or not provenance.is_file():
        raise TranspileError(f"`{folder}` should be a folder made by `cactus convert`, with weights_manifest.json")
    bits = str(json.loads(provenance.read_text()).get("options", {}).get("bits", ""))
    return Weights(bits, json.loads(manifest.read_text()).get("task") == "weights")


def compared(
    captured: CapturedModel, part: Component, bundle: Path, component: str | None, args, weights: Weights | None, say
) -> list[dict]:
    """Runs a component on the example inputs, and PyTorch unless that is not wanted."""
    inputs = {name: x.numpy() for name, x in captured.inputs().items()}
    outputs = program.run(bundle, inputs, component)
    # A class that was just made has weights of its own, which say nothing about those of the folder.
    other = weights is not None and weights.by_name and ".py:" in args.source and args.state_dict is None
    if other and not args.skip_reference_compare:
        say(
            f"  not compared with PyTorch, which does not have the weights of `{args.weights_dir}`; give them with --state-dict"
        )
    if args.skip_reference_compare or other:
        return [{"name": name, "shape": list(array.shape)} for name, array in outputs]
    bits = weights.bits if weights is not None else args.bits
    full = bits in (None, 32)
    rows = compare.differences(outputs, captured.reference(), part.outputs)
    for row in rows:
        say(
            f"  {row.name} {row.shape}: differs from PyTorch by at most {row.max_absolute:.2e}, relative {row.relative:.2e}"
        )
    full = full and not (args.policy or args.embedding_bits)
    if not full:
        lost = "fewer bits" if bits is None else f"{bits} bits"
        say(f"  most of the difference comes from storing the weights in {lost}; --bits 32 compares the program alone")
    if full and any(r.relative > compare.TOLERANCE for r in rows):
        first = compare.first_difference(captured)
        found = (
            f"the first operation that differs: {first}"
            if first
            else "each operation is right when it runs alone; try --no-fuse-*"
        )
        say(f"warning: {found}")
    return [r.as_json() for r in rows]


def main(args: argparse.Namespace) -> int:
    """Runs and prints; gives the exit code."""
    say = lambda line: print(line, file=sys.stderr)  # noqa: E731
    try:
        result = run(args, say)
    except TranspileError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=2) if args.json else result["path"])
    return 0
