"""Tools from functions and forms from types: no model and no extension module is needed."""

from __future__ import annotations

import dataclasses
import enum
from typing import Annotated, Literal, Optional

import pytest
from cactus.options import chat_body, checked
from cactus.tools import parsed, response_format, schema_of, tool_entries, tool_of


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Annotated[int, "in degrees"], {"type": "integer", "description": "in degrees"}),
        (Color, {"enum": ["red", "blue"]}),
        (
            Point,
            {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                "required": ["x"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_hints_become_schemas(hint, schema):
    assert schema_of(hint) == schema


def test_a_hint_without_schema_is_refused():
    with pytest.raises(TypeError, match="no JSON Schema"):
        schema_of(object())


@pytest.mark.parametrize(
    "doc",
    [
        "Weather of a place.\n\nArgs:\n    city: its name\n    days (int): how far ahead\n",
        "Weather of a place.\n\n:param city: its name\n:param days: how far ahead\n",
    ],
)
def test_functions_become_tools(doc):
    def weather(city: str, days: int = 1, *, unit: Literal["C", "F"] = "C") -> str:
        return ""

    weather.__doc__ = doc
    function = tool_of(weather)["function"]
    assert (function["name"], function["description"]) == ("weather", "Weather of a place.")
    assert function["parameters"]["required"] == ["city"]
    properties = function["parameters"]["properties"]
    assert properties["city"] == {"type": "string", "description": "its name"}
    assert properties["days"]["description"] == "how far ahead"
    assert properties["unit"] == {"enum": ["C", "F"]}


def test_tools_of_every_kind_and_none_of_another():
    pydantic = pytest.importorskip("pydantic")

    class Add(pydantic.BaseModel):
        """Adds."""

        a: int

    def plain(a: int) -> None: ...

    api = {"type": "function", "function": {"name": "f", "parameters": {}}}
    names = [entry["function"]["name"] for entry in tool_entries([api, {"name": "g"}, Add, plain])]
    assert names == ["f", "g", "Add", "plain"]
    with pytest.raises(TypeError, match="found int"):
        tool_entries([3])
    with pytest.raises(TypeError, match="named parameters"):
        tool_of(lambda *args: None)


def test_forms_and_values():
    assert response_format("json") == {"type": "json_object"}
    assert response_format({"type": "object"})["json_schema"]["schema"] == {"type": "object"}
    assert response_format({"type": "json_schema", "json_schema": {}}) == {"type": "json_schema", "json_schema": {}}
    assert parsed(Point, '{"x": 1}') == Point(1)
    assert parsed(Color, '"red"') is Color.RED
    assert parsed({"type": "object"}, '{"a": 1}') == {"a": 1}
    pydantic = pytest.importorskip("pydantic")
    made = pydantic.create_model("Made", a=(int, ...))
    assert parsed(made, '{"a": 1}').a == 1


def test_unknown_options_are_named():
    with pytest.raises(TypeError, match="did you mean 'temperature'"):
        checked({"temprature": 1})
    assert checked({"seed": None, "top_k": 3}) == {"top_k": 3}


def test_requests_that_are_no_json_are_refused():
    with pytest.raises(ValueError, match="`temperature`: expected a finite number, found nan"):
        chat_body("hi", options={"temperature": float("nan")})
