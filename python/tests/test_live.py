"""Live speech, with a tiny Whisper of random weights and a detector whose weights are made so that it hears one tone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import struct
import subprocess
import wave
from pathlib import Path

import pytest

pytest.importorskip("cactus._native", reason="the extension module is not built: cargo xtask ci wheel, or pip install ./python")
numpy = pytest.importorskip("numpy")

from cactus import (  # noqa: E402
    ClosedError,
    InvalidRequestError,
    SpeechEnd,
    SpeechFinal,
    SpeechPartial,
    SpeechStart,
    Stream,
    Transcriber,
    UnsupportedError,
    Vad,
)

ROOT = Path(__file__).resolve().parents[2]
RATE = 16_000
# The window of the tiny model is one second long, and in a language without spaces characters are committed.
OPTIONS = {"language": "zh", "step_ms": 100, "silence_ms": 200, "max_phrase_s": 1.0}


def write_detector(path: Path) -> None:
    """What `cactus_testkit::tone` writes, in the form of Silero VAD's package: it hears 250 Hz, and nothing else."""
    fft, bins, heard = 256, 129, 4
    basis = numpy.zeros((2 * bins, 1, fft), numpy.float32)
    angles = 2 * numpy.pi * heard * numpy.arange(fft) / fft
    basis[heard, 0], basis[bins + heard, 0] = numpy.cos(angles), numpy.sin(angles)
    first = numpy.zeros((1, bins, 3), numpy.float32)
    first[0, heard] = 1
    tensors = {"stft_conv.weight": basis, "conv1.weight": first}
    tensors |= {f"conv{i}.weight": numpy.ones((1, 1, 3), numpy.float32) for i in (2, 3, 4)}
    tensors |= {f"conv{i}.bias": numpy.zeros(1, numpy.float32) for i in (1, 2, 3, 4)}
    tensors |= {
        "lstm_cell.weight_ih": numpy.array([[0], [0], [0.1], [0]], numpy.float32),
        "lstm_cell.weight_hh": numpy.zeros((4, 1), numpy.float32),
        "lstm_cell.bias_ih": numpy.array([10, -10, 0, 10], numpy.float32),
        "lstm_cell.bias_hh": numpy.zeros(4, numpy.float32),
        "final_conv.weight": numpy.full((1, 1, 1), 20, numpy.float32),
        "final_conv.bias": numpy.full(1, -10, numpy.float32),
    }
    header, data = {}, b""
    for name, values in tensors.items():
        end = len(data) + values.nbytes
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), end]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def sound(*spans: tuple[float, float]):
    """Seconds of silence and of the tone by turns, as samples of 16 bits."""
    parts = [part for silence, tone in spans for part in (numpy.zeros(int(silence * RATE)), _tone(tone))]
    return (numpy.concatenate(parts) * 32767).astype(numpy.int16)


def _tone(seconds: float):
    return 0.5 * numpy.sin(2 * numpy.pi * 250 * numpy.arange(int(seconds * RATE)) / RATE)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("bundles")
    write_detector(folder / "silero_vad_16k.safetensors")
    sources = {"whisper": ROOT / "golden/speech/whisper", "vad": folder / "silero_vad_16k.safetensors"}
    made = {}
    for name, source in sources.items():
        made[name] = str(folder / name)
        subprocess.run([os.environ["CACTUS_PROGRAM"], "convert", source, made[name]], check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def models(bundles):
    with Transcriber.load(bundles["whisper"], threads=1) as transcriber:
        yield transcriber, Vad.load(bundles["vad"])


SOUND = sound((0.5, 0.3), (0.6, 2.2), (0.6, 0.05), (0.6, 0.5))


def heard(models, pieces, **options):
    with Stream(*models, **(OPTIONS | options)) as stream:
        return list(stream.events(pieces))


def test_events_are_those_of_the_command_however_the_sound_is_cut(models, bundles, tmp_path):
    path = tmp_path / "sound.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(SOUND.tobytes())
    command = [os.environ["CACTUS_PROGRAM"], "listen", path, "--model", bundles["whisper"], "--vad", bundles["vad"], "--format", "json"]
    command += ["--language", "zh", "--step-ms", "100", "--silence-ms", "200"]
    lines = subprocess.run(command, check=True, capture_output=True).stdout.splitlines()
    expected = [json.loads(line) for line in lines]
    all_at_once = heard(models, [SOUND])
    assert len(all_at_once) == len(expected) > 10
    for event, line in zip(all_at_once, expected, strict=True):
        match event:
            case SpeechStart():
                assert (line["event"], event.id, event.start) == ("speech_start", line["id"], line["start_s"])
            case SpeechPartial():
                found = (event.id, event.committed, event.volatile, event.until)
                assert found == (line["id"], line["committed"], line["volatile"], line["until_s"])
            case SpeechFinal():
                found = (event.id, event.text, event.reason, event.language, event.segment.tokens)
                segment = line["segment"]
                assert found == (segment["id"], segment["text"], line["reason"], line["language"], segment["tokens"])
            case SpeechEnd():
                assert (line["event"], event.id, event.end) == ("speech_end", line["id"], line["end_s"])
    floats = SOUND.astype(numpy.float32) / 32768
    for pieces in (
        numpy.array_split(SOUND, 31),
        numpy.array_split(floats, 7),
        [piece.tobytes() for piece in numpy.array_split(SOUND, 5)],
        [bytearray(SOUND.tobytes()), memoryview(b"")],
    ):
        assert heard(models, pieces) == all_at_once


def test_other_rates_are_resampled_and_streams_share_a_model(models):
    plain = [event.id for event in heard(models, [SOUND]) if isinstance(event, SpeechFinal)]
    twice = numpy.repeat(SOUND, 2)
    assert [e.id for e in heard(models, [twice], sample_rate=2 * RATE) if isinstance(e, SpeechFinal)] == plain

    async def both():
        streams = [Stream(*models, **OPTIONS) for _ in range(2)]
        found = await asyncio.gather(*(stream.apush(SOUND) for stream in streams))
        return [first + await stream.afinish() for first, stream in zip(found, streams, strict=True)]

    assert asyncio.run(both()) == [heard(models, [SOUND])] * 2


def test_wrong_calls_say_what_is_wrong(models, bundles):
    transcriber, vad = models
    for options, says in [
        ({"language": "xx"}, "`xx`"),
        ({"step_ms": -1}, "`step_ms`"),
        ({"max_phrase_s": "long"}, "`max_phrase_s`"),
        ({"max_phrase_s": 99.0}, "most_s"),
        ({"threshold": 7}, "`threshold`"),
        ({"sample_rate": 1}, "rate"),
    ]:
        with pytest.raises(InvalidRequestError) as caught:
            Stream(*models, **(OPTIONS | options))
        assert says in str(caught.value)
    for wrong in ((vad, vad), (transcriber, transcriber)):
        with pytest.raises(InvalidRequestError):
            Stream(*wrong)
    stream = Stream(*models, **OPTIONS)
    for samples, says in [(b"\0", "16 bits"), (5, "samples"), (numpy.zeros((2, 8), numpy.float32), "one dimension")]:
        with pytest.raises(InvalidRequestError, match=says):
            stream.push(samples)
    with pytest.raises(InvalidRequestError, match="(?i)nan"):
        stream.push(numpy.full(RATE, numpy.nan, numpy.float32))
    stream.close()
    with pytest.raises(ClosedError):
        stream.push(SOUND)
    with pytest.raises(UnsupportedError):
        Vad.load(bundles["whisper"])
    with Transcriber.load(bundles["whisper"]) as closed:
        stream = Stream(closed, vad, **OPTIONS)
    with pytest.raises(ClosedError):
        stream.push(SOUND)


def test_the_guide_shows_what_works(models, capsys):
    text = (ROOT / "docs/guides/python.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(from cactus import SpeechFinal.*?)```", text, re.DOTALL)
    body = example.split("\n\n", 1)
    names: dict[str, object] = {}
    exec(body[0], names)
    names |= {"transcriber": models[0], "vad": models[1], "microphone": numpy.array_split(SOUND, 50)}
    used = body[1].replace("Stream(transcriber, vad)", "Stream(transcriber, vad, **options)")
    exec(used, names | {"options": OPTIONS})
    texts = [event.text for event in heard(models, [SOUND]) if isinstance(event, SpeechFinal)]
    printed = capsys.readouterr().out
    assert texts and all(text in printed for text in texts)
