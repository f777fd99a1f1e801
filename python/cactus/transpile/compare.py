"""A bundle beside the module that it was made of.

Purpose: the largest and the relative difference of every output, and, where they part, the first operation whose result
is not PyTorch's. It imports torch, and runs bundles through `program`.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import program
from .capture_pytorch import CapturedModel, IRGraph

#: Outputs of weights in full precision differ by less, relative to the largest value.
TOLERANCE = 1e-3


@dataclass
class Difference:
    """How far an output is from PyTorch's."""

    name: str
    shape: list[int]
    max_absolute: float
    relative: float

    def as_json(self) -> dict:
        return asdict(self)


def differences(
    found: list[tuple[str, Any]], want: list[torch.Tensor], names: tuple[str, ...]
) -> list[Difference]:
    """One for each output, in order. The relative one is to the largest value of the output."""
    if len(found) != len(want):
        raise ValueError(f"{len(found)} outputs where PyTorch has {len(want)}")
    out = []
    for i, ((name, made), tensor) in enumerate(zip(found, want)):
        array = np.asarray(made)
        reference = tensor.detach().to(torch.float64).numpy()
        shown = names[i] if i < len(names) else name
        if array.shape != reference.shape:
            out.append(Difference(shown, list(array.shape), float("inf"), float("inf")))
            continue
        both = np.isfinite(reference) & np.isfinite(array)
        odd = not np.array_equal(np.isfinite(reference), np.isfinite(array))
        far = float(np.abs(array[both].astype(np.float64) - reference[both]).max(initial=0.0))
        most = float(np.abs(reference[both]).max(initial=0.0))
        relative = float("inf") if odd else far / most if most > 0 else far
        out.append(Difference(shown, list(array.shape), far, relative))
    return out


def first_difference(captured: CapturedModel, tolerance: float = TOLERANCE) -> str | None:
    """The first operation whose result differs, in words; `None` where each one alone is right.

    Every floating-point result becomes an output of the same program, which is then run without fusion.
    """
    steps = captured.ir_graph.program.module()
    graph, names = steps.graph, []
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and isinstance(value, torch.Tensor) and value.is_floating_point():
            names.append(node)
        elif node.op == "output":
            node.args = (tuple(names),)
    # Tensors in, tensors out: the form of the arguments is that of the whole program no more.
    graph.set_codegen(torch.fx.graph.CodeGen())
    graph.lint()
    steps.recompile()
    values = tuple(captured.inputs().values())
    with torch.no_grad(), tempfile.TemporaryDirectory(prefix="cactus-parts-") as folder:
        want = steps(*values)
        exported = torch.export.export(steps, values, strict=False)
        archive = IRGraph(exported, "parts").save(Path(folder) / "parts.pt2")
        bundle = Path(folder) / "parts"
        program.transpile(archive, bundle, "--task", "function")
        inputs = {name: x.numpy() for name, x in zip(exported.graph_signature.user_inputs, values)}
        found = program.run(bundle, inputs)
    for node, (_, array), tensor in zip(names, found, want):
        [difference] = differences([("", array)], [tensor], (node.name,))
        if difference.relative > tolerance:
            line = (node.meta.get("stack_trace") or "").strip().splitlines()
            at = f", at {' '.join(part.strip() for part in line[-2:])}" if line else ""
            return f"{node.target} (`{node.name}` {difference.shape}), relative {difference.relative:.1e}{at}"
    return None
