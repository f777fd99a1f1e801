"""A conversation: each question knows what was said before.

python 02-chat.py MODEL
"""

import sys

import cactus

with cactus.Model.load(sys.argv[1]) as model:
    session = model.session([{"role": "system", "content": "Answer in one sentence."}], max_tokens=60)
    print(session.chat("Why is the sky blue?"))
    print(session.chat("And at sunset?"))
    # With `session.save(path)` it goes on another day, and nothing is computed again.
    print(session.messages)
