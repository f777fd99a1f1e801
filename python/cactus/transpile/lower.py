"""A captured program becomes a bundle that runs.

Purpose: `transpile_ir` hands a program to the cactus program, which imports, optimizes and lowers it, and gives the
result as something to call. Nothing is rewritten here. It needs no torch beyond what the captured program brings.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cactus.bindings.cactus import Graph

from . import program

if TYPE_CHECKING:
    from .capture_pytorch import IRGraph


class TranspiledGraph(Graph):
    """A bundle, and what the passes said of it. One that nobody named lives as long as this object."""

    def __init__(self, bundle: Path, outcome: dict, held: tempfile.TemporaryDirectory | None = None):
        self._held = held
        self.outcome = outcome
        super().__init__(bundle)


def options(bits: int | None = None, task: str | None = None, fuse: dict[str, bool] | None = None) -> list[str]:
    """The options of the cactus program for the same choices; `fuse` is by pattern: `{"rope": False}`."""
    out: list[str] = []
    if bits is not None:
        out += ["--bits", str(bits)]
    if task is not None:
        out += ["--task", task]
    for pattern, on in (fuse or {}).items():
        if not on:
            out.append(f"--no-fuse-{pattern.replace('_', '-')}")
    return out


def transpile_ir(
    ir_graph: IRGraph,
    *,
    artifact_dir: str | Path | None = None,
    bits: int | None = None,
    fuse: dict[str, bool] | None = None,
) -> TranspiledGraph:
    """Makes a bundle of a captured program and opens it as a function.

    The bundle is written to `artifact_dir`, replacing one that is there, or to a temporary folder. Weights keep their
    precision unless `bits` says otherwise (1, 2, 3, 4, 5, 6, 8, 16 or 32).
    """
    held = None
    if artifact_dir is None:
        held = tempfile.TemporaryDirectory(prefix="cactus-bundle-")
        artifact_dir = Path(held.name) / ir_graph.name
    with tempfile.TemporaryDirectory(prefix="cactus-capture-") as folder:
        archive = ir_graph.save(Path(folder) / f"{ir_graph.name}.pt2")
        outcome = program.transpile(archive, Path(artifact_dir), "--force", *options(bits, "function", fuse))
    return TranspiledGraph(Path(artifact_dir), outcome, held)
