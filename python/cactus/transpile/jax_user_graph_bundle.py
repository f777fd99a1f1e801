"""Bundles of JAX functions: built of graphs that the caller names, loaded to be executed by name.

Purpose: `build_jax_user_graph_bundle` captures each `JaxGraphSpec` and hands all over as one bundle, one component a
graph; `load_jax_user_graph_bundle` opens it again, which needs no jax. Tokens, masks, sampling and the loop over steps
are the caller's; state is what one graph gives and another takes. Loading imports NumPy alone.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cactus.bindings.cactus import Graph, Tensor

from . import program
from .errors import TranspileError

if TYPE_CHECKING:
    from .capture_jax import JaxGraphSpec


@dataclass(frozen=True)
class JaxBundle:
    """What was built."""

    output_dir: Path
    outcome: dict
    #: The primitives of each graph, by its name.
    primitives: dict[str, list[str]]


def build_jax_user_graph_bundle(
    *,
    params: Any,
    output_dir: str | Path,
    model_id: str,
    specs: tuple[JaxGraphSpec, ...],
    task: str = "jax_user_graph",
    bits: int | None = None,
    replace: bool = True,
) -> JaxBundle:
    """Captures the graphs and writes a bundle of them to `output_dir`.

    Weights keep their precision unless `bits` says otherwise. Raises TranspileError for what cannot be traced or has no
    meaning here.
    """
    import jax

    from .capture_jax import capture_graph

    if not specs:
        raise TranspileError("a bundle is expected to have at least one graph")
    if len({s.name for s in specs}) != len(specs):
        raise TranspileError("two graphs have the same name")
    with tempfile.TemporaryDirectory(prefix="cactus-capture-") as folder:
        captured = [capture_graph(spec, params) for spec in specs]
        entries = []
        for graph in captured:
            path = graph.writer.save(Path(folder) / f"{graph.spec.name}.pt2", f"jax {jax.__version__}")
            entries.append({"name": graph.spec.name, "file": path.name, "outputs": graph.output_names})
        capture = Path(folder) / "capture.json"
        capture.write_text(json.dumps({"name": model_id, "task": task, "components": entries}))
        options: list[object] = ["--force"] if replace else []
        if bits is not None:
            options += ["--bits", bits]
        Path(output_dir).parent.mkdir(parents=True, exist_ok=True)
        outcome = program.transpile(capture, Path(output_dir), *options)
    return JaxBundle(Path(output_dir), outcome, {g.spec.name: g.primitives for g in captured})


class LoadedJaxBundle:
    """A bundle whose graphs are executed by name. Inputs are given by position, flattened as JAX flattens trees."""

    def __init__(self, bundle: str | Path):
        self._graphs = Graph.components(bundle)

    @property
    def names(self) -> list[str]:
        return list(self._graphs)

    def execute(self, name: str, *inputs: Any) -> list[Tensor]:
        """The outputs of the graph `name`; an output of one graph may be an input of another."""
        if name not in self._graphs:
            raise TranspileError(f"there is no graph `{name}`; the bundle has {', '.join(self._graphs)}")
        return self._graphs[name].execute(*inputs)

    def reset(self) -> None:
        """Forgets what earlier calls set."""
        for graph in self._graphs.values():
            graph.reset()


def load_jax_user_graph_bundle(bundle: str | Path) -> LoadedJaxBundle:
    """Opens a bundle of graphs."""
    return LoadedJaxBundle(bundle)
