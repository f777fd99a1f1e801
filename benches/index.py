"""Exact search beside FAISS, usearch, hnswlib and sqlite-vec, on the same vectors in one interleaved run.

    cargo build --release -p cactus-retrieval --example index_bench
    python benches/index.py --count 100000 --dim 384

Needs numpy, and whatever of faiss-cpu, usearch, hnswlib and sqlite-vec (with pysqlite3-binary, where Python's own SQLite
takes no extensions) is to be compared: what is not installed is left out.
Vectors lie around centers, as embeddings do, with unit length; queries lie near stored vectors. In each round every program
answers all queries, one after the other; the medians of all answers of all rounds are printed as a table. Recall counts how many of
the exact ten nearest, found in double precision, a program finds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

try:
    # The one of many Pythons takes no extensions.
    import pysqlite3 as sqlite3
except ImportError:
    import sqlite3

ROOT = Path(__file__).resolve().parent.parent
K = 10


class Cactus:
    """The example program over its standard input and output."""

    def __init__(self, folder: Path, encoding: str, threads: int, program: Path) -> None:
        self.name = f"cactus {encoding}"
        path = folder / f"{encoding}.index"
        files = [folder / "vectors.npy", folder / "queries.npy", path]
        self.process = subprocess.Popen(
            [program, *files, encoding, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        built = json.loads(self.process.stdout.readline())
        self.build_s, self.bytes = built["build_ms"] / 1e3, built["bytes"]

    def ask(self, line: str) -> dict:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def search(self, _: np.ndarray) -> tuple[list[float], list[list[int]]]:
        answer = self.ask(f"search {K}")
        return answer["ms"], answer["ids"]


class Peer:
    """A program that is called with one query at a time."""

    def __init__(self, name: str, build: Callable[[], tuple[Callable[[np.ndarray], list[int]], int]]) -> None:
        self.name = name
        start = time.perf_counter()
        self.one, self.bytes = build()
        self.build_s = time.perf_counter() - start

    def search(self, queries: np.ndarray) -> tuple[list[float], list[list[int]]]:
        times, found = [], []
        for query in queries:
            start = time.perf_counter()
            ids = self.one(query)
            times.append((time.perf_counter() - start) * 1e3)
            found.append(ids)
        return times, found


def faiss_flat(vectors: np.ndarray, threads: int, kind: str):
    import faiss

    faiss.omp_set_num_threads(threads)
    if kind == "f32":
        index = faiss.IndexFlatIP(vectors.shape[1])
    else:
        index = faiss.IndexScalarQuantizer(
            vectors.shape[1], faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
        )
        index.train(vectors[:10000])
    index.add(vectors)
    size = vectors.size * (4 if kind == "f32" else 1)
    return lambda query: index.search(query[None], K)[1][0].tolist(), size


def usearch(vectors: np.ndarray, threads: int, exact: bool):
    from usearch.index import Index, search

    if exact:
        return lambda query: search(vectors, query, K, "cos", exact=True, threads=threads).keys.tolist(), vectors.nbytes
    index = Index(ndim=vectors.shape[1], metric="cos", dtype="i8")
    index.add(np.arange(len(vectors)), vectors, threads=threads)
    return lambda query: index.search(query, K).keys.tolist(), index.memory_usage


def hnswlib(vectors: np.ndarray, threads: int):
    import hnswlib as library

    index = library.Index(space="ip", dim=vectors.shape[1])
    index.init_index(max_elements=len(vectors), ef_construction=200, M=16)
    index.set_num_threads(threads)
    index.add_items(vectors, np.arange(len(vectors)))
    index.set_ef(64)
    return lambda query: index.knn_query(query, k=K)[0][0].tolist(), vectors.nbytes + len(vectors) * 140


def sqlite_vec(vectors: np.ndarray, folder: Path):
    import sqlite_vec as library

    path = folder / "vectors.db"
    base = sqlite3.connect(path)
    base.enable_load_extension(True)
    library.load(base)
    base.execute(f"create virtual table v using vec0(embedding float[{vectors.shape[1]}])")
    rows = ((i, row.tobytes()) for i, row in enumerate(vectors))
    base.executemany("insert into v(rowid, embedding) values (?, ?)", rows)
    base.commit()
    question = f"select rowid from v where embedding match ? and k = {K} order by distance"
    return lambda query: [row[0] for row in base.execute(question, (query.tobytes(),))], path.stat().st_size


def data(count: int, dim: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    centers = random.standard_normal((max(count // 200, 1), dim), dtype=np.float32)
    vectors = np.empty((count, dim), dtype=np.float32)
    for start in range(0, count, 65536):
        stop = min(start + 65536, count)
        noise = random.standard_normal((stop - start, dim), dtype=np.float32)
        vectors[start:stop] = centers[random.integers(len(centers), size=stop - start)] + noise
        vectors[start:stop] /= np.linalg.norm(vectors[start:stop], axis=1, keepdims=True)
    near = vectors[random.integers(count, size=queries)]
    asked = near + random.standard_normal(near.shape, dtype=np.float32) * np.float32(0.7 / dim**0.5)
    return vectors, asked / np.linalg.norm(asked, axis=1, keepdims=True)


def exact(vectors: np.ndarray, queries: np.ndarray) -> list[set[int]]:
    best = [[] for _ in queries]
    for start in range(0, len(vectors), 16384):
        scores = queries.astype(np.float64) @ vectors[start : start + 16384].astype(np.float64).T
        for i, row in enumerate(scores):
            top = np.argpartition(-row, min(K, len(row) - 1))[:K]
            best[i] = sorted(best[i] + [(-row[j], start + int(j)) for j in top])[:K]
    return [{j for _, j in one} for one in best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/examples/index_bench")
    parser.add_argument("--without", nargs="*", default=[], help="words of names that are left out")
    args = parser.parse_args()
    vectors, queries = data(args.count, args.dim, args.queries)
    truth = exact(vectors, queries)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "vectors.npy", vectors)
        np.save(folder / "queries.npy", queries)
        threads = args.threads
        makers: list[tuple[str, Callable[[], object]]] = [
            (f"cactus {encoding}", lambda e=encoding: Cactus(folder, e, threads, args.program))
            for encoding in ("int8", "f32", "binary")
        ]
        for label, build in (
            ("FAISS flat", lambda: faiss_flat(vectors, threads, "f32")),
            ("FAISS 8-bit", lambda: faiss_flat(vectors, threads, "sq8")),
            ("usearch exact", lambda: usearch(vectors, threads, True)),
            ("usearch int8 graph", lambda: usearch(vectors, threads, False)),
            ("hnswlib graph", lambda: hnswlib(vectors, threads)),
            ("sqlite-vec", lambda: sqlite_vec(vectors, folder)),
        ):
            makers.append((label, lambda n=label, b=build: Peer(n, b)))
        programs = []
        for label, make in makers:
            if any(word in label for word in args.without):
                continue
            try:
                programs.append(make())
            except (AttributeError, ImportError) as error:  # a Python without extensions of SQLite has no such method
                print(f"left out: {label}: {error}", file=sys.stderr)
        times = {program.name: [] for program in programs}
        found = {}
        for _ in range(args.rounds):
            for program in programs:
                ms, found[program.name] = program.search(queries)
                times[program.name] += ms
        print(f"{args.count} vectors of {args.dim}, {threads} threads, {args.rounds} rounds of {args.queries} queries\n")
        print("| | median ms | p95 ms | recall@10 | made in s | MB |")
        print("|---|---:|---:|---:|---:|---:|")
        for program in programs:
            ms = sorted(times[program.name])
            hits = sum(len(t & set(f)) for t, f in zip(truth, found[program.name]))
            print(
                f"| {program.name} | {statistics.median(ms):.2f} | {ms[int(len(ms) * 0.95)]:.2f} "
                f"| {hits / (K * len(truth)):.4f} | {program.build_s:.1f} | {program.bytes / 1e6:.0f} |"
            )
        ours = programs[0]
        if isinstance(ours, Cactus):
            for label, line, times_over in (
                ("filter that holds for a hundredth", f"filter {K}", 3),
                ("open", "open", 20),
                ("add one and commit, without sync", "add 0", 40),
                ("add one and commit, synced", "add 1", 40),
            ):
                ms = []
                for _ in range(times_over):
                    answer = ours.ask(line)["ms"]
                    ms += answer if isinstance(answer, list) else [answer]
                print(f"\n{ours.name}, {label}: median {statistics.median(ms):.3f} ms, most {max(ms):.3f} ms")


if __name__ == "__main__":
    main()
