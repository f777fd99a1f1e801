"""A JAX function becomes a captured program.

Purpose: `capture_graph` traces a function to its jaxpr, whose primitives are named and typed, and writes each as calls
of ATen operations, for which the importer has rows; functions within functions are inlined, a scan of known length is
unrolled. What each primitive means is in `jax_primitives`. Shapes are those of the example: one program for each. It
imports jax.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from .archive import ArchiveWriter, Name
from .errors import TranspileError
from .jax_primitives import INLINED, PRIMITIVES, Walk

#: Steps of a scan that are written one after another.
MOST_STEPS = 256


@dataclass(frozen=True)
class JaxGraphSpec:
    """One graph of a model: `fn(params, *example_args)` and what its outputs are called."""

    name: str
    fn: Callable
    example_args: tuple
    output_names: tuple[str, ...] = ()


@dataclass
class CapturedJax:
    """A traced function as a program, with the names of its inputs and outputs."""

    spec: JaxGraphSpec
    writer: ArchiveWriter
    input_names: list[str]
    output_names: list[str]
    primitives: list[str] = field(default_factory=list)


def capture_graph(spec: JaxGraphSpec, params: Any) -> CapturedJax:
    """Traces `spec.fn` with `params` as weights and the example as inputs.

    Raises TranspileError for a primitive without a meaning here, naming it and the line of the function.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", spec.name):
        raise TranspileError(f"a graph is named by letters, digits, `_`, `-` and `.`, found `{spec.name}`")
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    try:
        closed = jax.make_jaxpr(spec.fn)(params, *spec.example_args)
    except Exception as e:
        raise TranspileError(f"graph `{spec.name}` cannot be traced by JAX: {type(e).__name__}: {e}") from e
    writer = ArchiveWriter()
    read: dict = {}
    for (path, leaf), var in zip(leaves, closed.jaxpr.invars):
        read[var] = writer.parameter(_dotted(path), _array(leaf))
    names = _input_names(spec)
    rest = closed.jaxpr.invars[len(leaves) :]
    for name, var in zip(names, rest, strict=True):
        read[var] = writer.input(name, var.aval.shape, var.aval.dtype)
    walk = _Walker(writer, spec.name)
    walk.constants(closed, read)
    outputs = walk.run(closed.jaxpr, read)
    for i, name in enumerate(outputs):
        # A program's output is computed: what only passes through is copied.
        aval = closed.jaxpr.outvars[i].aval
        writer.output(writer.call("clone", aval.shape, aval.dtype, self=name))
    given = list(spec.output_names)
    if given and len(given) != len(outputs):
        raise TranspileError(f"graph `{spec.name}` has {len(outputs)} outputs and {len(given)} names for them")
    return CapturedJax(spec, writer, names, given or [f"output_{i}" for i in range(len(outputs))], sorted(walk.seen))


class _Walker(Walk):
    """The equations of a jaxpr, in order."""

    def __init__(self, writer: ArchiveWriter, graph: str):
        super().__init__(writer)
        self.graph = graph
        self.seen: set[str] = set()

    def constants(self, closed, read: dict) -> None:
        for var, value in zip(closed.jaxpr.constvars, closed.consts):
            read[var] = self.writer.constant(_array(value))

    def run(self, jaxpr, read: dict) -> list[Name]:
        """The outputs of `jaxpr`, whose inputs are in `read`."""
        for eqn in jaxpr.eqns:
            inputs = [self.atom(v, read) for v in eqn.invars]
            try:
                outputs = self.equation(eqn, inputs)
            except NotImplementedError as e:
                raise TranspileError(
                    f"graph `{self.graph}`: the primitive `{eqn.primitive.name}`: {e}{_line(eqn)}"
                ) from e
            for var, name in zip(eqn.outvars, outputs, strict=True):
                read[var] = name
        return [self.atom(v, read) for v in jaxpr.outvars]

    def atom(self, v, read: dict) -> Name:
        if hasattr(v, "val"):
            return self.literal(np.asarray(v.val, dtype=v.aval.dtype))
        return read[v]

    def equation(self, eqn, inputs: list[Name]) -> list[Name]:
        name = eqn.primitive.name
        self.seen.add(name)
        if name in INLINED:
            inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr") or eqn.params.get("fun_jaxpr")
            return self.inline(inner, inputs)
        if name == "scan":
            return self.scan(eqn, inputs)
        row = PRIMITIVES.get(name)
        if row is None:
            raise NotImplementedError("it has no row in cactus/transpile/jax_primitives.py")
        outputs = row(self, eqn, inputs)
        return outputs if isinstance(outputs, list) else [outputs]

    def inline(self, inner, inputs: list[Name]) -> list[Name]:
        closed = inner if hasattr(inner, "consts") else None
        jaxpr = closed.jaxpr if closed is not None else inner
        read = dict(zip(jaxpr.invars, inputs, strict=True))
        if closed is not None:
            self.constants(closed, read)
        return self.run(jaxpr, read)

    def scan(self, eqn, inputs: list[Name]) -> list[Name]:
        """One step after another; what each step gives is stacked."""
        p = eqn.params
        length = p["length"]
        if length > MOST_STEPS:
            raise NotImplementedError(f"a scan of {length} steps; at most {MOST_STEPS} are written out")
        fixed, carried = p["num_consts"], p["num_carry"]
        consts, carry, over = inputs[:fixed], inputs[fixed : fixed + carried], inputs[fixed + carried :]
        given: list[list[Name]] = [[] for _ in eqn.outvars[carried:]]
        steps = range(length - 1, -1, -1) if p["reverse"] else range(length)
        inner = p["jaxpr"].jaxpr.invars[fixed + carried :]
        for i in steps:
            at = [self.at(x, i, v.aval) for x, v in zip(over, inner)]
            outputs = self.inline(p["jaxpr"], [*consts, *carry, *at])
            carry = outputs[:carried]
            for all_of, y in zip(given, outputs[carried:]):
                all_of.append(y)
        stacked = []
        for all_of, var in zip(given, eqn.outvars[carried:]):
            all_of = all_of[::-1] if p["reverse"] else all_of
            stacked.append(self.call("stack", var.aval, tensors=all_of, dim=0))
        return [*carry, *stacked]


def _array(leaf) -> np.ndarray:
    array = np.asarray(leaf)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    return array


def _dotted(path) -> str:
    """The name of a leaf: its keys with dots between."""
    keys = (getattr(k, "key", getattr(k, "name", getattr(k, "idx", k))) for k in path)
    return ".".join(str(k) for k in keys) or "params"


def _input_names(spec: JaxGraphSpec) -> list[str]:
    """Names of the flattened arguments: those of the function, numbered within one that is a tree."""
    count = len(spec.example_args)
    try:
        names = list(inspect.signature(spec.fn).parameters)[1 : 1 + count]
    except (TypeError, ValueError):
        names = []
    names += [f"arg_{i}" for i in range(len(names), count)]
    out = []
    for name, arg in zip(names, spec.example_args):
        leaves, _ = jax.tree_util.tree_flatten_with_path(arg)
        out += [name if not path else f"{name}.{_dotted(path)}" for path, _ in leaves]
    return out


def _line(eqn) -> str:
    """Where an equation comes from."""
    try:
        from jax._src import source_info_util

        return f"\nat {source_info_util.summarize(eqn.source_info)}"
    except Exception:  # not a public part of jax
        return ""
