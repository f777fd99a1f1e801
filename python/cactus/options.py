"""What a caller may ask of an answer, and a request in the form of the OpenAI API made of it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Union

from .errors import InvalidRequestError
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
        if not isinstance(bias, Mapping):
            raise refused("logit_bias", "a dict of token ids to numbers", bias)
        given["logit_bias"] = {str(token): value for token, value in bias.items()}
    return given


def refused(field: str, expected: str, found: Any) -> InvalidRequestError:
    """The error for an argument of the wrong form."""
    error = InvalidRequestError(f"`{field}`: expected {expected}, found {type(found).__name__}")
    error.param = field
    return error


def listed(field: str, expected: str, given: Any) -> list[Any]:
    """A list of what is given. One text, or bytes, is none, though Python could go through it."""
    if isinstance(given, (str, bytes, bytearray, Mapping)) or not hasattr(given, "__iter__"):
        raise refused(field, expected, given)
    return list(given)


def messages_of(messages: Messages) -> list[Any]:
    """Messages as the API has them; a text is one message of the user, and objects with `role` and `content` are taken too."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if isinstance(messages, Mapping):
        return [messages]
    return [plain(message) for message in listed("messages", "a text or a list of messages", messages)]


def prompt_of(prompt: str | Sequence[int]) -> str | list[Any]:
    """A text or token ids."""
    return prompt if isinstance(prompt, str) else listed("prompt", "a text or a list of token ids", prompt)


def plain(value: Any) -> Any:
    """A value as JSON has it: pydantic models and other objects that can say what they are made of become objects."""
    if hasattr(value, "to_message"):
        return value.to_message()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_none=True)
    return value


def _json(value: Any) -> Any:
    """What `json` does not know itself."""
    made = plain(value)
    if made is not value:
        return made
    # Numbers and arrays of NumPy and its like.
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no form in it")


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
    if not tools and tool_choice not in (None, "auto", "none"):
        raise InvalidRequestError("`tool_choice`: there are no tools to choose from; give `tools`, too")
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
    """A request as JSON, or an InvalidRequestError that says what has no place in it."""
    try:
        text = json.dumps(body, default=_json, allow_nan=False, ensure_ascii=False)
        # Halves of characters are found now, where it can be said what they are.
        text.encode()
        return text
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"a text has half a character, U+{ord(error.object[error.start]):04X}, which is none") from error
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"the request cannot be written as JSON: {error}") from error
