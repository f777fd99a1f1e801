"""Where the cactus program is: `CACTUS_PROGRAM`, or what cargo built last in this repository."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "tools")]


def pytest_configure(config):
    if "CACTUS_PROGRAM" in os.environ:
        return
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [p for p in (target / "release" / "cactus", target / "debug" / "cactus") if p.is_file()]
    if not built:
        raise pytest.UsageError(
            "the tests run the cactus program: `cargo build -p cactus-cli` first, or set CACTUS_PROGRAM"
        )
    os.environ["CACTUS_PROGRAM"] = str(max(built, key=lambda p: p.stat().st_mtime))


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Archives with their inputs and outputs."""
    return ROOT / "golden" / "pt2"


#: Of the tiny model, so long that an answer does not end before something happens to it.
CONTEXT = 65_536


@pytest.fixture(scope="session")
def bundle(tmp_path_factory) -> str:
    """A tiny model with a chat template."""
    folder = tmp_path_factory.mktemp("bundles")
    source = folder / "source"
    shutil.copytree(ROOT / "golden/models/smollm3", source)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 2 * CONTEXT}))
    program = os.environ["CACTUS_PROGRAM"]
    subprocess.run([program, "convert", str(source), str(folder / "smollm3")], check=True, capture_output=True)
    return str(folder / "smollm3")


@pytest.fixture(scope="module")
def model(bundle):
    """It, loaded."""
    from cactus import Model

    with Model.load(bundle, threads=1, context=CONTEXT) as model:
        yield model
