#!/usr/bin/env python3
"""Our server beside llama-server: many streams, prompts that come in while others are answered, shared prefixes, a mixed load.

    benches/serve.py                        # both servers, SmolLM2-135M and Qwen2.5 0.5B, about 15 minutes
    benches/serve.py --models smollm2-135m --only streams
    benches/serve.py --only mix --minutes 5 --engines cactus

Both servers read the same Q8_0 source, have the same threads and as many slots as there are streams. Measurements alternate
between them. Prints a table; --json and --svg keep the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import chart
import load
from peers import Model, PeerError, Workshop, default_cache, models_named

STREAMS = (1, 4, 16, 32)
CONTEXT = 8192


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def memory(pid: int) -> int:
    """Anonymous bytes of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


class Server:
    """A server under way on a port of its own."""

    def __init__(self, engine: str, workshop: Workshop, model: Model, threads: int, slots: int, context: int):
        self.engine, self.model, self.port = engine, model.name, free_port()
        if engine == "cactus":
            command = [workshop.cactus(), "serve", workshop.bundle(model, 8), "--port", self.port]
            command += ["--threads", threads, "--parallel", slots, "--context", context]
        else:
            command = [workshop.llama("llama-server"), "-m", workshop.quantized(model, "Q8_0"), "--port", self.port]
            command += ["-t", threads, "-tb", threads, "-np", slots, "-c", context * slots, "--no-webui"]
        self.log = Path(os.environ.get("TMPDIR", "/var/tmp")) / f"serve-{engine}-{self.port}.log"
        with self.log.open("wb") as log:
            # A session of its own has a scheduling group of its own, which can be given precedence.
            self.process = subprocess.Popen(
                [str(part) for part in command], stdout=log, stderr=log, start_new_session=True
            )
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.process.pid}/autogroup").write_text("-10")
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2).read()
                break
            if self.process.poll() is not None:
                raise PeerError(f"{engine} did not start: {self.log.read_text(errors='replace')[-800:]}")
            time.sleep(0.1)
        with contextlib.suppress(Exception):
            listed = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models", timeout=10).read()
            self.model = json.loads(listed)["data"][0]["id"]
        # The first question loads and warms.
        asyncio.run(load.ask(self.port, load.Request("warm", 8), self.model))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.unlink(missing_ok=True)


@contextlib.contextmanager
def serving(*args: object) -> Iterator[Server]:
    server = Server(*args)  # type: ignore[arg-type]
    try:
        yield server
    finally:
        server.stop()


def check(answers: list[load.Answer]) -> list[load.Answer]:
    errors = [a.error for a in answers if a.error]
    if errors:
        raise PeerError(f"{len(errors)} of {len(answers)} requests failed: {errors[0]}")
    return answers


def streams(server: Server, count: int, tokens: int) -> float:
    rounds = 2 if count <= 4 else 1
    return load.aggregate(check(asyncio.run(load.closed(server.port, server.model, count, rounds, 20, tokens))))


async def _prompts_come_in(server: Server, long: int, running: int) -> tuple[list[load.Answer], list[load.Answer], list[load.Answer]]:
    """`running` answers go on while prompts of `long` tokens and short ones come in."""
    port, model = server.port, server.model
    going = [asyncio.create_task(load.ask(port, load.Request(load.words(20, i), 400), model)) for i in range(running)]
    await asyncio.sleep(1.0)
    prompts = [asyncio.create_task(load.ask(port, load.Request(load.words(long, 90 + i), 8), model)) for i in range(2)]
    short = []
    for i in range(6):
        await asyncio.sleep(0.4)
        short.append(asyncio.create_task(load.ask(port, load.Request(load.words(20, 50 + i), 8), model)))
    return await asyncio.gather(*going), await asyncio.gather(*prompts), await asyncio.gather(*short)


def prompts_come_in(server: Server, long: int, running: int) -> dict[str, float]:
    alone = check(asyncio.run(load.closed(server.port, server.model, running, 1, 20, 100)))
    going, prompts, short = asyncio.run(_prompts_come_in(server, long, running))
    check(going + prompts + short)
    gaps = [gap for a in going for gap in a.gaps]
    return {
        "gap_alone_p99_ms": 1e3 * load.percentile([gap for a in alone for gap in a.gaps], 0.99),
        "gap_p99_ms": 1e3 * load.percentile(gaps, 0.99),
        "gap_worst_ms": 1e3 * max(gaps),
        "short_first_p95_ms": 1e3 * load.percentile([a.first for a in short], 0.95),
        "long_first_ms": 1e3 * statistics.median(a.first for a in prompts),
    }


def prefix(server: Server, tokens: int) -> dict[str, float]:
    shared = load.words(tokens, 7)
    def first(seed: int, text: str) -> float:
        question = f"{text} {load.words(10, seed)}"
        return check([asyncio.run(load.ask(server.port, load.Request(question, 2), server.model))])[0].first
    first(1, shared)
    cold = statistics.median(first(i, load.words(tokens, 100 + i)) for i in range(5))
    cached = statistics.median(first(200 + i, shared) for i in range(5))
    return {"cold_ms": 1e3 * cold, "cached_ms": 1e3 * cached}


async def _mix(server: Server, minutes: float, clients: int) -> tuple[list[load.Answer], list[tuple[float, int]]]:
    rng = random.Random(5)
    shared = load.words(300, 11)
    end = time.monotonic() + 60 * minutes
    watched: list[tuple[float, int]] = []

    def request(seed: int) -> load.Request:
        size = rng.choices((20, 500, 4000), (70, 25, 5))[0]
        text = load.words(size, seed)
        return load.Request(
            f"{shared} {text}" if rng.random() < 0.2 else text,
            rng.randint(32, 256),
            give_up=rng.randint(1, 30) if rng.random() < 0.1 else None,
            slow=0.05 if rng.random() < 0.05 else 0.0,
        )

    async def client(index: int) -> list[load.Answer]:
        answers = []
        while time.monotonic() < end:
            answers.append(await load.ask(server.port, request(10_000 * index + len(answers)), server.model))
        return answers

    async def watch() -> None:
        while time.monotonic() < end:
            watched.append((time.monotonic(), memory(server.process.pid)))
            await asyncio.sleep(2)

    *answers, _ = await asyncio.gather(*(client(i) for i in range(clients)), watch())
    return [a for some in answers for a in some], watched


def mix(server: Server, minutes: float, clients: int) -> dict[str, float]:
    answers, watched = asyncio.run(_mix(server, minutes, clients))
    whole = [a for a in answers if not a.error and not a.gave_up and len(a.at) > 8]
    # The first third fills caches.
    late = watched[len(watched) // 3 :]
    slope = (late[-1][1] - late[0][1]) / max(1e-9, late[-1][0] - late[0][0]) if len(late) > 1 else 0.0
    return {
        "requests": len(answers),
        "errors": sum(1 for a in answers if a.error),
        "tok_s": sum(len(a.at) for a in answers) / (60 * minutes),
        "first_p50_ms": 1e3 * load.percentile([a.first for a in whole], 0.5),
        "first_p95_ms": 1e3 * load.percentile([a.first for a in whole], 0.95),
        "gap_p99_ms": 1e3 * load.percentile([g for a in whole for g in a.gaps], 0.99),
        # Slow readers are slow by their own doing.
        "jain": load.fairness([a for a in whole if not a.slow]),
        "anonymous_mb": watched[-1][1] / 1e6,
        "anonymous_kb_per_minute": 60 * slope / 1e3,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="smollm2-135m,qwen2.5-0.5b")
    parser.add_argument("--engines", default="cactus,llama-server")
    parser.add_argument("--only", choices=("streams", "prompts", "prefix", "mix"), action="append")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=1.0, help="length of the mixed load")
    parser.add_argument("--long", type=int, default=4096, help="tokens of the prompts that come in")
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--cactus", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    workshop = Workshop(args.cache, args.cactus)
    engines = args.engines.split(",")
    wanted = args.only or ["streams", "prompts", "prefix", "mix"]
    results: dict[str, dict[str, dict[str, object]]] = {}
    for model in models_named(args.models):
        found: dict[str, dict[str, object]] = {engine: {} for engine in engines}
        results[model.name] = found
        if "streams" in wanted:
            rates: dict[str, dict[int, list[float]]] = {e: {n: [] for n in STREAMS} for e in engines}
            for round_ in range(args.rounds):
                for engine in engines if round_ % 2 == 0 else engines[::-1]:
                    for count in STREAMS:
                        with serving(engine, workshop, model, args.threads, count, 512) as server:
                            rates[engine][count].append(streams(server, count, args.tokens))
                        print(f"{model.name} {engine} {count}: {rates[engine][count][-1]:.0f} tok/s", file=sys.stderr)
            for engine in engines:
                found[engine]["streams"] = {n: statistics.median(r) for n, r in rates[engine].items()}
        for engine in engines:
            if "prompts" in wanted:
                with serving(engine, workshop, model, args.threads, 24, CONTEXT) as server:
                    found[engine]["prompts"] = prompts_come_in(server, args.long, 4)
            if "prefix" in wanted:
                with serving(engine, workshop, model, args.threads, 4, CONTEXT) as server:
                    found[engine]["prefix"] = prefix(server, 1024)
            if "mix" in wanted:
                with serving(engine, workshop, model, args.threads, 16, CONTEXT) as server:
                    found[engine]["mix"] = mix(server, args.minutes, 16)
            print(model.name, engine, json.dumps(found[engine], indent=1), file=sys.stderr)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    tables(results, engines)
    if args.svg and "streams" in wanted:
        panels = [
            chart.Panel(
                f"{name}: tokens a second, all streams",
                [(f"{n} streams" if n > 1 else "1 stream", [found[e]["streams"][n] for e in engines]) for n in STREAMS],
            )
            for name, found in results.items()
        ]
        args.svg.write_text(chart.grouped_bars(panels, engines, 2))
    return 0


def tables(results: dict[str, dict[str, dict[str, object]]], engines: list[str]) -> None:
    for name, found in results.items():
        for part in ("streams", "prompts", "prefix", "mix"):
            rows = {engine: found[engine][part] for engine in engines if part in found[engine]}
            if not rows:
                continue
            print(f"\n| {name}, {part} | " + " | ".join(rows) + " |")
            print("|---|" + "---|" * len(rows))
            for key in next(iter(rows.values())):
                print(f"| {key} | " + " | ".join(f"{row[key]:.3g}" if abs(row[key]) < 10 else f"{row[key]:.0f}" for row in rows.values()) + " |")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PeerError as error:
        sys.exit(str(error))
