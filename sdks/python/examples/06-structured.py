"""An answer that is a value: the model can write nothing else.

python 06-structured.py MODEL
"""

import sys
from dataclasses import dataclass
from typing import Literal

import cactus


@dataclass
class Person:
    name: Literal["Ada", "Bob"]
    has_pet: bool


with cactus.Model.load(sys.argv[1]) as model:
    # A pydantic model or a JSON Schema does as well.
    person = model.chat("Who is it?", schema=Person, max_tokens=80).parsed
    print(person.name, person.has_pet)
