"""A question about a picture, for a model that sees.

python 07-picture-or-sound.py MODEL PICTURE
"""

import sys

import cactus

with cactus.Model.load(sys.argv[1]) as model:
    # `sounds=[…]` is the same for a model that hears.
    print(model.chat("What is this?", images=[sys.argv[2]], max_tokens=40))
