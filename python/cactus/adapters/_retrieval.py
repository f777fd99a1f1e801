"""What the adapters of vectors and indexes share: metadata of any JSON in an `Index`, and models by name. It knows no other library.

An index takes texts, numbers, truth values and lists of texts. Whatever else JSON has (null, other lists, objects, whole numbers of more
than 64 bits) is kept as it is in one field more, `_cactus_json`. Filters see of it that it is there, unless it is null, and the values in
an object under names with dots: `{"a": {"b": 1}}` is found by `{"a.b": 1}`.
"""

from __future__ import annotations

import json
import math
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from ..embed import Embedder, Reranker
from ..index import Hit, Index
from ..options import refused, text_of

#: What names of metadata may not begin with.
RESERVED = "_cactus_"
_JSON = "_cactus_json"
_DEPTH = 64

Loaded = TypeVar("Loaded", Embedder, Reranker)


def _checked(at: str, value: Any, depth: int = 0) -> Any:
    """The value, with numbers of NumPy as those of Python. What JSON would give back as something else is an error."""
    if depth > _DEPTH:
        raise refused(at, "metadata as JSON has it", value, said=f"some that is nested more than {_DEPTH} deep, or holds itself")
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()
    if value is None or type(value) in (bool, int):
        return value
    if type(value) is str:
        return text_of(at, value)
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is list:
        return [_checked(f"{at}[{i}]", one, depth + 1) for i, one in enumerate(value)]
    if isinstance(value, dict):
        for name in value:
            text_of(f"the names in {at}", name)
        return {name: _checked(f"{at}.{name}", one, depth + 1) for name, one in value.items()}
    raise refused(at, "a text, a number, a truth value, None, or lists and dicts of them", value)


def _is_plain(value: Any) -> bool:
    """Whether an index takes a value as it is."""
    if isinstance(value, (bool, float, str)):
        return True
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _fits(name: str) -> bool:
    return 0 < len(name.encode()) <= 255


def columns(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What filters see of metadata."""
    made: dict[str, Any] = {}
    for name, value in metadata.items():
        if isinstance(value, dict):
            made |= columns({f"{name}.{inner}": one for inner, one in value.items()})
        if value is not None and _fits(name):
            # An empty list is there, and equals nothing.
            made[name] = value if _is_plain(value) else []
    return made


def checked(metadata: Any) -> dict[str, Any]:
    """Metadata that can be kept."""
    if not isinstance(metadata, Mapping):
        raise refused("metadata", "a dict", metadata)
    known: dict[str, Any] = _checked("metadata", dict(metadata))
    for name in known:
        if name.startswith(RESERVED):
            raise refused("metadata", f"names that do not begin with `{RESERVED}`", name)
    return known


def stored(metadata: Any, **own: Any) -> dict[str, Any]:
    """Metadata as an index takes them, with fields of the adapter, whose names begin with `RESERVED`."""
    known = checked(metadata)
    kept = {name: value for name, value in known.items() if not (_is_plain(value) and _fits(name))}
    # A name that stands for something inside an object, too.
    kept |= {name: known[name] for name in columns(kept) if name in known}
    made = {**columns(known), **columns(kept), **own}
    return {**made, _JSON: json.dumps(kept)} if kept else made


def given(found: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as they were before `stored`."""
    kept = json.loads(found.get(_JSON, "{}"))
    of_kept = columns(kept)
    plain = {name: value for name, value in found.items() if not (name.startswith(RESERVED) or name in of_kept)}
    return {**plain, **kept}


def any_vector(index: Index) -> list[float]:
    """A vector that compares with every other."""
    return [1.0] + [0.0] * (index.dimensions - 1)


def chosen(index: Index, filter: Mapping[str, Any] | None) -> list[Hit]:
    """Every document for which a filter holds, in no order."""
    while True:
        most = len(index)
        hits = index.search(any_vector(index), filter=filter, k=most + 1)
        # Else another added some meanwhile.
        if len(hits) <= most:
            return hits


def matching(index: Index, filter: Mapping[str, Any] | None) -> list[Hit]:
    """Every document for which a filter holds, in the order of the file."""
    hits = chosen(index, filter)
    place = {id: i for i, id in enumerate(index.ids())}
    return sorted(hits, key=lambda hit: place.get(hit.id, len(place)))


def embedder_of(value: Any) -> Embedder:
    if not isinstance(value, Embedder):
        raise refused("embedder", "an Embedder", value)
    return value


def index_of(value: Any) -> Index:
    if not isinstance(value, Index):
        raise refused("index", "an Index", value)
    return value


def reranker_of(value: Any) -> Reranker:
    if not isinstance(value, Reranker):
        raise refused("reranker", "a Reranker", value)
    return value


def vectors(
    embedder: Embedder, texts: Sequence[str], role: Literal["query", "document"], options: Mapping[str, Any]
) -> list[list[float]]:
    """Vectors of texts as lists; `options` are those of `Embedder.embed`."""
    import numpy

    return numpy.asarray(embedder.embed(list(texts), role=role, **options).vectors).tolist() if texts else []


_models: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def loaded(kind: type[Loaded], model: str, options: Mapping[str, Any]) -> Loaded:
    """A model by its name, shared by all that want the same while one of them has it."""
    key = (kind, model, *sorted(options.items()))
    with _lock:
        if (found := _models.get(key)) is None:
            found = _models[key] = kind.load(model, **options)
        return found
