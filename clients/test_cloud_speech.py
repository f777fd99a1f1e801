"""OpenAI's own package against what `cactus-cloud` asks a target that writes down speech: the form is what its types describe and its
client sends, and answers of its types are read. Nothing leaves this machine. Run by `clients/run.py`, which names the example `codec` in
CACTUS_CODEC.
"""

import base64
import json
import os
import subprocess
import threading
import typing
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, HTTPServer

import openai
import pydantic
import pytest
from openai.types.audio import Transcription, TranscriptionVerbose
from openai.types.audio.transcription_create_params import TranscriptionCreateParamsNonStreaming

WAV = b"RIFF\x00\x01\r\n--x--\r\n\xff"
SOUND = {"wav": base64.b64encode(WAV).decode(), "language": "de", "prompt": "Liebe Frau Çelik,"}
TYPES = typing.get_type_hints(TranscriptionCreateParamsNonStreaming, include_extras=False)
VERBOSE = {
    "task": "transcribe",
    "language": "german",
    "duration": 1.5,
    "text": "Guten Tag.",
    "segments": [
        {
            "id": 0,
            "seek": 0,
            "start": 0.0,
            "end": 1.5,
            "text": " Guten Tag.",
            "tokens": [1, 2],
            "temperature": 0.0,
            "avg_logprob": -0.2,
            "compression_ratio": 1.0,
            "no_speech_prob": 0.1,
        }
    ],
    "words": [{"word": "Guten", "start": 0.0, "end": 0.5}, {"word": "Tag", "start": 0.5, "end": 1.0}],
    "usage": {"type": "duration", "seconds": 2},
}
TOKENS = {"type": "tokens", "input_tokens": 14, "output_tokens": 3, "total_tokens": 17}


def hear(**more: object) -> dict:
    command = json.dumps({"do": "hear", "host": "api.openai.com", **more}) + "\n"
    done = subprocess.run([os.environ["CACTUS_CODEC"]], input=command, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert "error" not in answer, answer
    return answer


def fields(content_type: str, body: bytes) -> dict[str, list[bytes]]:
    """The fields of a form, read by Python's own reader of MIME."""
    message = BytesParser().parsebytes(f"content-type: {content_type}\r\n\r\n".encode() + body)
    found: dict[str, list[bytes]] = {}
    for part in message.get_payload():
        name = part.get_param("name", header="content-disposition")
        found.setdefault(name, []).append(part.get_payload(decode=True))
    return found


@pytest.fixture(scope="module")
def vendor():
    """A server that answers as OpenAI does, and keeps what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            server.asked = (self.path, self.headers, body)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(VERBOSE).encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize("word_times", [True, False])
@pytest.mark.parametrize("sound", [SOUND, {"wav": SOUND["wav"]}])
def test_forms_are_what_the_types_describe(sound, word_times):
    wire = hear(sound=sound, word_times=word_times)
    assert wire["path"] == "/audio/transcriptions" and wire["key_header"] == ["authorization", "Bearer "]
    found = fields(wire["content_type"], base64.b64decode(wire["body"]))
    assert found.pop("file") == [WAV]
    for name, values in found.items():
        texts = [value.decode() for value in values]
        known = TYPES[name.removesuffix("[]")]
        pydantic.TypeAdapter(known).validate_python(texts if name.endswith("[]") else texts[0], strict=True)
    assert ("prompt" in found) == ("prompt" in sound)


def test_form_is_the_one_that_the_client_sends(vendor):
    client = openai.OpenAI(base_url=f"{vendor.url}/v1", api_key="k", max_retries=0)
    client.audio.transcriptions.create(
        model="whisper-1",
        file=("speech.wav", WAV, "audio/wav"),
        response_format="verbose_json",
        timestamp_granularities=["segment", "word"],
        language=SOUND["language"],
        prompt=SOUND["prompt"],
    )
    path, headers, body = vendor.asked
    wire = hear(sound=SOUND)
    assert path == "/v1" + wire["path"]
    assert fields(wire["content_type"], base64.b64decode(wire["body"])) == fields(headers["content-type"], body)


def test_answers_of_the_types_are_read():
    plain = hear(body=json.dumps(VERBOSE))
    assert plain["words"] == [["Guten", 0.0, 0.5], ["Tag", 0.5, 1.0]] and plain["billed_s"] == 2.0
    rebuilt = TranscriptionVerbose.model_validate(VERBOSE).model_dump_json()
    assert hear(body=rebuilt) == plain
    least = TranscriptionVerbose(duration=1.0, language="german", text="Ja.").model_dump_json()
    assert hear(body=least) == {"text": "Ja.", "words": [], "segments": [], "billed_s": None}
    short = Transcription.model_validate({"text": "Ja.", "usage": TOKENS, "languages": [{"code": "de"}]})
    assert hear(body=short.model_dump_json()) == {"text": "Ja.", "words": [], "segments": [], "billed_s": None}
