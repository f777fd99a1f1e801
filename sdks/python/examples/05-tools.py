"""Functions of this program that the model may call.

python 05-tools.py MODEL
"""

import sys
from typing import Literal

import cactus


def weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather of a city."""
    return f"sunny in {city}, 24 degrees"


def confirm(name: str, arguments: dict) -> bool:
    # This is the place to ask a person.
    print("asked for", name, arguments)
    return True


with cactus.Model.load(sys.argv[1]) as model:
    session = model.session(max_tokens=120)
    # The arguments follow the types of the function, and what it gives is told to the model. At most two rounds.
    print(session.chat_with_tools("What is the weather in Paris?", [weather], rounds=2, confirm=confirm))
