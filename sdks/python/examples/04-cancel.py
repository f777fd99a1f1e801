"""Stopping an answer: from another thread, or by leaving the loop.

python 04-cancel.py MODEL
"""

import sys
import threading

import cactus

with cactus.Model.load(sys.argv[1]) as model:
    stream = model.generate("Once upon a time", max_tokens=1500, ignore_eos=True, stream=True)
    threading.Timer(0.05, stream.cancel).start()
    for text in stream:
        print(text, end="", flush=True)
    # What came until then.
    print("\n", stream.answer.finish_reason)

    # Leaving `with` ends the answer within a token.
    with model.generate("Once upon a time", max_tokens=1500, ignore_eos=True, stream=True) as left:
        print(next(left))
