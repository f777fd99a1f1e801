"""Vectors of texts and pictures (`Embedder`), of each token of a text (`TokenEmbedder`), and documents in the order of how well they
answer a query (`Reranker`).

    embedder = Embedder.load("all-MiniLM-L6-v2")
    vectors = embedder.embed(["one text", "another"], role="document").vectors  # numpy.asarray(vectors)
    query = embedder.embed_query("What is it?")
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union

from .asynchronous import in_thread
from .engine import native
from .options import path_of, refused, text_of, whole_number
from .pictures import picture_bytes

Text = Union[str, Sequence[int]]
#: A PNG, JPEG or WebP file, the bytes of one, an image of Pillow, or an array `[height, width, 3]` of bytes. The last two have no type
#: that could be named without their packages.
Image = Union[str, "os.PathLike[str]", bytes, Any]


@dataclass(frozen=True)
class Embedded:
    """Vectors, in the order of their texts or pictures."""

    #: An array [texts, dimensions] of 32-bit floats that NumPy, PyTorch and others read where it lies.
    vectors: native.Array
    #: Tokens that were read for each; of a picture, its patches.
    tokens: list[int]


@dataclass(frozen=True)
class TokenEmbedded:
    """A vector of each token, in the order of the texts."""

    #: For each text an array [tokens, dimensions] of 32-bit floats. Some tokens may have no vector, and some that were added may have one.
    vectors: list[native.Array]
    #: Tokens that were read for each.
    tokens: list[int]


@dataclass(frozen=True)
class RankedDocument:
    """A document with its score."""

    #: Its place among the documents that were given.
    index: int
    score: float
    document: str


def _bundle(model: str | os.PathLike[str], bits: int, offline: bool) -> os.PathLike[str]:
    name = path_of("model", model)
    return native.prepare(
        name, bits=bits, calibrate=False, reconvert=False, token=None, offline=offline, progress=None
    )


def _texts(name: str, texts: Any) -> list[Any]:
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise refused(name, "a list of texts", texts)
    return [text_of(name, text) if isinstance(text, str) else _tokens(name, text) for text in texts]


def _tokens(name: str, tokens: Any) -> list[int]:
    if not isinstance(tokens, Sequence):
        raise refused(name, "a text, or a list of token ids", tokens)
    return [whole_number(name, token, 0, (1 << 32) - 1) for token in tokens]


def _images(images: Any) -> list[bytes]:
    if isinstance(images, (str, bytes, os.PathLike)) or not isinstance(images, Sequence):
        raise refused("images", "a list of files, their bytes, images of Pillow or arrays", images)
    return [picture_bytes(f"images[{i}]", image) for i, image in enumerate(images)]


def _role(role: Any) -> str | None:
    if role not in (None, "query", "document"):
        raise refused("role", "'query', 'document' or None", role)
    return role


def _named(name: str, text: Any) -> str | None:
    return None if text is None else text_of(name, text)


class Embedder:
    """A model that makes vectors of texts, and some of pictures. `Embedder.load` makes one; `with` or `close` frees it.

    A text has the same bits alone and beside others, on every machine. It may be asked from any thread.
    """

    def __init__(self, inner: native.Embedder):
        if not isinstance(inner, native.Embedder):
            raise TypeError("an Embedder is made by Embedder.load(path)")
        self._inner = inner

    @classmethod
    def load(
        cls, model: str | os.PathLike[str], *, bits: int = 8, threads: int | None = None, offline: bool = False
    ) -> Embedder:
        """Loads a bundle that makes vectors. A folder of sentence-transformers or a Hugging Face id is converted into the cache
        first."""
        if threads is not None:
            whole_number("threads", threads, 1, 1024)
        return cls(native.Embedder.open(_bundle(model, bits, offline), threads))

    @property
    def dimensions(self) -> int:
        """Elements of a vector."""
        return self._inner.dimensions

    @property
    def limit_tokens(self) -> int:
        """Most tokens of a text, those of its prompt and special ones among them."""
        return self._inner.limit_tokens

    @property
    def prompts(self) -> dict[str, str]:
        """What the model wants before texts, by name; `query` and `document` are those of the roles."""
        return dict(self._inner.prompts)

    def count(self, text: str, *, role: Literal["query", "document"] | None = None, task: str | None = None) -> int:
        """How many tokens a text has, those of its prompt and special ones among them."""
        return self._inner.count(text_of("text", text), role=_role(role), task=_named("task", task))

    def embed(
        self,
        texts: Sequence[Text] | None = None,
        *,
        images: Sequence[Image] | None = None,
        role: Literal["query", "document"] | None = None,
        task: str | None = None,
        dimensions: int | None = None,
        truncate: bool = False,
    ) -> Embedded:
        """Vectors of texts, or of lists of token ids, which get no prompt.

        `role` says what texts are for, and `task` the name of another prompt. `dimensions` cuts vectors, of a model that was made for
        that. A text that has more than `limit_tokens` is a `ContextFullError`, unless `truncate` leaves out its end.

        `images` in place of texts are PNG, JPEG or WebP files, their bytes, images of Pillow or arrays, for a model of texts and
        pictures (CLIP, SigLIP). Compare pictures with texts, and do not rank both together: texts are nearer to each other than to
        any picture."""
        if (texts is None) == (images is None):
            raise refused("images", "texts or images, not both" if texts is not None else "texts or images", images)
        if images is not None and (role is not None or task is not None):
            raise refused("role", "None beside images", role or task)
        most = None if dimensions is None else whole_number("dimensions", dimensions, 1, 1 << 20)
        if images is not None:
            return Embedded(*self._inner.embed_images(_images(images), dimensions=most))
        if role is not None and task is not None:
            raise refused("task", "None beside a role", task)
        if not isinstance(truncate, bool):
            raise refused("truncate", "True or False", truncate)
        vectors, tokens = self._inner.embed(
            _texts("texts", texts),
            role=_role(role),
            task=_named("task", task),
            dimensions=most,
            truncate=truncate,
        )
        return Embedded(vectors, tokens)

    async def aembed(self, texts: Sequence[Text] | None = None, **options: Any) -> Embedded:
        """As `embed`, awaited."""
        return await in_thread(lambda _: self.embed(texts, **options))

    def embed_query(self, text: str) -> list[float]:
        """The vector of a text that is searched with."""
        return self._lists([text], "query")[0]

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of texts that are searched for."""
        return self._lists(texts, "document")

    def _lists(self, texts: Sequence[str], role: Literal["query", "document"]) -> list[list[float]]:
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise refused("texts", "a list of texts", texts)
        return self._inner.lists([text_of("texts", text) for text in texts], role)

    def close(self) -> None:
        """Frees the model. What is under way ends with a `CancelledError`."""
        self._inner.close()

    def __enter__(self) -> Embedder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TokenEmbedder:
    """A model of late interaction (ColBERT), which makes a vector of each token. `TokenEmbedder.load` makes one; `with` or `close` frees it.

    How well a document answers a query is the sum over the query's vectors of the largest product with one of the document's:

        [query], documents = embedder.embed(["a question"], role="query").vectors, embedder.embed(texts).vectors
        scores = [(numpy.asarray(query) @ numpy.asarray(d).T).max(axis=1).sum() for d in documents]
    """

    def __init__(self, inner: native.TokenEmbedder):
        if not isinstance(inner, native.TokenEmbedder):
            raise TypeError("a TokenEmbedder is made by TokenEmbedder.load(path)")
        self._inner = inner

    @classmethod
    def load(
        cls, model: str | os.PathLike[str], *, bits: int = 8, threads: int | None = None, offline: bool = False
    ) -> TokenEmbedder:
        """Loads a bundle that makes a vector of each token. A folder of PyLate or a Hugging Face id is converted into the cache
        first."""
        if threads is not None:
            whole_number("threads", threads, 1, 1024)
        return cls(native.TokenEmbedder.open(_bundle(model, bits, offline), threads))

    @property
    def dimensions(self) -> int:
        """Elements of a vector."""
        return self._inner.dimensions

    @property
    def query_limit_tokens(self) -> int:
        """Most tokens of a query, those that are added among them."""
        return self._inner.limit_tokens[0]

    @property
    def document_limit_tokens(self) -> int:
        """Most tokens of a document, those that are added among them."""
        return self._inner.limit_tokens[1]

    def embed(
        self, texts: Sequence[str], *, role: Literal["query", "document"] | None = None, truncate: bool = False
    ) -> TokenEmbedded:
        """The vectors of each text, of the length 1. A text of which `role` says nothing is a document. One that has too many tokens
        is a `ContextFullError`, unless `truncate` leaves out its end."""
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise refused("texts", "a list of texts", texts)
        if not isinstance(truncate, bool):
            raise refused("truncate", "True or False", truncate)
        given = [text_of("texts", text) for text in texts]
        return TokenEmbedded(*self._inner.embed(given, role=_role(role), truncate=truncate))

    async def aembed(self, texts: Sequence[str], **options: Any) -> TokenEmbedded:
        """As `embed`, awaited."""
        return await in_thread(lambda _: self.embed(texts, **options))

    def close(self) -> None:
        """Frees the model. What is under way ends with a `CancelledError`."""
        self._inner.close()

    def __enter__(self) -> TokenEmbedder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Reranker:
    """A model that scores documents for a query. `Reranker.load` makes one; `with` or `close` frees it."""

    def __init__(self, inner: native.Reranker):
        if not isinstance(inner, native.Reranker):
            raise TypeError("a Reranker is made by Reranker.load(path)")
        self._inner = inner

    @classmethod
    def load(
        cls, model: str | os.PathLike[str], *, bits: int = 8, threads: int | None = None, offline: bool = False
    ) -> Reranker:
        """Loads a bundle that scores documents. A folder of a cross-encoder or a Hugging Face id is converted into the cache
        first."""
        if threads is not None:
            whole_number("threads", threads, 1, 1024)
        return cls(native.Reranker.open(_bundle(model, bits, offline), threads))

    @property
    def limit_tokens(self) -> int:
        """Most tokens of a query with a document, special ones among them."""
        return self._inner.limit_tokens

    def score(
        self, query: str, documents: Sequence[str], *, truncate: bool = False, instruction: str | None = None
    ) -> list[float]:
        """A score for each document, in their order: the larger, the better it answers. `truncate` lets documents that are too long
        lose their end; `instruction` says what makes a document a good one, to a model that is told so."""
        if isinstance(documents, str) or not isinstance(documents, Sequence):
            raise refused("documents", "a list of texts", documents)
        if not isinstance(truncate, bool):
            raise refused("truncate", "True or False", truncate)
        return self._inner.score(
            text_of("query", query),
            [text_of("documents", document) for document in documents],
            truncate=truncate,
            instruction=_named("instruction", instruction),
        )

    def rank(self, query: str, documents: Sequence[str], *, top: int | None = None, **options: Any) -> list[RankedDocument]:
        """Documents with their scores, the best first; `top` of them at most."""
        scores = self.score(query, documents, **options)
        order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
        most = len(order) if top is None else whole_number("top", top, 1, 1 << 31)
        return [RankedDocument(i, scores[i], documents[i]) for i in order[:most]]

    async def arank(self, query: str, documents: Sequence[str], **options: Any) -> list[RankedDocument]:
        """As `rank`, awaited."""
        return await in_thread(lambda _: self.rank(query, documents, **options))

    def close(self) -> None:
        """Frees the model. What is under way ends with a `CancelledError`."""
        self._inner.close()

    def __enter__(self) -> Reranker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
