"""Capturing with torch: modules, files and models of transformers, from the command to numbers beside PyTorch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from cactus.bindings.cactus import Graph  # noqa: E402
from cactus.transpile import compare, pipeline, program  # noqa: E402
from cactus.transpile.__main__ import parse  # noqa: E402
from cactus.transpile.capture_pytorch import capture_model  # noqa: E402
from cactus.transpile.errors import TranspileError  # noqa: E402
from cactus.transpile.lower import transpile_ir  # noqa: E402
from torch import nn  # noqa: E402

CLASSIFIER = """
import torch
import torch.nn as nn

class TextClassifier(nn.Module):
    def __init__(self, vocab_size=320, embed_dim=32, num_classes=4):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.fc1 = nn.Linear(embed_dim, 16)
        self.fc2 = nn.Linear(16, num_classes)

    def forward(self, input_ids):
        x = self.embedding(input_ids)
        x = x.mean(dim=1)
        x = torch.nn.functional.relu(self.fc1(x))
        return self.fc2(x)
"""


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 32)

    def forward(self, x):
        return torch.relu(self.linear(x))


def run(*words):
    """What the command does, without a process; gives the result and what it said."""
    said = []
    return pipeline.run(parse([str(w) for w in words]), said.append), "\n".join(said)


def test_python_api_of_the_guide():
    model = Small().eval()
    captured = capture_model(model, (torch.randn(1, 64),))
    transpiled = transpile_ir(captured.ir_graph)
    half = np.random.default_rng(0).normal(size=(1, 64)).astype(np.float16)
    transpiled.set_input(0, half)
    outputs = transpiled.execute()
    x = half.astype(np.float32)
    assert outputs[0].numpy().shape == (1, 32)
    with torch.no_grad():
        assert np.allclose(outputs[0].numpy(), model(torch.from_numpy(x)).numpy(), atol=1e-6)


def test_capture_keeps_lengths_that_vary():
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval()
    shapes = ({1: torch.export.Dim("n", min=2, max=9)},)
    captured = capture_model(model, (torch.randn(1, 4, 8),), dynamic_shapes=shapes)
    graph = transpile_ir(captured.ir_graph)
    for n in (2, 9):
        x = torch.randn(1, n, 8)
        with torch.no_grad():
            want = model(x).numpy()
        assert np.allclose(graph.execute(x)[0].numpy(), want, atol=1e-6)
    with pytest.raises(TranspileError, match="9"):
        graph.execute(torch.randn(1, 10, 8))


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Counts(nn.Module):
    def forward(self, x):
        return x[x > 0].cumsum(0)


@pytest.mark.parametrize("module, words", [(Branches(), "torch.where"), (Counts(), None)])
def test_what_cannot_be_captured_says_where_and_what_helps(module, words):
    x = torch.randn(4)
    try:
        captured = capture_model(module.eval(), (x,))
    except TranspileError as e:
        assert type(module).__name__ in str(e)
        assert "test_capture.py, line" in str(e)
        if words:
            assert words in str(e)
    else:
        # torch captures sizes that depend on data; the importer refuses them.
        with pytest.raises(TranspileError, match="nonzero|boolean mask"):
            transpile_ir(captured.ir_graph)


def test_length_that_torch_fixes_without_a_word_is_noted(monkeypatch):
    from cactus.transpile import capture_pytorch

    model, x, axes = Small().eval(), torch.randn(3, 64), {"x": {0: torch.export.Dim("n", min=2, max=8)}}
    assert capture_model(model, (x,), dynamic_shapes=axes).notes == []
    export = capture_pytorch._export
    monkeypatch.setattr(capture_pytorch, "_export", lambda m, a, k, _: export(m, a, k, None))
    assert capture_model(model, (x,), dynamic_shapes=axes).notes == [capture_pytorch.FIXED]
    assert capture_model(model, (x,), dynamic_shapes={"x": None}).notes == []


def test_module_in_training_mode_is_refused():
    with pytest.raises(TranspileError, match=r"call eval\(\)"):
        capture_model(Small(), (torch.randn(1, 64),))


def test_operation_without_a_row_names_the_line(tmp_path):
    class Odd(nn.Module):
        def forward(self, x):
            return torch.linalg.svdvals(x)

    captured = capture_model(Odd().eval(), (torch.randn(3, 3),))
    with pytest.raises(TranspileError, match=r"(?s)linalg_svd.*test_capture\.py.*add support"):
        transpile_ir(captured.ir_graph)


def test_class_with_a_state_dict_from_the_command(tmp_path):
    code = tmp_path / "my_model.py"
    code.write_text(CLASSIFIER)
    scope = {}
    exec(CLASSIFIER, scope)
    torch.manual_seed(3)
    model = scope["TextClassifier"](vocab_size=200).eval()
    torch.save(model.state_dict(), tmp_path / "classifier.pt")

    result, said = run(
        f"{code}:TextClassifier", tmp_path / "out", "--state-dict", tmp_path / "classifier.pt", "--init", '{"vocab_size": 200}',
        "--example", "input_ids=i64[1,16]", "--execute-after-transpile",
    )  # fmt: skip
    [row] = result["components"]
    assert row["outputs"][0]["relative"] < 1e-5
    assert "relative" in said
    assert json.loads((tmp_path / "out" / "result.json").read_text())["task"] == "function"
    ids = torch.randint(0, 200, (1, 16))
    with torch.no_grad():
        want = model(ids).numpy()
    assert np.allclose(Graph(tmp_path / "out").execute(ids)[0].numpy(), want, atol=1e-6)

    # Eight bits: smaller, and close.
    result, _ = run(
        f"{code}:TextClassifier", tmp_path / "small", "--state-dict", tmp_path / "classifier.pt", "--init", '{"vocab_size": 200}',
        "--example", "i64[1,16]", "--bits", 8,
    )  # fmt: skip
    assert 1e-7 < result["components"][0]["outputs"][0]["relative"] < 0.1
    assert result["quality"] is None

    # A policy: what it says of the embedding, and of nothing that is there.
    policy = tmp_path / "policy.toml"
    policy.write_text('bits = 8\nembeddings = 6\n[[rule]]\npattern = "*nowhere*"\nbits = 4\n')
    result, said = run(
        f"{code}:TextClassifier", tmp_path / "mixed", "--state-dict", tmp_path / "classifier.pt", "--init", '{"vocab_size": 200}',
        "--example", "i64[1,16]", "--policy", policy, "--embedding-bits", 5,
    )  # fmt: skip
    assert "`*nowhere*` matches no weight" in said
    assert result["quality"]["verdict"] == "not_measured"
    assert any(tensor["packing"] == "tcq5_g128" for tensor in result["quality"]["tensors"])


def test_pictures_and_films_are_resized_and_pooled_as_torch_does(tmp_path):
    class Resizing(nn.Module):
        def forward(self, x, film):
            resize = nn.functional.interpolate
            sizes = ((5, 31), (23, 9), (40, 40))
            smooth = [resize(x, size, mode="bicubic", antialias=True) for size in sizes]
            rough = [resize(x, size, mode="bicubic") for size in sizes]
            pools = [nn.functional.adaptive_avg_pool3d(film, size) for size in (1, (2, 3, 4), (3, 4, 5))]
            blank = x.clone()
            blank[:, 1].zero_()
            return (*smooth, *rough, *pools, blank)

    inputs = (torch.randn(1, 3, 23, 30), torch.randn(1, 2, 6, 8, 9))
    path = tmp_path / "resizing"
    transpile_ir(capture_model(Resizing().eval(), inputs).ir_graph, artifact_dir=path)
    for got, want in zip(Graph(path).execute(*inputs), Resizing()(*inputs), strict=True):
        assert np.allclose(got.numpy(), want.numpy(), atol=1e-5)


def test_filters_of_convolutions_follow_the_bits(tmp_path):
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(),  # Too few channels for vectors of one tap.
        nn.Conv2d(64, 96, 3, stride=2, padding=1), nn.BatchNorm2d(96), nn.SiLU(),
        nn.Conv2d(96, 96, 5, padding=4, dilation=2, groups=96),
        nn.Conv2d(96, 64, 1, stride=2), nn.Hardswish(),
        nn.Conv2d(64, 40, (2, 3)),
        nn.Flatten(2), nn.Conv1d(40, 24, 2), nn.Conv1d(24, 200, 3, padding=2),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 23, 30)
    with torch.no_grad():
        want = model(x).numpy()
    sizes = {}
    for bits, bound in ((32, 1e-5), (8, 0.05), (4, 0.05)):
        path = tmp_path / str(bits)
        transpile_ir(capture_model(model, (x,)).ir_graph, bits=bits, artifact_dir=path)
        got = Graph(path).execute(x)[0].numpy()
        assert np.abs(got - want).max() / np.abs(want).max() < bound, bits
        sizes[bits] = (path / "model.weights").stat().st_size
        weights = json.loads((path / "weights_manifest.json").read_text())["weights"].values()
        inner = [w for w in weights if len(w["dims"]) == 2]
        assert {w["packing"] for w in inner} == ({"f32_n16"} if bits == 32 else {"int8_n16"})
        # Those whose vectors have one tap; in single precision those with few windows and many inputs.
        assert len(inner) == (2 if bits == 32 else 3)
    assert sizes[8] == sizes[4] < 0.5 * sizes[32]


def test_weights_of_a_folder_are_taken_by_name_and_left_alone(tmp_path):
    code = tmp_path / "my_model.py"
    code.write_text(CLASSIFIER)
    scope = {}
    exec(CLASSIFIER, scope)
    torch.manual_seed(4)
    model = scope["TextClassifier"]().eval()
    torch.save(model.state_dict(), tmp_path / "classifier.pt")
    program.call("convert", tmp_path / "classifier.pt", tmp_path / "w", "--bits", 8)
    before = {p: p.read_bytes() for p in (tmp_path / "w").rglob("*") if p.is_file()}
    words = [f"{code}:TextClassifier", tmp_path / "out", "--weights-dir", tmp_path / "w", "--example", "input_ids=i64[1,16]"]
    _, said = run(*words)
    assert "give them with --state-dict" in said
    result, said = run(*words, "--force", "--state-dict", tmp_path / "classifier.pt")
    assert 1e-7 < result["components"][0]["outputs"][0]["relative"] < 0.1
    assert "most of the difference comes from storing the weights in 8 bits" in said
    with pytest.raises(TranspileError, match="name another folder"):
        run(words[0], tmp_path / "w", *words[2:], "--force")
    with pytest.raises(TranspileError, match=r"fc2\.bias.*does not fit this program"):
        run(*words, "--force", "--init", '{"num_classes": 5}')
    with pytest.raises(TranspileError, match="made by `cactus convert`"):
        run(*words[:2], "--weights-dir", tmp_path, *words[4:])
    assert before == {p: p.read_bytes() for p in (tmp_path / "w").rglob("*") if p.is_file()}


def test_code_that_fails_says_where_and_capturing_prints_nothing(tmp_path, capfd):
    code = tmp_path / "broken.py"
    code.write_text("import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        {}['absent']\n")
    with pytest.raises(TranspileError, match=r"(?s)KeyError.*broken\.py, line 4.*what usually helps"):
        run(f"{code}:Net", tmp_path / "out")
    with pytest.raises(TranspileError, match="torch.where"):
        capture_model(Branches().eval(), (torch.randn(4),))
    assert capfd.readouterr().err == ""


def test_state_dict_alone_says_what_is_missing(tmp_path):
    torch.save(Small().state_dict(), tmp_path / "classifier.pt")
    with pytest.raises(TranspileError, match=r"(?s)linear\.weight \[32, 64\].*my_model\.py:MyModel --state-dict"):
        run(tmp_path / "classifier.pt", tmp_path / "out")


def test_pickled_objects_run_only_when_allowed(tmp_path):
    torch.save(Small(), tmp_path / "whole.pt")
    with pytest.raises(TranspileError, match="--trust-remote-code"):
        run(tmp_path / "whole.pt", tmp_path / "out")


@pytest.mark.parametrize(
    "words, message",
    [
        (["nothing.py:Net"], "is not a file"),
        (["{code}:Nothing"], "has no `Nothing`"),
        (["{code}:TextClassifier"], "example_inputs"),
        (["{code}:TextClassifier", "--example", "input_ids=q8[1]"], "f32\\[1,64\\]"),
        (["{code}:TextClassifier", "--init", '{{"depth": 2}}'], "--init"),
        (["{code}:TextClassifier", "--init", "[1]"], "JSON object"),
        (["{code}"], "name the class or function in it"),
    ],
)
def test_bad_sources_are_named(tmp_path, words, message):
    code = tmp_path / "bad_model.py"
    code.write_text(CLASSIFIER)
    with pytest.raises(TranspileError, match=message):
        run(*(w.format(code=code) for w in words), tmp_path / "out")


def test_first_difference_is_none_where_all_agree():
    captured = capture_model(Small().eval(), (torch.randn(1, 64),))
    assert compare.first_difference(captured) is None


def test_first_difference_names_the_operation(monkeypatch):
    class Net(nn.Module):
        def forward(self, x):
            y = torch.sin(x)
            return torch.exp(y) + 1

    real = program.run

    def wrong(bundle, inputs, component=None):
        # The second result, as a wrong kernel would give it.
        out = real(bundle, inputs, component)
        return [(n, np.asarray(a) + 1.0 if i == 1 else a) for i, (n, a) in enumerate(out)]

    monkeypatch.setattr(program, "run", wrong)
    found = compare.first_difference(capture_model(Net().eval(), (torch.randn(2, 3),)))
    assert "exp" in found and "test_capture.py" in found


def test_differences_count_shapes_and_values_that_are_not_finite():
    want = torch.tensor([1.0, float("inf"), -2.0])
    [same] = compare.differences([("a", want.numpy())], [want], ("a",))
    assert (same.max_absolute, same.relative) == (0.0, 0.0)
    [off] = compare.differences([("a", np.array([1.0, np.inf, -1.0], np.float32))], [want], ())
    assert off.relative == 0.5
    for other in (np.array([1.0, 5.0, -2.0], np.float32), np.zeros((2,), np.float32)):
        [far] = compare.differences([("a", other)], [want], ())
        assert far.relative == float("inf")


def test_command_hands_over_to_this_python(tmp_path):
    code = tmp_path / "my_model.py"
    code.write_text(CLASSIFIER + "\ndef example_inputs():\n    return torch.arange(7).view(1, 7)\n")
    words = [
        program.find(),
        "transpile",
        f"{code}:TextClassifier",
        tmp_path / "out",
        "--json",
        "--result-json",
        tmp_path / "r.json",
    ]
    env = os.environ | {"CACTUS_PYTHON": sys.executable, "PYTHONPATH": ""}
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["components"][0]["outputs"][0]["relative"] < 1e-5
    assert json.loads(Path(tmp_path / "r.json").read_text())["path"] == str(tmp_path / "out")
    env["CACTUS_PYTHON"] = str(tmp_path / "no-python")
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env=env)
    assert done.returncode != 0
    assert "CACTUS_PYTHON" in done.stderr
