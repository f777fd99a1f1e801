#!/usr/bin/env python3
"""Our server beside llama-server: many streams, prompts that come in while others are answered, shared prefixes, a mixed load.
And our server beside itself: what masks cost, and what HTTP costs.

    benches/serve.py                        # both servers, SmolLM2-135M and Qwen2.5 0.5B, about 20 minutes
    benches/serve.py --models smollm2-135m --only streams
    benches/serve.py --models smollm2-135m --only busy --engines cactus       # first token of short prompts, 16 streams running
    benches/serve.py --only mix --minutes 5 --engines cactus
    benches/serve.py --only masks --only http                                 # both are of Cactus alone

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

PARTS = ("streams", "prompts", "busy", "prefix", "mix", "masks", "http")
STREAMS = (1, 4, 16, 32)
CONTEXT = 8192

# Long enough for any number of tokens: what a service asks for, and free text, where no token is forced.
RECORDS = {
    "type": "array",
    "minItems": 200,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "kind": {"enum": ["person", "place", "thing"]},
            "count": {"type": "integer", "minimum": 0, "maximum": 1000},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 1, "maxItems": 3},
            "known": {"type": "boolean"},
        },
        "required": ["name", "kind", "count", "tags", "known"],
        "additionalProperties": False,
    },
}
TEXT = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 4000}},
    "required": ["text"],
    "additionalProperties": False,
}


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


def precedence(process: subprocess.Popen) -> None:
    """Lets a process in a session of its own go before other work on the machine, where the system lets us."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process.pid}/autogroup").write_text("-10")


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
        precedence(self.process)
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


async def _prompts_come_in(
    server: Server, long: int, running: int, shorts: int
) -> tuple[list[load.Answer], list[load.Answer], list[load.Answer]]:
    """`running` answers go on while two prompts of `long` tokens and `shorts` short ones come in, these within 2.4 seconds."""
    port, model = server.port, server.model
    going = [asyncio.create_task(load.ask(port, load.Request(load.words(20, i), 400), model)) for i in range(running)]
    await asyncio.sleep(1.0)
    prompts = [asyncio.create_task(load.ask(port, load.Request(load.words(long, 90 + i), 8), model)) for i in range(2)]
    short = []
    for i in range(shorts):
        await asyncio.sleep(2.4 / shorts)
        short.append(asyncio.create_task(load.ask(port, load.Request(load.words(20, 50 + i), 8), model)))
    return await asyncio.gather(*going), await asyncio.gather(*prompts), await asyncio.gather(*short)


def prompts_come_in(server: Server, long: int, running: int, shorts: int) -> dict[str, float]:
    alone = check(asyncio.run(load.closed(server.port, server.model, running, 1, 20, 100)))
    going, prompts, short = asyncio.run(_prompts_come_in(server, long, running, shorts))
    check(going + prompts + short)
    gaps = [gap for a in going for gap in a.gaps]
    return {
        "gap_alone_p99_ms": 1e3 * load.percentile([gap for a in alone for gap in a.gaps], 0.99),
        "gap_p99_ms": 1e3 * load.percentile(gaps, 0.99),
        "gap_worst_ms": 1e3 * max(gaps),
        "short_first_p50_ms": 1e3 * load.percentile([a.first for a in short], 0.5),
        "short_first_p95_ms": 1e3 * load.percentile([a.first for a in short], 0.95),
        "long_first_ms": 1e3 * statistics.median(a.first for a in prompts),
    }


def masks(server: Server, tokens: int, rounds: int) -> dict[str, float]:
    """Tokens a second of one answer of `tokens` tokens, free and under schemas, greedy and drawn, from the question to the last
    token: tokens that a schema forces may come with the first. All of them alternate, since the speed of a machine drifts."""
    cases = {
        f"{name}_{drawn}": load.Request(
            "Write a list of things that you know.", tokens, temperature=temperature, chat=True, schema=schema
        )
        for drawn, temperature in (("greedy", 0.0), ("drawn", 0.8))
        for name, schema in (("free", None), ("records", json.dumps(RECORDS)), ("text", json.dumps(TEXT)))
    }
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for round_ in range(rounds + 1):
        for name in list(cases) if round_ % 2 == 0 else list(cases)[::-1]:
            answer = check([asyncio.run(load.ask(server.port, cases[name], server.model))])[0]
            if answer.tokens != tokens:
                raise PeerError(f"{name}: {answer.tokens} tokens instead of {tokens}")
            # The first round warms: prompts are cached from then on, and schemas compiled.
            if round_ > 0:
                rates[name].append(tokens / (answer.at[-1] - answer.submitted))
    found = {f"{name}_tok_s": statistics.median(of) for name, of in rates.items()}
    for drawn in ("greedy", "drawn"):
        for name in ("records", "text"):
            ratios = [with_ / free for with_, free in zip(rates[f"{name}_{drawn}"], rates[f"free_{drawn}"])]
            found[f"{name}_{drawn}_to_free"] = statistics.median(ratios)
    return found


def http(workshop: Workshop, model: Model, threads: int, tokens: int, rounds: int) -> dict[str, float]:
    """Tokens a second of one stream over HTTP, and of `cactus bench --streams 1` with the same prompt, in turn. Both count the
    tokens from the first one on until the last."""
    bundle, streams = workshop.bundle(model, 8), 1
    command = [workshop.cactus(), "bench", bundle, "--prefill", 0, "--decode", tokens, "--streams", streams, "--reps", 1]
    command += ["--threads", threads, "--json"]

    def alone() -> float:
        process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True, start_new_session=True)
        precedence(process)
        out, _ = process.communicate()
        if process.returncode:
            raise PeerError(f"`cactus bench` ended with exit code {process.returncode}")
        return next(row["tok_s_median"] for row in json.loads(out)["rows"] if row["name"] == "streams-1")

    # `cactus bench` makes up its prompts from the size of the vocabulary, and goes on for four more tokens.
    described = subprocess.run([str(workshop.cactus()), "inspect", str(bundle), "--json"], check=True, capture_output=True, text=True)
    vocab = json.loads(described.stdout)["vocab_size"]
    request = load.Request(tuple(i * 7919 % vocab for i in range(16)), tokens + 4)
    rates: dict[str, list[float]] = {"http": [], "alone": []}
    with serving("cactus", workshop, model, threads, 1, 2048) as server:
        for round_ in range(2 * rounds):
            for way in ("http", "alone") if round_ % 2 == 0 else ("alone", "http"):
                if way == "alone":
                    rates[way].append(alone())
                    continue
                answer = check([asyncio.run(load.ask(server.port, request, server.model))])[0]
                rates[way].append(answer.tokens / (answer.at[-1] - answer.at[0]))
    found = {f"{way}_tok_s": statistics.median(of) for way, of in rates.items()}
    found["http_to_alone"] = statistics.median(a / b for a, b in zip(rates["http"], rates["alone"]))
    return found


def prefix(server: Server, tokens: int) -> dict[str, float]:
    shared = load.words(tokens, 7)
    def first(seed: int, text: str) -> float:
        question = f"{text} {load.words(10, seed)}"
        return check([asyncio.run(load.ask(server.port, load.Request(question, 2), server.model))])[0].first
    first(1, shared)
    cold = statistics.median(first(i, load.words(tokens, 100 + i)) for i in range(5))
    cached = statistics.median(first(200 + i, shared) for i in range(5))
    return {"cold_ms": 1e3 * cold, "cached_ms": 1e3 * cached}


async def _mix(
    server: Server, minutes: float, clients: int, rate: float | None
) -> tuple[list[load.Answer], list[tuple[float, int]]]:
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

    async def arrivals(rate: float) -> list[load.Answer]:
        """Whoever comes does not wait for others: times between are exponential."""
        tasks = []
        while time.monotonic() < end:
            tasks.append(asyncio.create_task(load.ask(server.port, request(len(tasks)), server.model)))
            await asyncio.sleep(rng.expovariate(rate))
        return await asyncio.gather(*tasks)

    async def watch() -> None:
        while time.monotonic() < end:
            watched.append((time.monotonic(), memory(server.process.pid)))
            await asyncio.sleep(2)

    asked = [arrivals(rate)] if rate else [client(i) for i in range(clients)]
    *answers, _ = await asyncio.gather(*asked, watch())
    return [a for some in answers for a in some], watched


def mix(server: Server, minutes: float, clients: int, rate: float | None) -> dict[str, float]:
    before = time.process_time()
    answers, watched = asyncio.run(_mix(server, minutes, clients, rate))
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
        "client_cpu": (time.process_time() - before) / (60 * minutes),
        "anonymous_mb": watched[-1][1] / 1e6,
        "anonymous_kb_per_minute": 60 * slope / 1e3,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="smollm2-135m,qwen2.5-0.5b")
    parser.add_argument("--engines", default="cactus,llama-server")
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=1.0, help="length of the mixed load")
    parser.add_argument("--rate", type=float, help="in the mixed load, so many requests a second come at random [default: 16 clients in turn]")
    parser.add_argument("--long", type=int, default=4096, help="tokens of the prompts that come in")
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--cactus", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    workshop = Workshop(args.cache, args.cactus)
    engines = args.engines.split(",")
    wanted = args.only or list(PARTS)
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
                    found[engine]["prompts"] = prompts_come_in(server, args.long, 4, 6)
            if "busy" in wanted:
                with serving(engine, workshop, model, args.threads, 24, CONTEXT) as server:
                    found[engine]["busy"] = prompts_come_in(server, args.long, 16, 24)
            if "prefix" in wanted:
                with serving(engine, workshop, model, args.threads, 4, CONTEXT) as server:
                    found[engine]["prefix"] = prefix(server, 1024)
            if "mix" in wanted:
                with serving(engine, workshop, model, args.threads, 16, CONTEXT) as server:
                    found[engine]["mix"] = mix(server, args.minutes, 16, args.rate)
            if "masks" in wanted and engine == "cactus":
                with serving(engine, workshop, model, args.threads, 1, 2048) as server:
                    found[engine]["masks"] = masks(server, 2 * args.tokens, args.rounds)
            if "http" in wanted and engine == "cactus":
                found[engine]["http"] = http(workshop, model, args.threads, 2 * args.tokens, args.rounds)
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
        for part in PARTS:
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
