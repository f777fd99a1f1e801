"""What a caller may ask of an answer, and a request in the form of the OpenAI API made of it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Union

from .tools import response_format, tool_entries

Messages = Union[str, Sequence[Any]]


class Sampling(TypedDict, total=False):
    """How to draw tokens and when to end. What is not named is as the model's own configuration has it."""

    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    typical_p: float
    repetition_penalty: float
    repetition_window: int
    frequency_penalty: float
    presence_penalty: float
    logit_bias: Mapping[int, float]
    seed: int
    stop: Union[str, Sequence[str]]
    logprobs: int
    ignore_eos: bool
    prompt_lookup: int


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given, or a TypeError that names an unknown one."""
    known = Sampling.__annotations__
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            advice = f"; did you mean {close[0]!r}?" if close else ""
            raise TypeError(f"unknown option {name!r}{advice}")
    given = {name: value for name, value in options.items() if value is not None}
    if bias := given.get("logit_bias"):
        given["logit_bias"] = {str(token): value for token, value in bias.items()}
    return given


def messages_of(messages: Messages) -> list[Any]:
    """Messages as the API has them; a text is one message of the user, and objects with `role` and `content` are taken too."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    return [plain(message) for message in messages]


def plain(value: Any) -> Any:
    """A value as JSON has it: pydantic models and other objects that can say what they are made of become objects."""
    if hasattr(value, "to_message"):
        return value.to_message()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_none=True)
    return value


def chat_body(
    messages: Messages,
    *,
    tools: Sequence[Any] | None = None,
    tool_choice: Any = None,
    schema: Any = None,
    reasoning: bool | None = None,
    template_variables: Mapping[str, Any] | None = None,
    stream: bool = False,
    options: Mapping[str, Any],
) -> str:
    """The JSON of a chat request."""
    body: dict[str, Any] = checked(options)
    if (top := body.pop("logprobs", None)) is not None:
        body["logprobs"] = True
        body["top_logprobs"] = top
    body["messages"] = messages_of(messages)
    if tools:
        body["tools"] = tool_entries(tools)
        if tool_choice is not None:
            if isinstance(tool_choice, str) and tool_choice not in ("auto", "none", "required"):
                tool_choice = {"type": "function", "function": {"name": tool_choice}}
            body["tool_choice"] = tool_choice
    if schema is not None:
        body["response_format"] = response_format(schema)
    variables = dict(template_variables or {})
    if reasoning is not None:
        variables["enable_thinking"] = reasoning
    if variables:
        body["chat_template_kwargs"] = variables
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return encoded(body)


def encoded(body: Mapping[str, Any]) -> str:
    """A request as JSON, or a TypeError that says what has no place in it."""
    try:
        return json.dumps(body, default=plain, allow_nan=False)
    except (TypeError, ValueError) as error:
        from .errors import InvalidRequestError

        raise InvalidRequestError(f"the request cannot be written as JSON: {error}") from error
