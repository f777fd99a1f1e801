"""The index of vectors, and documents of a folder in one."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

pytest.importorskip("cactus._native", reason="the extension module is not built: cargo xtask ci wheel, or pip install ./python")
numpy = pytest.importorskip("numpy")

from cactus import (  # noqa: E402
    BundleError,
    ClosedError,
    Corpus,
    Embedder,
    Index,
    InvalidRequestError,
    StorageError,
    UnsupportedError,
)

ROOT = Path(__file__).resolve().parents[2]


def filled(path: Path, **options) -> Index:
    index = Index(path, dimensions=3, **options)
    index.upsert(
        ["a", "b", "c"],
        numpy.array([[1, 0, 0], [0.6, 0.8, 0], [0, 0, 2]], dtype=numpy.float32),
        texts=["the river", "the bank of the river", "bread"],
        metadata=[{"year": 2020, "tags": ["x", "y"]}, {"year": 2024, "new": True}, {"year": numpy.int64(1999)}],
    )
    return index


def test_documents_are_kept_found_and_forgotten(tmp_path):
    index = filled(tmp_path / "index")
    assert (len(index), index.dimensions, index.metric, "a" in index, "z" in index) == (3, 3, "cosine", True, False)
    found = index.search([2.0, 0, 0], k=2)
    assert [hit.id for hit in found] == ["a", "b"]
    assert found[0].similarity == pytest.approx(1, abs=0.01) and found[0].bm25 is None
    assert (found[0].text, found[0].metadata) == ("the river", {"year": 2020, "tags": ["x", "y"]})
    assert [hit.id for hit in index.search(words="bread")] == ["c"]
    both = index.search(numpy.array([0, 0, 1.0]), words="river")
    assert {hit.id for hit in both} == {"a", "b", "c"} and all(hit.similarity is not None for hit in both)
    index.upsert(["c"], [[1, 0, 0]], texts=["new"])
    stored = index.get(["c", "z"])
    assert stored[1] is None and (stored[0].text, stored[0].metadata) == ("new", {})
    assert numpy.allclose(numpy.asarray(stored[0].vector), [1, 0, 0], atol=0.01)
    assert index.delete(["a", "z"]) == 1
    assert sorted(index.ids()) == ["b", "c"]
    before = index.size
    index.compact()
    assert index.size.documents == 2 and index.size.bytes < before.bytes
    # Another sees the same, and knows what it is of.
    assert [hit.id for hit in Index(tmp_path / "index").search(words="bank")] == ["b"]


@pytest.mark.parametrize(
    ("filter", "want"),
    [
        ({"year": 2024}, ["b"]),
        ({"year": {"$gte": 2000, "$lt": 2024}}, ["a"]),
        ({"year": {"$gt": 2020}}, ["b"]),
        ({"tags": "y"}, ["a"]),
        ({"$or": [{"tags": "x"}, {"new": True}]}, ["a", "b"]),
        ({"year": {"$in": [1999, 2024]}}, ["b", "c"]),
        ({"new": {"$exists": False}}, ["a", "c"]),
        ({"$not": {"year": 2024}}, ["a", "c"]),
        ({"year": {"$nin": [1999]}, "new": {"$ne": True}}, ["a"]),
    ],
)
def test_filters_choose_by_metadata(tmp_path, filter, want):
    index = filled(tmp_path / "index")
    assert sorted(hit.id for hit in index.search([1, 1, 1], filter=filter)) == want


def test_a_closed_index_says_so(tmp_path):
    with filled(tmp_path / "i") as index:
        assert len(index) == 3 and not index.closed
    index.close()
    assert index.closed
    for call in (lambda: len(index), lambda: index.search([1, 0, 0]), lambda: index.model, index.compact):
        with pytest.raises(ClosedError):
            call()
    assert len(Index(tmp_path / "i")) == 3


def test_numbers_are_ids_too(tmp_path):
    index = Index(tmp_path / "index", dimensions=2, ids="number", encoding="f32", metric="euclidean")
    index.add([7, 8], [[0, 3], [4, 0]])
    assert [(hit.id, hit.similarity) for hit in index.search([0, 0])] == [(7, -9.0), (8, -16.0)]


def test_what_cannot_be_is_refused_and_leaves_nothing(tmp_path):
    index = filled(tmp_path / "index")
    wrong = [
        lambda: index.add(["new", "a"], [[1, 0, 0], [1, 0, 0]]),
        lambda: index.upsert(["new"], [[1, 0]]),
        lambda: index.upsert(["new"], [[float("nan"), 0, 0]]),
        lambda: index.upsert(["new", "newer"], [[1, 0, 0]]),
        lambda: index.upsert(["new"], [[1, 0, 0]], texts=["a", "b"]),
        lambda: index.upsert(["new"], [[1, 0, 0]], metadata=[{"a": {"b": 1}}]),
        lambda: index.upsert(["new"], [[1, 0, 0]], metadata=[{"a": float("inf")}]),
        lambda: index.upsert(["new"], [[1, 0, 0]], metadata=[{"a": 1 << 63}]),
        lambda: index.upsert("new", [[1, 0, 0]]),
        lambda: index.upsert([1], [[1, 0, 0]]),
        lambda: index.upsert(["new"], "abc"),
        lambda: index.search(),
        lambda: index.search([1, 0]),
        lambda: index.search([1, 0, 0], filter={"$no": 1}),
        lambda: index.search([1, 0, 0], k=-1),
        lambda: index.search("abc"),
        lambda: Index(tmp_path / "index", dimensions=4),
        lambda: Index(tmp_path / "index", dimensions=3, model="other"),
        lambda: Index(tmp_path / "index", dimensions=3, encoding="f32"),
        lambda: Index(tmp_path / "none"),
        lambda: Index(tmp_path / "new", dimensions=3, metric="manhattan"),
    ]
    for call in wrong:
        with pytest.raises(InvalidRequestError):
            call()
    assert len(index) == 3
    (tmp_path / "text").write_text("no index")
    with pytest.raises(BundleError):
        Index(tmp_path / "text")


def test_threads_and_processes_write_one_after_the_other(tmp_path):
    index = Index(tmp_path / "index", dimensions=2)
    program = (
        "import sys; from cactus import Index; index = Index(sys.argv[1])\n"
        "for i in range(20): index.upsert([f'p{i}'], [[1, i]])"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])}
    other = subprocess.Popen([os.sys.executable, "-c", program, str(tmp_path / "index")], env=environment)

    def write(thread: int) -> None:
        for i in range(20):
            index.upsert([f"{thread}-{i}"], [[thread, i + 1]])

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert other.wait(60) == 0
    assert len(index) == 80


def test_the_public_functions_keep_an_index(tmp_path):
    from cactus import compat

    index = compat.cactus_index_init(str(tmp_path / "new"), 3)
    compat.cactus_index_add(index, [0, -5], ["doc a", "doc b"], ["about a", None], embeddings=[[1, 0, 0], [0, 2, 0]])
    found = compat.cactus_index_query(index, [1, 0, 0], {"top_k": 1})
    assert found["results"][0]["id"] == 0 and found["results"][0]["score"] == pytest.approx(1, abs=0.01)
    assert [one["id"] for one in compat.cactus_index_query(index, [0, 1, 0], '{"score_threshold": 0.5}')["results"]] == [-5]
    (got, other) = compat.cactus_index_get(index, [0, -5])["results"]
    assert (got["document"], got["metadata"], other["metadata"]) == ("doc a", "about a", None)
    assert other["embedding"] == pytest.approx([0, 1, 0], abs=0.01)
    for wrong in (lambda: compat.cactus_index_get(index, [7]), lambda: compat.cactus_index_add(index, [0], ["x"], None, [[1, 0, 0]])):
        with pytest.raises(RuntimeError):
            wrong()
    compat.cactus_index_delete(index, [0, 99])
    compat.cactus_index_compact(index)
    compat.cactus_index_destroy(index)
    with pytest.raises(RuntimeError, match="cactus_index_init"):
        compat.cactus_index_query(index, [1, 0, 0])
    again = compat.cactus_index_init(str(tmp_path / "new"), 3)
    assert [one["id"] for one in compat.cactus_index_query(again, [1, 1, 1])["results"]] == [-5]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("bundles")
    made = {}
    for name in ("embedding/bert", "models/qwen2_tied"):
        made[name] = str(folder / Path(name).name)
        command = [os.environ["CACTUS_PROGRAM"], "convert", str(ROOT / "golden" / name), made[name], "--bits", "8"]
        subprocess.run(command, check=True, capture_output=True)
    return made


@pytest.fixture
def notes(tmp_path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("# Rain\n\nThe river is quick.\n")
    (folder / "b.txt").write_text("Bread is baked.\n")
    (folder / "c.txt").write_bytes(b"\0\1\2")
    return folder


def test_folder_is_kept_in_step_and_searched(bundles, notes):
    with Embedder.load(bundles["embedding/bert"], threads=1) as embedder:
        corpus = Corpus(notes, embedder)
        steps = []
        first = corpus.sync(lambda done, files, path: steps.append((done, files, path)))
        assert (first.files, first.added, first.pieces, first.embedded, list(first.skipped)) == (3, 2, 2, 2, ["c.txt"])
        assert steps[0] == (0, 3, "a.md") and steps[-1] == (3, 3, "")
        assert corpus.sync().embedded == 0
        (found, *_) = corpus.search("river quick", k=5)
        assert (found.path, found.lines, found.page, found.headings, found.is_current) == ("a.md", (3, 3), None, ["Rain"], True)
        assert (notes / "a.md").read_bytes()[slice(*found.bytes)].decode() == found.text
        (notes / "a.md").write_text("# Rain\n\nThe river is slow.\n")
        assert not corpus.search("river quick", k=1)[0].is_current
        assert (corpus.sync().changed, corpus.search("river slow")[0].is_current) == (1, True)
        (notes / "b.txt").unlink()
        assert corpus.sync().removed == 1
        # A piece with every word of the question is related to it, whatever its vector says.
        assert "a.md" in [one.path for one in corpus.search("river", k=5, min_similarity="related")]
        assert corpus.search("river", min_similarity=1) == []
        for wrong in ("near", 2, True):
            with pytest.raises(InvalidRequestError, match="min_similarity"):
                corpus.search("river", min_similarity=wrong)
        # Its index is one like others.
        assert len(Index(notes / ".cactus-index")) == 1


def test_answers_come_with_sources(bundles, notes):
    from cactus import Model

    with Embedder.load(bundles["embedding/bert"], threads=1) as embedder:
        corpus = Corpus(notes, embedder)
        corpus.sync()
        with Model.load(bundles["models/qwen2_tied"], threads=1) as model:
            # Vectors of a model that has learned nothing tell nothing apart.
            answer = corpus.ask(model, "bread?", k=2, min_similarity="any", max_tokens=4)
        assert [source.path for source in answer.sources] == ["a.md", "b.txt"]

        class Says:
            """A model that cites."""

            def chat(self, messages, **options):
                assert [m["role"] for m in messages] == ["system", "user"] and "Bread is baked" in messages[0]["content"]
                return type("Answer", (), {"text": "Ja, größer: Bread is baked [2]. Also [7]."})

        cited = corpus.ask(Says(), "bread?", k=2, min_similarity="any")
        assert [(c.number, c.exists) for c in cited.citations] == [(2, True), (7, False)]
        assert cited.text[cited.citations[0].at :].startswith("[2]") and cited.citations[0].support > 0.4


def test_corpus_refuses_what_it_cannot_use(bundles, notes, tmp_path):
    embedder = Embedder.load(bundles["embedding/bert"], threads=1)
    for wrong in (lambda: Corpus(tmp_path / "none", embedder), lambda: Corpus(notes, "name"), lambda: Corpus(notes, embedder).search("x")):
        with pytest.raises(InvalidRequestError):
            wrong()

    def stops(*_):
        raise KeyError("enough")

    with pytest.raises(KeyError):
        Corpus(notes, embedder).sync(stops)
    assert Corpus(notes, embedder).sync().pieces == 2
    corpus = Corpus(notes, embedder)
    embedder.close()
    for wrong in (lambda: corpus.sync(), lambda: corpus.search("x")):
        with pytest.raises(ClosedError):
            wrong()


def of_sqlite():
    """SQLite and sqlite-vec; without them a test is left out, and says what is missing."""
    from cactus.in_sqlite import modules

    try:
        return modules()
    except UnsupportedError as error:
        pytest.skip(str(error))


def test_index_goes_through_sqlite_vec(tmp_path):
    sqlite3, sqlite_vec = of_sqlite()
    index = filled(tmp_path / "index", encoding="f32")
    assert index.to_sqlite_vec(tmp_path / "db") == 3
    # What sqlite-vec itself finds.
    with sqlite3.connect(tmp_path / "db") as database:
        database.enable_load_extension(True)
        sqlite_vec.load(database)
        near = "SELECT id, distance, text, metadata FROM documents WHERE embedding MATCH ? AND k = 2 ORDER BY distance"
        rows = database.execute(near, [numpy.array([2, 0, 0], dtype=numpy.float32).tobytes()]).fetchall()
    found = index.search([2, 0, 0], k=2)
    assert [row[0] for row in rows] == [hit.id for hit in found]
    for row, hit in zip(rows, found):
        assert 1 - row[1] == pytest.approx(hit.similarity, abs=1e-6)
        assert (row[2], json.loads(row[3])) == (hit.text, hit.metadata)
    again = Index.from_sqlite_vec(tmp_path / "db", tmp_path / "again", model="m", encoding="f32")
    assert (again.model, again.metric, again.id_kind, len(again)) == ("m", "cosine", "text", 3)
    for id in "abc":
        [old], [new] = index.get([id]), again.get([id])
        assert (new.text, new.metadata) == (old.text, old.metadata)
        assert numpy.array_equal(numpy.asarray(new.vector), numpy.asarray(old.vector))
    assert [hit.id for hit in again.search(words="bank")] == ["b"]
    # A second table beside the first, which then must be named.
    assert index.to_sqlite_vec(tmp_path / "db", table="more") == 3
    with pytest.raises(InvalidRequestError, match="'documents', 'more'"):
        Index.from_sqlite_vec(tmp_path / "db", tmp_path / "other")
    with pytest.raises(InvalidRequestError, match="already"):
        index.to_sqlite_vec(tmp_path / "db", table="more")
    with pytest.raises(InvalidRequestError, match="already"):
        Index.from_sqlite_vec(tmp_path / "db", tmp_path / "again", table="more")


def test_table_of_another_program_becomes_an_index(tmp_path):
    sqlite3, sqlite_vec = of_sqlite()
    with sqlite3.connect(tmp_path / "db") as database:
        database.enable_load_extension(True)
        sqlite_vec.load(database)
        database.execute(
            "CREATE VIRTUAL TABLE notes USING vec0(user integer partition key, v FLOAT[2] , year integer, +text text, +blob text, chunk_size=8)"
        )
        put = "INSERT INTO notes(rowid, user, v, year, text, blob) VALUES (?, ?, ?, ?, ?, ?)"
        for i in range(20):
            vector = numpy.array([i, 1], dtype=numpy.float32).tobytes()
            database.execute(put, [i + 1, i % 2, vector, 2000 + i, f"note {i}", None])
        database.execute("CREATE VIRTUAL TABLE small USING vec0(v int8[2])")
        database.execute("CREATE VIRTUAL TABLE angles USING vec0(v float[2] distance_metric=L1)")
        for table, vector in (("notes", [5.0, 1.0]),):
            near = f"SELECT rowid, distance FROM {table} WHERE v MATCH ? AND k = 3 ORDER BY distance"
            rows = database.execute(near, [numpy.array(vector, dtype=numpy.float32).tobytes()]).fetchall()
    index = Index.from_sqlite_vec(tmp_path / "db", tmp_path / "index", table="notes", encoding="f32")
    assert (len(index), index.metric, index.id_kind) == (20, "euclidean", "number")
    found = index.search([5, 1], k=3)
    assert found[0].id == rows[0][0] == 6 and {hit.id for hit in found} == {row[0] for row in rows}
    assert sorted(-hit.similarity for hit in found) == pytest.approx(sorted(row[1] ** 2 for row in rows))
    assert (found[0].text, found[0].metadata) == ("note 5", {"user": 1, "year": 2005})
    assert [hit.id for hit in index.search([0, 1], filter={"user": 1, "year": {"$gt": 2010}}, k=1)] == [12]
    for table, word in (("small", "int8"), ("angles", "l1")):
        with pytest.raises(UnsupportedError, match=word):
            Index.from_sqlite_vec(tmp_path / "db", tmp_path / "no", table=table)
    assert not (tmp_path / "no").exists()


def test_what_sqlite_vec_cannot_have_is_refused_and_leaves_no_file(tmp_path):
    of_sqlite()
    dot = Index(tmp_path / "dot", dimensions=2, metric="dot")
    large = Index(tmp_path / "large", dimensions=2, ids="number")
    large.add([1 << 63], [[1, 0]])
    for index, options, word in ((dot, {}, "dot"), (large, {}, "63 bits"), (large, {"table": "a b"}, "letters")):
        with pytest.raises(InvalidRequestError, match=word):
            index.to_sqlite_vec(tmp_path / "db", **options)
    assert not (tmp_path / "db").exists()
    with pytest.raises(StorageError, match="no database"):
        Index.from_sqlite_vec(tmp_path / "db", tmp_path / "index")
    assert not (tmp_path / "db").exists()
    (tmp_path / "text").write_text("this is no database, and long enough that nobody takes it for one " * 20)
    with pytest.raises(StorageError):
        Index.from_sqlite_vec(tmp_path / "text", tmp_path / "index")
    assert (tmp_path / "text").exists() and not (tmp_path / "index").exists()
