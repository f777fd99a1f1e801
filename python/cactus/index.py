"""An index of vectors, texts and metadata in one file (`Index`), and documents of a folder in one (`Corpus`).

    index = Index("notes.index", dimensions=384)
    index.upsert(["a", "b"], vectors, texts=["one text", "another"], metadata=[{"year": 2024}, {}])
    index.search(vector, words="another", filter={"year": {"$gte": 2020}}, k=5)

    corpus = Corpus("notes", Embedder.load("all-MiniLM-L6-v2"))
    corpus.sync()
    corpus.search("How do I reset my password?")
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Union

from . import in_sqlite
from .asynchronous import in_thread
from .embed import Embedder
from .engine import native
from .errors import ClosedError, InvalidRequestError
from .options import listed, path_of, refused, text_of, whole_number

#: The name of a document: one kind of them in an index.
Id = Union[str, int]


@dataclass(frozen=True)
class Hit:
    """A document that was found."""

    id: Id
    #: What results are ordered by: the similarity, the score by words, or what joins their ranks.
    score: float
    #: Cosine, dot product or negated squared distance, where a vector was asked for.
    similarity: float | None
    #: BM25, where words were asked for.
    bm25: float | None
    text: str
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Stored:
    """A document as it is stored."""

    text: str
    metadata: dict[str, Any]
    #: Of unit length where the metric is the cosine, and with 8 bits in each dimension where that is the encoding.
    vector: native.Array


@dataclass(frozen=True)
class IndexSize:
    """How large an index is."""

    documents: int
    bytes: int
    #: Bytes that belong to nothing any more: what `Index.compact` gives back at least.
    unused_bytes: int


def _id(name: str, value: Any) -> Id:
    return text_of(name, value) if isinstance(value, str) else whole_number(name, value, 0, (1 << 64) - 1)


def _ids(ids: Any) -> list[Id]:
    return [_id(f"ids[{i}]", value) for i, value in enumerate(listed("ids", "a list of ids", ids))]


def _array(name: str, value: Any) -> Any:
    """What has numbers, as the engine takes it."""
    if value is None:
        raise refused(name, "numbers", value)
    if hasattr(value, "__dlpack__"):
        return native.Input(value)
    try:
        return [float(x) for x in value] if name == "vector" else [[float(x) for x in row] for row in value]
    except (TypeError, ValueError):
        raise refused(name, "numbers", value) from None


def _json(name: str, value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"`{name}`: {error}") from None


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"expected texts, numbers, truth values and lists of texts, found {type(value).__name__}")


def _of_each(name: str, values: Any, count: int) -> list[Any]:
    found = listed(name, f"a list of {count}, one for each id", values)
    if len(found) != count:
        raise refused(name, f"a list of {count}, one for each id", values, said=f"{len(found)}")
    return found


class Index:
    """An index in the file `path`, which is made where it is not there.

    `dimensions` are those of its vectors; an index that is there knows its own. `model` names whose vectors they are: an index of
    another model, metric or encoding is refused. Each call that writes is there as a whole or not at all, and on the disk when it returns.
    Searches compare every vector, and see what was committed before, by any program. Any number of threads and processes may use one
    index.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        dimensions: int | None = None,
        model: str = "",
        metric: Literal["cosine", "dot", "euclidean"] = "cosine",
        encoding: Literal["int8", "f32", "binary"] = "int8",
        ids: Literal["text", "number"] = "text",
    ):
        words = {
            "metric": (metric, ("cosine", "dot", "euclidean")),
            "encoding": (encoding, ("int8", "f32", "binary")),
            "ids": (ids, ("text", "number")),
        }
        for name, (value, known) in words.items():
            if value not in known:
                raise refused(name, " or ".join(map(repr, known)), value)
        self._open: Any = native.Index.open(
            path_of("path", path),
            dimensions=None if dimensions is None else whole_number("dimensions", dimensions, 1, 1 << 16),
            model=text_of("model", model),
            metric=metric,
            encoding=encoding,
            ids=ids,
        )

    @property
    def _inner(self) -> Any:
        if self._open is None:
            raise ClosedError("the index is closed")
        return self._open

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._open is None

    def close(self) -> None:
        """Lets go of the file, once calls under way have ended. Any later call raises ClosedError; a second `close` does nothing."""
        self._open = None

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def model(self) -> str:
        """Whose vectors they are."""
        return self._inner.about()[0]

    @property
    def dimensions(self) -> int:
        """Elements of a vector."""
        return self._inner.about()[1]

    @property
    def metric(self) -> str:
        """How vectors are compared."""
        return self._inner.about()[2]

    @property
    def id_kind(self) -> str:
        """What ids are: `text` or `number`."""
        return self._inner.about()[4]

    @property
    def size(self) -> IndexSize:
        """How large it is."""
        return IndexSize(*self._inner.size())

    def __len__(self) -> int:
        return self._inner.size()[0]

    def __contains__(self, id: Id) -> bool:
        return self._inner.get([_id("id", id)])[0] is not None

    def add(self, ids: Sequence[Id], vectors: Any, **options: Any) -> None:
        """Adds documents; one whose id is there already is an `InvalidRequestError`, and nothing is added. Options as those of `upsert`."""
        self._put(ids, vectors, replace=False, **options)

    def upsert(self, ids: Sequence[Id], vectors: Any, **options: Any) -> None:
        """Adds documents with vectors `[documents, dimensions]`, an array or lists, in place of those with the same ids.

        `texts` are what is searched by words. `metadata` are dicts of texts, numbers, truth values and lists of texts, which filters look
        at."""
        self._put(ids, vectors, replace=True, **options)

    def _put(
        self,
        ids: Sequence[Id],
        vectors: Any,
        *,
        replace: bool,
        texts: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        names = _ids(ids)
        said = [""] * len(names) if texts is None else _of_each("texts", texts, len(names))
        known = [{}] * len(names) if metadata is None else _of_each("metadata", metadata, len(names))
        documents = []
        for i, (name, text, about) in enumerate(zip(names, said, known)):
            if about is not None and not isinstance(about, Mapping):
                raise refused(f"metadata[{i}]", "a dict", about)
            for key, value in (about or {}).items():
                if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
                    raise refused(f"metadata[{i}].{key}", "a whole number of 64 bits", value)
            documents.append((name, text_of(f"texts[{i}]", text), _json(f"metadata[{i}]", dict(about or {}))))
        if documents:
            self._inner.put(documents, _array("vectors", vectors), replace)

    def delete(self, ids: Sequence[Id]) -> int:
        """Deletes documents, and gives how many were there."""
        return self._inner.delete(_ids(ids))

    def get(self, ids: Sequence[Id]) -> list[Stored | None]:
        """The document of each id, or None where there is none."""
        found = self._inner.get(_ids(ids))
        return [one and Stored(one[0], json.loads(one[1]), one[2]) for one in found]

    def ids(self) -> list[Id]:
        """Every id, in the order of the file."""
        return self._inner.ids()

    def search(
        self,
        vector: Any = None,
        *,
        words: str | None = None,
        filter: Mapping[str, Any] | None = None,
        k: int = 10,
    ) -> list[Hit]:
        """The `k` best documents, the best first: near a vector, with these words, or both, joined by their ranks.

        With a `filter`, only documents for which it holds: `{"year": {"$gte": 2020}, "tag": "news"}`, with `$eq`, `$ne`, `$in`, `$nin`, `$gt`,
        `$gte`, `$lt`, `$lte`, `$exists`, and `$and`, `$or`, `$not` around them. It costs nothing of exactness."""
        found = self._inner.search(
            None if vector is None else _array("vector", vector),
            None if words is None else text_of("words", words),
            None if filter is None else _json("filter", filter),
            whole_number("k", k, 0, 1 << 31),
        )
        return [Hit(*hit[:5], json.loads(hit[5])) for hit in found]

    async def asearch(self, vector: Any = None, **options: Any) -> list[Hit]:
        """As `search`, awaited."""
        return await in_thread(lambda _: self.search(vector, **options))

    def compact(self) -> None:
        """Writes the file anew, without what was deleted."""
        self._inner.compact()

    def to_sqlite_vec(self, path: str | os.PathLike[str], *, table: str = "documents") -> int:
        """Writes every document into a new `vec0` table of a database of SQLite, and gives how many. Needs `pip install sqlite-vec`.

        Its columns are `id`, `embedding`, `text` and `metadata` (JSON). Vectors are as `get` gives them. The database may be there already;
        it gets the whole table or nothing."""
        return in_sqlite.write(self, path, table)

    @classmethod
    def from_sqlite_vec(
        cls,
        database: str | os.PathLike[str],
        path: str | os.PathLike[str],
        *,
        table: str | None = None,
        model: str = "",
        encoding: Literal["int8", "f32", "binary"] = "int8",
    ) -> Index:
        """A new index in the file `path` with the rows of a `vec0` table, of any program; the only one, unless `table` names it. Needs
        `pip install sqlite-vec`.

        The table has a column of float vectors. Rows without a primary key have their numbers as ids. A column `text` is what is searched by
        words, the object in a column `metadata` and all other columns are metadata."""
        return in_sqlite.read(cls, database, path, table, {"model": model, "encoding": encoding})


@dataclass(frozen=True)
class Found:
    """A piece of a document."""

    #: The file, from the folder on.
    path: str
    #: Where the piece begins and ends in it.
    bytes: tuple[int, int]
    #: Its first and last line, from 1.
    lines: tuple[int, int]
    #: The page that it stands on, from 1, where the document has pages: PDF. Bytes and lines are those of its text then.
    page: int | None
    #: Headings above it, the outermost first.
    headings: list[str]
    text: str
    score: float
    #: The cosine of question and piece.
    similarity: float | None
    bm25: float | None
    #: Whether the file has the bytes that the piece was cut from.
    is_current: bool


@dataclass(frozen=True)
class Synced:
    """What came of bringing an index in step with its folder."""

    files: int
    added: int
    changed: int
    removed: int
    #: Pieces in the index now, and those that got a vector.
    pieces: int
    embedded: int
    #: Files that were not read, and why.
    skipped: dict[str, str]


@dataclass(frozen=True)
class Citation:
    """A place in an answer that names a source."""

    number: int
    #: Where it stands in the answer.
    at: int
    #: Whether there is a source of this number.
    exists: bool
    #: Which share of the words of its sentence stand in the source. It says that a statement may be from there, not that it is true.
    support: float


@dataclass(frozen=True)
class CorpusAnswer:
    """An answer from documents."""

    text: str
    #: What the model was given; number 1 is the first.
    sources: list[Found]
    citations: list[Citation] = field(default_factory=list)


class Corpus:
    """The documents of a folder (text, Markdown, HTML, code), with the vectors of an `Embedder`.

    Its index is the file `.cactus-index` in the folder, or `index`; `cactus index` and `cactus search` use the same one.
    """

    def __init__(
        self, folder: str | os.PathLike[str], embedder: Embedder, *, index: str | os.PathLike[str] | None = None
    ):
        if not isinstance(embedder, Embedder):
            raise refused("embedder", "an Embedder", embedder)
        place = None if index is None else path_of("index", index)
        self._inner = native.Corpus.open(path_of("folder", folder), place, embedder._inner)

    def sync(self, progress: Callable[[int, int, str], None] | None = None) -> Synced:
        """Brings the index in step with the folder: only what is new in it gets a vector.

        `progress` is called with how many files are done, how many there are, and the one that comes next. There is one commit for each
        file, so what was done stays done where it is interrupted."""
        if progress is not None and not callable(progress):
            raise refused("progress", "a function", progress)
        found = json.loads(self._inner.sync(progress))
        skipped = {one["path"]: one["reason"] for one in found.pop("skipped")}
        return Synced(**found, skipped=skipped)

    def search(self, question: str, *, k: int = 5, min_similarity: float | str = "any") -> list[Found]:
        """The `k` pieces nearest to a question, by its meaning and by its words, the best first. The index is taken as it is: see `sync`.

        With `min_similarity="related"`, only those that are nearer than pieces are to questions on which the documents have nothing; with
        a number, those whose cosine with the question is so much."""
        near = _nearness(min_similarity)
        found = json.loads(self._inner.search(_question(question), whole_number("k", k, 1, 1 << 20), near))
        return [_found(one) for one in found]

    async def asearch(self, question: str, *, k: int = 5, min_similarity: float | str = "any") -> list[Found]:
        """As `search`, awaited."""
        return await in_thread(lambda _: self.search(question, k=k, min_similarity=min_similarity))

    def ask(
        self, model: Any, question: str, *, k: int = 5, min_similarity: float | str = "any", **options: Any
    ) -> CorpusAnswer:
        """An answer of a `cactus.Model` from the `k` pieces nearest to a question, with its sources, and its citations checked.

        `min_similarity` is as in `search`; where nothing is near enough, the answer is empty and has no sources. Other options are those
        of `Model.chat`."""
        near = _nearness(min_similarity)
        told, check = self._inner.ask(_question(question), whole_number("k", k, 1, 1 << 20), near)
        if not told:
            return CorpusAnswer("", [])
        messages = [{"role": "system", "content": told}, {"role": "user", "content": question}]
        text = model.chat(messages, **options).text
        sources, citations = json.loads(check.check(text))
        return CorpusAnswer(text, [_found(one) for one in sources], [Citation(**one) for one in citations])


def _question(value: str) -> str:
    if not text_of("question", value).strip():
        raise refused("question", "words to look for", value)
    return value


def _nearness(value: float | str) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise refused("min_similarity", "a number from -1 to 1, 'related' or 'any'", value)
    return str(value)


def _found(one: dict[str, Any]) -> Found:
    return Found(**{**one, "bytes": tuple(one["bytes"]), "lines": tuple(one["lines"])})
