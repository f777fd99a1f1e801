"""Is the package there, and can this model be used?

python 01-install.py MODEL
"""

import sys

import cactus

print("cactus", cactus.__version__)
try:
    with cactus.Model.load(sys.argv[1]) as model:
        print(model.path, model.render("Hello"))
except cactus.BundleError as error:
    # What was expected, found and where.
    print("this model cannot be used:", error)
    raise SystemExit(1) from None
