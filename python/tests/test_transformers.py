"""Models of transformers through adapters: tasks, components, states."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from cactus.transpile import model_adapters, pipeline, program  # noqa: E402
from cactus.transpile.__main__ import parse  # noqa: E402
from cactus.transpile.capture_pytorch import capture_model  # noqa: E402
from cactus.transpile.errors import TranspileError  # noqa: E402
from cactus.transpile.lower import transpile_ir  # noqa: E402
from zoo import ZOO  # noqa: E402


def made(name):
    return ZOO[name][0]()


def run(*words):
    return pipeline.run(parse([str(w) for w in words]), lambda line: None)


@pytest.mark.parametrize(
    "name, task, names",
    [
        ("smollm2", "causal_lm_logits", ["decoder"]),
        ("minilm", "encoder_hidden_states", ["encoder"]),
        ("vit", "encoder_hidden_states", ["encoder"]),
        ("parakeet_ctc", "ctc_logits", ["encoder"]),
        ("whisper", "seq2seq_transcription", ["encoder", "decoder"]),
        ("parakeet_tdt", "tdt_transcription", ["encoder", "decoder_step", "joint"]),
        ("qwen3_vl_vision", "encoder_hidden_states", ["vision_encoder"]),
        ("gemma3n_audio", "encoder_hidden_states", ["audio_encoder"]),
        ("lfm3", "causal_lm_logits", ["decoder"]),
        ("gemma3_vlm", "multimodal_causal_lm_logits", ["picture_encoder", "decoder"]),
        ("llava", "multimodal_causal_lm_logits", ["vision_encoder", "lm_encoder", "decoder"]),
    ],
)
def test_task_and_components_are_found(name, task, names):
    found, parts = model_adapters.components(made(name))
    assert (found, [c.name for c in parts]) == (task, names)
    for part in parts:
        with torch.no_grad():
            outputs = part.module(*part.inputs.values())
        assert len(part.outputs) == (1 if isinstance(outputs, torch.Tensor) else len(outputs))


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_folder_of_a_language_model_generates(tmp_path, name):
    model = made(name)
    model.save_pretrained(tmp_path / "hf")
    result = run(tmp_path / "hf", tmp_path / "out")
    assert result["task"] == "causal_lm_logits"
    [row] = result["components"]
    assert row["outputs"][0]["relative"] < 1e-4
    assert row["notes"] == []
    ids = [5, 9, 33, 71, 12]
    with torch.no_grad():
        want = list(ids)
        for _ in range(16):
            want.append(int(model(torch.tensor([want]), use_cache=False).logits[0, -1].argmax()))
    assert program.generate(tmp_path / "out", ids, 16) == want[len(ids) :]


@pytest.mark.parametrize("name", ["granite", "cohere", "cohere2", "gptj", "glm"])
def test_archive_that_was_not_decomposed_generates_through_states(tmp_path, name):
    """What `torch.export.save` writes, with nothing of ours before it."""
    model = made(name)

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids):
            return self.model(input_ids=input_ids, use_cache=False, return_dict=False)[0]

    ids = [5, 9, 33, 71, 12]
    shapes = {"input_ids": {1: torch.export.Dim("seq", min=2, max=200)}}
    with torch.no_grad():
        exported = torch.export.export(Logits().eval(), (torch.tensor([ids]),), dynamic_shapes=shapes, strict=False)
        torch.export.save(exported, tmp_path / "model.pt2")
        want = list(ids)
        for _ in range(16):
            want.append(int(model(torch.tensor([want]), use_cache=False).logits[0, -1].argmax()))
    program.transpile(tmp_path / "model.pt2", tmp_path / "out")
    assert program.generate(tmp_path / "out", ids, 16) == want[len(ids) :]
    # The same bundle is still the function that was captured.
    [(_, logits)] = program.run(tmp_path / "out", {"input_ids": np.array([want])})
    with torch.no_grad():
        whole = model(torch.tensor([want]), use_cache=False).logits.numpy()
    assert np.abs(logits - whole).max() < 1e-5 * np.abs(whole).max()


def test_gated_delta_rule_is_one_operation_of_any_length(tmp_path):
    model = made("qwen3_5")
    _, [part] = model_adapters.components(model)
    captured = capture_model(part.module, tuple(part.inputs.values()), dynamic_shapes=part.dynamic_shapes())
    assert captured.notes == []
    graph = transpile_ir(captured.ir_graph)
    assert program.inspect(graph.bundle)["components"][0]["ops"]["gated_delta"] == 1
    for n in (8, 65):
        ids = torch.arange(3, 3 + n).view(1, n)
        with torch.no_grad():
            want = part.module(ids).numpy()
        found = graph.execute(ids)[0].numpy()
        assert np.abs(found - want).max() < 1e-4 * np.abs(want).max()


def test_components_are_one_bundle_that_runs_as_a_chain(tmp_path):
    model = made("whisper")
    model.save_pretrained(tmp_path / "hf")
    result = run(tmp_path / "hf", tmp_path / "out")
    assert [r["ports"]["name"] for r in result["components"]] == ["encoder", "decoder"]
    assert all(o["relative"] < 1e-4 for r in result["components"] for o in r["outputs"])
    sound = torch.randn(1, 16, 100)
    ids = torch.tensor([[3, 7, 11]])
    with torch.no_grad():
        want = model(input_features=sound, decoder_input_ids=ids, use_cache=False).logits.numpy()
    inputs = {"input_features": sound.numpy(), "decoder_input_ids": ids.numpy()}
    outputs = dict(program.run(tmp_path / "out", inputs))
    assert set(outputs) == {"encoder_hidden_states", "logits"}
    assert np.abs(outputs["logits"] - want).max() < 1e-4 * np.abs(want).max()
    # One component alone, with what the other gave.
    inputs = {"decoder_input_ids": ids.numpy(), "encoder_hidden_states": outputs["encoder_hidden_states"]}
    [(name, alone)] = program.run(tmp_path / "out", inputs, "decoder")
    assert name == "logits" and np.array_equal(alone, outputs["logits"])
    wide = dict(program.run(tmp_path / "out", {"input_features": sound.double().numpy(), "decoder_input_ids": ids.int().numpy()}))
    assert np.array_equal(wide["logits"], outputs["logits"])
    with pytest.raises(TranspileError, match="input `sound`"):
        program.run(tmp_path / "out", {"sound": sound.numpy()})
    with pytest.raises(TranspileError, match="complex64|c8"):
        program.run(tmp_path / "out", {"input_features": sound.numpy().astype(np.complex64)})


def test_components_can_be_chosen(tmp_path):
    made("whisper").save_pretrained(tmp_path / "hf")
    run(tmp_path / "hf", tmp_path / "out", "--components", "encoder", "--skip-reference-compare")
    manifest = json.loads((tmp_path / "out" / "components" / "manifest.json").read_text())
    assert [c["name"] for c in manifest["components"]] == ["encoder"]
