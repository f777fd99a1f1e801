"""The vendors' own packages against `cactus-cloud`: what it sends is what their types describe, it reads what their types
describe, and of a stream it makes what their clients make of it. Nothing leaves this machine. Run by `clients/run.py`, which names the example `codec` in
CACTUS_CODEC.
"""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import anthropic
import openai
import pydantic
import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from anthropic.types.message_create_params import MessageCreateParams
from google import genai
from google.genai import types as gemini
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParams
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParams

FIXTURES = Path(__file__).resolve().parent.parent / "crates" / "cloud" / "tests" / "fixtures"
HOSTS = {
    "openai_chat": "api.openai.com",
    "openai_responses": "api.openai.com",
    "anthropic": "api.anthropic.com",
    "gemini": "generativelanguage.googleapis.com",
}
PROTOCOLS = list(HOSTS)
FILES = dict(zip(PROTOCOLS, ["chat", "responses", "anthropic", "gemini"], strict=True))
STRICT = pydantic.ConfigDict(extra="forbid")
REQUESTS = {
    "openai_chat": pydantic.TypeAdapter(CompletionCreateParams, config=STRICT),
    "openai_responses": pydantic.TypeAdapter(ResponseCreateParams, config=STRICT),
    "anthropic": pydantic.TypeAdapter(MessageCreateParams, config=STRICT),
}
ANSWERS = {
    "openai_chat": (ChatCompletion, ChatCompletionChunk),
    "openai_responses": (Response, ResponseStreamEvent),
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
CALL_PART = {"call": "f", "id": "call_1", "arguments": '{"x": "1"}'}
CALL = {"role": "assistant", "parts": [{"text": "Let me look."}, CALL_PART]}
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
    ("openai_chat", {"messages": [ASK], "format": "object"}),
    ("openai_responses", {"messages": [ASK], "format": "object"}),
    ("gemini", {"messages": [ASK], "format": "object"}),
    ("openai_chat", {"messages": [{"role": "user", "parts": [{"mime": "audio/wav", "base64": PNG}]}]}),
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
    turns = {"openai_responses": "input", "gemini": "contents"}.get(protocol, "messages")
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
    if protocol == "openai_chat":
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
    signature = {"openai_responses": "ZW5j", "anthropic": "c2ln", "gemini": "c2ln"}.get(protocol)
    assert signature is None or signature in json.dumps(sent)


ENDS = [
    ("openai_chat", ["choices", 0, "finish_reason"], {"stop": "Stop", "length": "Length", "content_filter": "Refused"}),
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
        if protocol == "openai_chat":
            del answer["choices"][0]["message"]["tool_calls"]
        elif protocol == "gemini":
            answer["candidates"][0]["content"]["parts"].pop()
        else:
            answer["content"].pop()
        body = json.dumps(rebuilt(ANSWERS[protocol][0], answer))
        assert codec("decode", protocol, body=body)["reason"] == want


@pytest.fixture(scope="module")
def vendor():
    """A server that streams the fixture of a protocol, and keeps what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            server.asked = (self.path, self.headers)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write((FIXTURES / f"{FILES[server.protocol]}.sse").read_bytes())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def by_client(protocol: str, url: str) -> tuple[str, list[tuple[str, dict]], tuple[int, int]]:
    """Text, calls and counts of prompt and answer, as the vendor's client puts the stream together."""
    ask = [{"role": "user", "content": "hi"}]
    if protocol == "openai_chat":
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        options = {"stream_options": {"include_usage": True}}
        with client.chat.completions.stream(model="m", messages=ask, **options) as stream:
            done = stream.get_final_completion()
        message = done.choices[0].message
        calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
        return message.content, calls, (done.usage.prompt_tokens, done.usage.completion_tokens)
    if protocol == "openai_responses":
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        with client.responses.stream(model="m", input=ask) as stream:
            done = stream.get_final_response()
        calls = [(item.name, json.loads(item.arguments)) for item in done.output if item.type == "function_call"]
        return done.output_text, calls, (done.usage.input_tokens, done.usage.output_tokens)
    if protocol == "anthropic":
        client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
        with client.messages.stream(model="m", messages=ask, max_tokens=9) as stream:
            done = stream.get_final_message()
        text = "".join(block.text for block in done.content if block.type == "text")
        calls = [(block.name, block.input) for block in done.content if block.type == "tool_use"]
        used = done.usage
        cached = used.cache_creation_input_tokens + used.cache_read_input_tokens
        return text, calls, (used.input_tokens + cached, used.output_tokens)
    client = genai.Client(api_key="k", vertexai=False, http_options={"base_url": url, "api_version": "v1"})
    pieces = list(client.models.generate_content_stream(model="m", contents="hi"))
    parts = [part for piece in pieces for part in piece.candidates[0].content.parts]
    text = "".join(part.text for part in parts if part.text and not part.thought)
    calls = [(part.function_call.name, part.function_call.args) for part in parts if part.function_call]
    used = pieces[-1].usage_metadata
    prompt = used.prompt_token_count + used.tool_use_prompt_token_count
    return text, calls, (prompt, used.candidates_token_count + used.thoughts_token_count)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_clients_ask_and_read_the_same(codec, vendor, protocol):
    vendor.protocol = protocol
    words, calls, counts = by_client(protocol, vendor.url)
    stream = (FIXTURES / f"{FILES[protocol]}.sse").read_text(encoding="utf-8")
    ours = codec("decode", protocol, stream=stream)
    parts = ours["message"]["parts"]
    assert "".join(part.get("text", "") for part in parts) == words
    assert [(part["call"], json.loads(part["arguments"])) for part in parts if "call" in part] == calls
    assert (ours["usage"]["input"], ours["usage"]["output"]) == counts
    path, headers = vendor.asked
    sent = codec("encode", protocol, request=CASES["stream"])
    assert "/v1" + sent["path"] == path
    for name, value in sent["headers"]:
        assert headers[name] == value
    name, before = sent["key_header"]
    # Anthropic takes both; its client has moved to a bearer token, while servers like theirs know the older header.
    assert headers[name] == f"{before}k" or (protocol == "anthropic" and name == "x-api-key")
