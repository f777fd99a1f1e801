"""Schemas from Python: plain functions as tools, pydantic models, dataclasses and type hints as the form of an answer."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union

from .errors import InvalidRequestError

_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_of(hint: Any) -> dict[str, Any]:
    """The JSON Schema of a type hint."""
    if hint is Any or hint is inspect.Parameter.empty:
        return {}
    if hasattr(hint, "model_json_schema"):
        return hint.model_json_schema()
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        schema = schema_of(arguments[0])
        notes = [note for note in arguments[1:] if isinstance(note, str)]
        return {**schema, "description": notes[0]} if notes else schema
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is Union or origin is types.UnionType:
        return {"anyOf": [schema_of(argument) for argument in arguments]}
    if origin is tuple or hint is tuple:
        if arguments and arguments[-1] is not Ellipsis:
            items = [schema_of(argument) for argument in arguments]
            return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items), "maxItems": len(items)}
        return {"type": "array", "items": schema_of(arguments[0]) if arguments else {}}
    if origin in (list, set, frozenset, Sequence) or hint in (list, set, frozenset):
        return {"type": "array", "items": schema_of(arguments[0]) if arguments else {}}
    if origin in (dict, Mapping) or hint is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1]) if len(arguments) == 2 else {}}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        fields = dataclasses.fields(hint)
        missing = dataclasses.MISSING
        required = [f.name for f in fields if f.default is missing and f.default_factory is missing]
        return _object({f.name: schema_of(hints[f.name]) for f in fields}, required)
    if typing.is_typeddict(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        required_keys = [name for name in hints if name in hint.__required_keys__]
        return _object({name: schema_of(each) for name, each in hints.items()}, required_keys)
    raise TypeError(f"no JSON Schema is known for {hint!r}; give a pydantic model, a dataclass or a schema as a dict")


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_PARAMETER = re.compile(r"^\s*(?::param\s+)?\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$")


def _documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The description of a function, and those of its parameters, from a docstring in any of the usual styles."""
    lines = (inspect.getdoc(function) or "").splitlines()
    about, parameters, names = [], {}, set(inspect.signature(function).parameters)
    in_about = True
    for line in lines:
        if line.strip().lower() in ("args:", "arguments:", "parameters:", "returns:", "raises:", "parameters", "returns"):
            in_about = False
        found = _PARAMETER.match(line)
        if found and found[1] in names:
            parameters[found[1]] = found[2].strip()
            in_about = False
        elif in_about:
            about.append(line)
    return "\n".join(about).strip(), parameters


def tool_of(function: Callable[..., Any]) -> dict[str, Any]:
    """A plain function as a tool: its name, its docstring, and its parameters by their type hints.

    >>> def add(a: int, b: int = 0) -> int:
    ...     '''Adds two numbers.'''
    ...     return a + b
    >>> tool_of(add)["function"]["parameters"]["required"]
    ['a']
    """
    hints = typing.get_type_hints(function, include_extras=True)
    about, described = _documented(function)
    properties, required = {}, []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"`{function.__name__}` takes *{name}; a tool needs named parameters")
        schema = schema_of(hints.get(name, parameter.annotation))
        if name in described and "description" not in schema:
            schema = {**schema, "description": described[name]}
        properties[name] = schema
        if parameter.default is parameter.empty:
            required.append(name)
    function_entry = {"name": function.__name__, "description": about, "parameters": _object(properties, required)}
    return {"type": "function", "function": function_entry}


@dataclasses.dataclass(frozen=True)
class Tool:
    """A function as a tool whose name, description and arguments are said by hand instead of by its hints and its docstring."""

    function: Callable[..., Any]
    name: str
    description: str = ""
    #: JSON Schema of the arguments.
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"type": "object", "properties": {}})

    def entry(self) -> dict[str, Any]:
        """The tool as the API has it."""
        described = {"description": self.description} if self.description else {}
        return {"type": "function", "function": {"name": self.name, **described, "parameters": dict(self.parameters)}}


def tool_entries(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Tools as the API has them. Taken are its own dicts, plain functions, `Tool`s and pydantic models."""
    if isinstance(tools, (str, bytes, Mapping)) or not hasattr(tools, "__iter__") or isinstance(tools, type):
        raise TypeError(f"`tools`: expected a list of functions, pydantic models or dicts, found one {type(tools).__name__}")
    entries = []
    for tool in tools:
        if isinstance(tool, Mapping):
            is_entry = "function" in tool or "type" in tool
            entries.append(dict(tool) if is_entry else {"type": "function", "function": dict(tool)})
        elif isinstance(tool, Tool):
            entries.append(tool.entry())
        elif hasattr(tool, "model_json_schema"):
            schema = tool.model_json_schema()
            about = schema.pop("description", "") or ""
            function = {"name": tool.__name__, "description": about, "parameters": schema}
            entries.append({"type": "function", "function": function})
        elif callable(tool):
            entries.append(tool_of(tool))
        else:
            raise TypeError(f"a tool is a function, a pydantic model or a dict; found {type(tool).__name__}")
    return entries


def response_format(schema: Any) -> dict[str, Any]:
    """The form of an answer as the API has it. Taken are JSON Schemas, types, `"json"`, and the API's own dicts."""
    if schema == "json":
        return {"type": "json_object"}
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise InvalidRequestError(f'`schema`: a text is expected to be "json" or a JSON Schema, found {schema!r}') from error
    if isinstance(schema, Mapping):
        if schema.get("type") in ("json_schema", "json_object", "text", "grammar", "regex"):
            return dict(schema)
        made, name = dict(schema), "answer"
    else:
        made, name = schema_of(schema), getattr(schema, "__name__", "answer")
    return {"type": "json_schema", "json_schema": {"name": name, "schema": made, "strict": True}}


def parsed(schema: Any, text: str) -> Any:
    """The value that `text` spells: an instance where `schema` is a type that makes them, else plain JSON."""
    if hasattr(schema, "model_validate_json"):
        return schema.model_validate_json(text)
    value = json.loads(text)
    if isinstance(schema, type) and (dataclasses.is_dataclass(schema) or issubclass(schema, enum.Enum)):
        make: Any = schema
        return make(**value) if isinstance(value, dict) else make(value)
    return value
