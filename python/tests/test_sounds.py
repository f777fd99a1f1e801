"""Sounds in conversations: every form of one is heard the same."""

from __future__ import annotations

import os
import subprocess
import wave
from pathlib import Path

import numpy
import pytest

pytest.importorskip("cactus._native", reason="the extension module is not built: cargo xtask ci wheel, or pip install ./python")

from cactus import InvalidRequestError, Model  # noqa: E402
from cactus.compat import cactus_complete, cactus_destroy, cactus_init  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "golden/seeing/gemma4_hears"
WAV = FOLDER / "sound.1.wav"
PNG = ROOT / "golden/pictures/files/wide.png"
ASKED = {"max_tokens": 6, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("bundles") / "hears"
    program = os.environ["CACTUS_PROGRAM"]
    subprocess.run([program, "convert", str(FOLDER), str(path)], check=True, capture_output=True)
    return str(path)


@pytest.fixture(scope="module")
def model(bundle):
    with Model.load(bundle, threads=1, context=512) as model:
        yield model


def pcm() -> bytes:
    with wave.open(str(WAV)) as file:
        return file.readframes(file.getnframes())


def test_every_form_of_a_sound_is_the_same(model):
    file = model.chat("What is this?", sounds=[WAV], **ASKED)
    assert file.prompt_tokens == model.chat("What is this?", **ASKED).prompt_tokens + 33 + 2
    said = [{"role": "user", "content": [{"type": "audio", "audio": WAV.read_bytes()}, {"type": "text", "text": "What is this?"}]}]
    samples = numpy.frombuffer(pcm(), dtype="<i2").astype(numpy.float32) / 32768
    for answer in [
        model.chat("What is this?", sounds=[WAV.read_bytes()], **ASKED),
        model.chat("What is this?", sounds=[samples], **ASKED),
        model.chat(said, **ASKED),
    ]:
        assert (answer.text, answer.prompt_tokens) == (file.text, file.prompt_tokens)


def test_pictures_and_sounds_go_together(model):
    session = model.session()
    first = session.chat("What is this?", images=[PNG], sounds=[WAV], **ASKED)
    second = session.chat("And that?", **ASKED)
    assert [part["type"] for part in session.messages[0]["content"]] == ["image", "audio", "text"]
    assert second.prompt_tokens > first.prompt_tokens


def test_the_public_names_take_files_and_samples(bundle):
    held = cactus_init(bundle)
    try:
        plain = cactus_complete(held, [{"role": "user", "content": "What is this?"}], {"max_tokens": 4})
        file = cactus_complete(held, [{"role": "user", "content": "What is this?", "audio": [str(WAV)]}], {"max_tokens": 4})
        samples = cactus_complete(held, [{"role": "user", "content": "What is this?"}], {"max_tokens": 4}, pcm_data=pcm())
        assert file["success"] and file["prefill_tokens"] == plain["prefill_tokens"] + 35
        assert samples["response"] == file["response"]
        with pytest.raises(RuntimeError, match="2 bytes"):
            cactus_complete(held, [{"role": "user", "content": "a"}], pcm_data=b"123")
    finally:
        cactus_destroy(held)


def test_what_is_no_sound_is_refused_by_name(model):
    for sounds, words in [
        (["absent.wav"], "absent.wav"),
        ([b"no sound"], "sound|file|format"),
        ([numpy.zeros((3, 3))], "samples"),
        ([numpy.zeros(100, dtype=numpy.float32)], "more than 160"),
        ([7], "array"),
        ("a.wav", "sounds"),
    ]:
        with pytest.raises((InvalidRequestError, OSError), match=words):
            model.chat("What?", sounds=sounds, **ASKED)
