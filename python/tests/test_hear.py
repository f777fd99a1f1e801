"""Recordings, with tiny models of random weights: what they write is nonsense that never changes."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("cactus._native", reason="the extension module is not built: cargo xtask ci wheel, or pip install ./python")
numpy = pytest.importorskip("numpy")

from cactus import (  # noqa: E402
    CancelledError,
    ClosedError,
    InvalidRequestError,
    Policy,
    Target,
    Transcriber,
    UnsupportedError,
    Vad,
)

ROOT = Path(__file__).resolve().parents[2]
CLIP = ROOT / "crates/audio/tests/files/mono_16k.flac"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("bundles")
    made = {}
    for name in ("whisper", "whisper_en", "silero_vad"):
        made[name] = str(folder / name)
        # What random weights of few bits write hangs on the last bit, and who hears again needs words.
        command = [os.environ["CACTUS_PROGRAM"], "convert", str(ROOT / "golden/speech" / name), made[name], "--bits", "16"]
        subprocess.run(command, check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def transcriber(bundles):
    with Transcriber.load(bundles["whisper"], threads=1) as transcriber:
        yield transcriber


def sound(seconds: float, rate: int = 16_000):
    i = numpy.arange(int(seconds * rate)) * (16_000 / rate)
    return (0.5 * numpy.sin(i * i * 1e-5)).astype(numpy.float32)


def test_files_and_samples_have_the_text_of_the_command(transcriber, bundles):
    command = [os.environ["CACTUS_PROGRAM"], "transcribe", CLIP, "--model", bundles["whisper"], "--format", "json", "--words"]
    expected = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    found = transcriber.transcribe(CLIP, words=True)
    assert (found.text, found.language, found.duration) == (expected["text"], expected["language"], expected["duration_s"])
    assert [s.tokens for s in found.segments] == [s["tokens"] for s in expected["segments"]]
    assert found.segments and all(s.words and s.start <= s.end and s.compression > 0 for s in found.segments)
    whole = transcriber.transcribe(sound(3.0))
    assert list(transcriber.stream(sound(3.0))) == whole.segments
    # Other types and orders of the same samples.
    sixteen = (sound(3.0) * 32768).astype(numpy.int16)
    exact = sixteen.astype(numpy.float32) / 32768
    assert transcriber.transcribe(sixteen) == transcriber.transcribe(exact)
    assert transcriber.transcribe(sound(3.0).astype(numpy.float64)) == whole
    apart = numpy.zeros((len(exact), 2), numpy.float32)
    apart[:, 0] = exact
    assert transcriber.transcribe(apart[:, 0]) == transcriber.transcribe(exact)
    assert abs(transcriber.transcribe(sound(3.0, 8_000), sample_rate=8_000).duration - 3.0) < 0.01


def test_options_are_those_of_the_engine(transcriber):
    plain = transcriber.transcribe(sound(2.0))
    assert transcriber.languages == ["de", "en", "zh"] and transcriber.sample_rate == 16_000
    assert transcriber.transcribe(sound(2.0), language="de").language == "de"
    hinted = transcriber.transcribe(sound(2.0), hotwords=["Ada"], prompt="Cactus")
    assert [s.mean_logprob for s in hinted.segments] != [s.mean_logprob for s in plain.segments]
    assert all(s.temperature == 0.8 for s in transcriber.transcribe(sound(2.0), temperature=0.8).segments)
    # Random weights write what nobody says.
    said = transcriber.transcribe(sound(2.0), hallucination_silence=0.5)
    assert said.text != plain.text and all(not s.words for s in said.segments)
    chances = transcriber.detect_language(sound(1.0))
    assert sum(chances.values()) == pytest.approx(1) and next(iter(chances)) == plain.language
    assert transcriber.detect_language(numpy.zeros(16_000, numpy.float32)) == {}


def test_wrong_calls_say_what_is_wrong(transcriber, bundles, tmp_path):
    text = tmp_path / "text.wav"
    text.write_text("Dear Sir or Madam")
    for audio, options, says in [
        (text, {}, "text"),
        ("nowhere.wav", {}, "nowhere.wav"),
        (5, {}, "a path, or an array"),
        (CLIP, {"sample_rate": 8_000}, "`sample_rate`"),
        (CLIP, {"language": "xx"}, "`xx`"),
        (CLIP, {"translate": 1}, "`translate`"),
        (CLIP, {"temperature": 2}, "temperature"),
        (CLIP, {"hallucination_silence": 0}, "at least 0.1 seconds"),
        (CLIP, {"hallucination_silence": "1"}, "`hallucination_silence`"),
        (CLIP, {"beams": 99}, "beams"),
        (numpy.zeros((2, 8), numpy.float32), {}, "one dimension"),
        (numpy.full(100, numpy.nan, numpy.float32), {}, "nan"),
    ]:
        with pytest.raises(InvalidRequestError) as caught:
            transcriber.transcribe(audio, **options)
        assert says.lower() in str(caught.value).lower()
    with pytest.raises(UnsupportedError, match="does not transcribe"):
        Transcriber.load(bundles["silero_vad"])
    with pytest.raises(UnsupportedError, match="does not find speech"):
        Vad.load(bundles["whisper"])
    with Transcriber.load(bundles["whisper_en"]) as english:
        assert english.languages == [] and english.transcribe(CLIP).language is None
    with pytest.raises(ClosedError):
        english.transcribe(CLIP)


class Ear:
    """A target that writes down speech: it says `text` to whatever it hears."""

    def __init__(self, text: str):
        ear = self
        self.asked = 0

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                ear.asked += 1
                body = json.dumps({"text": text}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base = f"http://127.0.0.1:{self.server.server_port}/v1"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_targets_hear_again_what_the_policy_lets_leave(transcriber, tmp_path):
    plain = transcriber.transcribe(sound(4.0), words=True)
    said = [["x" * len(w.text.strip()) for w in s.words] for s in plain.segments]
    with Ear(" ".join(sum(said, []))) as ear:

        def policy(name, **more):
            return Policy(f"{ear.base}#whisper", hears=True, handoff="always", budget=1, state=tmp_path / name, **more)

        # Nobody is there to be asked, a person says no, and one says yes.
        asked = []

        def person(question):
            asked.append(question)
            return len(asked) > 1

        for given, answered_by, reason in [
            (policy("nobody"), "local", "nobody_to_ask"),
            (policy("person", ask=person), "local", "denied_by_person"),
            (policy("person", ask=person), "whisper", "always"),
            (policy("consent", consent=["audio"]), "whisper", "always"),
        ]:
            before = ear.asked
            found = transcriber.transcribe(sound(4.0), policy=given)
            assert (found.decision["answered_by"], found.decision["reason"]) == (answered_by, reason)
            assert (ear.asked > before) == (answered_by != "local")
            if answered_by == "local":
                assert found.text == transcriber.transcribe(sound(4.0), words=True).text
                assert all(s.answered_by == "local" and s.revision == 0 for s in found.segments)
            else:
                changed = [s for s in found.segments if s.revision]
                assert changed and all(s.answered_by == "whisper" and "x" in s.text for s in changed)
                assert all(not s.words for s in found.segments) and found.decision["heard_again"]["sent_s"] > 3
        assert asked[0].classes == ["audio"] and asked[0].target == "whisper"
        # The policy of a transcriber counts for all that it hears, until it is taken away.
        transcriber.set_policy(policy("own", consent=["audio"]))
        try:
            assert [s.answered_by for s in transcriber.stream(sound(4.0))] == [s.answered_by for s in found.segments]
            assert asyncio.run(transcriber.atranscribe(sound(4.0), words=True)).segments[0].words
            with pytest.raises(InvalidRequestError, match="writes English"):
                transcriber.transcribe(sound(1.0), translate=True)
        finally:
            transcriber.set_policy(None)
        assert transcriber.transcribe(sound(4.0)).decision is None
        # A target that chats hears nothing, and a budget that is spent asks nobody.
        with pytest.raises(InvalidRequestError, match="does not write down speech"):
            transcriber.transcribe(sound(1.0), policy=Policy(f"{ear.base}#m", state=tmp_path / "chat"))
        with pytest.raises(InvalidRequestError, match="`policy`"):
            transcriber.transcribe(sound(1.0), policy="auto")
        priced = {"base_url": ear.base, "model": "m", "protocol": "openai_transcriptions", "usd_per_minute": 6}
        poor = {"targets": {"near": Target(**priced)}, "handoff": "always", "consent": ["audio"], "caps": {"request_usd": "0.01"}}
        before = ear.asked
        found = transcriber.transcribe(sound(4.0), policy=Policy(**poor, state=tmp_path / "poor"))
        assert (found.decision["answered_by"], found.decision["reason"], ear.asked) == ("local", "over_cap", before)


def wav(data: bytes, tag: int = 1, channels: int = 1, rate: int = 16_000, bits: int = 16) -> bytes:
    align = channels * bits // 8
    about = struct.pack("<HHIIHH", tag, channels, rate, rate * align % 2**32, align % 2**16, bits)
    return b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt \x10\0\0\0" + about + b"data" + struct.pack("<I", len(data)) + data


def test_awkward_recordings_become_a_transcript_or_a_clear_error(transcriber, bundles, tmp_path):
    files = ROOT / "crates/audio/tests/files"
    plain = (sound(1.0) * 32767).astype("<i2").tobytes()
    floats = sound(1.0).astype("<f4")
    floats[10_000] = numpy.inf
    vad = Vad.load(bundles["silero_vad"])
    for name, data, becomes in [
        ("empty.wav", b"", "empty"),
        ("10_ms.wav", wav(plain[:320]), 0.01),
        ("infinite.wav", wav(floats.tobytes(), tag=3, bits=32), "the sample at 0.625 s is inf"),
        ("24_bits.wav", wav(b"".join(b"\0" + plain[i : i + 2] for i in range(0, 32_000, 2)), bits=24), 1.0),
        ("8_channels.wav", wav(plain, channels=8, rate=96_000), 2_000 / 96_000),
        ("truncated.wav", wav(plain)[: 44 + 16_000], 0.5),
        ("65535_channels.wav", wav(plain, channels=65_535), "headers"),
        ("film.webm", (files / "video_and_sound.webm").read_bytes(), 0.6),
        ("silent_film.mp4", (files / "video_only.mp4").read_bytes(), "1 video track"),
    ]:
        path = tmp_path / name
        path.write_bytes(data)
        if isinstance(becomes, float):
            assert transcriber.transcribe(path).duration == pytest.approx(becomes, abs=0.03)
            vad.spans(path)
        else:
            for use in (transcriber.transcribe, vad.spans):
                with pytest.raises(InvalidRequestError, match=becomes) as caught:
                    use(path)
                assert name in str(caught.value)


def test_whoever_stops_frees_the_model(transcriber):
    long = sound(1_800.0)
    begun = time.monotonic()
    for _ in transcriber.stream(long):
        break
    transcriber.transcribe(sound(0.5))

    async def cancelled():
        task = asyncio.create_task(transcriber.atranscribe(long))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await transcriber.atranscribe(sound(0.5))

    assert asyncio.run(cancelled()) == transcriber.transcribe(sound(0.5))
    assert time.monotonic() - begun < 60


def test_closing_ends_what_is_under_way(bundles):
    transcriber = Transcriber.load(bundles["whisper"], threads=1)
    # The first segment says that it is under way.
    segments = transcriber.stream(sound(1_800.0))
    next(segments)
    threading.Timer(0.1, transcriber.close).start()
    with pytest.raises(CancelledError):
        for _ in segments:
            pass


def test_speech_is_found_in_pieces_as_in_the_whole(bundles):
    vad = Vad.load(bundles["silero_vad"])
    samples = sound(2.0, vad.sample_rate)
    whole = vad.push(samples)
    last = vad.finish()
    assert len(whole) == len(samples) // vad.chunk_samples and (last is None) == (len(samples) % vad.chunk_samples == 0)
    pieces = [p for piece in numpy.array_split(samples, 7) for p in vad.push(piece)]
    assert pieces == whole and vad.finish() == last
    options = ["--threshold", "0.02", "--neg-threshold", "0.01", "--min-speech-ms", "0", "--format", "json"]
    command = [os.environ["CACTUS_PROGRAM"], "vad", CLIP, "--model", bundles["silero_vad"], *options]
    expected = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["spans"]
    found = vad.spans(CLIP, threshold=0.02, neg_threshold=0.01, min_speech_ms=0)
    assert expected and [(s.start, s.end) for s in found] == [(s["start_s"], s["end_s"]) for s in expected]
    with pytest.raises(InvalidRequestError, match="threshold"):
        vad.spans(CLIP, threshold=7)
