"""LangChain: `ChatCactus`, a chat model; `CactusEmbeddings`, `CactusVectorStore` and `CactusReranker`, for retrieval.

Needs `pip install langchain-core`. Metadata of documents may be whatever JSON has; what filters see of them says `CactusVectorStore`.
"""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, Field

from ..answer import Answer
from ..asynchronous import in_thread
from ..embed import Embedder, Reranker
from ..index import Hit, Index
from ..model import Model
from ..options import refused
from ._retrieval import embedder_of, given, index_of, stored, vectors


class ChatCactus(BaseChatModel):
    """A chat model in this process. `options` are those of `Model.chat`, such as `{"temperature": 0.2}`."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    model: Model
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def _llm_type(self) -> str:
        return "cactus"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model.name, **self.options}

    def _asked(self, stop: list[str] | None, more: dict[str, Any]) -> dict[str, Any]:
        asked = {**self.options, **more}
        asked.pop("ls_structured_output_format", None)
        if asked.get("tool_choice") in ("any", True):
            asked["tool_choice"] = "required"
        if form := asked.pop("response_format", None):
            asked["schema"] = form
        return {**asked, "stop": stop} if stop else asked

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **more: Any,
    ) -> ChatResult:
        return _result(self.model.chat(convert_to_openai_messages(messages), **self._asked(stop, more)))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **more: Any,
    ) -> ChatResult:
        return _result(await self.model.achat(convert_to_openai_messages(messages), **self._asked(stop, more)))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **more: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with self.model.chat(convert_to_openai_messages(messages), stream=True, **self._asked(stop, more)) as pieces:
            for piece in pieces:
                chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece))
                if run_manager is not None:
                    run_manager.on_llm_new_token(piece, chunk=chunk)
                yield chunk
            answer = pieces.answer
            calls = [
                tool_call_chunk(name=call.name, args=json.dumps(call.arguments), id=call.id, index=i)
                for i, call in enumerate(answer.tool_calls)
            ]
            last = AIMessageChunk(
                content="",
                tool_call_chunks=calls,
                usage_metadata=_usage(answer),
                response_metadata={"finish_reason": answer.finish_reason},
            )
            yield ChatGenerationChunk(message=last)

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **more: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        entries = [convert_to_openai_tool(tool) for tool in tools]
        return self.bind(tools=entries, **({"tool_choice": tool_choice} if tool_choice else {}), **more)


class CactusEmbeddings(Embeddings):
    """Vectors of texts, each with the prompt of its role. `options` are those of `Embedder.embed`: `truncate`, `dimensions`."""

    def __init__(self, embedder: Embedder, **options: Any):
        self.embedder = embedder_of(embedder)
        self.options = options

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return vectors(self.embedder, texts, "document", self.options)

    def embed_query(self, text: str) -> list[float]:
        return vectors(self.embedder, [text], "query", self.options)[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return await in_thread(lambda _: self.embed_documents(texts))

    async def aembed_query(self, text: str) -> list[float]:
        return await in_thread(lambda _: self.embed_query(text))


class CactusVectorStore(VectorStore):
    """Documents in a `cactus.Index` whose ids are texts.

    Searches take `filter`, a dict as `Index.search` has it, and with `hybrid=True` look for the words of the query, too. Scores are
    similarities, the larger the nearer; of a hybrid search they are what joins the ranks.

    Metadata may be whatever JSON has, and come back as they were; anything else (tuples, dates) is an error. Filters see texts, numbers,
    truth values, lists of texts, and those in a dict under names with dots (`a.b`). Of the rest that is not None they see that it is there.
    """

    def __init__(self, index: Index, embedding: Embeddings):
        self.index = index_of(index)
        self.embedding = embedding

    @property
    def embeddings(self) -> Embeddings:
        return self.embedding

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **_: Any,
    ) -> list[str]:
        """Adds texts in one commit, in place of those with the same ids. Those without an id get one."""
        said = list(texts)
        for name, values in (("metadatas", metadatas), ("ids", ids)):
            if values is not None and len(values) != len(said):
                raise refused(name, f"a list of {len(said)}, one for each text", values, said=f"{len(values)}")
        names = [id or str(uuid.uuid4()) for id in ids or [None] * len(said)]
        known = [stored(one or {}) for one in metadatas or [{}] * len(said)]
        self.index.upsert(names, self.embedding.embed_documents(said), texts=said, metadata=known)
        return names

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool:
        """Deletes documents; without `ids` all of them."""
        self.index.delete(self.index.ids() if ids is None else ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        found = zip(ids, self.index.get(ids))
        return [Document(id=id, page_content=one.text, metadata=given(one.metadata)) for id, one in found if one is not None]

    def _hits(
        self,
        query: str | None,
        vector: list[float] | None,
        k: int,
        filter: Mapping[str, Any] | None = None,
        hybrid: bool = False,
        **_: Any,
    ) -> list[Hit]:
        if hybrid and query is None:
            raise refused("hybrid", "False in a search by a vector, which has no words", hybrid)
        if vector is None:
            vector = self.embedding.embed_query(query or "")
        return self.index.search(vector, words=query if hybrid else None, filter=filter, k=k)

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        return [_document(hit) for hit in self._hits(query, None, k, **options)]

    def similarity_search_with_score(self, query: str, k: int = 4, **options: Any) -> list[tuple[Document, float]]:
        return [(_document(hit), hit.score) for hit in self._hits(query, None, k, **options)]

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **options: Any) -> list[Document]:
        return [_document(hit) for hit in self._hits(None, embedding, k, **options)]

    def similarity_search_with_score_by_vector(
        self, embedding: list[float], k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        """As `similarity_search_by_vector`, with scores."""
        return [(_document(hit), hit.score) for hit in self._hits(None, embedding, k, **options)]

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        metric = self.index.metric
        return [(_document(hit), _relevance(metric, hit.similarity)) for hit in self._hits(query, None, k, **options)]

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        return self._diverse(self._hits(None, embedding, fetch_k, **options), embedding, k, lambda_mult)

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        vector = self.embedding.embed_query(query)
        return self._diverse(self._hits(query, vector, fetch_k, **options), vector, k, lambda_mult)

    def _diverse(self, hits: list[Hit], vector: list[float], k: int, lambda_mult: float) -> list[Document]:
        import numpy
        from langchain_core.vectorstores.utils import maximal_marginal_relevance

        # Without those that another has deleted meanwhile.
        found = [(hit, one) for hit, one in zip(hits, self.index.get([hit.id for hit in hits])) if one is not None]
        rows = [numpy.asarray(one.vector).tolist() for _, one in found]
        chosen = maximal_marginal_relevance(numpy.array(vector, numpy.float32), rows, lambda_mult, k) if rows else []
        return [_document(found[i][0]) for i in chosen]

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        path: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> CactusVectorStore:
        """A store with these texts, in an index in the file `path`; other options are those of `Index`."""
        if path is None:
            raise refused("path", "the name of the index file", path)
        if options.get("dimensions") is None:
            options["dimensions"] = len(embedding.embed_query(texts[0] if texts else "a"))
        store = cls(Index(path, **options), embedding)
        store.add_texts(texts, metadatas, ids=ids)
        return store


def _document(hit: Hit) -> Document:
    return Document(id=str(hit.id), page_content=hit.text, metadata=given(hit.metadata))


def _relevance(metric: str, similarity: float | None) -> float:
    """From 0 to 1, as LangChain has it: of Euclidean distances, those of vectors of unit length."""
    nearness = similarity or 0.0
    if metric == "euclidean":
        nearness = 1 - math.sqrt(max(-nearness, 0)) / math.sqrt(2)
    return min(max(nearness, 0.0), 1.0)


class CactusReranker(BaseDocumentCompressor):
    """Documents in the order of how well they answer a query, `top_n` of them at most, with `relevance_score` in their metadata.

    `options` are those of `Reranker.rank`, such as `{"truncate": True}`."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    reranker: Reranker
    top_n: int | None = 3
    options: dict[str, Any] = Field(default_factory=dict)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        if not documents:
            return []
        ranked = self.reranker.rank(query, [one.page_content for one in documents], top=self.top_n, **self.options)
        return [
            documents[one.index].model_copy(
                update={"metadata": {**documents[one.index].metadata, "relevance_score": one.score}}
            )
            for one in ranked
        ]


def _usage(answer: Answer) -> UsageMetadata:
    total = answer.prompt_tokens + answer.completion_tokens
    return UsageMetadata(input_tokens=answer.prompt_tokens, output_tokens=answer.completion_tokens, total_tokens=total)


def _result(answer: Answer) -> ChatResult:
    message = AIMessage(
        content=answer.text,
        tool_calls=[tool_call(name=call.name, args=call.arguments, id=call.id) for call in answer.tool_calls],
        usage_metadata=_usage(answer),
        response_metadata={"finish_reason": answer.finish_reason},
        additional_kwargs={"reasoning_content": answer.reasoning} if answer.reasoning else {},
    )
    return ChatResult(generations=[ChatGeneration(message=message)])
