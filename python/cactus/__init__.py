"""Language models on this machine's CPU.

    >>> import cactus
    >>> cactus.__name__
    'cactus'

`Model.load` finds, downloads and converts a model, `Model.chat` talks with it. What needs only Python (`cactus.transpile`) works
without the extension module. Names are imported when they are first used, so the import itself costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "Model": "model",
    "Session": "session",
    "Answer": "answer",
    "AnswerStream": "answer",
    "Replaced": "answer",
    "Score": "answer",
    "Source": "answer",
    "ToolCall": "answer",
    "Tool": "tools",
    "Transcriber": "hear",
    "Transcript": "hear",
    "Segment": "hear",
    "Word": "hear",
    "Vad": "hear",
    "Span": "hear",
    "Stream": "hear",
    "SpeechStart": "hear",
    "SpeechPartial": "hear",
    "SpeechFinal": "hear",
    "SpeechEnd": "hear",
    "SpeechEvent": "hear",
    "Embedder": "embed",
    "Embedded": "embed",
    "TokenEmbedder": "embed",
    "TokenEmbedded": "embed",
    "Reranker": "embed",
    "RankedDocument": "embed",
    "Index": "index",
    "Hit": "index",
    "Stored": "index",
    "Corpus": "index",
    "CorpusAnswer": "index",
    "Citation": "index",
    "Found": "index",
    "Policy": "policy",
    "Question": "policy",
    "Target": "policy",
    "Progress": "progress",
    "check_bundle": "model",
    "memory_pressure": "model",
    "pipeline": "habits",
    "CactusError": "errors",
    "InvalidRequestError": "errors",
    "ContextFullError": "errors",
    "BusyError": "errors",
    "ModelNotFoundError": "errors",
    "DownloadError": "errors",
    "StorageError": "errors",
    "ConversionError": "errors",
    "BundleError": "errors",
    "UnsupportedError": "errors",
    "OutOfMemoryError": "errors",
    "SavedSessionError": "errors",
    "ClosedError": "errors",
    "CancelledError": "errors",
    "ForkedError": "errors",
}

__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:
    from .answer import Answer as Answer
    from .answer import AnswerStream as AnswerStream
    from .answer import Replaced as Replaced
    from .answer import Score as Score
    from .answer import Source as Source
    from .answer import ToolCall as ToolCall
    from .embed import Embedded as Embedded
    from .embed import Embedder as Embedder
    from .embed import RankedDocument as RankedDocument
    from .embed import Reranker as Reranker
    from .embed import TokenEmbedded as TokenEmbedded
    from .embed import TokenEmbedder as TokenEmbedder
    from .errors import BundleError as BundleError
    from .errors import BusyError as BusyError
    from .errors import CactusError as CactusError
    from .errors import CancelledError as CancelledError
    from .errors import ClosedError as ClosedError
    from .errors import ContextFullError as ContextFullError
    from .errors import ConversionError as ConversionError
    from .errors import DownloadError as DownloadError
    from .errors import ForkedError as ForkedError
    from .errors import InvalidRequestError as InvalidRequestError
    from .errors import ModelNotFoundError as ModelNotFoundError
    from .errors import OutOfMemoryError as OutOfMemoryError
    from .errors import SavedSessionError as SavedSessionError
    from .errors import StorageError as StorageError
    from .errors import UnsupportedError as UnsupportedError
    from .habits import pipeline as pipeline
    from .hear import Segment as Segment
    from .hear import Span as Span
    from .hear import SpeechEnd as SpeechEnd
    from .hear import SpeechEvent as SpeechEvent
    from .hear import SpeechFinal as SpeechFinal
    from .hear import SpeechPartial as SpeechPartial
    from .hear import SpeechStart as SpeechStart
    from .hear import Stream as Stream
    from .hear import Transcriber as Transcriber
    from .hear import Transcript as Transcript
    from .hear import Vad as Vad
    from .hear import Word as Word
    from .index import Citation as Citation
    from .index import Corpus as Corpus
    from .index import CorpusAnswer as CorpusAnswer
    from .index import Found as Found
    from .index import Hit as Hit
    from .index import Index as Index
    from .index import Stored as Stored
    from .model import Model as Model
    from .model import check_bundle as check_bundle
    from .model import memory_pressure as memory_pressure
    from .policy import Policy as Policy
    from .policy import Question as Question
    from .policy import Target as Target
    from .progress import Progress as Progress
    from .session import Session as Session
    from .tools import Tool as Tool


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'cactus' has no attribute {name!r}")
    value = getattr(import_module(f"cactus.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
