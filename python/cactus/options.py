"""What a caller may ask of an answer, and a request in the form of the OpenAI API made of it."""

from __future__ import annotations

import difflib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, Union

from .errors import InvalidRequestError
from .tools import response_format, tool_entries

Messages = Union[str, Sequence[Any]]

#: What is asked of an answer in a conversation, beside how tokens are drawn.
ASKED = (
    "tools", "tool_choice", "parallel_tool_calls", "schema", "regex", "grammar", "reasoning", "template_variables",
)  # fmt: skip


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


def shown(value: Any) -> str:
    """A value as an error names it: itself where it is short, else its type."""
    is_plain = value is None or isinstance(value, (bool, int, float, str))
    text = ascii(value) if is_plain and not (isinstance(value, int) and value.bit_length() > 256) else ""
    return text if 0 < len(text) <= 60 else type(value).__name__


def refused(field: str, expected: str, found: Any, *, said: str | None = None) -> InvalidRequestError:
    """The error for an argument of the wrong form. What was found is said in the words of `said`, if any."""
    error = InvalidRequestError(f"`{field}`: expected {expected}, found {said or shown(found)}")
    error.param = field
    return error


@contextmanager
def item(field: str, index: int) -> Iterator[None]:
    """What is wrong inside is wrong with one of several."""
    try:
        yield
    except InvalidRequestError as error:
        placed = type(error)(f"`{field}[{index}]`: {error}")
        placed.param = f"{field}[{index}]" + (f".{error.param}" if error.param else "")
        raise placed from error


def whole_number(field: str, value: Any, least: int, most: int) -> int:
    """A number of Python or of NumPy in a range."""
    expected = f"a whole number from {least} to {most}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise refused(field, expected, value)
    number = value.__index__()
    if not least <= number <= most:
        raise refused(field, expected, number)
    return number


def _half(text: str) -> str | None:
    """Where a text has half a character, which Python allows and no other text has."""
    try:
        text.encode()
        return None
    except UnicodeEncodeError as error:
        return _half_in(error)


def _half_in(error: UnicodeEncodeError) -> str:
    return f"half a character, U+{ord(error.object[error.start]):04X}, at {error.start}"


def text_of(field: str, value: Any) -> str:
    """A text that can be written as UTF-8."""
    if not isinstance(value, str):
        raise refused(field, "a text", value)
    if half := _half(value):
        raise refused(field, "a text", value, said=half)
    return value


def path_of(field: str, value: Any) -> str:
    """A name or a path. Bytes of a path that are no text are kept as `os.fsdecode` keeps them."""
    try:
        name = os.fsdecode(value)
    except TypeError:
        raise refused(field, "a name or a path", value) from None
    try:
        os.fsencode(name)
    except UnicodeEncodeError as error:
        raise refused(field, "a name or a path", value, said=_half_in(error)) from None
    if "\0" in name:
        raise refused(field, "a name or a path", value, said="a zero byte in it")
    return name


def token_ids(field: str, ids: Any, vocabulary: int) -> list[int]:
    """Token ids of a model with so many."""
    given = listed(field, "a list of token ids", ids)
    return [whole_number(f"{field}[{i}]", token, 0, vocabulary - 1) for i, token in enumerate(given)]


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
        return [_filled(messages, "messages[0]")]
    each = enumerate(listed("messages", "a text or a list of messages", messages))
    return [_filled(plain(message), f"messages[{i}]") for i, message in each]


def _filled(message: Any, at: str) -> Any:
    """A message whose parts `{"type": "image", "image": …}`, `{"type": "audio", "audio": …}` and `{"type": "video", "video": …}` hold a picture, a sound or
    the frames of a film in any form."""
    from . import pictures, sounds

    if not isinstance(message, Mapping) or not isinstance(message.get("content"), list):
        return message
    forms = {"image": pictures.part_of, "audio": sounds.part_of, "video": pictures.film_part_of}

    def made(part: Any, i: int) -> Any:
        kind = part.get("type") if isinstance(part, Mapping) else None
        held = isinstance(kind, str) and kind in forms and kind in part
        if not held:
            return part
        # What else the part says, as how many frames go by in a second.
        beside = {field: value for field, value in part.items() if field != kind}
        return {**beside, **forms[kind](f"{at}.content[{i}].{kind}", part[kind])}

    return {**message, "content": [made(part, i) for i, part in enumerate(message["content"])]}


def with_media(messages: list[Any], images: Any, sounds: Any) -> list[Any]:
    """Messages with pictures and sounds before the text of the last of the user."""
    from . import pictures, sounds as audio

    parts: list[Any] = []
    for name, given, part_of in (("images", images, pictures.part_of), ("sounds", sounds, audio.part_of)):
        if given is None:
            continue
        if isinstance(given, (str, bytes, os.PathLike)) or not isinstance(given, Sequence):
            raise refused(name, f"a list of {name}", given)
        if not messages or not isinstance(messages[-1], Mapping) or messages[-1].get("role") != "user":
            raise refused(name, "the last message to be of the user; put them into its content instead", messages[-1:])
        parts += [part_of(f"{name}[{i}]", one) for i, one in enumerate(given)]
    if not parts:
        return messages
    last = dict(messages[-1])
    content = last.get("content")
    said = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    last["content"] = parts + list(said)
    return [*messages[:-1], last]


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
    parallel_tool_calls: bool | None = None,
    schema: Any = None,
    regex: str | None = None,
    grammar: str | None = None,
    reasoning: bool | None = None,
    template_variables: Mapping[str, Any] | None = None,
    images: Sequence[Any] | None = None,
    sounds: Sequence[Any] | None = None,
    stream: bool = False,
    options: Mapping[str, Any],
) -> str:
    """The JSON of a chat request."""
    body: dict[str, Any] = checked(options)
    if (top := body.pop("logprobs", None)) is not None:
        body["logprobs"] = True
        body["top_logprobs"] = top
    body["messages"] = with_media(messages_of(messages), images, sounds)
    if not tools and tool_choice not in (None, "auto", "none"):
        raise InvalidRequestError("`tool_choice`: there are no tools to choose from; give `tools`, too")
    if tools:
        body["tools"] = tool_entries(tools)
        if tool_choice is not None:
            if isinstance(tool_choice, str) and tool_choice not in ("auto", "none", "required"):
                tool_choice = {"type": "function", "function": {"name": tool_choice}}
            body["tool_choice"] = tool_choice
        if parallel_tool_calls is not None:
            body["parallel_tool_calls"] = parallel_tool_calls
    if schema is not None:
        body["response_format"] = response_format(schema)
    for name, form in (("regex", regex), ("grammar", grammar)):
        if form is not None:
            body[name] = text_of(name, form)
    variables = dict(template_variables or {})
    if reasoning is not None:
        variables["enable_thinking"] = reasoning
    if variables:
        body["chat_template_kwargs"] = variables
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return encoded(body)


def _wrong(value: Any, at: str, depth: int = 0) -> InvalidRequestError | None:
    """The first value below `at` that JSON does not have."""
    if isinstance(value, str):
        half = _half(value)
        return refused(at, "a text", value, said=half) if half else None
    if isinstance(value, float):
        return None if math.isfinite(value) else refused(at, "a finite number", value)
    if value is None or isinstance(value, int):
        return None
    if depth > 100:
        return refused(at, "a value as JSON has it", value, said="one that is nested more than 100 deep, or holds itself")
    inside: Iterable[tuple[str, Any]]
    if isinstance(value, Mapping):
        for key in value:
            if isinstance(key, str) and (half := _half(key)):
                return refused(at, "names that are texts", key, said=half)
            if not (key is None or isinstance(key, (str, int, float))):
                return refused(at, "names that are texts", key)
        inside = ((f"{at}.{key}" if at else str(key), each) for key, each in value.items())
    elif isinstance(value, (list, tuple)):
        inside = ((f"{at}[{i}]", each) for i, each in enumerate(value))
    else:
        try:
            made = _json(value)
        except TypeError:
            return refused(at, "a value as JSON has it", value)
        return _wrong(made, at, depth + 1)
    return next((error for place, each in inside if (error := _wrong(each, place, depth + 1))), None)


def encoded(body: Any, at: str = "") -> str:
    """A request as JSON, or an InvalidRequestError that names what has no place in it; `at` names the body itself."""
    try:
        text = json.dumps(body, default=_json, allow_nan=False, ensure_ascii=False)
        text.encode()
        return text
    except (TypeError, ValueError, RecursionError) as error:
        # Only now, because it takes longer than writing.
        raise _wrong(body, at) or InvalidRequestError(f"the request cannot be written as JSON: {error}") from error
