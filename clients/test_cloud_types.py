"""The types of the vendors' own packages against `cactus-cloud`: what it sends is what they describe, and it reads what they
describe. Nothing goes over a network. Run by `clients/run.py`, which names the example `codec` in CACTUS_CODEC."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pydantic
import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from anthropic.types.message_create_params import MessageCreateParams
from google.genai import types as gemini
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParams
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParams

FIXTURES = Path(__file__).resolve().parent.parent / "crates" / "cloud" / "tests" / "fixtures"
HOSTS = {
    "openai-chat": "api.openai.com",
    "openai-responses": "api.openai.com",
    "anthropic": "api.anthropic.com",
    "gemini": "generativelanguage.googleapis.com",
}
PROTOCOLS = list(HOSTS)
FILES = dict(zip(PROTOCOLS, ["chat", "responses", "anthropic", "gemini"], strict=True))
STRICT = pydantic.ConfigDict(extra="forbid")
REQUESTS = {
    "openai-chat": pydantic.TypeAdapter(CompletionCreateParams, config=STRICT),
    "openai-responses": pydantic.TypeAdapter(ResponseCreateParams, config=STRICT),
    "anthropic": pydantic.TypeAdapter(MessageCreateParams, config=STRICT),
}
ANSWERS = {
    "openai-chat": (ChatCompletion, ChatCompletionChunk),
    "openai-responses": (Response, ResponseStreamEvent),
    "anthropic": (AnthropicMessage, RawMessageStreamEvent),
    "gemini": (gemini.GenerateContentResponse, gemini.GenerateContentResponse),
}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "string"}},
    "required": ["x"],
    "additionalProperties": False,
}
TOOL = {"name": "f", "description": "Does f.", "parameters": SCHEMA, "strict": True}


def text(role: str, words: str) -> dict:
    return {"role": role, "parts": [{"text": words}]}


ASK = text("user", "Wie geht es? 😀")
CALL = {"role": "assistant", "parts": [{"text": "Let me look."}, {"call": "f", "id": "call_1", "arguments": '{"x": "1"}'}]}
RESULT = {"role": "tool", "parts": [{"result": "one", "id": "call_1", "name": "f"}]}
FAILED = {"role": "tool", "parts": [{"result": "no such file", "id": "call_1", "name": "f", "is_error": True}]}
CASES = {
    "text": {"messages": [ASK]},
    "stream": {"messages": [ASK], "stream": True},
    "turns": {"messages": [ASK, text("assistant", "Gut."), text("user", "Und?")]},
    "system": {"messages": [text("system", "Be brief."), ASK]},
    "late system": {"messages": [ASK, text("assistant", "Gut."), text("system", "Be kind."), ASK]},
    "image": {"messages": [{"role": "user", "parts": [{"text": "What is it?"}, {"mime": "image/png", "base64": PNG}]}]},
    "tools": {"messages": [ASK], "tools": [TOOL]},
    "loose tool": {"messages": [ASK], "tools": [{**TOOL, "strict": False, "description": ""}]},
    "no tool": {"messages": [ASK], "tools": [TOOL], "tool_choice": "none"},
    "some tool": {"messages": [ASK], "tools": [TOOL], "tool_choice": "required", "parallel_calls": False},
    "this tool": {"messages": [ASK], "tools": [TOOL], "tool_choice": "f"},
    "result": {"messages": [ASK, CALL, RESULT], "tools": [TOOL]},
    "failed result": {"messages": [ASK, CALL, FAILED, ASK], "tools": [TOOL]},
    "schema": {"messages": [ASK], "format": SCHEMA},
    "no reasoning": {"messages": [ASK], "effort": "none"},
    "little reasoning": {"messages": [ASK], "effort": "low"},
    "reasoning and schema": {"messages": [ASK], "effort": "high", "format": SCHEMA},
    "sampling": {"messages": [ASK], "temperature": 0.5, "stop": ["END"]},
}
CASES_OF_ONE = [
    ("openai-chat", {"messages": [ASK], "format": "object"}),
    ("openai-responses", {"messages": [ASK], "format": "object"}),
    ("gemini", {"messages": [ASK], "format": "object"}),
    ("openai-chat", {"messages": [{"role": "user", "parts": [{"mime": "audio/wav", "base64": PNG}]}]}),
    ("gemini", {"messages": [{"role": "user", "parts": [{"mime": "audio/wav", "base64": PNG}]}]}),
]


@pytest.fixture(scope="module")
def codec():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
    with subprocess.Popen([os.environ["CACTUS_CODEC"]], **pipes) as process:

        def ask(do: str, protocol: str, **more: object) -> dict:
            command = {"do": do, "protocol": protocol, "host": HOSTS[protocol], **more}
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert "error" not in answer, (protocol, answer)
            return answer

        yield ask
        process.stdin.close()


def walk(value: object) -> object:
    """Lists of the vendors' types are checked when they are gone through, not before."""
    if isinstance(value, dict):
        return {key: walk(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, Iterator)):
        return [walk(inner) for inner in value]
    return value


def check_request(protocol: str, body: dict) -> None:
    """Raises where a field is missing, unknown or of another type, at any depth."""
    if protocol != "gemini":
        seen = walk(REQUESTS[protocol].validate_python(body))
        assert seen == body
        return
    types = {
        "contents": list[gemini.Content],
        "systemInstruction": gemini.Content,
        "tools": list[gemini.Tool],
        "toolConfig": gemini.ToolConfig,
        "generationConfig": gemini.GenerationConfig,
    }
    assert "contents" in body
    for name, value in body.items():
        pydantic.TypeAdapter(types[name]).validate_json(json.dumps(value))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("case", CASES)
def test_requests_are_what_the_types_describe(codec, protocol, case):
    check_request(protocol, codec("encode", protocol, request=CASES[case])["body"])


@pytest.mark.parametrize(("protocol", "request_"), CASES_OF_ONE)
def test_requests_of_some_protocols_are_what_the_types_describe(codec, protocol, request_):
    check_request(protocol, codec("encode", protocol, request=request_)["body"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_check_refuses_what_the_types_do_not_describe(codec, protocol):
    body = codec("encode", protocol, request=CASES["result"])["body"]
    turns = {"openai-responses": "input", "gemini": "contents"}.get(protocol, "messages")
    for spoil in (
        lambda b: b.update(invented=1),
        lambda b: b.update({turns: 5}),
        lambda b: b[turns][0].update(invented=1),
        lambda b: b[turns][0].update(role=5),
        lambda b: b["tools"][0].update(invented=1),
    ):
        spoiled = json.loads(json.dumps(body))
        spoil(spoiled)
        with pytest.raises((pydantic.ValidationError, KeyError)):
            check_request(protocol, spoiled)


def events(protocol: str) -> list[dict]:
    lines = (FIXTURES / f"{FILES[protocol]}.sse").read_text(encoding="utf-8").splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(line) for line in data if line != "[DONE]"]


def rebuilt(type_: object, data: dict) -> dict:
    """`data` as the vendor's type writes it, with every field that may be there and is not as null."""
    adapter = pydantic.TypeAdapter(type_)
    return json.loads(adapter.dump_json(adapter.validate_json(json.dumps(data)), by_alias=True))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_answers_of_the_types_are_read(codec, protocol):
    whole, piece = ANSWERS[protocol]
    body = (FIXTURES / f"{FILES[protocol]}.json").read_text(encoding="utf-8")
    from_fixture = codec("decode", protocol, body=body)
    assert from_fixture["reason"] == "ToolCalls" and from_fixture["usage"]["input"] == 20
    assert codec("decode", protocol, body=json.dumps(rebuilt(whole, json.loads(body)))) == from_fixture
    # The client package has no type for pings.
    pieces = [event if event.get("type") == "ping" else rebuilt(piece, event) for event in events(protocol)]
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in pieces)
    if protocol == "openai-chat":
        stream += "data: [DONE]\n\n"
    assert codec("decode", protocol, stream=stream) == from_fixture


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_answers_go_back_as_the_types_describe(codec, protocol):
    """Calls, reasoning and its signatures come back in the next request."""
    body = (FIXTURES / f"{FILES[protocol]}.json").read_text(encoding="utf-8")
    message = codec("decode", protocol, body=body)["message"]
    calls = [part for part in message["parts"] if "call" in part]
    results = [{"result": "one", "id": call["id"], "name": call["call"]} for call in calls]
    tools = [{**TOOL, "name": call["call"]} for call in calls]
    messages = [ASK, message, {"role": "tool", "parts": results}]
    sent = codec("encode", protocol, request={"messages": messages, "tools": tools})["body"]
    check_request(protocol, sent)
    signature = {"openai-responses": "ZW5j", "anthropic": "c2ln", "gemini": "c2ln"}.get(protocol)
    assert signature is None or signature in json.dumps(sent)


ENDS = [
    ("openai-chat", ["choices", 0, "finish_reason"], {"stop": "Stop", "length": "Length", "content_filter": "Refused"}),
    ("anthropic", ["stop_reason"], {"end_turn": "Stop", "max_tokens": "Length", "refusal": "Refused"}),
    ("gemini", ["candidates", 0, "finishReason"], {"STOP": "Stop", "MAX_TOKENS": "Length", "SAFETY": "Refused"}),
]


@pytest.mark.parametrize(("protocol", "path", "words"), ENDS)
def test_reasons_of_the_types_are_read(codec, protocol, path, words):
    for word, want in words.items():
        answer = json.loads((FIXTURES / f"{FILES[protocol]}.json").read_text(encoding="utf-8"))
        place = answer
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = word
        # Text alone: calls are a reason of their own.
        if protocol == "openai-chat":
            del answer["choices"][0]["message"]["tool_calls"]
        elif protocol == "gemini":
            answer["candidates"][0]["content"]["parts"].pop()
        else:
            answer["content"].pop()
        body = json.dumps(rebuilt(ANSWERS[protocol][0], answer))
        assert codec("decode", protocol, body=body)["reason"] == want
