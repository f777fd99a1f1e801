"""The way to the cactus program: the only module that starts it.

Purpose: to make bundles and run functions from Python. There is no library to load yet, so calls go through the command
line and arrays through `.npy` files in a temporary folder; a call costs the start of a process, some milliseconds. What
is above this module does not see that, so a library can take its place. It imports NumPy and nothing else.
"""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

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


def inspect(bundle: Path) -> dict:
    """What is inside a bundle."""
    return json.loads(call("inspect", bundle, "--json"))


def run(bundle: Path, inputs: dict[str, np.ndarray], component: str | None = None) -> list[tuple[str, np.ndarray]]:
    """Computes the outputs of a bundle that is a function: names and arrays, in order."""
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
