"""Vectors of texts and scores of documents, with tiny models of random weights."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cactus._native", reason="the extension module is not built: cargo xtask ci wheel, or pip install ./python")
numpy = pytest.importorskip("numpy")

from cactus import (  # noqa: E402
    ClosedError,
    ContextFullError,
    Embedder,
    InvalidRequestError,
    Reranker,
    TokenEmbedder,
    UnsupportedError,
)

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "golden/embedding"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("bundles")
    made = {}
    for name in ("bert", "bert_ranker", "bert_tokens", "clip_pictures"):
        made[name] = str(folder / name)
        command = [os.environ["CACTUS_PROGRAM"], "convert", str(GOLDEN / name), made[name], "--bits", "32"]
        subprocess.run(command, check=True, capture_output=True)
    return made


def test_vectors_are_those_of_sentence_transformers(bundles):
    from safetensors.numpy import load_file

    want = load_file(GOLDEN / "bert/expected.safetensors")["vectors"]
    rows = json.loads((GOLDEN / "bert/expected.json").read_text())["texts"]
    with Embedder.load(bundles["bert"], threads=1) as embedder:
        assert (embedder.dimensions, embedder.limit_tokens) == (32, 32)
        assert embedder.prompts["query"] == "what is: "
        for row, vector in zip(rows, want):
            role = {"query": "query", "passage": "document"}.get(row["prompt"])
            task = row["prompt"] if role is None else None
            made = embedder.embed([row["text"]], role=role, task=task)
            assert made.tokens == [len(row["ids"])] == [embedder.count(row["text"], role=role, task=task)]
            found = numpy.asarray(made.vectors)
            assert found.shape == (1, 32) and numpy.abs(found[0] - vector).max() < 1e-4
        texts = [row["text"] for row in rows[:5]]
        together = numpy.asarray(embedder.embed(texts).vectors)
        alone = numpy.concatenate([numpy.asarray(embedder.embed([text]).vectors) for text in texts])
        assert (together == alone).all()
        tokens = numpy.asarray(embedder.embed([row["ids"] for row in rows[:5]], role="query").vectors)
        assert (tokens == together).all(), "tokens get no prompt"
        assert embedder.embed_query("the word") == numpy.asarray(embedder.embed(["the word"], role="query").vectors)[0].tolist()
        assert len(embedder.embed_documents(texts)) == 5
        awaited = asyncio.run(embedder.aembed(texts))
        assert (numpy.asarray(awaited.vectors) == together).all()


def test_pictures_get_vectors_that_are_compared_with_those_of_texts(bundles):
    files = [ROOT / "golden/pictures/files" / name for name in ("rgba.png", "turned_6.jpg", "exact.webp")]
    with Embedder.load(bundles["clip_pictures"], threads=1) as embedder:
        made = embedder.embed(images=files)
        found = numpy.asarray(made.vectors)
        assert found.shape == (3, embedder.dimensions) and made.tokens == [9, 9, 9]
        assert numpy.abs(numpy.linalg.norm(found, axis=1) - 1).max() < 1e-5
        alone = numpy.asarray(embedder.embed(images=[files[1].read_bytes()]).vectors)
        assert (alone[0] == found[1]).all()
        assert numpy.asarray(embedder.embed(["the and"]).vectors).shape == (1, embedder.dimensions)
        for wrong in (
            dict(images=str(files[0])),
            dict(images=[b"GIF89a"]),
            dict(images=[5]),
            dict(images=files, dimensions=7),
            dict(images=files, role="query"),
            dict(texts=["a"], images=files),
            dict(),
        ):
            with pytest.raises(InvalidRequestError):
                embedder.embed(**wrong)
    with pytest.raises(UnsupportedError, match="no vectors of pictures"):
        Embedder.load(bundles["bert"], threads=1).embed(images=files)


def test_what_cannot_be_embedded_is_refused(bundles):
    embedder = Embedder.load(bundles["bert"], threads=1)
    with pytest.raises(ContextFullError, match="at most 32"):
        embedder.embed(["the " * 50])
    assert embedder.embed(["the " * 50], truncate=True).tokens == [32]
    for wrong in (
        dict(texts="a text"),
        dict(texts=[5]),
        dict(texts=["a"], role="poem"),
        dict(texts=["a"], task="poem"),
        dict(texts=["a"], dimensions=7),
        dict(texts=["a"], role="query", task="task"),
        dict(texts=[[99999]]),
    ):
        with pytest.raises(InvalidRequestError):
            embedder.embed(**wrong)
    embedder.close()
    with pytest.raises(ClosedError):
        embedder.embed(["a"])
    with pytest.raises(UnsupportedError, match="scores"):
        Embedder.load(bundles["bert_ranker"])
    with pytest.raises(UnsupportedError, match="vectors"):
        Reranker.load(bundles["bert"])


def test_documents_come_in_the_order_of_their_scores(bundles):
    rows = json.loads((GOLDEN / "bert_ranker/expected.json").read_text())["pairs"]
    with Reranker.load(bundles["bert_ranker"], threads=1) as reranker:
        for row in rows:
            [score] = reranker.score(row["query"], [row["document"]])
            assert abs(score - row["score"]) < 1e-4
        documents = [row["document"] for row in rows]
        ranked = reranker.rank("what is this", documents, top=2)
        scores = reranker.score("what is this", documents)
        assert [r.score for r in ranked] == sorted(scores, reverse=True)[:2]
        assert all(documents[r.index] == r.document for r in ranked)
        with pytest.raises(InvalidRequestError, match="instruction"):
            reranker.score("a", ["b"], instruction="be kind")
        with pytest.raises(ContextFullError):
            reranker.score("a", ["the " * 90])


def test_vectors_of_tokens_are_those_of_sentence_transformers(bundles):
    from safetensors.numpy import load_file

    want = load_file(GOLDEN / "bert_tokens/expected.safetensors")["vectors"]
    rows = json.loads((GOLDEN / "bert_tokens/expected.json").read_text())["matrices"]
    assert {row["role"] for row in rows} == {"query", "document"}
    with TokenEmbedder.load(bundles["bert_tokens"], threads=1) as embedder:
        assert embedder.dimensions == want.shape[1]
        limits = {"query": embedder.query_limit_tokens, "document": embedder.document_limit_tokens}
        for row in rows:
            made = embedder.embed([row["text"]], role=row["role"])
            found = numpy.asarray(made.vectors[0])
            expected, want = want[: len(row["kept"])], want[len(row["kept"]) :]
            assert found.shape == expected.shape and numpy.abs(found - expected).max() < 1e-4
            assert made.tokens[0] <= limits[row["role"]]
        assert not len(want)
        texts = [row["text"] for row in rows if row["role"] == "document"]
        together = embedder.embed(texts, role="document").vectors
        alone = [embedder.embed([text]).vectors[0] for text in texts]
        assert all((numpy.asarray(a) == numpy.asarray(b)).all() for a, b in zip(together, alone))
        awaited = asyncio.run(embedder.aembed(texts))
        assert (numpy.asarray(awaited.vectors[0]) == numpy.asarray(together[0])).all()
        # As its documentation has it: nothing answers a text better than the text itself.
        [query] = embedder.embed([texts[0]]).vectors
        scores = [(numpy.asarray(query) @ numpy.asarray(d).T).max(axis=1).sum() for d in together]
        assert max(scores) == scores[0]
        long = "the " * (limits["document"] + 1)
        with pytest.raises(ContextFullError, match=f"at most {limits['document']}"):
            embedder.embed([long])
        assert embedder.embed([long], truncate=True).tokens == [limits["document"]]
        for wrong in (dict(texts="a text"), dict(texts=[[5]]), dict(texts=["a"], role="poem"), dict(texts=["a"], truncate=1)):
            with pytest.raises(InvalidRequestError):
                embedder.embed(**wrong)
    with pytest.raises(ClosedError):
        embedder.embed(["a"])
    with pytest.raises(UnsupportedError, match="a vector of each token"):
        Embedder.load(bundles["bert_tokens"])
    with pytest.raises(UnsupportedError, match="no vectors of tokens"):
        TokenEmbedder.load(bundles["bert"])
