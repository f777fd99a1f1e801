"""The index of `cactus.compat`: the functions of the public package over `cactus.Index`, in the file that the C functions of the same
names write, too. An index is a number that `cactus_index_init` gives."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from .index import Index

_NUMBERS = itertools.count(1)
_LOCK = threading.Lock()
_OPEN: dict[int, Index] = {}


def _index(number: int) -> Index:
    with _LOCK:
        index = _OPEN.get(number)
    if index is None:
        raise RuntimeError(f"there is no index {number!r}: cactus_index_init gives one, and cactus_index_destroy ends it")
    return index


def _stored(ids: Sequence[int]) -> list[int]:
    """Ids as the file has them: 32 bits without a sign."""
    for id in ids:
        if not -(1 << 31) <= id < 1 << 31:
            raise ValueError(f"`ids`: expected whole numbers of 32 bits, found {id}")
    return [id & 0xFFFF_FFFF for id in ids]


def _given(id: Any) -> int:
    return id - (1 << 32) if id >= 1 << 31 else id


def init(index_dir: str, embedding_dim: int) -> int:
    os.makedirs(index_dir, exist_ok=True)
    path = os.path.join(index_dir, "cactus.index")
    index = Index(path, dimensions=embedding_dim, model="caller", ids="number")
    with _LOCK:
        number = next(_NUMBERS)
        _OPEN[number] = index
    return number


def add(
    index: int, ids: Sequence[int], documents: Sequence[str], metadatas: Sequence[str | None] | None, embeddings: Any
) -> None:
    known = None if not metadatas else [{} if text is None else {"metadata": text} for text in metadatas]
    _index(index).add(_stored(ids), embeddings or [], texts=documents, metadata=known)


def delete(index: int, ids: Sequence[int]) -> None:
    _index(index).delete(_stored(ids))


def get(index: int, ids: Sequence[int]) -> dict[str, Any]:
    import numpy

    found = _index(index).get(_stored(ids))
    for id, one in zip(ids, found):
        if one is None:
            raise ValueError(f"`ids`: the index has no document {id}")
    results = [
        {"document": one.text, "metadata": one.metadata.get("metadata"), "embedding": numpy.asarray(one.vector).tolist()}
        for one in found
        if one is not None
    ]
    return {"results": results}


def query(index: int, embedding: Sequence[float], options: Mapping[str, Any] | None) -> dict[str, Any]:
    asked = options or {}
    hits = _index(index).search(list(embedding), filter=asked.get("filter"), k=asked.get("top_k", 10))
    least = asked.get("score_threshold", -1.0)
    # The cosine of opposite vectors may be less than -1 by rounding.
    kept = [hit for hit in hits if least <= -1 or hit.score >= least]
    return {"results": [{"id": _given(hit.id), "score": hit.score} for hit in kept]}


def compact(index: int) -> None:
    _index(index).compact()


def destroy(index: int) -> None:
    with _LOCK:
        _OPEN.pop(index, None)
