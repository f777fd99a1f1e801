"""Haystack: embedders of texts and documents, `CactusDocumentStore`, and retrievers over it. Needs `pip install haystack-ai`.

    store = CactusDocumentStore("notes.index", embedding_dim=384)
    indexing = Pipeline()
    indexing.add_component("embedder", CactusDocumentEmbedder("all-MiniLM-L6-v2"))
    indexing.add_component("writer", DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE))
    indexing.connect("embedder", "writer")
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import numpy
from haystack import Document, component, default_from_dict, default_to_dict
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy, apply_filter_policy
from haystack.errors import FilterError

from ..embed import Embedder
from ..errors import InvalidRequestError
from ..index import Hit, Index
from ..options import path_of, refused, text_of, whole_number
from ._retrieval import RESERVED, any_vector, chosen, given, loaded, matching, stored, vectors

_LOAD = ("bits", "threads", "offline")


class _Embeds:
    """What both embedders are: a model that is loaded by `warm_up`, once for all that want the same."""

    def __init__(self, model: str | os.PathLike[str], options: dict[str, Any]):
        self.model = path_of("model", model)
        self._options = options
        self._embedder: Embedder | None = None

    def warm_up(self) -> None:
        """Loads the model. `run` does so, too."""
        if self._embedder is None:
            self._embedder = loaded(Embedder, self.model, {name: self._options[name] for name in _LOAD})

    def _vectors(self, texts: list[str], role: Literal["query", "document"]) -> list[list[float]]:
        self.warm_up()
        assert self._embedder is not None
        options = {name: value for name, value in self._options.items() if name not in _LOAD}
        return vectors(self._embedder, texts, role, options)


@component
class CactusTextEmbedder(_Embeds):
    """The vector of a query, with the prompt of queries. Options are those of `Embedder.load` and `Embedder.embed`."""

    def __init__(
        self,
        model: str,
        *,
        bits: int = 8,
        threads: int | None = None,
        offline: bool = False,
        truncate: bool = False,
        dimensions: int | None = None,
    ):
        options = {"bits": bits, "threads": threads, "offline": offline, "truncate": truncate, "dimensions": dimensions}
        _Embeds.__init__(self, model, options)

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, model=self.model, **self._options)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CactusTextEmbedder:
        return default_from_dict(cls, data)

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        return {"embedding": self._vectors([text_of("text", text)], "query")[0]}


@component
class CactusDocumentEmbedder(_Embeds):
    """Documents with their vectors, with the prompt of documents. Options are those of `Embedder.load` and `Embedder.embed`.

    The values of `meta_fields_to_embed` stand before the text, with `embedding_separator` between."""

    def __init__(
        self,
        model: str,
        *,
        bits: int = 8,
        threads: int | None = None,
        offline: bool = False,
        truncate: bool = False,
        dimensions: int | None = None,
        meta_fields_to_embed: list[str] | None = None,
        embedding_separator: str = "\n",
    ):
        options = {"bits": bits, "threads": threads, "offline": offline, "truncate": truncate, "dimensions": dimensions}
        _Embeds.__init__(self, model, options)
        self.meta_fields_to_embed = list(meta_fields_to_embed or [])
        self.embedding_separator = embedding_separator

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(
            self,
            model=self.model,
            **self._options,
            meta_fields_to_embed=self.meta_fields_to_embed,
            embedding_separator=self.embedding_separator,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CactusDocumentEmbedder:
        return default_from_dict(cls, data)

    def _text(self, document: Document) -> str:
        values = [document.meta.get(name) for name in self.meta_fields_to_embed]
        said = [str(value) for value in values if value is not None]
        return self.embedding_separator.join([*said, document.content or ""])

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        made = self._vectors([self._text(one) for one in _documents(documents)], "document")
        return {"documents": [dataclasses.replace(one, embedding=row) for one, row in zip(documents, made)]}


#: There is no vector; one that means nothing stands in its place, because an index wants one.
_BARE = RESERVED + "bare"
#: What else a document has: JSON.
_MORE = RESERVED + "document"


class CactusDocumentStore:
    """Documents in a `cactus.Index`, in the file `path`.

    Vectors come back as the index has them: of unit length where `metric` is the cosine, and with 8 bits in each dimension unless
    `encoding` is "f32". Documents without one are found by their words alone. What else they have comes back as it was, `score` excepted.

    Metadata may be whatever JSON has. Filters see texts, numbers, truth values, lists of texts, and those in a dict under names with dots
    (`meta.a.b`); of the rest, that it is there. A condition on a list holds where it holds for one of its texts. `>` and the like compare
    numbers, or dates in ISO 8601 as the texts they are, so those have to be written alike.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        embedding_dim: int,
        model: str = "",
        metric: Literal["cosine", "dot", "euclidean"] = "cosine",
        encoding: Literal["int8", "f32", "binary"] = "int8",
    ):
        self._parameters: dict[str, Any] = {
            "path": path_of("path", path),
            "embedding_dim": embedding_dim,
            "model": model,
            "metric": metric,
            "encoding": encoding,
        }
        self.index = Index(path, dimensions=embedding_dim, model=model, metric=metric, encoding=encoding)

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, **self._parameters)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CactusDocumentStore:
        return default_from_dict(cls, data)

    def count_documents(self) -> int:
        return len(self.index)

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """The documents for which the filters hold, in the order of the file."""
        hits = matching(self.index, _filter(filters))
        # Without those that another has deleted meanwhile.
        found = zip(hits, self.index.get([hit.id for hit in hits]))
        return [_document(hit, numpy.asarray(one.vector).tolist()) for hit, one in found if one is not None]

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Writes documents in one commit, and says how many. `NONE` is `FAIL`: where one is there already, nothing is written."""
        known = _documents(documents)
        if policy == DuplicatePolicy.OVERWRITE:
            self._put(self.index.upsert, known)
            return len(known)
        while True:
            new = known
            if policy == DuplicatePolicy.SKIP:
                first: dict[str, Document] = {}
                for one in known:
                    first.setdefault(one.id, one)
                new = [one for id, one in first.items() if id not in self.index]
            try:
                self._put(self.index.add, new)
                return len(new)
            except InvalidRequestError as error:
                again = [one.id for one in new if one.id in self.index]
                if policy == DuplicatePolicy.SKIP and again:
                    continue
                if again or len({one.id for one in new}) < len(new):
                    raise DuplicateDocumentError(str(error)) from error
                raise

    def _put(self, put: Callable[..., None], documents: list[Document]) -> None:
        none = any_vector(self.index)
        put(
            [one.id for one in documents],
            [none if one.embedding is None else one.embedding for one in documents],
            texts=[one.content or "" for one in documents],
            metadata=[stored(one.meta, **_own(one)) for one in documents],
        )

    def delete_documents(self, document_ids: list[str]) -> None:
        """Deletes documents; those that are not there do not matter."""
        self.index.delete(document_ids)

    def delete_all_documents(self) -> None:
        """Deletes every document."""
        self.index.delete(self.index.ids())

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Deletes the documents for which the filters hold, and says how many."""
        return self.index.delete([hit.id for hit in chosen(self.index, _filter(filters))])

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """How many documents the filters hold for."""
        return len(chosen(self.index, _filter(filters)))

    def search(
        self, *, query: str | None, query_embedding: list[float] | None, filters: dict[str, Any] | None, top_k: int
    ) -> list[Document]:
        """What the retrievers ask: by words, by a vector, or by both, joined by their ranks."""
        filter = _filter(filters)
        if query_embedding is not None:
            has_vector: dict[str, Any] = {_BARE: {"$exists": False}}
            filter = {"$and": [has_vector, filter]} if filter else has_vector
        hits = self.index.search(query_embedding, words=query, filter=filter, k=top_k)
        return [dataclasses.replace(_document(hit, None), score=hit.score) for hit in hits]


def _documents(documents: Any) -> list[Document]:
    if not isinstance(documents, Iterable) or isinstance(documents, (str, bytes, Mapping)):
        raise refused("documents", "a list of documents", documents)
    found = list(documents)
    for i, one in enumerate(found):
        if not isinstance(one, Document):
            raise refused(f"documents[{i}]", "a Document", one)
    return found


def _own(document: Document) -> dict[str, Any]:
    """What an index has no place for."""
    more: dict[str, Any] = {}
    if document.content is None:
        more["content"] = None
    if document.blob is not None:
        more["blob"] = document.blob.to_dict()
    if document.sparse_embedding is not None:
        more["sparse_embedding"] = document.sparse_embedding.to_dict()
    own: dict[str, Any] = {_MORE: json.dumps(more)} if more else {}
    return own if document.embedding is not None else {**own, _BARE: True}


def _document(hit: Hit, vector: list[float] | None) -> Document:
    more = json.loads(hit.metadata.get(_MORE, "{}"))
    blob, sparse = more.get("blob"), more.get("sparse_embedding")
    return Document(
        id=str(hit.id),
        content=more.get("content", hit.text),
        blob=None if blob is None else ByteStream.from_dict(blob),
        meta=given(hit.metadata),
        embedding=None if _BARE in hit.metadata else vector,
        sparse_embedding=None if sparse is None else SparseEmbedding.from_dict(sparse),
    )


_ORDER = {">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte"}
_NOTHING: dict[str, Any] = {"$or": []}


def _filter(filters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Filters of Haystack as an index has them."""
    return _condition(filters) if filters else None


def _condition(filters: Any) -> dict[str, Any]:
    if not isinstance(filters, Mapping):
        raise FilterError(f"expected a dict, found {type(filters).__name__}")
    wanted = ("field", "operator", "value") if "field" in filters else ("operator", "conditions")
    for key in wanted:
        if key not in filters:
            raise FilterError(f"expected the keys {', '.join(wanted)}, found {', '.join(map(str, filters)) or 'none'}")
    if "field" in filters:
        return _comparison(filters["field"], filters["operator"], filters["value"])
    made = [_condition(one) for one in filters["conditions"]]
    if filters["operator"] == "NOT":
        return {"$not": {"$and": made}}
    if filters["operator"] not in ("AND", "OR"):
        raise FilterError(f"expected the operator AND, OR or NOT, found {filters['operator']!r}")
    return {f"${filters['operator'].lower()}": made}


def _comparison(field: Any, operator: Any, value: Any) -> dict[str, Any]:
    own = {one.name for one in dataclasses.fields(Document)}
    if not isinstance(field, str) or field.split(".")[0] in own - {"meta"} or field == "meta":
        raise FilterError(f"expected a field of the metadata, such as `meta.year`, found {field!r}")
    name = field.removeprefix("meta.")
    missing = {name: {"$exists": False}}
    if operator in ("==", "!="):
        equal = missing if value is None else {name: {"$eq": _single(field, value)}}
        return equal if operator == "==" else {"$not": equal}
    if operator in ("in", "not in"):
        if not isinstance(value, list):
            raise FilterError(f"`{field}`: `{operator}` wants a list, found {type(value).__name__}")
        some: dict[str, Any] = {name: {"$in": [_single(field, one) for one in value if one is not None]}}
        some = {"$or": [some, missing]} if None in value else some
        return some if operator == "in" else {"$not": some}
    if operator not in _ORDER:
        raise FilterError(f"`{field}`: expected ==, !=, >, >=, <, <=, in or not in, found {operator!r}")
    if value is None:
        return _NOTHING
    if isinstance(value, bool) or not (isinstance(value, (int, float)) or _is_date(value)):
        raise FilterError(f"`{field}`: `{operator}` wants a number, or a date in ISO 8601 as a text, found {value!r}")
    return {name: {_ORDER[operator]: value}}


def _single(field: str, value: Any) -> Any:
    if isinstance(value, (str, int, float)):
        return value
    raise FilterError(f"`{field}`: expected a text, a number, a truth value or None, found {value!r}")


def _is_date(value: Any) -> bool:
    from datetime import datetime

    try:
        return isinstance(value, str) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


class _Retrieves:
    """What both retrievers are: a store, and what they ask of it unless they are told otherwise."""

    def __init__(
        self, document_store: CactusDocumentStore, filters: dict[str, Any] | None, top_k: int, filter_policy: FilterPolicy
    ):
        if not isinstance(document_store, CactusDocumentStore):
            raise refused("document_store", "a CactusDocumentStore", document_store)
        self.document_store = document_store
        self.filters = filters
        self.top_k = whole_number("top_k", top_k, 1, 1 << 31)
        self.filter_policy = filter_policy

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(
            self,
            document_store=self.document_store.to_dict(),
            filters=self.filters,
            top_k=self.top_k,
            filter_policy=self.filter_policy.value,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        known = dict(data["init_parameters"])
        known["document_store"] = CactusDocumentStore.from_dict(known["document_store"])
        known["filter_policy"] = FilterPolicy.from_str(known["filter_policy"])
        return default_from_dict(cls, {**data, "init_parameters": known})

    def _found(
        self, query: str | None, query_embedding: list[float] | None, filters: dict[str, Any] | None, top_k: int | None
    ) -> dict[str, list[Document]]:
        both = apply_filter_policy(self.filter_policy, self.filters, filters)
        most = self.top_k if top_k is None else top_k
        found = self.document_store.search(query=query, query_embedding=query_embedding, filters=both, top_k=most)
        return {"documents": found}


@component
class CactusEmbeddingRetriever(_Retrieves):
    """Documents near a vector; `score` is the similarity, the larger the nearer."""

    def __init__(
        self,
        document_store: CactusDocumentStore,
        *,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        filter_policy: FilterPolicy = FilterPolicy.REPLACE,
    ):
        _Retrieves.__init__(self, document_store, filters, top_k, filter_policy)

    @component.output_types(documents=list[Document])
    def run(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        return self._found(None, query_embedding, filters, top_k)


@component
class CactusHybridRetriever(_Retrieves):
    """Documents near a vector and with the words of a query, joined by their ranks; `score` is what joins them. Without a vector, those with
    the words, and `score` is BM25."""

    def __init__(
        self,
        document_store: CactusDocumentStore,
        *,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        filter_policy: FilterPolicy = FilterPolicy.REPLACE,
    ):
        _Retrieves.__init__(self, document_store, filters, top_k, filter_policy)

    @component.output_types(documents=list[Document])
    def run(
        self,
        query: str,
        query_embedding: list[float] | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        return self._found(text_of("query", query), query_embedding, filters, top_k)
