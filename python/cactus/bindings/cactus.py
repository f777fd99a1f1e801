"""Bundles and their graphs from Python.

Purpose: `Graph`, a bundle that is a function, with inputs that are set and outputs that are read; `Tensor`, an array
that one call gave and another may take. It goes through `cactus.transpile.program` and needs NumPy alone. Arrays of
other libraries come and go by DLPack, without a copy where that can be; none of them is imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from cactus.transpile import program
from cactus.transpile.errors import TranspileError


class Tensor:
    """An array that a graph gave, by name.

    `numpy()`, `np.from_dlpack`, `torch.from_dlpack` and others read it where it lies, and keep it alive. It is the caller's: writing
    to what they give is allowed, and all of them see it.
    """

    def __init__(self, name: str, array: Any):
        self.name = name
        self._held = array
        self._array = np.asarray(array)

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
        if copy is False and dtype is not None and np.dtype(dtype) != self._array.dtype:
            raise ValueError(f"a copy is needed to make {np.dtype(dtype)} of {self._array.dtype}")
        return self._array.astype(dtype or self._array.dtype, copy=bool(copy))

    def __dlpack__(self, **asked: Any) -> Any:
        return self._held.__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._held.__dlpack_device__()

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
        self._set: dict[str, program.Given] = {}

    @classmethod
    def components(cls, bundle: str | Path) -> dict[str, Graph]:
        """Every component of a bundle, by name."""
        return {c["name"]: cls(bundle, c["name"]) for c in program.components(Path(bundle))}

    def set_input(self, which: int | str, value: Any) -> None:
        """Sets an input by position or name: an array of any library that has `__dlpack__`, or what NumPy makes an array of.

        Contiguous floats of 32 bits are read in place when the graph is executed, so they have to stay as they are until then.
        Other elements are converted to the type that the input is declared in.
        """
        port = self._port(which)
        declared = port["type"]
        try:
            given = program.Given(value)
        except TranspileError as error:
            raise TranspileError(f"input `{port['name']}`: {error}") from error
        rank = len(declared["shape"])
        if len(given.shape) != rank:
            raise TranspileError(f"input `{port['name']}` is expected to have {rank} axes, found {list(given.shape)}")
        if given.is_float and declared["dtype"] not in ("f32", "f16", "bf16"):
            raise TranspileError(f"input `{port['name']}` is expected to be {declared['dtype']}, found {given.dtype}")
        self._set[port["name"]] = given

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
