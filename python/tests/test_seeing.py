"""Captured models that see and hear, beside the same folders by `cactus convert`: one bundle."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from cactus.transpile import pipeline, program  # noqa: E402
from cactus.transpile.__main__ import parse  # noqa: E402
from cactus.transpile.errors import TranspileError  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PNG = ROOT / "golden/pictures/files/wide.png"
WAV = ROOT / "golden/seeing/gemma4_hears/sound.1.wav"

#: Of each family the components whose operations differ, for which numbers and answers are compared alone;
#: docs/guides/transpile.md says in what.
CASES = {
    "smolvlm": {},
    "lfm2_vl": {},
    "gemma3": {},
    "gemma4_hears": {"picture_encoder", "sound_encoder", "decoder"},
    "gemma4_moe": {"picture_encoder", "decoder"},
    "qwen3_5": {"decoder"},
    "qwen3_5_moe": {"decoder"},
    "qwen3_vl": {},
    "qwen3_vl_moe": {"decoder"},
}


def run(*words):
    said = []
    return pipeline.run(parse([str(w) for w in words]), said.append), said


def manifest(bundle: Path) -> dict:
    return json.loads((bundle / "components" / "manifest.json").read_text())


def ports(component: dict) -> dict:
    """Inputs, outputs and states, with sizes that vary as one and the batch as a capture fixes it."""
    size = lambda d: d if isinstance(d, int) else 1 if d == "batch" else "varies"  # noqa: E731
    kind = lambda t: (t["dtype"], [size(d) for d in t["shape"]])  # noqa: E731
    of = lambda ports: {p["name"]: kind(p["type"]) for p in ports}  # noqa: E731
    states = [{key: value for key, value in state.items() if key != "name"} for state in component["states"]]
    return {"inputs": of(component["inputs"]), "outputs": of(component["outputs"]), "states": states}


def operations(bundle: Path, component: str, folder: Path) -> Counter:
    """Each operation with what it reads, and how often it is there; names of weights and symbols do not count."""
    path = folder / "graph.txt"
    program.call("inspect", bundle, "--graph", path, "--component", component)
    kinds, found, out = {}, Counter(), []
    for line in path.read_text().splitlines():
        line = re.sub(r"\b(patches\.1|tokens)\b", "tokens", line.strip())
        line = re.sub(r"\bfeatures\.0\b", "blocks", re.sub(r"\[(batch|1)(?=[,\]])", "[1", line))
        if made := re.match(r"(input|weight) (%\S+): (.*)", line):
            kinds[made[2]] = (made[2] if made[1] == "input" else "weight") + ": " + made[3]
        elif made := re.match(r"(%\S+): (.*?) = (\w+)\((.*)\)(?: (\{.*\}))?$", line):
            attributes = re.sub(r"(, )?state=[^,}]+", "", made[5] or "{}").replace("start=past", "start=0")
            # Numbers may differ in their last digit: PyTorch computes frequencies in single precision.
            read = [kinds[v] for v in re.findall(r"%[^\s,)]+", made[4])]
            read += ["numbers"] * len(re.findall(r"\w+\[[\d,]*\]\{", made[4]))
            found[f"{made[3]}{attributes}: {made[2]} of {', '.join(read)}"] += 1
            kinds[made[1]] = f"{made[3]}: {made[2]}"
        elif made := re.match(r"output \S+ = (\S+)", line):
            out.append(made[1])
    assert found and out
    return found


@pytest.fixture(scope="module", params=CASES)
def bundles(request, tmp_path_factory):
    """A case, its captured bundle with what was said, and its bundle by `cactus convert`."""
    folder, out = ROOT / "golden/seeing" / request.param, tmp_path_factory.mktemp(request.param)
    result, _ = run(folder, out / "captured", "--task", "multimodal_causal_lm_logits", "--component-pipeline", "on")
    program.call("convert", folder, out / "native", "--bits", "32")
    return request.param, result, out / "captured", out / "native"


def test_components_compute_what_pytorch_computes(bundles):
    _, result, _, _ = bundles
    for row in result["components"]:
        assert row["notes"] == []
        assert all(output["relative"] < 1e-4 for output in row["outputs"]), row


def test_the_bundle_is_the_same(bundles, tmp_path):
    case, _, captured, native = bundles
    for record in ("vision.json", "hearing.json", "chat_template.jinja"):
        held = [(bundle / record).read_bytes() if (bundle / record).exists() else None for bundle in (captured, native)]
        assert held[0] == held[1], record
    one, other = manifest(captured), manifest(native)
    for key in ("task", "context_tokens", "vocab_size", "tokens"):
        assert one.get(key) == other.get(key), key
    assert [c["name"] for c in one["components"]] == [c["name"] for c in other["components"]]
    for a, b in zip(one["components"], other["components"]):
        assert ports(a) == ports(b), a["name"]
        if a["name"] in CASES[case]:
            continue
        graphs = [operations(bundle, a["name"], tmp_path) for bundle in (captured, native)]
        assert graphs[0] == graphs[1], (graphs[0] - graphs[1], graphs[1] - graphs[0])


def test_answers_are_the_same(bundles):
    case, _, captured, native = bundles
    asked = ["--prompt", "What is this?", "--image", PNG, "--max-new-tokens", "12", "--temperature", "0"]
    asked += ["--ignore-eos", "--json"]
    if case == "gemma4_hears":
        asked += ["--audio", WAV]
    answers = [json.loads(program.call("run", bundle, *asked)) for bundle in (captured, native)]
    assert answers[0]["response"] == answers[1]["response"]
    assert len(answers[0]["completion_token_ids"]) > 1 and answers[0]["prefill_tokens"] == answers[1]["prefill_tokens"]


def test_a_component_that_takes_something_else_is_refused(tmp_path):
    folder = ROOT / "golden/seeing/smolvlm"
    with pytest.raises(TranspileError, match="`patches`.*found"):
        run(folder, tmp_path / "out", "--static", "--skip-reference-compare")


def test_a_folder_that_does_not_say_how_pictures_are_prepared_takes_texts_alone(tmp_path):
    folder = tmp_path / "hf"
    folder.mkdir()
    for file in (ROOT / "golden/seeing/smolvlm").iterdir():
        if file.name != "preprocessor_config.json":
            (folder / file.name).symlink_to(file)
    result, said = run(folder, tmp_path / "out", "--image-file", PNG)
    assert any("no pictures" in line for line in said) and any("prepared by the engine" in line for line in said)
    assert [row["ports"]["name"] for row in result["components"]] == ["decoder"]
    answer = json.loads(program.call("run", tmp_path / "out", "--prompt", "Who?", "--max-new-tokens", "4", "--json"))
    assert answer["completion_token_ids"]
    assert not (tmp_path / "out" / "vision.json").exists()
