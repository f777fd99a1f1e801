"""The models and engines that the benchmarks compare, and how to obtain each.

Nothing here measures. A missing model, peer build, quantized file or bundle is made on
first use and kept in the cache folder of scripts/fetch_models.py.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALICE = ROOT / "golden" / "real" / "alice29-64k.txt"


class PeerError(Exception):
    """Something that a benchmark needs could not be made."""


@dataclasses.dataclass(frozen=True)
class Model:
    """`source` is the GGUF as published; every engine's own form is made from it. `stem` names
    those forms, `item` is its name in scripts/fetch_models.py, `openvino` says whether OpenVINO reads its GGUF,
    `only_when_named` keeps a large one out of the default."""

    name: str
    title: str
    source: str
    stem: str
    item: str
    openvino: bool = True
    only_when_named: bool = False


MODELS: tuple[Model, ...] = (
    Model("smollm2-135m", "SmolLM2-135M", "SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct", "smollm2"),
    Model("gemma-3-270m", "Gemma 3 270M", "gemma-3-270m-q4_k_m.gguf", "gemma-3-270m", "gemma3", openvino=False),
    Model(
        "qwen2.5-0.5b",
        "Qwen2.5 0.5B",
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "qwen2.5-coder-0.5b-instruct",
        "qwen2.5-0.5b",
    ),
    Model(
        "qwen2.5-1.5b",
        "Qwen2.5 1.5B",
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "qwen2.5-coder-1.5b-instruct",
        "qwen2.5-1.5b",
        only_when_named=True,
    ),
)


def models_named(names: str | None) -> list[Model]:
    if names is None:
        return [model for model in MODELS if not model.only_when_named]
    by_name = {model.name: model for model in MODELS}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in by_name]:
        raise PeerError(f"unknown model {', '.join(unknown)}; known: {', '.join(by_name)}")
    return [by_name[name] for name in wanted]


def default_cache() -> Path:
    if folder := os.environ.get("CACTUS_TEST_MODELS"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cactus" / "test-models"


def call(command: Sequence[str | Path], quiet: bool = False) -> None:
    """Runs a command whose output is for the person who waits."""
    out = subprocess.DEVNULL if quiet else sys.stderr
    done = subprocess.run([str(part) for part in command], stdout=out, stderr=out, check=False)
    if done.returncode != 0:
        raise PeerError(f"{' '.join(map(str, command))}: exit code {done.returncode}")


@dataclasses.dataclass(frozen=True)
class Workshop:
    """The cache folder and what can be found in it or made there."""

    cache: Path
    cactus_path: Path | None = None

    def source(self, model: Model) -> Path:
        path = self.cache / model.source
        if not path.is_file():
            call([sys.executable, ROOT / "scripts" / "fetch_models.py", self.cache, "--only", model.item])
        return path

    def llama(self, tool: str) -> Path:
        """A tool of the llama.cpp build, such as `llama-bench`."""
        path = self.cache / "llama-build" / "bin" / tool
        if not path.is_file():
            call([ROOT / "benches" / "build_llama_cpp.sh", self.cache])
        return path

    def ik(self, tool: str) -> Path | None:
        """A tool of the ik_llama.cpp build; None unless `build_llama_cpp.sh --ik` was run."""
        path = self.cache / "ik-build" / "bin" / tool
        return path if path.is_file() else None

    def openvino(self) -> Path:
        """A Python with OpenVINO GenAI."""
        folder = self.cache / "openvino"
        python = folder / "bin" / "python"
        if not (folder / "complete").is_file():
            call([sys.executable, "-m", "venv", "--clear", folder])
            call([python, "-m", "pip", "install", "--quiet", "openvino-genai==2026.4.1.0"])
            (folder / "complete").touch()
        return python

    def quantized(self, model: Model, kind: str) -> Path:
        """The model in another GGUF type ("Q8_0", "F16", "F32"), made from the published file; "Q4_0" is that type for
        every matrix, without the larger ones that llama.cpp mixes in."""
        source = self.source(model)
        if kind.lower() in source.stem.lower():
            return source
        path = self.cache / f"{model.stem}.{kind}.gguf"
        if not path.is_file():
            partial = path.with_suffix(".partial")
            pure = ["--pure"] if kind == "Q4_0" else []
            call([self.llama("llama-quantize"), "--allow-requantize", *pure, source, partial, kind], quiet=True)
            os.replace(partial, path)
        return path

    def llama_version(self) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.cache / "llama.cpp"), "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() or "unknown"

    def cactus(self) -> Path:
        """The `cactus` command: the one given, else a release build of this checkout."""
        if self.cactus_path is not None:
            if not self.cactus_path.is_file():
                raise PeerError(f"no such file: {self.cactus_path}")
            return self.cactus_path
        if shutil.which("cargo") is None:
            raise PeerError("cargo is not on the PATH; give the program with --cactus")
        call(["cargo", "build", "--release", "--quiet", "--manifest-path", ROOT / "Cargo.toml", "-p", "cactus-cli"])
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        path = target / "release" / "cactus"
        if not path.is_file():
            raise PeerError(f"the build of cactus-cli left no {path}")
        return path

    def bundle(self, model: Model, bits: int) -> Path:
        """Our bundle of the model, made anew whenever the `cactus` program is newer."""
        program, source = self.cactus(), self.source(model)
        path = self.cache / "bundles" / f"{model.name}-int{bits}"
        if path.is_dir() and path.stat().st_mtime >= program.stat().st_mtime:
            return path
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        calibrate = ["--calibrate"] if bits < 8 else []
        call([program, "convert", source, path, "--bits", str(bits), *calibrate])
        os.utime(path)
        return path
