"""LlamaIndex: `CactusLLM`, a language model; `CactusEmbedding`, `CactusVectorStore` and `CactusRerank`, for retrieval.

Needs `pip install llama-index-core`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.custom import CustomLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from ..answer import Answer
from ..asynchronous import in_thread
from ..embed import Embedder, Reranker
from ..index import Hit, Index
from ..model import Model
from ..options import refused
from ._retrieval import RESERVED, chosen, columns, embedder_of, index_of, matching, reranker_of, vectors


class CactusLLM(CustomLLM):
    """A language model in this process; `options` are those of `Model.chat`."""

    _model: Model = PrivateAttr()
    _options: dict[str, Any] = PrivateAttr()

    def __init__(self, model: Model, **options: Any):
        super().__init__()
        self._model = model
        self._options = options

    @classmethod
    def class_name(cls) -> str:
        return "CactusLLM"

    @property
    def metadata(self) -> LLMMetadata:
        info = self._model.info
        return LLMMetadata(
            context_window=info["context_tokens"],
            is_chat_model=info["has_chat_template"],
            model_name=self._model.name,
        )

    def _asked(self, more: dict[str, Any]) -> dict[str, Any]:
        more.pop("formatted", None)
        return {**self._options, **more}

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **more: Any) -> ChatResponse:
        return _response(self._model.chat(_plain(messages), **self._asked(more)))

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **more: Any) -> ChatResponseGen:
        stream = self._model.chat(_plain(messages), stream=True, **self._asked(more))

        def pieces() -> ChatResponseGen:
            text = ""
            with stream:
                for piece in stream:
                    text += piece
                    yield ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content=text), delta=piece)

        return pieces()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **more: Any) -> CompletionResponse:
        return CompletionResponse(text=self._model.generate(prompt, **self._asked(more)).text)

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **more: Any) -> CompletionResponseGen:
        stream = self._model.generate(prompt, stream=True, **self._asked(more))

        def pieces() -> CompletionResponseGen:
            text = ""
            with stream:
                for piece in stream:
                    text += piece
                    yield CompletionResponse(text=text, delta=piece)

        return pieces()


def _plain(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    return [{"role": message.role.value, "content": message.content or ""} for message in messages]


def _response(answer: Answer) -> ChatResponse:
    return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content=answer.text), raw=answer)


class CactusEmbedding(BaseEmbedding):
    """Vectors of texts, each with the prompt of its role. `options` are those of `Embedder.embed`: `truncate`, `dimensions`."""

    _embedder: Embedder = PrivateAttr()
    _options: dict[str, Any] = PrivateAttr()

    def __init__(self, embedder: Embedder, *, options: dict[str, Any] | None = None, **fields: Any):
        super().__init__(**{"model_name": "cactus", **fields})
        self._embedder = embedder_of(embedder)
        self._options = dict(options or {})

    @classmethod
    def class_name(cls) -> str:
        return "CactusEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return vectors(self._embedder, [query], "query", self._options)[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await in_thread(lambda _: self._get_query_embedding(query))

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await in_thread(lambda _: self._get_text_embedding(text))

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return vectors(self._embedder, texts, "document", self._options)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await in_thread(lambda _: self._get_text_embeddings(texts))


#: Which node it is, for queries among some of them.
_ID = RESERVED + "id"

_COMPARISONS = {
    FilterOperator.EQ: "$eq",
    FilterOperator.NE: "$ne",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: "$in",
    FilterOperator.NIN: "$nin",
    FilterOperator.ANY: "$in",
    FilterOperator.CONTAINS: "$eq",
}


class CactusVectorStore(BasePydanticVectorStore):
    """Nodes in a `cactus.Index` whose ids are texts.

    Queries are near a vector (`DEFAULT`), with the words of `query_str` (`TEXT_SEARCH`, `SPARSE`) or both (`HYBRID`, `SEMANTIC_HYBRID`), whose
    ranks count equally; `alpha` is 0, 0.5 or 1. Scores are similarities, of words BM25, and of both what joins the ranks.

    A node comes back with all of its metadata, as LlamaIndex writes it. Filters see texts, numbers, truth values, lists of texts, and those
    in a dict under names with dots (`a.b`). What they cannot say (`text_match`) is a `ValueError`.
    """

    stores_text: bool = True

    _index: Index = PrivateAttr()

    def __init__(self, index: Index):
        super().__init__(stores_text=True)
        self._index = index_of(index)

    @classmethod
    def class_name(cls) -> str:
        return "CactusVectorStore"

    @property
    def client(self) -> Index:
        return self._index

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Adds nodes in one commit, in place of those with the same ids."""
        names = [node.node_id for node in nodes]
        self._index.upsert(
            names,
            [node.get_embedding() for node in nodes],
            texts=[node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes],
            metadata=[_columns(node) for node in nodes],
        )
        return names

    async def async_add(self, nodes: Sequence[BaseNode], **more: Any) -> list[str]:
        return await in_thread(lambda _: self.add(nodes, **more))

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Deletes the nodes of a document."""
        self._delete({"ref_doc_id": ref_doc_id})

    async def adelete(self, ref_doc_id: str, **_: Any) -> None:
        await in_thread(lambda _: self.delete(ref_doc_id))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any
    ) -> None:
        """Deletes the nodes with these ids for which the filters hold; one of both has to be there."""
        if node_ids is None and filters is None:
            raise refused("node_ids", "ids, or filters beside it", None)
        if filters is None:
            self._index.delete(node_ids or [])
        else:
            self._delete(_filter(filters, node_ids))

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any
    ) -> None:
        await in_thread(lambda _: self.delete_nodes(node_ids, filters))

    def _delete(self, filter: dict[str, Any] | None) -> None:
        self._index.delete([hit.id for hit in chosen(self._index, filter)])

    def clear(self) -> None:
        """Deletes every node."""
        self._index.delete(self._index.ids())

    async def aclear(self) -> None:
        await in_thread(lambda _: self.clear())

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """The nodes with these ids for which the filters hold, in the order of the file."""
        return [_node(hit) for hit in matching(self._index, _filter(filters, node_ids))]

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        return await in_thread(lambda _: self.get_nodes(node_ids, filters))

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        mode, k = query.mode, query.similarity_top_k
        if mode in (VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.SEMANTIC_HYBRID):
            k = k if query.hybrid_top_k is None else query.hybrid_top_k
            by_vector, by_words = query.alpha != 0, query.alpha != 1
            if query.alpha not in (None, 0, 0.5, 1):
                raise refused("alpha", "0 (words), 0.5 (both) or 1 (vectors); ranks are joined, with equal weights", query.alpha)
        elif mode in (VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.SPARSE):
            k = k if query.sparse_top_k is None else query.sparse_top_k
            by_vector, by_words = False, True
        elif mode == VectorStoreQueryMode.DEFAULT:
            by_vector, by_words = True, False
        else:
            raise refused("mode", "DEFAULT, TEXT_SEARCH, SPARSE, HYBRID or SEMANTIC_HYBRID", mode.name)
        if by_vector and query.query_embedding is None:
            raise refused("query_embedding", f"a vector for the mode {mode.name}", None)
        if by_words and query.query_str is None:
            raise refused("query_str", f"a text for the mode {mode.name}", None)
        hits = self._index.search(
            query.query_embedding if by_vector else None,
            words=query.query_str if by_words else None,
            # LlamaIndex asks for no ids where it means any.
            filter=_filter(query.filters, query.node_ids or None, query.doc_ids or None),
            k=k,
        )
        return VectorStoreQueryResult(
            nodes=[_node(hit) for hit in hits],
            similarities=[hit.score for hit in hits],
            ids=[str(hit.id) for hit in hits],
        )

    async def aquery(self, query: VectorStoreQuery, **more: Any) -> VectorStoreQueryResult:
        return await in_thread(lambda _: self.query(query, **more))


def _columns(node: BaseNode) -> dict[str, Any]:
    """What filters see of a node, and under LlamaIndex's own names the node without its text."""
    known = node_to_metadata_dict(node, remove_text=True, flat_metadata=False)
    return {**columns({name: value for name, value in known.items() if value != []}), _ID: node.node_id}


def _node(hit: Hit) -> BaseNode:
    return metadata_dict_to_node(hit.metadata, hit.text or None)


def _filter(
    filters: MetadataFilters | None, node_ids: list[str] | None = None, doc_ids: list[str] | None = None
) -> dict[str, Any] | None:
    """All of these as an index has them."""
    made = [_group(filters)] if filters is not None and filters.filters else []
    if node_ids is not None:
        made.append({_ID: {"$in": node_ids}})
    if doc_ids is not None:
        made.append({"ref_doc_id": {"$in": doc_ids}})
    return {"$and": made} if made else None


def _group(filters: MetadataFilters) -> dict[str, Any]:
    made = [_group(one) if isinstance(one, MetadataFilters) else _condition(one) for one in filters.filters]
    if filters.condition == FilterCondition.OR:
        return {"$or": made}
    return {"$not": {"$or": made}} if filters.condition == FilterCondition.NOT else {"$and": made}


def _condition(one: MetadataFilter) -> dict[str, Any]:
    if one.operator == FilterOperator.IS_EMPTY:
        return {"$or": [{one.key: {"$exists": False}}, {one.key: ""}]}
    if one.operator == FilterOperator.ALL:
        wanted = one.value if isinstance(one.value, list) else [one.value]
        return {"$and": [{one.key: {"$eq": value}} for value in wanted]}
    if one.operator not in _COMPARISONS:
        known = ", ".join(operator.value for operator in [*_COMPARISONS, FilterOperator.ALL, FilterOperator.IS_EMPTY])
        raise refused(f"filters: `{one.key}`", f"one of {known}", one.operator.value)
    return {one.key: {_COMPARISONS[one.operator]: one.value}}


class CactusRerank(BaseNodePostprocessor):
    """Nodes in the order of how well they answer a query, `top_n` of them at most, with that score.

    `options` are those of `Reranker.rank`, such as `{"truncate": True}`."""

    top_n: int = Field(default=3, gt=0)

    _reranker: Reranker = PrivateAttr()
    _options: dict[str, Any] = PrivateAttr()

    def __init__(self, reranker: Reranker, *, top_n: int = 3, options: dict[str, Any] | None = None, **fields: Any):
        super().__init__(top_n=top_n, **fields)  # type: ignore[call-arg]
        self._reranker = reranker_of(reranker)
        self._options = dict(options or {})

    @classmethod
    def class_name(cls) -> str:
        return "CactusRerank"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise refused("query_bundle", "a query", None)
        if not nodes:
            return []
        texts = [one.node.get_content(metadata_mode=MetadataMode.EMBED) for one in nodes]
        ranked = self._reranker.rank(query_bundle.query_str, texts, top=self.top_n, **self._options)
        return [NodeWithScore(node=nodes[one.index].node, score=one.score) for one in ranked]
