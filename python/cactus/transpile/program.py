"""The way to the engine: the only module that starts the cactus program or calls the extension module for bundles.

Purpose: to make bundles and run functions from Python. Functions run in this process where the extension module is there. Making
bundles goes through the command line, and so does running them where only Python is there: arrays then go through `.npy` files in
a temporary folder, and a call costs the start of a process. What is above this module does not see the difference. It imports
NumPy and nothing else.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .errors import TranspileError

#: Names the program where it is not on the path.
PROGRAM_VARIABLE = "CACTUS_PROGRAM"


def find() -> str:
    """The program: `CACTUS_PROGRAM`, or `cactus` on the path."""
    if named := os.environ.get(PROGRAM_VARIABLE):
        if not Path(named).is_file():
            raise TranspileError(
                f"{PROGRAM_VARIABLE} should name the cactus program, found `{named}`, which is not a file"
            )
        return named
    if found := shutil.which("cactus"):
        return found
    raise TranspileError(
        f"the cactus program is not on the path: `cargo install --path crates/cli` puts it there, or {PROGRAM_VARIABLE} "
        "names it"
    )


def call(*arguments: object) -> str:
    """Runs the program and gives what it prints; what it says about an error becomes the error."""
    done = subprocess.run([find(), *map(str, arguments)], capture_output=True, text=True, encoding="utf-8")
    if done.returncode != 0:
        raise TranspileError(
            done.stderr.strip().removeprefix("error: ") or f"cactus {arguments[0]} ended with code {done.returncode}"
        )
    return done.stdout


def transpile(archive: Path, destination: Path, *options: object) -> dict:
    """Makes a bundle of an archive; gives what was made."""
    return json.loads(call("transpile", archive, destination, "--json", *options))


def _native():
    """The extension module, or None."""
    try:
        from cactus.engine import native
    except ImportError:
        return None
    return native


def _checked(work):
    """What `work` gives; an error of the engine is one of this package."""
    from cactus.errors import CactusError

    try:
        return work()
    except CactusError as error:
        raise TranspileError(str(error)) from error


def inspect(bundle: Path) -> dict:
    """What is inside a bundle."""
    return json.loads(call("inspect", bundle, "--json"))


def components(bundle: Path) -> list[dict]:
    """The components of a bundle: name, inputs and outputs of each."""
    if native := _native():
        return json.loads(_checked(lambda: native.Function.components(bundle)))
    return inspect(bundle)["components"]


@functools.lru_cache(maxsize=8)
def _function(bundle: str, component: str, _written: int):
    return _native().Function.open(bundle, component, None)


class Given:
    """An array of any library that is to be an input. It is not copied: what it holds when a function runs is what counts."""

    def __init__(self, value: Any):
        native = _native()
        if native is None:
            self.held: Any = np.asarray(value)
            kind = self.held.dtype.kind
            self.dtype = {"f": "f32", "b": "bool"}.get(kind, "i64" if kind in "iu" else str(self.held.dtype))
        else:
            self.held = _taken(native, value)
            self.dtype = self.held.dtype
        #: Sizes, outermost axis first.
        self.shape: tuple[int, ...] = tuple(self.held.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in ("f32", "f16", "bf16")


def _taken(native: Any, value: Any) -> Any:
    if getattr(value, "requires_grad", False):
        # A tensor of torch that is part of a computation; the engine reads what it is now.
        value = value.detach()
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        try:
            return native.Input(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            if not isinstance(value, np.ndarray):
                raise TranspileError(f"the array cannot be taken: {error}") from error
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TranspileError(f"NumPy makes no array of it: {error}") from error
    if array.dtype.kind not in "fiub":
        raise TranspileError(
            f"elements of the type {array.dtype} are not taken; expected bool, int8 to int64, uint8 to uint32, float16, float32 "
            "or float64"
        )
    try:
        # Bytes in the machine's order; older versions of NumPy hand over only what may be written to.
        return native.Input(np.array(array, array.dtype.newbyteorder("=")))
    except BufferError as error:
        raise TranspileError(str(error)) from error


def run(bundle: Path, inputs: Mapping[str, Any], component: str | None = None) -> list[tuple[str, Any]]:
    """Computes the outputs of a bundle that is a function: names and arrays, in order. Without `component`, every component is
    computed, each from what was given and what those before it gave.

    Inputs are arrays of any library, or `Given`. Outputs have `__dlpack__`, and NumPy reads them where they lie.
    """
    given = {name: value if isinstance(value, Given) else Given(value) for name, value in inputs.items()}
    if _native() is None:
        return _run_by_program(bundle, {name: value.held for name, value in given.items()}, component)
    if component is not None:
        return _run_in_process(bundle, given, component)
    parts = components(bundle)
    known = {port["name"] for part in parts for port in part["inputs"]}
    if unknown := [name for name in given if name not in known]:
        raise TranspileError(f"`{bundle}` has no input `{unknown[0]}`; it has {', '.join(sorted(known))}")
    outputs = []
    for part in parts:
        own = {port["name"]: given[port["name"]] for port in part["inputs"] if port["name"] in given}
        made = _run_in_process(bundle, own, part["name"])
        given.update({name: Given(value) for name, value in made})
        outputs += made
    return outputs


def _run_in_process(bundle: Path, inputs: Mapping[str, Given], component: str) -> list[tuple[str, Any]]:
    def work():
        # Another bundle may have taken the place of this one.
        manifest = Path(bundle) / "components" / "manifest.json"
        written = manifest.stat().st_mtime_ns if manifest.is_file() else 0
        function = _function(str(Path(bundle).resolve()), component, written)
        return function.run({name: value.held for name, value in inputs.items()})

    return _checked(work)


def _run_by_program(
    bundle: Path, inputs: dict[str, np.ndarray], component: str | None
) -> list[tuple[str, np.ndarray]]:
    with tempfile.TemporaryDirectory(prefix="cactus-") as folder:
        arguments: list[object] = ["run", bundle, "--json", "--output-dir", Path(folder) / "out"]
        if component is not None:
            arguments += ["--component", component]
        for i, (name, array) in enumerate(inputs.items()):
            path = Path(folder) / f"in{i}.npy"
            np.save(path, np.ascontiguousarray(array).reshape(np.shape(array)))
            arguments += ["--input", f"{name}={path}"]
        result = json.loads(call(*arguments))
        return [(o["name"], np.load(Path(folder) / "out" / o["file"])) for o in result["outputs"]]


def generate(bundle: Path, ids: list[int], tokens: int, given: dict[str, np.ndarray] | None = None) -> list[int]:
    """Continues token ids greedily, with keys and values in 16 bits; `given` is what a decoder reads beside them."""
    with tempfile.TemporaryDirectory(prefix="cactus-") as folder:
        arguments: list[object] = []
        for i, (name, array) in enumerate((given or {}).items()):
            path = Path(folder) / f"given{i}.npy"
            np.save(path, np.ascontiguousarray(array))
            arguments += ["--input", f"{name}={path}"]
        text = call(
            "run", bundle, "--json", "--kv", "f16", "--temperature", 0, "--ignore-eos", "--max-new-tokens", tokens,
            "--input-ids", ",".join(map(str, ids)), *arguments,
        )  # fmt: skip
    return json.loads(text)["completion_token_ids"]
