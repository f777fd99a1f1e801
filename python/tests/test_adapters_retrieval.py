"""Retrieval as other libraries have it, each against the real package and its own stores; skipped, by name, where it is not installed."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cactus._native", reason="the extension module is not built: cargo xtask ci wheel, or pip install ./python")
numpy = pytest.importorskip("numpy")

from cactus import ContextFullError, Embedder, Index, InvalidRequestError, Reranker  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["the river is quick", "bread is baked by the bank", "the bank of the river", "a word", "what is this word"]
# Nothing is told to anyone.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
os.environ["ANONYMIZED_TELEMETRY"] = "False"
os.environ["LANGSMITH_TRACING"] = "false"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("bundles")
    made = {}
    for name in ("bert", "bert_ranker"):
        made[name] = str(folder / name)
        command = [os.environ["CACTUS_PROGRAM"], "convert", str(ROOT / "golden/embedding" / name), made[name], "--bits", "32"]
        subprocess.run(command, check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def embedder(bundles):
    with Embedder.load(bundles["bert"], threads=1) as embedder:
        yield embedder


@pytest.fixture(scope="module")
def reranker(bundles):
    with Reranker.load(bundles["bert_ranker"], threads=1) as reranker:
        yield reranker


def nearest(embedder: Embedder, query: str, texts: list[str]) -> list[str]:
    """Texts in the order of their cosine with a query."""
    rows, vector = numpy.array(embedder.embed_documents(texts)), numpy.array(embedder.embed_query(query))
    return [texts[i] for i in numpy.argsort(-(rows @ vector), kind="stable")]


# Metadata, whatever JSON has.


def test_metadata_come_back_as_they_were():
    from cactus.adapters._retrieval import given, stored

    cases = [
        {},
        {"a": None, "b": [], "c": {}, "d": "", "e": 0, "f": False},
        {"n": 1, "x": 1.0, "big": 2**64, "small": -(2**63), "over": 2**63, "tags": ["a", "a", ""], "mixed": [1, "a", None]},
        {"a": {"b": {"c": [1.5, {"d": None}]}, "tags": ["x"]}},
        {"a": {"b": 1}, "a.b": 2, "a.c": 3},
        {"a": {"b": 1}, "a.b": {"c": 4}, "a.b.c": "d"},
        {"": 1, "x" * 300: "long", "é" * 200: [1]},
        {"$and": [1], "$x": "y"},
    ]
    for metadata in cases:
        assert given(stored(metadata)) == metadata
        assert repr(sorted(given(stored(metadata)).items())) == repr(sorted(metadata.items())), "types, too"
    assert given(stored({"n": numpy.int64(5), "x": numpy.float32(0.5)})) == {"n": 5, "x": 0.5}
    with pytest.raises(InvalidRequestError, match=r"metadata\.a\[1\]"):
        stored({"a": [1, (2, 3)]})
    cycle: dict = {}
    cycle["again"] = cycle
    for wrong in ({"a": float("nan")}, {"a": b"x"}, {1: "a"}, {"_cactus_json": "{}"}, {"a": "\ud800"}, cycle, "text", None):
        with pytest.raises(InvalidRequestError, match="metadata"):
            stored(wrong)


def test_metadata_of_every_kind_are_kept_in_a_file_and_filtered(tmp_path):
    from cactus.adapters._retrieval import given, matching, stored

    chance = random.Random(7)

    def value(depth: int):
        kind = chance.randrange(9 if depth < 3 else 7)
        if kind == 7:
            return [value(depth + 1) for _ in range(chance.randrange(3))]
        if kind == 8:
            return {chance.choice(["a", "b", "a.b", ""]): value(depth + 1) for _ in range(chance.randrange(3))}
        return [None, chance.randrange(-3, 3), chance.random(), True, "text", ["x", "y"], 2**70 + 1][kind]

    many = [{name: value(0) for name in ("a", "b", "a.b") if chance.random() < 0.7} for _ in range(200)]
    index = Index(tmp_path / "index", dimensions=2)
    index.upsert([str(i) for i in range(200)], [[1, 0]] * 200, metadata=[stored(one) for one in many])
    assert [given(one.metadata) for one in Index(tmp_path / "index").get([str(i) for i in range(200)])] == many
    there = [i for i, one in enumerate(many) if one.get("a") is not None]
    assert [int(hit.id) for hit in matching(index, {"a": {"$exists": True}})] == there
    texts = [i for i, one in enumerate(many) if one.get("a") == "text"]
    assert texts and [int(hit.id) for hit in matching(index, {"a": "text"})] == texts
    lists = [i for i, one in enumerate(many) if one.get("a") == ["x", "y"]]
    assert lists and [int(hit.id) for hit in matching(index, {"a": "x"})] == lists, "not lists that hold other things, too"
    index.upsert(["nested"], [[1, 0]], metadata=[stored({"person": {"name": {"first": "Ada"}}})])
    assert [hit.id for hit in matching(index, {"person.name.first": "Ada"})] == ["nested"]


# LangChain.

WITHOUT_LANGCHAIN = "langchain-core is not installed, so retrieval in cactus.adapters.langchain is not tested"


@pytest.fixture
def langchain_store(tmp_path, embedder):
    pytest.importorskip("langchain_core", reason=WITHOUT_LANGCHAIN)
    from cactus.adapters.langchain import CactusEmbeddings, CactusVectorStore

    return CactusVectorStore(Index(tmp_path / "index", dimensions=32), CactusEmbeddings(embedder))


def test_langchain_embeddings_have_roles(embedder):
    pytest.importorskip("langchain_core", reason=WITHOUT_LANGCHAIN)
    from cactus.adapters.langchain import CactusEmbeddings

    made = CactusEmbeddings(embedder)
    assert made.embed_query("a word") == embedder.embed_query("a word") != made.embed_documents(["a word"])[0]
    assert made.embed_documents(TEXTS) == embedder.embed_documents(TEXTS) and made.embed_documents([]) == []

    async def awaited():
        return await made.aembed_query("a word"), await made.aembed_documents(TEXTS)

    assert asyncio.run(awaited()) == (embedder.embed_query("a word"), embedder.embed_documents(TEXTS))
    with pytest.raises(ContextFullError):
        made.embed_query("the " * 50)
    assert len(CactusEmbeddings(embedder, truncate=True).embed_query("the " * 50)) == 32
    with pytest.raises(InvalidRequestError, match="an Embedder"):
        CactusEmbeddings("name")


def test_langchain_store_is_searched(langchain_store, embedder):
    from langchain_core.documents import Document

    store = langchain_store
    documents = [Document(text, metadata={"n": i, "tags": ["x"] if i % 2 else [], "more": {"deep": [i, None]}}) for i, text in enumerate(TEXTS)]
    ids = store.add_documents(documents, ids=[f"id{i}" for i in range(5)])
    assert ids == [f"id{i}" for i in range(5)]
    found = store.similarity_search("river", k=5)
    assert [one.page_content for one in found] == nearest(embedder, "river", TEXTS)
    assert all(documents[one.metadata["n"]].metadata == one.metadata and one.id == f"id{one.metadata['n']}" for one in found)
    scored = store.similarity_search_with_score("river", k=2)
    vector = embedder.embed_query("river")
    assert scored[0][1] == pytest.approx(numpy.dot(vector, embedder.embed_documents([scored[0][0].page_content])[0]), abs=0.02)
    assert store.similarity_search_by_vector(vector, k=2) == [one for one, _ in scored]
    assert store.similarity_search_with_score_by_vector(vector, k=2) == scored
    assert [one.metadata["n"] for one in store.similarity_search("river", k=5, filter={"n": {"$gte": 3}, "tags": "x"})] == [3]
    hybrid = store.similarity_search("bread", k=5, hybrid=True)
    assert hybrid[0].page_content == "bread is baked by the bank" and len(hybrid) == 5
    relevant = store.similarity_search_with_relevance_scores("bread", k=5, hybrid=True)
    cosines = dict(zip(TEXTS, numpy.array(embedder.embed_documents(TEXTS)) @ numpy.array(embedder.embed_query("bread"))))
    assert all(score == pytest.approx(min(max(cosines[one.page_content], 0), 1), abs=0.02) for one, score in relevant)
    retriever = store.as_retriever(search_kwargs={"k": 1, "filter": {"n": 4}, "hybrid": True})
    assert [one.id for one in retriever.invoke("word")] == ["id4"] == [one.id for one in asyncio.run(retriever.ainvoke("word"))]
    threshold = store.as_retriever(search_type="similarity_score_threshold", search_kwargs={"k": 5, "score_threshold": 2.0})
    assert threshold.invoke("word") == []
    assert [one.id for one in store.get_by_ids(["id3", "none", "id1"])] == ["id3", "id1"]
    assert store.delete(["id3", "none"]) and len(store.index) == 4
    with pytest.raises(InvalidRequestError, match="filter"):
        store.similarity_search("river", filter=lambda document: True)
    with pytest.raises(InvalidRequestError, match="hybrid"):
        store.similarity_search_by_vector(vector, hybrid=True)
    with pytest.raises(InvalidRequestError, match="metadatas"):
        store.add_texts(["a", "b"], [{}])
    with pytest.raises(InvalidRequestError, match="metadata"):
        store.add_texts(["a", "b"], [{}, {"when": object()}])
    assert store.delete() and len(store.index) == 0 and store.similarity_search("river") == []


def test_langchain_store_finds_what_its_own_finds(tmp_path, embedder):
    pytest.importorskip("langchain_core", reason=WITHOUT_LANGCHAIN)
    from cactus.adapters.langchain import CactusEmbeddings, CactusVectorStore
    from langchain_core.vectorstores import InMemoryVectorStore

    chance = random.Random(1)
    words = ["the", "river", "bank", "bread", "word", "what", "is", "this", "a", "quick", "baked"]
    texts = sorted({" ".join(chance.choices(words, k=4)) for _ in range(80)})
    numbers = [{"n": i % 7} for i in range(len(texts))]
    made = CactusEmbeddings(embedder)
    own = InMemoryVectorStore.from_texts(texts, made, numbers)
    store = CactusVectorStore.from_texts(texts, made, numbers, path=tmp_path / "index", encoding="f32")
    assert store.index.dimensions == 32
    for query in ("river", "what is bread", "a quick word"):
        scores = [score for _, score in own.similarity_search_with_score(query, k=20, filter=lambda one: one.metadata["n"] < 5)]
        ours = store.similarity_search_with_score(query, k=20, filter={"n": {"$lt": 5}})
        assert [score for _, score in ours] == pytest.approx(scores, abs=1e-5)
        wanted = own.max_marginal_relevance_search(query, k=5, fetch_k=20, lambda_mult=0.3)
        found = store.max_marginal_relevance_search(query, k=5, fetch_k=20, lambda_mult=0.3)
        assert [one.page_content for one in found] == [one.page_content for one in wanted]
    with pytest.raises(InvalidRequestError, match="path"):
        CactusVectorStore.from_texts(texts, made)
    empty = CactusVectorStore.from_texts([], made, path=tmp_path / "empty")
    assert empty.similarity_search("a") == [] and empty.max_marginal_relevance_search("a") == []


def test_langchain_relevance_of_distances(tmp_path):
    pytest.importorskip("langchain_core", reason=WITHOUT_LANGCHAIN)
    from cactus.adapters.langchain import CactusVectorStore
    from langchain_core.embeddings import DeterministicFakeEmbedding

    index = Index(tmp_path / "index", dimensions=6, metric="euclidean", encoding="f32")
    store = CactusVectorStore(index, DeterministicFakeEmbedding(size=6))
    store.add_texts(["a", "b"])
    (best, score), (_, other) = store.similarity_search_with_relevance_scores("a", k=2)
    assert best.page_content == "a" and score == pytest.approx(1, abs=1e-3) and 0 <= other < score


def test_langchain_reranker(reranker):
    pytest.importorskip("langchain_core", reason=WITHOUT_LANGCHAIN)
    from cactus.adapters.langchain import CactusReranker
    from langchain_core.documents import Document

    documents = [Document(text, id=str(i), metadata={"n": i}) for i, text in enumerate(TEXTS)]
    compressor = CactusReranker(reranker=reranker, top_n=2)
    found = compressor.compress_documents(documents, "what is this")
    ranked = reranker.rank("what is this", TEXTS, top=2)
    assert [(one.id, one.metadata) for one in found] == [(str(r.index), {"n": r.index, "relevance_score": r.score}) for r in ranked]
    assert all("relevance_score" not in one.metadata for one in documents), "those that were given stay as they were"
    assert asyncio.run(compressor.acompress_documents(documents, "what is this")) == found
    assert compressor.compress_documents([], "a") == []
    long = [Document("the " * 90)]
    with pytest.raises(ContextFullError):
        compressor.compress_documents(long, "a")
    assert len(CactusReranker(reranker=reranker, options={"truncate": True}).compress_documents(long, "a")) == 1


try:
    from langchain_tests.integration_tests import VectorStoreIntegrationTests
except ImportError:

    def test_langchains_suite_for_stores():
        pytest.skip("langchain-tests is not installed, so LangChain's own tests of stores do not run")

else:

    @pytest.mark.asyncio
    @pytest.mark.filterwarnings("ignore::pytest.PytestWarning")
    class TestLangChainsSuiteForStores(VectorStoreIntegrationTests):
        @pytest.fixture
        def vectorstore(self, tmp_path):
            from cactus.adapters.langchain import CactusVectorStore

            return CactusVectorStore(Index(tmp_path / "index", dimensions=6), self.get_embeddings())


# LlamaIndex.

WITHOUT_LLAMA_INDEX = "llama-index-core is not installed, so retrieval in cactus.adapters.llama_index is not tested"


def llama_nodes(embedder):
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

    return [
        TextNode(
            id_=f"n{i}",
            text=text,
            metadata={"n": i, "name": f"name {i % 2}", "tags": ["x", f"t{i}"] if i else [], "deep": {"i": [i, None]}, "none": None},
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"d{i % 2}")},
            embedding=vector,
        )
        for i, (text, vector) in enumerate(zip(TEXTS, embedder.embed_documents(TEXTS)))
    ]


@pytest.fixture
def llama_store(tmp_path, embedder):
    pytest.importorskip("llama_index.core", reason=WITHOUT_LLAMA_INDEX)
    from cactus.adapters.llama_index import CactusVectorStore

    store = CactusVectorStore(Index(tmp_path / "index", dimensions=32, encoding="f32"))
    assert store.add(llama_nodes(embedder)) == [f"n{i}" for i in range(5)]
    return store


def test_llama_index_embeddings_have_roles(embedder):
    pytest.importorskip("llama_index.core", reason=WITHOUT_LLAMA_INDEX)
    from cactus.adapters.llama_index import CactusEmbedding

    made = CactusEmbedding(embedder, embed_batch_size=2)
    query, rows = embedder.embed_query("a word"), embedder.embed_documents(TEXTS)
    assert made.get_query_embedding("a word") == query != made.get_text_embedding("a word")
    assert made.get_text_embedding_batch(TEXTS) == rows and made.get_text_embedding(TEXTS[0]) == rows[0]

    async def awaited():
        texts = await made.aget_text_embedding_batch(TEXTS)
        return await made.aget_query_embedding("a word"), texts, await made.aget_text_embedding(TEXTS[0])

    assert asyncio.run(awaited()) == (query, rows, rows[0])
    assert len(CactusEmbedding(embedder, options={"truncate": True}).get_text_embedding("the " * 50)) == 32


def test_llama_index_retrieves_through_its_own_index(tmp_path, embedder, reranker):
    pytest.importorskip("llama_index.core", reason=WITHOUT_LLAMA_INDEX)
    from cactus.adapters.llama_index import CactusEmbedding, CactusRerank, CactusVectorStore
    from llama_index.core import StorageContext, VectorStoreIndex
    from llama_index.core.schema import QueryBundle, TextNode
    from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

    store = CactusVectorStore(Index(tmp_path / "index", dimensions=32))
    nodes = [TextNode(id_=f"n{i}", text=text, metadata={"n": i}) for i, text in enumerate(TEXTS)]
    context = StorageContext.from_defaults(vector_store=store)
    made = VectorStoreIndex(nodes, storage_context=context, embed_model=CactusEmbedding(embedder))
    assert len(store.client) == 5
    found = made.as_retriever(similarity_top_k=5).retrieve("river")
    seen = [node.get_content(metadata_mode="embed") for node in nodes]
    assert [one.node.get_content(metadata_mode="embed") for one in found] == nearest(embedder, "river", seen)
    again = VectorStoreIndex.from_vector_store(store, embed_model=CactusEmbedding(embedder))
    hybrid = again.as_retriever(similarity_top_k=3, vector_store_query_mode="hybrid").retrieve("bread")
    assert hybrid[0].node.text == "bread is baked by the bank" and len(hybrid) == 3
    third = MetadataFilters(filters=[MetadataFilter(key="n", value=3)])
    awaited = asyncio.run(again.as_retriever(similarity_top_k=2, filters=third).aretrieve("river"))
    assert [one.node.node_id for one in awaited] == ["n3"]

    rerank = CactusRerank(reranker, top_n=2)
    best = rerank.postprocess_nodes(found, QueryBundle("what is this"))
    texts = [one.node.get_content(metadata_mode="embed") for one in found]
    ranked = reranker.rank("what is this", texts, top=2)
    assert [(one.node.node_id, one.score) for one in best] == [(found[r.index].node.node_id, r.score) for r in ranked]
    assert [one.score for one in asyncio.run(rerank.apostprocess_nodes(found, QueryBundle("what is this")))] == [r.score for r in ranked]
    with pytest.raises(InvalidRequestError, match="query"):
        rerank.postprocess_nodes(found)


def test_llama_index_nodes_come_back_whole(tmp_path, llama_store, embedder):
    from llama_index.core.schema import ImageNode, IndexNode, MediaResource, Node

    want = llama_nodes(embedder)
    found = llama_store.get_nodes(["n3", "n1", "none"])
    for node in found:
        before = next(one for one in want if one.node_id == node.node_id)
        before.embedding = None
        assert node == before and type(node) is type(before)
    assert [node.node_id for node in found] == ["n1", "n3"]
    vector = embedder.embed_query("a")
    others = [
        ImageNode(id_="image", image="aGk=", metadata={"a": 1}, embedding=vector),
        IndexNode(id_="index", text="in", index_id="x", embedding=vector),
        Node(id_="node", text_resource=MediaResource(text="said"), embedding=vector),
        Node(id_="sound", audio_resource=MediaResource(data=b"aGk="), embedding=vector),
    ]
    llama_store.add(others)
    for node, other in zip(llama_store.get_nodes([one.node_id for one in others]), others):
        other.embedding = None
        assert node.to_dict() == other.to_dict() and type(node) is type(other)


def test_llama_index_queries_in_each_mode(llama_store, embedder):
    from llama_index.core.vector_stores.types import VectorStoreQuery
    from llama_index.core.vector_stores.types import VectorStoreQueryMode as Mode

    vector = embedder.embed_query("river")

    def found(**options):
        asked = VectorStoreQuery(**{"query_embedding": vector, "query_str": "river", "similarity_top_k": 5, **options})
        result = llama_store.query(asked)
        assert result.ids == [node.node_id for node in result.nodes] and result.similarities == sorted(result.similarities, reverse=True)
        assert asyncio.run(llama_store.aquery(asked)).ids == result.ids
        return result.ids

    near = [f"n{TEXTS.index(text)}" for text in nearest(embedder, "river", TEXTS)]
    assert found() == near and found(similarity_top_k=2) == near[:2]
    for mode in (Mode.TEXT_SEARCH, Mode.SPARSE):
        assert set(found(mode=mode)) == {"n0", "n2"} and len(found(mode=mode, sparse_top_k=1)) == 1
    assert set(found(mode=Mode.HYBRID)) == set(near) and found(mode=Mode.HYBRID, hybrid_top_k=1)[0] in ("n0", "n2", near[0])
    assert found(mode=Mode.HYBRID, alpha=1) == near and found(mode=Mode.HYBRID, alpha=0) == found(mode=Mode.SPARSE)
    assert found(mode=Mode.HYBRID, alpha=0.5) == found(mode=Mode.HYBRID) == found(mode=Mode.SEMANTIC_HYBRID)
    assert found(doc_ids=["d1"]) == [id for id in near if id in ("n1", "n3")]
    assert found(node_ids=["n4", "n0", "x"], mode=Mode.SPARSE) == ["n0"]
    for wrong in ({"mode": Mode.MMR}, {"query_embedding": None}, {"mode": Mode.SPARSE, "query_str": None}, {"mode": Mode.HYBRID, "alpha": 0.3}):
        with pytest.raises(InvalidRequestError):
            found(**wrong)


def test_llama_index_filters_choose_what_its_own_store_chooses(llama_store, embedder):
    from llama_index.core.vector_stores import SimpleVectorStore
    from llama_index.core.vector_stores.types import FilterCondition as Condition
    from llama_index.core.vector_stores.types import FilterOperator as Operator
    from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery

    own = SimpleVectorStore()
    own.add(llama_nodes(embedder))
    cases = [
        ("n", 2, Operator.EQ),
        ("n", 2, Operator.NE),
        ("n", 1, Operator.GT),
        ("n", 1.5, Operator.GTE),
        ("n", 3, Operator.LT),
        ("n", 3, Operator.LTE),
        ("name", ["name 1", "x"], Operator.IN),
        ("name", ["name 1", "x"], Operator.NIN),
        ("tags", ["t1", "t2"], Operator.ANY),
        ("tags", ["x", "t2"], Operator.ALL),
        ("tags", "t3", Operator.CONTAINS),
        ("tags", None, Operator.IS_EMPTY),
        ("none", None, Operator.IS_EMPTY),
        ("deep", None, Operator.IS_EMPTY),
        ("missing", 1, Operator.NE),
        ("missing", 1, Operator.EQ),
        ("ref_doc_id", "d1", Operator.EQ),
    ]
    filters = [MetadataFilter(key=key, value=value, operator=operator) for key, value, operator in cases]
    groups = [MetadataFilters(filters=[one]) for one in filters]
    pair = [filters[2], filters[6]]
    groups += [MetadataFilters(filters=pair, condition=condition) for condition in (Condition.AND, Condition.OR, Condition.NOT)]
    vector = embedder.embed_query("river")
    chosen = []
    for group in groups:
        want = own.query(VectorStoreQuery(vector, similarity_top_k=9, filters=group))
        found = llama_store.query(VectorStoreQuery(vector, similarity_top_k=9, filters=group))
        assert found.ids == want.ids, group
        assert found.similarities == pytest.approx(want.similarities, abs=1e-5)
        chosen.append(len(found.ids))
    assert set(chosen) >= {0, 1, 2, 3, 4, 5}, "filters that choose"
    nested = MetadataFilters(filters=[groups[-2], MetadataFilter(key="n", value=2, operator=Operator.LT)])
    assert {node.node_id for node in llama_store.get_nodes(filters=nested)} == {"n1"}
    with pytest.raises(InvalidRequestError, match="text_match"):
        llama_store.get_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="name", value="a", operator=Operator.TEXT_MATCH)]))


def test_llama_index_nodes_are_deleted(llama_store):
    from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

    def left():
        return [node.node_id for node in llama_store.get_nodes()]

    only = MetadataFilters(filters=[MetadataFilter(key="name", value="name 0")])
    llama_store.delete_nodes(["n1", "n2"], only)
    assert left() == ["n0", "n1", "n3", "n4"]
    llama_store.delete("d1")
    assert left() == ["n0", "n4"]
    with pytest.raises(InvalidRequestError, match="node_ids"):
        llama_store.delete_nodes()
    llama_store.delete_nodes(["n4"])
    assert left() == ["n0"]
    asyncio.run(llama_store.aclear())
    assert left() == []


# Chroma.

WITHOUT_CHROMA = (
    "CACTUS.ADAPTERS.CHROMA IS NOT TESTED: chromadb is not installed; it is 320 MB, so scripts/test_adapters.sh takes it only "
    "with CACTUS_TEST_CHROMA=1"
)


def test_chroma_collections_have_vectors_by_role(bundles, embedder, tmp_path):
    chromadb = pytest.importorskip("chromadb", reason=WITHOUT_CHROMA)
    from cactus.adapters.chroma import CactusEmbeddingFunction
    from chromadb.config import Settings
    from chromadb.utils.embedding_functions import config_to_embedding_function, known_embedding_functions

    assert known_embedding_functions["cactus"] is CactusEmbeddingFunction
    made = CactusEmbeddingFunction(bundles["bert"], threads=1)
    assert not made.is_legacy() and made.default_space() == "cosine" and "l2" in made.supported_spaces()
    assert numpy.array_equal(numpy.array(made(TEXTS)), numpy.array(embedder.embed_documents(TEXTS), numpy.float32))
    assert numpy.array_equal(made.embed_query(["a word"])[0], numpy.array(embedder.embed_query("a word"), numpy.float32))
    again = config_to_embedding_function({"name": "cactus", "config": made.get_config()})
    assert again.get_config() == made.get_config() and numpy.array_equal(again(TEXTS), made(TEXTS))
    assert again._embedder is made._embedder, "one model for both"

    client = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
    collection = client.create_collection("notes", embedding_function=made)
    assert collection.configuration["hnsw"]["space"] == "cosine"
    collection.add(ids=[str(i) for i in range(5)], documents=TEXTS, metadatas=[{"n": i} for i in range(5)])
    assert collection.query(query_texts=["river"], n_results=5)["documents"][0] == nearest(embedder, "river", TEXTS)
    # Without a function it is made anew of what the collection keeps.
    kept = client.get_collection("notes").query(query_texts=["river"], n_results=1, where={"n": {"$gte": 3}})
    assert kept["documents"][0] == [text for text in nearest(embedder, "river", TEXTS) if TEXTS.index(text) >= 3][:1]

    disk = chromadb.PersistentClient(str(tmp_path / "chroma"), Settings(anonymized_telemetry=False))
    disk.create_collection("notes", embedding_function=made).add(ids=["a"], documents=["a word"])
    got = disk.get_collection("notes").get(["a"], include=["embeddings"])["embeddings"][0]
    assert numpy.allclose(got, embedder.embed_documents(["a word"])[0])


def test_chroma_refuses_what_would_make_other_vectors(bundles):
    pytest.importorskip("chromadb", reason=WITHOUT_CHROMA)
    from cactus.adapters.chroma import CactusEmbeddingFunction

    made = CactusEmbeddingFunction(bundles["bert"], threads=1)
    made.validate_config_update(made.get_config(), {**made.get_config(), "model": "elsewhere/bert"})
    for wrong in (
        lambda: made.validate_config_update(made.get_config(), {**made.get_config(), "dimensions": 16}),
        lambda: CactusEmbeddingFunction.build_from_config({}),
        lambda: CactusEmbeddingFunction.build_from_config({"model": "a", "poem": 1}),
        lambda: CactusEmbeddingFunction(bundles["bert"], threads=0),
    ):
        with pytest.raises(InvalidRequestError):
            wrong()


# Haystack.

WITHOUT_HAYSTACK = "haystack-ai is not installed, so cactus.adapters.haystack is not tested"


def test_haystack_pipelines_are_written_read_and_run(bundles, embedder, tmp_path):
    pytest.importorskip("haystack", reason=WITHOUT_HAYSTACK)
    from cactus.adapters.haystack import (
        CactusDocumentEmbedder,
        CactusDocumentStore,
        CactusEmbeddingRetriever,
        CactusHybridRetriever,
        CactusTextEmbedder,
    )
    from haystack import Document, Pipeline
    from haystack.components.writers import DocumentWriter
    from haystack.document_stores.types import DuplicatePolicy, FilterPolicy

    store = CactusDocumentStore(tmp_path / "index", embedding_dim=32, model="bert")
    indexing = Pipeline()
    indexing.add_component("embedder", CactusDocumentEmbedder(bundles["bert"], threads=1, meta_fields_to_embed=["title"]))
    indexing.add_component("writer", DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE))
    indexing.connect("embedder", "writer")
    documents = [Document(id=str(i), content=text, meta={"n": i, "title": "word", "none": None}) for i, text in enumerate(TEXTS)]
    indexing = Pipeline.loads(indexing.dumps(), allowed_modules=["cactus.adapters.haystack"])
    assert indexing.run({"embedder": {"documents": documents}})["writer"]["documents_written"] == 5
    assert store.count_documents() == 5 and all(one.embedding is None for one in documents)

    query = Pipeline()
    query.add_component("embedder", CactusTextEmbedder(bundles["bert"], threads=1))
    query.add_component("near", CactusEmbeddingRetriever(store, top_k=5, filters={"field": "meta.n", "operator": "<", "value": 4}))
    query.add_component("both", CactusHybridRetriever(store, top_k=3, filter_policy=FilterPolicy.MERGE))
    query.connect("embedder.embedding", "near.query_embedding")
    query.connect("embedder.embedding", "both.query_embedding")
    query = Pipeline.loads(query.dumps(), allowed_modules=["cactus.adapters.haystack"])
    found = query.run({"embedder": {"text": "bread"}, "both": {"query": "bread"}})
    seen = [f"word\n{text}" for text in TEXTS[:4]]
    assert [f"word\n{one.content}" for one in found["near"]["documents"]] == nearest(embedder, "bread", seen)
    assert all(one.meta == documents[int(one.id)].meta and one.score is not None for one in found["near"]["documents"])
    assert found["both"]["documents"][0].content == TEXTS[1] and len(found["both"]["documents"]) == 3
    near = query.get_component("near").run(embedder.embed_query("bread"), filters={"field": "meta.n", "operator": "==", "value": 4}, top_k=9)
    assert [one.id for one in near["documents"]] == ["4"]
    words = query.get_component("both").run("river")["documents"]
    assert {one.id for one in words} == {"0", "2"}
    with pytest.raises(InvalidRequestError, match="CactusDocumentStore"):
        CactusEmbeddingRetriever("store")
    with pytest.raises(ContextFullError):
        CactusTextEmbedder(bundles["bert"], threads=1).run("the " * 50)
    assert len(CactusTextEmbedder(bundles["bert"], threads=1, truncate=True).run("the " * 50)["embedding"]) == 32


def test_haystack_documents_come_back_whole(tmp_path):
    pytest.importorskip("haystack", reason=WITHOUT_HAYSTACK)
    from cactus.adapters.haystack import CactusDocumentStore, CactusEmbeddingRetriever, CactusHybridRetriever
    from haystack import Document
    from haystack.dataclasses import ByteStream, SparseEmbedding
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy

    store = CactusDocumentStore(tmp_path / "index", embedding_dim=2, encoding="f32")
    documents = [
        Document(id="a", content="some words", meta={"deep": {"x": [1, None]}}, embedding=[0.0, 1.0]),
        Document(id="b", content="words too"),
        Document(id="c", blob=ByteStream(b"\0\xff", meta={"x": 1}, mime_type="a/b"), sparse_embedding=SparseEmbedding([1], [0.5])),
        Document(id="d", content="", embedding=[1.0, 0.0]),
    ]
    assert store.write_documents(documents) == 4
    assert store.filter_documents() == documents
    assert [one.id for one in CactusEmbeddingRetriever(store).run([1.0, 0.1])["documents"]] == ["d", "a"], "not those without a vector"
    assert {one.id for one in CactusHybridRetriever(store).run("words")["documents"]} == {"a", "b"}
    fresh = Document(id="e", content="e")
    with pytest.raises(DuplicateDocumentError):
        store.write_documents([fresh, documents[0]])
    with pytest.raises(DuplicateDocumentError):
        store.write_documents([fresh, fresh])
    assert store.count_documents() == 4
    assert store.write_documents([documents[0], fresh, Document(id="e", content="f")], DuplicatePolicy.SKIP) == 1
    assert store.filter_documents()[-1] == fresh
    with pytest.raises(InvalidRequestError, match="dimensions"):
        store.write_documents([Document(id="g", embedding=[1.0])])
    again = CactusDocumentStore.from_dict(store.to_dict())
    assert again.filter_documents() == store.filter_documents()


def test_haystack_filters_choose_what_its_own_store_chooses(tmp_path):
    pytest.importorskip("haystack", reason=WITHOUT_HAYSTACK)
    from cactus.adapters.haystack import CactusDocumentStore
    from haystack import Document
    from haystack.document_stores.in_memory import InMemoryDocumentStore
    from haystack.errors import FilterError

    values = [1, 2.5, "text", "2020-01-02", True, {"x": 1}, {"x": {"y": "z"}}, [1, 2], [], None]
    documents = [Document(content=str(i), meta={} if i == 10 else {"v": (values + [0])[i]}) for i in range(11)]
    store, own = CactusDocumentStore(tmp_path / "index", embedding_dim=4), InMemoryDocumentStore()
    store.write_documents(documents)
    own.write_documents(documents)

    def conditions(field, operator, value):
        one = {"field": field, "operator": operator, "value": value}
        return [one, {"operator": "NOT", "conditions": [one]}]

    tried = [(f, o, v) for f in ("meta.v", "v", "meta.v.x", "meta.v.x.y", "meta.none") for o in ("==", "!=") for v in ("text", 2.5, "z", None)]
    tried += [("meta.v", o, v) for o in ("in", "not in") for v in ([2.5, "text"], [None, 2.5], [])]
    tried += [("meta.v.x", o, 1) for o in ("==", "in", ">") if o == "=="]
    chosen = set()
    for field, operator, value in tried:
        for filters in conditions(field, operator, value):
            want = sorted(one.id for one in own.filter_documents(filters))
            assert sorted(one.id for one in store.filter_documents(filters)) == want, filters
            chosen.add(len(want))
    assert len(chosen) > 4, "filters that choose"
    for wrong in (
        {"field": "id", "operator": "==", "value": "a"},
        {"field": "meta", "operator": "==", "value": "a"},
        {"field": "meta.v", "operator": "like", "value": "a"},
        {"field": "meta.v", "operator": "==", "value": [1]},
        {"field": "meta.v", "operator": ">", "value": True},
        {"operator": "XOR", "conditions": []},
        {"operator": "AND", "conditions": ["text"]},
    ):
        with pytest.raises(FilterError):
            store.filter_documents(wrong)


try:
    from haystack.testing.document_store import (
        CountDocumentsByFilterTest,
        DeleteAllTest,
        DeleteByFilterTest,
        DocumentStoreBaseTests,
    )
except ImportError:

    def test_haystacks_suite_for_stores():
        pytest.skip("haystack-ai is not installed, so Haystack's own tests of stores do not run")

else:

    class TestHaystacksSuiteForStores(DocumentStoreBaseTests, DeleteAllTest, DeleteByFilterTest, CountDocumentsByFilterTest):
        @pytest.fixture
        def document_store(self, tmp_path):
            from cactus.adapters.haystack import CactusDocumentStore

            return CactusDocumentStore(tmp_path / "index", embedding_dim=768)

        def assert_documents_are_equal(self, received, expected):
            """As they are, but for their vectors, which have a length of one and 8 bits in each dimension."""

            def bare(documents):
                return [{**one.to_dict(), "embedding": None} for one in documents]

            assert bare(received) == bare(expected)
            for one, other in zip(received, expected):
                assert (one.embedding is None) == (other.embedding is None)
                if one.embedding is not None:
                    vector = numpy.array(other.embedding) / numpy.linalg.norm(other.embedding)
                    assert numpy.abs(numpy.array(one.embedding) - vector).max() < 1e-3

        def test_write_documents(self, document_store):
            from haystack import Document
            from haystack.document_stores.errors import DuplicateDocumentError

            document = Document(content="a")
            assert document_store.write_documents([document]) == 1
            with pytest.raises(DuplicateDocumentError):
                document_store.write_documents([document])
            self.assert_documents_are_equal(document_store.filter_documents(), [document])
