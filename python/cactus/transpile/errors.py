"""What can go wrong, in words for the one who typed the command.

Purpose: one class of error, and the reading of what `torch.export` says. It imports nothing beyond the standard library.
"""

import contextlib
import logging
import re
import sys
import traceback
from collections.abc import Iterator


class TranspileError(Exception):
    """Something that the user can act on: what was expected, what was found, and what helps."""


# What torch.export says, as a pattern, and what usually helps.
_ADVICE = [
    (
        r"GuardOnDataDependentSymNode|data-dependent|Could not (guard|extract)",
        "the program branches on, or takes a size from, values of a tensor. Pass the size as the shape of an input, use "
        "torch.where instead of `if`, and avoid torch.nonzero, masks as indices and .item()",
    ),
    (
        r"Constraints violated|specialized|ConstraintViolation",
        "a size that was declared to vary is fixed by the program. Capture it with fixed sizes (`--static`), or give "
        "`dynamic_shapes` for other axes",
    ),
    (
        r"has no attribute '_flatten|Cache.*pytree|type .*Cache.* not supported|Unsupported (input|output) type",
        "an input or output is not a tensor. Wrap the module in one that takes and returns tensors (for transformers: "
        "use_cache=False, return_dict=False)",
    ),
    (
        r"Missing autograd|custom operator|no fake impl|NoneType.*meta",
        "an operation has no fake implementation: register one with torch.library.register_fake, or write it in PyTorch",
    ),
]


def explain_export(error: Exception, module: object) -> TranspileError:
    """The error of a capture: what torch said, the line of the user's code, and what usually helps."""
    text = f"{type(error).__name__}: {error}".strip()
    first = "\n".join(line for line in text.splitlines()[:6] if line.strip())
    parts = [f"{type(module).__name__} cannot be captured by torch.export:", first]
    if line := user_line(error):
        parts.append(f"at {line}")
    for pattern, advice in _ADVICE:
        if re.search(pattern, text):
            parts.append(f"what usually helps: {advice}")
            break
    return TranspileError("\n".join(parts))


# What building a model and its examples ends with, as a pattern, and what usually helps.
_BUILDING = [
    (r"ModuleNotFoundError|ImportError", "install the missing package in the Python that CACTUS_PYTHON names (or `python3`)"),
    (r"AttributeError|KeyError", "the model's class or configuration is not what the adapter of its task expects: "
     "try another --task, or wrap the model in a module of tensors and give `FILE.py:NAME` with --example"),
    (r"size mismatch|Missing key|Unexpected key", "use weights that belong to this class and configuration"),
    (r"RuntimeError|ValueError|IndexError|TypeError", "the made-up example does not fit the model: give --prompt, "
     "--image-file or --audio-file, or wrap the model and give `FILE.py:NAME` with --example"),
    (r"MemoryError", "free some memory: the model is captured in 32 bits"),
]  # fmt: skip


@contextlib.contextmanager
def wrapped(what: str) -> Iterator[None]:
    """Whatever fails inside becomes an error that says `what`, the line of the code, and what usually helps."""
    try:
        yield
    except TranspileError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}".strip()
        parts = [f"{what}:", "\n".join(text.splitlines()[:6])]
        if line := user_line(error):
            parts.append(f"at {line}")
        if advice := next((a for pattern, a in _BUILDING if re.search(pattern, text)), None):
            parts.append(f"what usually helps: {advice}")
        raise TranspileError("\n".join(parts)) from error


class _Held:
    """A stream that keeps what is written to it."""

    def __init__(self):
        self.text: list[str] = []

    def write(self, text: str) -> int:
        self.text.append(text)
        return len(text)

    def flush(self) -> None:
        pass


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Keeps what torch prints while it captures (graphs as far as it came, warnings) off the user's screen."""
    before, held = sys.stderr, _Held()
    level = logging.root.manager.disable
    sys.stderr = held
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
        sys.stderr = before


def user_line(error: Exception) -> str | None:
    """The innermost line of code outside of torch and this package that led to an error."""
    found = None
    for frame in traceback.extract_tb(error.__traceback__):
        path = frame.filename.replace("\\", "/")
        if "/torch/" in path or "/cactus/transpile/" in path or path.startswith("<"):
            continue
        found = f"{frame.filename}, line {frame.lineno}, in {frame.name}: {frame.line}"
    return found
