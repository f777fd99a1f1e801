"""Other libraries over a model in this process, each against the real package; skipped, by name, where it is not installed."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cactus._native", reason="the extension module is not built: pip install ./python")

from cactus import Model  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
ASKED = {"max_tokens": 8, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundles") / "smollm3"
    program = os.environ["CACTUS_PROGRAM"]
    subprocess.run([program, "convert", str(ROOT / "golden/models/smollm3"), str(path)], check=True, capture_output=True)
    with Model.load(path, threads=1) as model:
        yield model


def test_langchain(model):
    pytest.importorskip("langchain_core", reason="langchain-core is not installed, so cactus.adapters.langchain is not tested")
    from cactus.adapters.langchain import ChatCactus
    from langchain_core.messages import HumanMessage, SystemMessage
    from langchain_core.tools import tool

    expected = model.chat("Hello", **ASKED).text
    chat = ChatCactus(model=model, options=ASKED)
    answer = chat.invoke([HumanMessage("Hello")])
    assert answer.content == expected and answer.usage_metadata["output_tokens"] == 8
    assert "".join(chunk.content for chunk in chat.stream("Hello")) == expected
    assert [a.content for a in chat.batch(["Hello", "Hello"])] == [expected] * 2
    assert chat.invoke([SystemMessage("Brief."), HumanMessage("Hello")]).content

    @tool
    def light() -> str:
        """Switches the light."""
        return ""

    bound = ChatCactus(model=model, options={"max_tokens": 200, "seed": 1}).bind_tools([light], tool_choice="any")
    call = bound.invoke("Light on").tool_calls[0]
    assert call["name"] == "light" and call["args"] == {}
    whole = None
    for chunk in bound.stream("Light on"):
        whole = chunk if whole is None else whole + chunk
    assert whole.tool_calls[0]["name"] == "light"


def test_litellm(model, monkeypatch):
    # Its list of prices, which it would look for in the network.
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = pytest.importorskip("litellm", reason="litellm is not installed, so cactus.adapters.litellm is not tested")
    from cactus.adapters.litellm import register

    register({"mine": model})
    asked = {"model": "cactus/mine", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}
    expected = model.chat("Hello", max_tokens=8, temperature=0).text
    assert litellm.completion(**asked).choices[0].message.content == expected
    pieces = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(**asked, stream=True)]
    assert "".join(pieces) == expected

    async def awaited():
        whole = await litellm.acompletion(**asked)
        assert whole.choices[0].message.content == expected
        stream = await litellm.acompletion(**asked, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(awaited()) == expected
    light = {"type": "function", "function": {"name": "light", "parameters": {"type": "object", "properties": {}}}}
    tools = {**asked, "tools": [light], "tool_choice": "required", "max_tokens": 200, "seed": 1}
    assert litellm.completion(**tools).choices[0].message.tool_calls[0].function.name == "light"
    chunks = list(litellm.completion(**tools, stream=True))
    assert litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls[0].function.name == "light"
    with pytest.raises(litellm.BadRequestError, match="no model `other`"):
        litellm.completion(**{**asked, "model": "cactus/other"})


def test_llama_index(model):
    pytest.importorskip("llama_index.core", reason="llama-index-core is not installed, so cactus.adapters.llama_index is not tested")
    from cactus.adapters.llama_index import CactusLLM
    from llama_index.core.base.llms.types import ChatMessage

    llm = CactusLLM(model, **ASKED)
    expected = model.chat("Hello", **ASKED).text
    assert llm.chat([ChatMessage(role="user", content="Hello")]).message.content == expected
    assert list(llm.stream_chat([ChatMessage(role="user", content="Hello")]))[-1].message.content == expected
    assert llm.complete("Hello").text == model.generate("Hello", **ASKED).text
    assert llm.metadata.context_window == model.info["context_tokens"]


def test_ray_predictor_without_ray(model):
    from cactus.ray import Predictor

    batch = {"id": [1, 2], "text": ["Hello", "Ho"]}
    made = Predictor(str(model.path), "text", options=ASKED, load={"threads": 1})(batch)
    assert made["answer"][0] == model.chat("Hello", **ASKED).text and made["completion_tokens"] == [8, 8]
    scored = Predictor(str(model.path), "text", task="score", load={"threads": 1})(batch)
    assert scored["logprob"][0] == pytest.approx(model.score("Hello").logprob)
    with pytest.raises(ValueError, match="task"):
        Predictor(str(model.path), "text", task="x")
