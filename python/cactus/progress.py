"""How far a download or a conversion is: a bar on a terminal, one in a notebook, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Progress:
    """One step. `total` is 0 where it is not known; bytes for downloads, weights or windows of text for conversions."""

    #: "downloading", "checking", "converting", "calibrating", "measuring quality", "waiting", "note".
    stage: str
    what: str
    done: int
    total: int


class Callback(Protocol):
    def __call__(self, progress: Progress, /) -> Any: ...


def _text(step: Progress, width: int = 24) -> str:
    label = f"{step.stage} {step.what}".strip()
    if step.total == 0:
        return label
    part = min(1.0, step.done / step.total)
    bar = "█" * int(part * width) + "░" * (width - int(part * width))
    return f"{step.stage:<18} {bar} {part:4.0%}"


class _Bar:
    """Shows one line, at most ten times a second."""

    def __init__(self) -> None:
        self._shown = 0.0
        self._stage = ""

    def __call__(self, step: Progress) -> None:
        if step.stage == "note":
            self.note(f"cactus: {step.what}")
            return
        now = time.monotonic()
        is_last = step.total > 0 and step.done >= step.total
        if step.stage == self._stage and now - self._shown < 0.1 and not is_last:
            return
        self._shown, self._stage = now, step.stage
        self.show(_text(step))

    def show(self, text: str) -> None:
        raise NotImplementedError

    def note(self, text: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class _Terminal(_Bar):
    def show(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()

    def note(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}\n")

    def close(self) -> None:
        if self._stage:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class _Notebook(_Bar):
    def __init__(self, display: Any) -> None:
        super().__init__()
        self._handle: Any = None
        self._display = display

    def _data(self, text: str) -> Any:
        return {"text/plain": text}

    def show(self, text: str) -> None:
        if self._handle is None:
            self._handle = self._display(self._data(text), raw=True, display_id=True)
        else:
            self._handle.update(self._data(text), raw=True)

    def note(self, text: str) -> None:
        self._display(self._data(text), raw=True)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.update(self._data("done"), raw=True)


def shown() -> _Bar | None:
    """The bar that fits where this runs."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None and type(shell).__name__ == "ZMQInteractiveShell":
        from IPython.display import display  # type: ignore[import-not-found]

        return _Notebook(display)
    try:
        return _Terminal() if sys.stderr.isatty() else None
    except (AttributeError, ValueError):
        return None
