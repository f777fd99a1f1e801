"""Answers of another server under a policy, with a tiny model here and a server that says what it was asked."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("cactus._native", reason="the extension module is not built: cargo xtask ci wheel, or pip install ./python")

import cactus  # noqa: E402
from cactus import InvalidRequestError, Model, Policy, Replaced, Source  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
QUESTION = "Mail jo@example.org, hello"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    bundle = tmp_path_factory.mktemp("bundles") / "tiny"
    source = ROOT / "golden/models/smollm3"
    subprocess.run([os.environ["CACTUS_PROGRAM"], "convert", str(source), str(bundle)], check=True, capture_output=True)
    with Model.load(str(bundle), threads=1, context=256) as model:
        yield model


class Target:
    """A server in the form of OpenAI's chat completions."""

    def __init__(self, pieces: list[str], whole: bool = True):
        target = self
        self.asked: list[str] = []
        #: Keys that came with them.
        self.keys: list[str | None] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                target.keys.append(self.headers["authorization"])
                target.asked.append(self.rfile.read(int(self.headers["content-length"])).decode())
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for piece in pieces:
                    self.chunk([{"index": 0, "delta": {"content": piece}, "finish_reason": None}])
                if whole:
                    self.chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}])
                    self.chunk([], {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25})
                    self.wfile.write(b"data: [DONE]\n\n")

            def chunk(self, choices, usage=None):
                chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, "usage": usage}
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.address = f"{self.base}#m"

    def named(self, **more):
        """As a policy of Python has it."""
        prices = {"input_usd_per_million": 1, "output_usd_per_million": "2.5"}
        return cactus.Target(**{"base_url": self.base, "model": "m", **prices, **more})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_policy_sends_with_consent_and_says_what_was_decided(model, tmp_path):
    with Target(["Sent to [EMA", "IL_1]."]) as target:
        questions = []
        policy = Policy(target.address, handoff="always", ask=lambda q: questions.append(q) or True, state=tmp_path)
        model.set_policy(policy)
        answer = model.chat(QUESTION, max_tokens=8)
        assert answer.text == "Sent to jo@example.org."
        assert answer.decision["answered_by"] == "m"
        assert answer.decision["cost_usd"] == 0 and answer.decision["cost_is_exact"]
        assert 0 <= answer.decision["time_to_first_token_ms"] <= answer.decision["total_time_ms"]
        assert [(q.target, q.classes) for q in questions] == [("m", ["text"])]
        assert "jo@example.org" not in target.asked[0] and "[EMAIL_1]" in target.asked[0]
        stream = model.chat(QUESTION, stream=True, max_tokens=8)
        assert stream.source is None
        assert next(stream) == "Sent to "
        assert (stream.source.answered_by, stream.source.reason) == ("m", "always")
        known = stream.source.decision
        assert (known["route"], known["confidence"], known["cost_usd"]) == ("cloud", None, 0) and known["total_time_ms"] >= 0
        assert "".join(stream) == "jo@example.org."
        assert stream.answer.decision["route"] == "cloud"
        assert asyncio.run(model.achat(QUESTION, max_tokens=8)).text == answer.text
        assert policy.spent()["day_usd"] == 0
    model.set_policy(None)
    assert model.chat(QUESTION, max_tokens=8).decision is None


def test_log_probabilities_come_from_here_and_are_recorded(model, tmp_path):
    with Target(["no"]) as target:
        model.set_policy(Policy(target.address, handoff="always", ask=lambda q: True, state=tmp_path))
        answer = model.chat(QUESTION, temperature=0, max_tokens=4, logprobs=1)
        assert len(answer.logprobs) == len(answer.token_ids) > 0
        assert (answer.decision["answered_by"], answer.decision["reason"]) == ("local", "no_target")
        stream = model.chat(QUESTION, stream=True, max_tokens=4, logprobs=1)
        "".join(stream)
        assert stream.answer.logprobs and stream.source.reason == "no_target"
        assert 0 <= stream.answer.decision["time_to_first_token_ms"] <= stream.source.decision["total_time_ms"]
        assert target.asked == []
    records = [json.loads(line) for line in (tmp_path / "decisions.jsonl").read_text().splitlines()]
    assert [record["reason"] for record in records] == ["no_target", "no_target"]
    model.set_policy(None)


def test_policy_without_a_yes_answers_here(model, tmp_path):
    own = model.chat(QUESTION, temperature=0, max_tokens=8).text
    with Target(["no"]) as target:

        def fails(_):
            raise RuntimeError("nobody is there")

        for ask, reason in ((None, "nobody_to_ask"), (lambda q: False, "denied_by_person")):
            model.set_policy(Policy(target.address, handoff="always", ask=ask, state=tmp_path))
            answer = model.chat(QUESTION, temperature=0, max_tokens=8)
            assert (answer.text, answer.decision["reason"]) == (own, reason)
        model.set_policy(Policy(target.address, handoff="always", ask=fails, state=tmp_path))
        with pytest.raises(RuntimeError, match="nobody is there"):
            model.chat(QUESTION, max_tokens=8)
        assert target.asked == []
    model.set_policy(None)


def test_target_that_breaks_off_is_replaced_or_said_to_be(model, tmp_path):
    own = model.chat(QUESTION, temperature=0, max_tokens=8).text
    with Target(["half an"], whole=False) as target:
        model.set_policy(Policy(target.address, handoff="always", consent=["text"], state=tmp_path))
        answer = model.chat(QUESTION, temperature=0, max_tokens=8)
        assert (answer.text, answer.decision["reason"]) == (own, "cloud_failed")
        with pytest.raises(Exception, match="void"):
            "".join(model.chat(QUESTION, stream=True, temperature=0, max_tokens=8))
        # Who asks for events is told, and gets the other answer.
        stream = model.chat(QUESTION, stream=True, temperature=0, max_tokens=8)
        events = list(stream.events())
        void = events.index(Replaced())
        assert events[:void] == [Source("m", "always"), "half an"]
        assert events[void + 1] == Source("local", "cloud_failed")
        told = events[void].decision
        assert (told["answered_by"], told["reason"], told["cost_is_exact"]) == ("m", "cloud_failed", False)
        assert events[void + 1].decision["route"] == "both"
        assert "".join(events[void + 2 :]) == own == stream.answer.text
        assert stream.answer.decision["reason"] == "cloud_failed"
    model.set_policy(None)


def test_the_public_functions_hand_off_as_their_options_say(model, tmp_path):
    from cactus import compat

    messages = [{"role": "user", "content": QUESTION}]
    number = compat.cactus_init(model.path)
    own = compat.cactus_complete(number, messages, {"max_tokens": 8, "confidence_threshold": 1.0})
    assert len(messages) == 1, "the list is the caller's"
    assert own["cloud_handoff"] is False
    with Target(["From there."]) as target:
        compat.cactus_model_set_policy(number, Policy(target.address, consent=["text"], state=tmp_path))
        pieces = []
        sure = {"max_tokens": 8, "confidence_threshold": 1.0, "telemetry_enabled": True}
        sent = compat.cactus_complete(number, messages, sure, None, lambda text, _: pieces.append(text))
        assert (sent["cloud_handoff"], sent["response"]) == (True, "From there.") and "".join(pieces) == "From there."
        for off in ({"auto_handoff": False}, {"no_cloud_handoff": True}):
            kept = compat.cactus_complete(number, json.dumps(messages), json.dumps({**sure, **off}))
            assert (kept["cloud_handoff"], kept["response"]) == (False, own["response"])
        assert len(target.asked) == 1
        with pytest.raises(RuntimeError, match="cloud_timeout_ms.*milliseconds"):
            compat.cactus_complete(number, messages, {"cloud_timeout_ms": 0})
        always = Policy(target.address, consent=["text"], options={"confidence_threshold": 1}, state=tmp_path)
        compat.cactus_model_set_policy(number, always)
        assert compat.cactus_complete(number, messages)["cloud_handoff"]
    compat.cactus_model_set_policy(number, None)
    assert compat.cactus_complete(number, messages, {"max_tokens": 8})["response"] == own["response"]
    compat.cactus_destroy(number)


def test_policy_is_made_of_targets_with_keys(model, tmp_path):
    with Target(["first"], whole=False) as broken, Target(["From there."]) as house:
        targets = {"broken": broken.named(key="sk-broken"), "house": house.named(max_output_tokens=50, accuracy={"default": 1})}
        questions = []
        policy = Policy(
            targets=targets,
            prefer=["broken", "house"],
            keys={"house": "sk-house"},
            handoff="always",
            consent={"text": "ask"},
            caps={"request_usd": "0.005", "day_usd": "none"},
            routing={"retries": 0},
            ask=lambda q: questions.append(q) or True,
            state=tmp_path,
        )
        model.set_policy(policy)
        answer = model.chat(QUESTION, max_tokens=8)
        assert (answer.text, answer.decision["answered_by"], answer.decision["attempts"]) == ("From there.", "house", 2)
        assert [q.target for q in questions] == ["broken", "house"]
        assert (broken.keys, house.keys) == (["Bearer sk-broken"], ["Bearer sk-house"])
        assert "[EMAIL_1]" in house.asked[0]
        assert policy.spent()["day_usd"] > 0
        # A key is shown by nothing, and written nowhere.
        assert "sk-" not in repr(targets) + repr(policy) + str(vars(policy))
        for file in tmp_path.rglob("*"):
            assert file.is_dir() or b"sk-" not in file.read_bytes()
        # In the order of the targets, and nothing leaves without consent.
        model.set_policy(Policy(targets={"house": house.named(), "broken": broken.named()}, handoff="always", state=tmp_path))
        assert model.chat(QUESTION, max_tokens=8).decision["reason"] == "denied_by_policy"
        some = {"targets": {"house": house.named(), "broken": broken.named()}, "consent": ["text"], "state": tmp_path}
        model.set_policy(Policy(handoff="always", **some))
        assert model.chat(QUESTION, max_tokens=8).decision["answered_by"] == "house"
        model.set_policy(Policy(house.address, key="sk-alone", handoff="always", consent=["text"], state=tmp_path))
        assert model.chat(QUESTION, max_tokens=8).text == "From there."
        assert house.keys[1:] == [None, "Bearer sk-alone"]
    model.set_policy(None)


HOUSE = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "input_usd_per_million": 1, "output_usd_per_million": 1}


@pytest.mark.parametrize(
    ("target", "asked", "message"),
    [
        ({"base_url": "http://8.8.8.8/v1"}, {}, "`targets.house.base_url`: expected `https`"),
        ({"protocol": "soap"}, {}, "`targets.house.protocol`.*openai_chat"),
        ({"input_usd_per_million": "much"}, {}, "`targets.house.input_usd_per_million`"),
        ({"accuracy": {"all": 1}}, {}, "`targets.house.accuracy`"),
        ({"key": "two words"}, {}, "key of the target `house`"),
        ({"key": "env:NAME"}, {}, "`key`.*`key_from`"),
        ({"key": "sk-1", "key_from": "env:NAME"}, {}, "`key_from`"),
        ({"key_from": "sk-1"}, {}, "`targets.house.key`: expected where the key is"),
        ({}, {"prefer": ["lan"]}, "`prefer`.*`lan`"),
        ({}, {"consent": {"words": "ask"}}, "`consent.words`"),
        ({}, {"caps": {"hour_usd": 1}}, "`budget.hour_usd`"),
        ({}, {"routing": {"retries": 9}}, "`routing.retries`: expected at most 5"),
        ({}, {"keys": {"sk-1": "house"}}, "`keys`: expected names of targets .house."),
        ({}, {"keys": {"house": 1}}, "`keys`"),
        ({}, {"file": "policy.toml"}, "`targets`"),
        ({}, {"targets": {"house": HOUSE}}, "`targets.'house'.`: expected a `cactus.Target`"),
        ({}, {"targets": None, "target": "http://127.0.0.1:1/v1#m", "caps": {"day_usd": 1}}, "`caps`.*`targets`"),
        ({}, {"key": "sk-1"}, "`key`.*`target`"),
    ],
)
def test_wrong_targets_say_what_is_expected(tmp_path, target, asked, message):
    with pytest.raises(InvalidRequestError, match=message) as error:
        Policy(**{"targets": {"house": cactus.Target(**{**HOUSE, **target})}, "state": tmp_path, **asked})
    assert "sk-1" not in str(error.value) and "two words" not in str(error.value)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"target": "nobody"}, "claude-haiku-5-5"),
        ({"target": "http://127.0.0.1:1/v1"}, "no model"),
        ({"target": "http://127.0.0.1:1/v1#m", "handoff": "sometimes"}, "`handoff`"),
        ({"target": "http://127.0.0.1:1/v1#m", "consent": ["everything"]}, "`consent`"),
        ({"target": "http://127.0.0.1:1/v1#m", "budget": "much"}, "expected dollars"),
        ({"target": "http://127.0.0.1:1/v1#m", "options": {"confidence": 1}}, "confidence_threshold"),
        ({"target": "http://127.0.0.1:1/v1#m", "options": ["no_cloud_handoff"]}, "`options`"),
        ({"file": "/nowhere/policy.toml"}, "/nowhere/policy.toml"),
        ({}, "`target`"),
    ],
)
def test_wrong_policies_say_what_is_expected(tmp_path, asked, message):
    with pytest.raises(InvalidRequestError, match=message):
        Policy(**asked, state=tmp_path)
