"""The way to the program, without torch: bundles of the checked-in archives, run from Python."""

import json
import struct
import subprocess
import sys

import numpy as np
import pytest
from cactus.bindings.cactus import Graph, Tensor
from cactus.transpile import program
from cactus.transpile.errors import TranspileError


def arrays(path):
    """The arrays of a safetensors file."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    types = {"F32": "<f4", "I64": "<i8"}
    out = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            start, end = (8 + size + o for o in entry["data_offsets"])
            out[name] = np.frombuffer(data[start:end], types[entry["dtype"]]).reshape(entry["shape"])
    return out


def bundle(fixtures, folder, case, *options):
    path = folder / case
    program.transpile(fixtures / f"{case}.pt2", path, "--task", "function", *options)
    return path


@pytest.mark.parametrize("case", ["classifier", "cnn", "vit", "tagger", "minilm", "smollm2"])
def test_graph_gives_what_torch_gave(fixtures, tmp_path, case):
    graph = Graph(bundle(fixtures, tmp_path, case))
    stored = arrays(fixtures / f"{case}.safetensors")
    calls = 1 + max(int(name.split(".")[0]) for name in stored)
    for call in range(calls):
        for port in graph.inputs:
            graph.set_input(port["name"], stored[f"{call}.input.{port['name']}"])
        for i, output in enumerate(graph.execute()):
            want = stored[f"{call}.output.{i}"]
            assert output.shape == want.shape
            assert np.abs(output.numpy() - want).max() <= 1e-5 * np.abs(want).max()


def test_graph_converts_inputs_and_refuses_what_does_not_fit(fixtures, tmp_path):
    graph = Graph(bundle(fixtures, tmp_path, "cnn"))
    image = np.random.default_rng(0).normal(size=(1, 3, 33, 30))
    graph.set_input(0, image.astype(np.float16))
    half = graph.execute()[0].numpy()
    # An array that a graph gave is taken by another.
    full = graph.execute(Tensor("image", image.astype(np.float32)))[0].numpy()
    assert np.abs(half - full).max() < 1e-3
    for which, value, words in [
        (1, image, "there is no input 1"),
        ("y", image, "there is no input 'y'"),
        (0, image[0], "4 axes"),
    ]:
        with pytest.raises(TranspileError, match=words):
            graph.set_input(which, value)
    with pytest.raises(TranspileError, match="1, 3, 33, 30"):
        graph.execute(image[:, :, :32].astype(np.float32))
    graph.reset()
    with pytest.raises(TranspileError, match="not set"):
        graph.execute()


def test_graph_refuses_floats_for_token_ids(fixtures, tmp_path):
    graph = Graph(bundle(fixtures, tmp_path, "classifier"))
    with pytest.raises(TranspileError, match="to be i64, found f32"):
        graph.set_input(0, np.zeros((1, 5), np.float32))


def test_guards_of_the_capture_hold_from_python(fixtures, tmp_path):
    graph = Graph(bundle(fixtures, tmp_path, "gpt"))
    with pytest.raises(TranspileError, match="63"):
        graph.execute(np.zeros((1, 64), np.int64))


def test_program_errors_are_those_of_the_program(tmp_path):
    broken = tmp_path / "broken.pt2"
    broken.write_bytes(b"no zip")
    with pytest.raises(TranspileError, match="not a zip archive"):
        program.transpile(broken, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_program_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CACTUS_PROGRAM", str(tmp_path / "nothing"))
    with pytest.raises(TranspileError, match="CACTUS_PROGRAM should name the cactus program"):
        program.find()


def test_state_continues_token_ids(fixtures, tmp_path):
    program.transpile(fixtures / "smollm2.pt2", tmp_path / "lm")
    ids = [5, 9, 33, 71]
    whole = Graph(bundle(fixtures, tmp_path, "smollm2"))
    tokens = program.generate(tmp_path / "lm", ids, 12)
    assert len(tokens) == 12
    for i, token in enumerate(tokens):
        logits = whole.execute(np.array([ids + tokens[:i]]))[0].numpy()[0, -1]
        # The states hold keys and values in 8 bits: nearly equal logits may change places.
        assert logits.max() - logits[token] < 0.05 * np.abs(logits).max()


def test_command_says_how_to_install_torch(tmp_path):
    """A Python without torch: `-S` leaves installed packages out."""
    code = (
        "import sys, types; sys.modules['numpy'] = types.ModuleType('numpy');"
        "from cactus.transpile.__main__ import main; sys.exit(main(['org/model']))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(program.__file__).rsplit("/cactus/", 1)[0]},
    )
    assert done.returncode == 1
    assert "pip install torch transformers" in done.stderr


def test_page_names_what_falls_short():
    from families_page import page

    good = {"component": "decoder", "exports": True, "notes": [], "captured": 9, "ops": 5, "computing": 4, "fused": 2}
    results = [
        {
            "name": "a",
            "family": "A",
            "task": "t",
            "rows": [good | {"error": 2e-7, "lengths": 2, "states": "yes", "greedy": "24 of 24"}],
        },
        {
            "name": "user_b",
            "family": "B",
            "task": "t",
            "rows": [{"component": "model", "failed": "error: /x/y/b.pt2: no row | here"}],
        },
    ]
    text = page(results, "2.15.0+cpu")
    assert "| A | `t` | decoder | yes | varies | 9 | 5 | 1 | 2 | 2e-07 | 24 of 24 |" in text
    assert "- **B**, model: b.pt2: no row / here" in text
    assert "/x/y" not in text


def test_weights_of_a_folder_take_the_place_of_the_programs(fixtures, tmp_path):
    program.call("convert", fixtures / "classifier.pt", tmp_path / "w", "--bits", 32)
    graph = Graph(bundle(fixtures, tmp_path, "classifier", "--weights-dir", tmp_path / "w"))
    stored = arrays(fixtures / "classifier.safetensors")
    graph.set_input(0, stored["0.input.input_ids"])
    want = stored["0.output.0"]
    assert np.abs(graph.execute()[0].numpy() - want).max() <= 1e-5 * np.abs(want).max()
    assert (tmp_path / "w" / "weights_manifest.json").is_file()
    with pytest.raises(TranspileError, match="does not fit this program: it has no"):
        bundle(fixtures, tmp_path, "cnn", "--weights-dir", tmp_path / "w")
