"""Where the cactus program is: `CACTUS_PROGRAM`, or what cargo built last in this repository."""

import os
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
