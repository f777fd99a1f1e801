"""A model without the network, and its end.

python 10-offline-and-lifecycle.py MODEL
"""

import sys

import cactus

# A name is looked for on this machine alone.
model = cactus.Model.load(sys.argv[1], offline=True, progress=lambda step: print(step))
stream = model.generate("Once upon a time", max_tokens=1500, ignore_eos=True, stream=True)
print(next(stream))
# Whatever is under way is cancelled, and nothing of the model runs behind `close`.
model.close()
model.close()
try:
    model.chat("Anybody there?")
except cactus.ClosedError as error:
    print(error)
