"""Errors, by what a program can do about them. The message says what was expected, what was found, and where."""

from __future__ import annotations


class CactusError(Exception):
    """Any error of this package."""


class InvalidRequestError(CactusError, ValueError):
    """An argument is of the wrong form or out of range; `param` names the field of the request, where one is to blame."""

    param: str | None = None


class ContextFullError(InvalidRequestError):
    """The prompt does not fit the context. A larger one is chosen when the model is loaded: `Model.load(..., context=8192)`."""


class BusyError(CactusError):
    """Too many requests wait already; `retry_after` is in seconds."""

    retry_after: float = 1.0


class ModelNotFoundError(CactusError, LookupError):
    """There is no such model; `suggestions` are names close to it."""

    suggestions: list[str] = []


class DownloadError(CactusError, ConnectionError):
    """The model cannot be downloaded: no network, no permission, or a damaged file."""


class StorageError(CactusError, OSError):
    """A file cannot be read or written."""


class ConversionError(CactusError):
    """The model cannot be converted, or its quality is below the floor."""


class BundleError(CactusError):
    """The bundle is missing, damaged or of another version; loading with `reconvert=True` makes it again."""


class UnsupportedError(CactusError, NotImplementedError):
    """The model cannot do this."""


class OutOfMemoryError(CactusError, MemoryError):
    """The system refuses the memory that the model needs: a smaller `context`, `batch` or `kv_tokens` needs less."""


class SavedSessionError(CactusError):
    """A saved session cannot be written or taken back."""


class ClosedError(CactusError, RuntimeError):
    """The model was closed."""


class CancelledError(CactusError):
    """The answer was ended before it was whole, so it has no parsed value."""


class ForkedError(CactusError, RuntimeError):
    """The process was forked from one that had loaded a model: the engine's threads are not in it."""
