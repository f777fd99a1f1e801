"""Bundles and their graphs from Python.

Purpose: `Graph`, a bundle that is a function, with inputs that are set and outputs that are read; `Tensor`, an array
that one call gave and another may take. It goes through `cactus.transpile.program` and needs NumPy alone; torch is not
imported, and an array of torch is taken as anything that NumPy can read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from cactus.transpile import program
from cactus.transpile.errors import TranspileError

_DTYPES = {"f32": np.float32, "f16": np.float32, "bf16": np.float32, "i64": np.int64, "bool": np.bool_}


class Tensor:
    """An array that a graph gave, by name."""

    def __init__(self, name: str, array: np.ndarray):
        self.name = name
        self._array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def dtype(self) -> np.dtype:
        return self._array.dtype

    def numpy(self) -> np.ndarray:
        """The elements, row-major, without a copy."""
        return self._array

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(self._array, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"Tensor({self.name}: {self._array.dtype}{list(self._array.shape)})"


class Graph:
    """A bundle that is a function of arrays."""

    def __init__(self, bundle: str | Path, component: str | None = None):
        self.bundle = Path(bundle)
        self._component = component
        components = {c["name"]: c for c in program.components(self.bundle)}
        if component is None and len(components) == 1:
            [found] = components.values()
        elif component in components:
            found = components[component]
        else:
            names = ", ".join(components)
            raise TranspileError(f"`{bundle}` has the components {names}; name one: Graph(bundle, component)")
        self.inputs: list[dict] = found["inputs"]
        self.output_names: list[str] = [o["name"] for o in found["outputs"]]
        self.outputs: list[Tensor] = []
        self._set: dict[str, np.ndarray] = {}

    @classmethod
    def components(cls, bundle: str | Path) -> dict[str, Graph]:
        """Every component of a bundle, by name."""
        return {c["name"]: cls(bundle, c["name"]) for c in program.components(Path(bundle))}

    def set_input(self, which: int | str, value) -> None:
        """Sets an input by position or name; the elements are converted to the type that it is declared in."""
        port = self._port(which)
        declared = port["type"]
        dtype = _DTYPES[declared["dtype"]]
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        rank = len(declared["shape"])
        if array.ndim != rank:
            raise TranspileError(f"input `{port['name']}` is expected to have {rank} axes, found {list(array.shape)}")
        if np.issubdtype(array.dtype, np.floating) and dtype is not np.float32:
            raise TranspileError(f"input `{port['name']}` is expected to be {declared['dtype']}, found {array.dtype}")
        self._set[port["name"]] = array.astype(dtype, copy=False)

    def execute(self, *values) -> list[Tensor]:
        """Computes the outputs; `values` are inputs by position, in place of `set_input`."""
        if len(values) > len(self.inputs):
            raise TranspileError(f"{len(values)} inputs given; the graph has {len(self.inputs)}")
        for i, value in enumerate(values):
            self.set_input(i, value)
        if unset := [p["name"] for p in self.inputs if p["name"] not in self._set]:
            raise TranspileError(f"not set: {', '.join(unset)}; call set_input(position or name, array)")
        self.outputs = [Tensor(name, array) for name, array in program.run(self.bundle, self._set, self._component)]
        return self.outputs

    def reset(self) -> None:
        """Forgets inputs and outputs."""
        self._set.clear()
        self.outputs = []

    def _port(self, which: int | str) -> dict:
        names = [p["name"] for p in self.inputs]
        if isinstance(which, int) and 0 <= which < len(names):
            return self.inputs[which]
        if which in names:
            return self.inputs[names.index(which)]
        raise TranspileError(f"there is no input {which!r}; the inputs are {', '.join(names)}")
