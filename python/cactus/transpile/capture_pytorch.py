"""A module becomes a captured program.

Purpose: `capture_model` calls `torch.export` the way that the importer reads best: without gradients, not strict,
decomposed to the functional form that keeps composite operations (`linear`, attention, norms). The result can be saved
as a `.pt2` archive, which is all that is handed over. It imports torch; it does not know models or files of models.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.symbolic_shapes import is_concrete_int
from torch.utils import _pytree as pytree

from .errors import TranspileError, explain_export, held_back
from .semantic_ops import captured_as_operations

# What nodes carry that names files of this machine; `strip` takes it away.
_ORIGINS = ("stack_trace", "source_fn_stack", "torch_fn", "from_node")


@dataclass
class IRGraph:
    """A captured program, in the form that the cactus program imports."""

    program: ExportedProgram
    name: str = "model"

    @property
    def input_names(self) -> list[str]:
        """The inputs that a call gives, in order."""
        specs = self.program.graph_signature.input_specs
        return [s.arg.name for s in specs if s.kind.name == "USER_INPUT" and hasattr(s.arg, "name")]

    @property
    def operations(self) -> int:
        """Calls of operations."""
        return sum(n.op == "call_function" for n in self.program.graph.nodes)

    def save(self, path: str | Path, strip: bool = False) -> Path:
        """Writes a `.pt2` archive; `strip` leaves out which lines of which files the operations come from."""
        if strip:
            for node in self.program.graph.nodes:
                for key in _ORIGINS:
                    node.meta.pop(key, None)
        self.program._example_inputs = None
        torch.export.save(self.program, path)
        return Path(path)


@dataclass
class CapturedModel:
    """A module, what it was captured with, and the captured program."""

    ir_graph: IRGraph
    module: torch.nn.Module
    args: tuple
    kwargs: dict = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def inputs(self) -> dict[str, torch.Tensor]:
        """The example inputs by name."""
        leaves = [x for x in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(x, torch.Tensor)]
        return dict(zip(self.ir_graph.input_names, leaves, strict=True))

    def reference(self) -> list[torch.Tensor]:
        """What PyTorch computes for the example inputs."""
        with torch.no_grad():
            outputs = self.module(*self.args, **self.kwargs)
        return [x for x in pytree.tree_leaves(outputs) if isinstance(x, torch.Tensor)]


def capture_model(
    module: torch.nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    name: str = "model",
) -> CapturedModel:
    """Captures `module` as it computes on the example inputs `args` and `kwargs`.

    `dynamic_shapes` is torch's: which axes vary, `{"input_ids": {1: torch.export.Dim("seq", min=2, max=512)}}`. Where
    the program fixes such an axis it is captured with the sizes of the example, and `notes` says so.

    Raises TranspileError where torch cannot capture it, with the line of the module that stopped it.
    """
    if module.training:
        raise TranspileError(f"{type(module).__name__} is in training mode; call eval() on it first")
    args, kwargs, notes = tuple(args), dict(kwargs or {}), []
    if not any(isinstance(x, torch.Tensor) for x in pytree.tree_leaves((args, kwargs))):
        raise TranspileError("example inputs are expected, at least one tensor: capture_model(module, (x,))")
    try:
        exported = _export(module, args, kwargs, dynamic_shapes)
    except Exception as error:
        if dynamic_shapes is None:
            raise explain_export(error, module) from error
        try:
            # The same axes within what the program allows: a table that ends, or at least as many as it chooses from.
            exported = _export(module, args, kwargs, _automatic(dynamic_shapes))
        except Exception:
            exported = None
        if exported is None or not _varies(exported):
            try:
                exported = exported or _export(module, args, kwargs, None)
            except Exception as fixed:
                raise explain_export(fixed, module) from fixed
            first = str(error).strip().splitlines()[:1] or [type(error).__name__]
            notes.append(f"{FIXED}: {first[0]}")
    if not notes and _asked(dynamic_shapes) and not _varies(exported):
        # torch fixes them without a word where the module makes numbers of them.
        notes.append(FIXED)
    return CapturedModel(IRGraph(exported, name), module, args, kwargs, notes)


FIXED = "captured with the sizes of the example, as the program fixes them"


def _asked(dynamic_shapes) -> bool:
    """Whether any axis is to vary."""
    if isinstance(dynamic_shapes, dict):
        return any(map(_asked, dynamic_shapes.values()))
    if isinstance(dynamic_shapes, (list, tuple)):
        return any(map(_asked, dynamic_shapes))
    return dynamic_shapes not in (None, Dim.STATIC) and not isinstance(dynamic_shapes, int)


def _automatic(dynamic_shapes):
    """The same axes, with bounds that torch finds."""
    if isinstance(dynamic_shapes, dict):
        return {k: _automatic(v) for k, v in dynamic_shapes.items()}
    if isinstance(dynamic_shapes, (list, tuple)):
        return type(dynamic_shapes)(_automatic(v) for v in dynamic_shapes)
    return None if dynamic_shapes is None else Dim.AUTO


def _varies(exported: ExportedProgram) -> bool:
    """Whether any size of an input varies."""
    names = set(exported.graph_signature.user_inputs)
    nodes = [n for n in exported.graph.nodes if n.op == "placeholder" and n.name in names]
    # A size that torch fixed later stays a symbol that is a number.
    return any(not is_concrete_int(size) for n in nodes for size in n.meta["val"].shape)


def _export(module, args, kwargs, dynamic_shapes) -> ExportedProgram:
    with torch.no_grad(), warnings.catch_warnings(), held_back(), captured_as_operations():
        warnings.simplefilter("ignore")
        exported = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
        try:
            # The functional form of the same operations.
            return exported.run_decompositions({})
        except Exception:
            # Some programs cannot be rewritten by torch; the importer reads the form as captured, too.
            return exported
