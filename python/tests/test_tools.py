"""Functions that a model calls, and what else binds its answers."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
from typing import Any, Literal

import pytest

pytest.importorskip("cactus._native", reason="the extension module is not built: cargo xtask ci wheel, or pip install ./python")

import cactus  # noqa: E402


def test_functions_are_called_when_they_have_to_be(model):
    def light() -> None:
        """Switches the light."""

    answer = model.chat("Light on", tools=[light], tool_choice="required", max_tokens=200)
    assert answer.tool_calls and answer.finish_reason in ("tool_calls", "length")
    assert all(call.name == "light" and call.arguments == {} for call in answer.tool_calls)
    assert answer.to_message()["tool_calls"][0]["function"]["name"] == "light"


def test_calls_of_a_model_are_made_and_what_is_wrong_with_them_is_told(model):
    made = []

    def light(room: Literal["hall"]) -> dict:
        """Switches the light."""
        made.append(room)
        return {"on": True, "wo": "Flur für"}

    asked = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 200, "temperature": 0}
    session = model.session(**asked)
    last = session.chat_with_tools("Light on", [light], rounds=2)
    told = [message["content"] for message in session.messages if message["role"] == "tool"]
    # Asked for again and again, it is called as often as allowed.
    assert made == ["hall", "hall"] and last.tool_calls and told == ['{"on":true,"wo":"Flur für"}'] * 2
    # A model alone goes the same way, awaited or not.
    assert model.chat_with_tools("Light on", [light], rounds=2, **asked).token_ids == last.token_ids

    async def dark(room: str) -> str:
        raise RuntimeError(f"no {room}")

    async def refuse(name: str, arguments: dict) -> bool:
        return False

    named = cactus.Tool(dark, "light", parameters={"type": "object", "properties": {"room": {"enum": ["hall"]}}, "required": ["room"]})
    for confirm, says in ((None, "error: no hall"), (refuse, "error: the call was refused")):
        session = model.session(**asked)
        asyncio.run(session.achat_with_tools("Light on", [named], rounds=1, confirm=confirm))
        assert [message["content"] for message in session.messages if message["role"] == "tool"] == [says]
    # Where nobody can wait for it, nothing is called.
    session = model.session(**asked)
    session.chat_with_tools("Light on", [named], rounds=1)
    assert "achat_with_tools" in session.messages[-2]["content"]
    for tools in (print, [{"type": "function"}], "x"):
        with pytest.raises(TypeError, match="tool"):
            model.chat_with_tools("x", tools)


@dataclasses.dataclass
class Place:
    city: str


class Unit(enum.Enum):
    C = "celsius"


def test_arguments_have_the_types_of_the_function():
    from cactus.calling import Calls

    def weather(place: Place, unit: Unit = Unit.C) -> str:
        return f"{place.city} {unit.name}"

    def told(arguments: Any, name: str = "weather") -> str:
        answer = cactus.Answer("", tool_calls=[cactus.ToolCall(name, arguments, "1")])
        (message,) = Calls([weather], 1, None, {}).results(answer)
        assert (message["role"], message["tool_call_id"]) == ("tool", "1")
        return message["content"]

    assert told({"place": {"city": "Rome"}, "unit": "celsius"}) == "Rome C"
    assert told({"place": {"city": "Rome"}}) == "Rome C"
    assert told({"unit": "celsius"}).startswith("error: missing") and told({"place": {"town": 1}}).startswith("error: ")
    assert told([], "weather") == "error: the arguments are no JSON object"
    assert told({}, "other") == "error: there is no tool `other`"


def test_answers_follow_expressions_and_grammars(model):
    assert model.chat("When?", regex="(19|20)[0-9]{2}", max_tokens=20).text[:2] in ("19", "20")
    assert model.chat("Sure?", grammar='start: "yes" | "no"', max_tokens=20).text in ("yes", "no")
    with pytest.raises(cactus.InvalidRequestError, match="regex"):
        model.chat("When?", regex="(")
