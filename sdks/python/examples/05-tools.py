"""Functions of this program that the model may call.

python 05-tools.py MODEL
"""

import sys
from typing import Literal

import cactus


def weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather of a city."""
    return f"sunny in {city}, 24 degrees"


with cactus.Model.load(sys.argv[1]) as model:
    session = model.session(tools=[weather], max_tokens=120)
    answer = session.chat("What is the weather in Paris?", tool_choice="required")
    # At most two rounds.
    for _ in range(2):
        if not answer.tool_calls:
            break
        for call in answer.tool_calls:
            print("asked for", call.name, call.arguments)
            # The arguments follow the types of the function. This is the place to ask a person.
            result = weather(**call.arguments)
            session.messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        answer = session.chat()
    print(answer)
