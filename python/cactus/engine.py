"""The extension module, loaded once: where it is missing, the error says how to get it; at the end of the interpreter the answers
under way are ended, because nobody may enter an interpreter that has ended."""

from __future__ import annotations

import atexit

try:
    from . import _native as native
except ImportError as error:
    raise ImportError(
        "cactus has no extension module here: `pip install ./python` in the repository builds it (this needs Rust), and a wheel "
        f"brings it ({error})"
    ) from error

atexit.register(native.shutdown)
