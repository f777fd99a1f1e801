"""The package as a whole: its stubs say what the extension module has, and the examples of the guide run."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_stubs_are_those_of_the_module():
    pytest.importorskip("cactus._native", reason="the extension module is not built: pip install ./python")
    pytest.importorskip("mypy", reason="mypy is not installed, so the stubs are not compared with the module")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "MYPYPATH": str(ROOT / "python")}
    command = [sys.executable, "-m", "mypy.stubtest", "cactus._native", "--ignore-missing-stub"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT / "python")
    assert done.returncode == 0, done.stdout + done.stderr


def test_examples_of_the_guide_run(monkeypatch, tmp_path):
    pytest.importorskip("cactus._native", reason="the extension module is not built: pip install ./python")
    pytest.importorskip("pydantic", reason="pydantic is not installed, so the examples of docs/guides/python.md do not run")
    models = Path(os.environ.get("CACTUS_TEST_MODELS", Path.home() / ".cache/cactus/test-models"))
    model = models / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not model.is_file():
        pytest.skip(f"{model} is not there (scripts/fetch_models.py gets it), so the examples of docs/guides/python.md do not run")
    monkeypatch.chdir(tmp_path)
    # The function of the example.
    command = [os.environ["CACTUS_PROGRAM"], "transpile", str(ROOT / "golden/pt2/cnn.pt2"), "bundle", "--task", "function"]
    subprocess.run(command, check=True, capture_output=True)
    text = (ROOT / "docs/guides/python.md").read_text(encoding="utf-8")
    # What a person writes is the name; the tests have a file.
    text = text.replace('"smollm2-135m-instruct"', repr(str(model)))
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "python.md", None, 0)
    assert len(test.examples) > 10
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


def test_docstring_examples_run():
    import cactus
    from cactus import tools

    for module in (cactus, tools):
        assert doctest.testmod(module).failed == 0
