"""Pictures in conversations: every form of one shows the model the same."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy
import pytest

pytest.importorskip("cactus._native", reason="the extension module is not built: cargo xtask ci wheel, or pip install ./python")

from cactus import InvalidRequestError, Model  # noqa: E402
from cactus.compat import cactus_complete, cactus_destroy, cactus_init  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PNG = ROOT / "golden/pictures/files/wide.png"
ASKED = {"max_tokens": 6, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("bundles") / "smolvlm"
    program = os.environ["CACTUS_PROGRAM"]
    subprocess.run([program, "convert", str(ROOT / "golden/seeing/smolvlm"), str(path)], check=True, capture_output=True)
    return str(path)


@pytest.fixture(scope="module")
def model(bundle):
    with Model.load(bundle, threads=1, context=512) as model:
        yield model


def test_every_form_of_a_picture_is_the_same(model):
    file = model.chat("What is this?", images=[PNG], **ASKED)
    assert file.prompt_tokens > model.chat("What is this?", **ASKED).prompt_tokens + 20
    said = [{"role": "user", "content": [{"type": "image", "image": PNG.read_bytes()}, {"type": "text", "text": "What is this?"}]}]
    for answer in [model.chat("What is this?", images=[PNG.read_bytes()], **ASKED), model.chat(said, **ASKED)]:
        assert (answer.text, answer.prompt_tokens) == (file.text, file.prompt_tokens)


def test_arrays_and_images_of_pillow_are_shown(model):
    array = numpy.random.default_rng(1).integers(0, 256, (20, 30, 3), dtype=numpy.uint8)
    of_array = model.chat("What is this?", images=[array], **ASKED)
    Image = pytest.importorskip("PIL.Image")
    of_pillow = model.chat("What is this?", images=[Image.fromarray(array)], **ASKED)
    assert of_array.text == of_pillow.text and of_array.prompt_tokens == of_pillow.prompt_tokens


def test_images_of_pillow_are_upright(model):
    Image = pytest.importorskip("PIL.Image")
    file = ROOT / "golden/pictures/files/turned_6.png"
    of_file, of_pillow = (model.chat("What?", images=[image], **ASKED) for image in (file, Image.open(file)))
    assert (of_file.text, of_file.prompt_tokens) == (of_pillow.text, of_pillow.prompt_tokens)


def test_images_of_pillow_with_16_bits_are_their_upper_8(model, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    values = numpy.random.default_rng(3).integers(0, 1 << 16, (20, 30), dtype=numpy.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    upper = numpy.repeat((values >> 8).astype(numpy.uint8)[..., None], 3, axis=2)
    shown = [upper, Image.fromarray(values), tmp_path / "deep.png"]
    said = [model.chat("What is this?", images=[image], **ASKED).text for image in shown]
    assert said[0] == said[1] == said[2]
    with pytest.raises(InvalidRequestError, match="mode F"):
        model.chat("What is this?", images=[Image.fromarray(values.astype(numpy.float32))], **ASKED)


def test_films_are_their_frames_in_any_form(model):
    frames = numpy.random.default_rng(2).integers(0, 256, (3, 20, 30, 3), dtype=numpy.uint8)
    Image = pytest.importorskip("PIL.Image")

    def answer(film, **more):
        part = {"type": "video", "video": film, **more}
        return model.chat([{"role": "user", "content": [part, {"type": "text", "text": "What is this?"}]}], **ASKED)

    of_array, of_pillow = answer(frames), answer([Image.fromarray(frame) for frame in frames])
    assert (of_array.text, of_array.prompt_tokens) == (of_pillow.text, of_pillow.prompt_tokens)
    # A frame a second is seen, and the whole film is.
    assert answer(frames, fps=2).prompt_tokens < of_array.prompt_tokens
    assert answer(frames, times=[0, 1, 2], seconds=3).text == of_array.text
    for film, more, word in [([], {}, "frames"), (b"abc", {}, "list of pictures"), (frames, {"fps": "a"}, "a second"), ([frames[0], frames[0][:10]], {}, "30 x 20")]:
        with pytest.raises(InvalidRequestError, match=word):
            answer(film, **more)


def test_a_session_goes_on_about_its_picture(model):
    session = model.session()
    first = session.chat("What is this?", images=[PNG], **ASKED)
    second = session.chat("And its color?", **ASKED)
    assert second.prompt_tokens > first.prompt_tokens
    assert session.messages[0]["content"][0]["type"] == "image"


def test_the_public_names_take_files(bundle):
    held = cactus_init(bundle)
    try:
        messages = [{"role": "user", "content": "What is this?", "images": [str(PNG)]}]
        plain = cactus_complete(held, [{"role": "user", "content": "What is this?"}], {"max_tokens": 4})
        seen = cactus_complete(held, messages, {"max_tokens": 4})
        assert seen["success"] and seen["prefill_tokens"] > plain["prefill_tokens"] + 20
    finally:
        cactus_destroy(held)


def test_what_is_no_picture_is_refused_by_name(model):
    for images, words in [
        (["absent.png"], "absent.png"),
        ([b"no picture"], "picture"),
        ([numpy.zeros((3, 3))], "uint8"),
        ([7], "Pillow"),
        ("a.png", "images"),
    ]:
        with pytest.raises((InvalidRequestError, OSError), match=words):
            model.chat("What?", images=images, **ASKED)
    with pytest.raises(InvalidRequestError, match="user"):
        model.chat([{"role": "assistant", "content": "a"}], images=[PNG], **ASKED)
