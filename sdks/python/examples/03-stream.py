"""Text as it is made.

python 03-stream.py MODEL
"""

import asyncio
import sys

import cactus

with cactus.Model.load(sys.argv[1]) as model:
    stream = model.chat("Tell me a story.", max_tokens=60, stream=True)
    for text in stream:
        print(text, end="", flush=True)
    print("\n", stream.answer.completion_tokens, "tokens")

    async def many() -> None:
        # What is awaited together is computed together.
        answers = await asyncio.gather(*(model.achat(f"Count to {n}.", max_tokens=20) for n in (3, 4, 5)))
        print([answer.text for answer in answers])

    asyncio.run(many())
