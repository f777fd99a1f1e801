"""Tools that are called: the rounds of a conversation in which a model asks for functions of this program.

What a model is told of a call that goes wrong has the same words in every SDK, because the words decide what it says next.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Union

from .answer import Answer, ToolCall
from .options import plain, refused, whole_number
from .tools import Tool, parsed, tool_entries

#: Whether a call may be made, asked with its name and arguments.
Confirm = Callable[[str, dict[str, Any]], Union[bool, Awaitable[bool]]]

#: Rounds of calls at most.
ROUNDS = 8


class Calls:
    """The functions behind the tools of a conversation."""

    def __init__(self, tools: Sequence[Any], rounds: int, confirm: Confirm | None, asked: Mapping[str, Any]):
        if asked.get("stream"):
            raise refused("stream", "an answer as a whole, since tools are called between answers", asked["stream"])
        self.functions: dict[str, Callable[..., Any]] = {}
        for tool, entry in zip(tools, tool_entries(tools)):
            function = tool.function if isinstance(tool, Tool) else tool
            if not callable(function) or isinstance(function, type):
                raise TypeError(f"a tool that is called is a function or a cactus.Tool; found {type(tool).__name__}")
            self.functions[entry["function"]["name"]] = function
        if confirm is not None and not callable(confirm):
            raise refused("confirm", "a function", confirm)
        self._left = whole_number("rounds", rounds, 0, 1 << 31)
        self._confirm = confirm

    @staticmethod
    def later(asked: Mapping[str, Any]) -> dict[str, Any]:
        """What is asked of the answers after the first, whose pictures and sounds are in the conversation then."""
        return {name: value for name, value in asked.items() if name not in ("images", "sounds")}

    def over(self, answer: Answer) -> bool:
        """Whether an answer is the last: it asks for nothing, nobody waits for it any more, or there were rounds enough."""
        self._left -= 1
        return not answer.tool_calls or answer.finish_reason == "cancelled" or self._left < 0

    def results(self, answer: Answer) -> list[dict[str, Any]]:
        """The messages of the role `tool` for what an answer asks for."""
        return [_message(call, self._tell(call)) for call in answer.tool_calls]

    async def aresults(self, answer: Answer) -> list[dict[str, Any]]:
        """As `results`; what is awaitable is awaited."""
        return [_message(call, await self._atell(call)) for call in answer.tool_calls]

    def _tell(self, call: ToolCall) -> str:
        prepared = self._prepared(call)
        if isinstance(prepared, str):
            return prepared
        function, arguments = prepared
        if self._confirm is not None and _now(self._confirm(call.name, call.arguments), "confirm") is not True:
            return "error: the call was refused"
        try:
            return _text(_now(function(**arguments), call.name))
        except Exception as error:  # noqa: BLE001, the model is told
            return f"error: {error}"

    async def _atell(self, call: ToolCall) -> str:
        prepared = self._prepared(call)
        if isinstance(prepared, str):
            return prepared
        function, arguments = prepared
        if self._confirm is not None and await _later(self._confirm(call.name, call.arguments)) is not True:
            return "error: the call was refused"
        try:
            return _text(await _later(function(**arguments)))
        except Exception as error:  # noqa: BLE001, the model is told
            return f"error: {error}"

    def _prepared(self, call: ToolCall) -> tuple[Callable[..., Any], dict[str, Any]] | str:
        """The function and its arguments, or what the model is told instead."""
        function = self.functions.get(call.name)
        if function is None:
            return f"error: there is no tool `{call.name}`"
        if not isinstance(call.arguments, dict):
            return "error: the arguments are no JSON object"
        try:
            return function, _typed(function, call.arguments)
        except Exception as error:  # noqa: BLE001, the model is told
            return f"error: {error}"


def _message(call: ToolCall, told: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": told}


def _typed(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments as the hints of a function have them: JSON becomes instances of pydantic models, dataclasses and enums."""
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        # Hints that cannot be looked up from here.
        hints = {}
    # What the function does not take is an error of the call, and not of its body.
    inspect.signature(function).bind(**arguments)
    return {name: _instance(hints.get(name), value) for name, value in arguments.items()}


def _instance(hint: Any, value: Any) -> Any:
    if hasattr(hint, "model_validate"):
        return hint.model_validate(value)
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, enum.Enum)):
        return parsed(hint, json.dumps(value))
    return value


def _text(result: Any) -> str:
    """What a model is told: a text as it is, anything else as JSON."""
    if isinstance(result, str):
        return result
    return json.dumps(plain(result), default=plain, ensure_ascii=False, separators=(",", ":"))


def _now(value: Any, what: str) -> Any:
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError(f"`{what}` has to be awaited; achat_with_tools does")
    return value


async def _later(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
