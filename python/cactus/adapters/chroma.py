"""Chroma: `CactusEmbeddingFunction`, which makes the vectors of a collection. Needs `pip install chromadb`.

    collection = chromadb.PersistentClient("notes").create_collection(
        "notes", embedding_function=CactusEmbeddingFunction("all-MiniLM-L6-v2")
    )

Chroma keeps the name of the model with the collection, so who opens it again after importing this module need not give the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from chromadb.api.types import Documents, EmbeddingFunction, Embeddings, Space
from chromadb.utils.embedding_functions import register_embedding_function

from ..embed import Embedder
from ..options import path_of, refused, whole_number
from ._retrieval import loaded

_OPTIONS = ("bits", "threads", "offline", "truncate", "dimensions")


@register_embedding_function
class CactusEmbeddingFunction(EmbeddingFunction[Documents]):
    """Vectors of texts: documents get the prompt of documents, queries that of queries.

    The model is loaded when it is first wanted, once for all functions that want the same. `bits`, `threads` and `offline` are those of
    `Embedder.load`, `truncate` and `dimensions` those of `Embedder.embed`."""

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
        self.model = path_of("model", model)
        if threads is not None:
            whole_number("threads", threads, 1, 1024)
        self._load: dict[str, Any] = {"bits": bits, "threads": threads, "offline": offline}
        self._embed: dict[str, Any] = {"truncate": truncate, "dimensions": dimensions}
        self._embedder: Embedder | None = None

    def _vectors(self, texts: Sequence[str], role: Any) -> Embeddings:
        if self._embedder is None:
            self._embedder = loaded(Embedder, self.model, self._load)
        return list(numpy.asarray(self._embedder.embed(list(texts), role=role, **self._embed).vectors))

    def __call__(self, input: Documents) -> Embeddings:
        return self._vectors(input, "document")

    def embed_query(self, input: Documents) -> Embeddings:
        return self._vectors(input, "query")

    @staticmethod
    def name() -> str:
        return "cactus"

    def default_space(self) -> Space:
        return "cosine"

    def supported_spaces(self) -> list[Space]:
        return ["cosine", "l2", "ip"]

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> CactusEmbeddingFunction:
        CactusEmbeddingFunction.validate_config(config)
        return CactusEmbeddingFunction(**config)

    def get_config(self) -> dict[str, Any]:
        return {"model": self.model, **self._load, **self._embed}

    @staticmethod
    def validate_config(config: dict[str, Any]) -> None:
        path_of("config.model", config.get("model"))
        for name in config:
            if name not in ("model", *_OPTIONS):
                raise refused("config", ", ".join(("model", *_OPTIONS)), name)

    def validate_config_update(self, old_config: dict[str, Any], new_config: dict[str, Any]) -> None:
        """The model's name may change, because its folder may have moved. What would make other vectors may not."""
        for name, usual in (("bits", 8), ("dimensions", None)):
            old, new = old_config.get(name, usual), new_config.get(name, usual)
            if old != new:
                raise refused(f"config.{name}", f"{old!r}, as the collection has it", new)
