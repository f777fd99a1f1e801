"""A client that puts a server under load and times every token: plain sockets, no library, so that it costs the server's
CPUs little. It speaks the part of the OpenAI protocol that all compared servers have."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import time
from collections.abc import Sequence

WORDS = (
    "river stone music garden letter window silver morning engine paper winter bridge story market island candle "
    "forest number harbor teacher question village answer mountain summer coffee station picture doctor weather"
).split()


@dataclasses.dataclass
class Answer:
    """Times in seconds on one clock. `tokens` is what the server says it generated, `at` when each piece came."""

    submitted: float
    at: list[float] = dataclasses.field(default_factory=list)
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    error: str | None = None
    gave_up: bool = False
    slow: bool = False
    ended: float = 0.0

    @property
    def first(self) -> float:
        return self.at[0] - self.submitted if self.at else float("nan")

    @property
    def gaps(self) -> list[float]:
        return [b - a for a, b in zip(self.at, self.at[1:])]


def words(count: int, seed: int) -> str:
    """About `count` tokens of text that no other seed has a prefix of."""
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(count))


@dataclasses.dataclass(frozen=True)
class Request:
    """`prompt` is text or token ids. `give_up` closes the connection after that many pieces, `slow` waits that long before each
    read. With `chat` the prompt is a message, and with `schema` the answer is JSON that satisfies it."""

    prompt: str | tuple[int, ...]
    max_tokens: int
    give_up: int | None = None
    slow: float = 0.0
    temperature: float = 0.0
    chat: bool = False
    schema: str | None = None


async def ask(port: int, request: Request, model: str) -> Answer:
    """One streamed completion. Whatever goes wrong is in `error`."""
    answer = Answer(time.monotonic(), slow=request.slow > 0)
    options: dict[str, object] = {
        "model": model,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": 1,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.chat:
        options["messages"] = [{"role": "user", "content": request.prompt}]
    else:
        options["prompt"] = request.prompt
    if request.schema:
        schema = {"name": "answer", "schema": json.loads(request.schema)}
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    body = json.dumps(options).encode()
    path = "/v1/chat/completions" if request.chat else "/v1/completions"
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    except OSError as e:
        answer.error, answer.ended = str(e), time.monotonic()
        return answer
    try:
        writer.write(head.encode() + body)
        await writer.drain()
        status = await reader.readline()
        if b" 200 " not in status:
            rest = await reader.read(4000)
            answer.error = (status + rest[-300:]).decode(errors="replace")
            return answer
        done = False
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                continue
            now = time.monotonic()
            data = line[6:].strip()
            if data == b"[DONE]":
                done = True
                break
            chunk = json.loads(data)
            if "error" in chunk:
                answer.error = str(chunk["error"])
                return answer
            if usage := chunk.get("usage"):
                answer.tokens = usage["completion_tokens"]
                answer.prompt_tokens = usage["prompt_tokens"]
                answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            if any(choice.get("text") or choice.get("delta", {}).get("content") for choice in chunk.get("choices", [])):
                answer.at.append(now)
                if request.give_up is not None and len(answer.at) >= request.give_up:
                    answer.gave_up = True
                    return answer
            if request.slow:
                await asyncio.sleep(request.slow)
        if not done:
            answer.error = "the stream ended without [DONE]"
        return answer
    except (OSError, ValueError, asyncio.IncompleteReadError) as e:
        answer.error = f"{type(e).__name__}: {e}"
        return answer
    finally:
        answer.ended = time.monotonic()
        writer.close()


async def closed(port: int, model: str, streams: int, rounds: int, prompt_tokens: int, max_tokens: int) -> list[Answer]:
    """`streams` clients, each of which asks the next question when it has its answer, `rounds` times."""

    async def client(index: int) -> list[Answer]:
        return [
            await ask(port, Request(words(prompt_tokens, 1000 * index + i), max_tokens), model) for i in range(rounds)
        ]

    answers = await asyncio.gather(*(client(i) for i in range(streams)))
    return [answer for some in answers for answer in some]


def aggregate(answers: Sequence[Answer]) -> float:
    """Tokens of all answers for each second from the first question to the last answer."""
    begin = min(a.submitted for a in answers)
    end = max(a.ended for a in answers)
    return sum(a.tokens for a in answers) / (end - begin)


def percentile(values: Sequence[float], q: float) -> float:
    """The smallest value that at least `q` of all are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(q * len(ordered) * 1000) // 1000) - 1))] if ordered else float("nan")


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all are equal, 1/n where one has everything."""
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def fairness(answers: Sequence[Answer], seconds: float = 2.0) -> float:
    """Jain's index of the tokens that the streams under way get in the same stretch of time, on average over all stretches: how
    fast all of them go changes with what comes in, which is nobody's unfairness."""
    begin, end = min(a.at[0] for a in answers), max(a.at[-1] for a in answers)
    indexes = []
    while begin + seconds <= end:
        whole = [a for a in answers if a.at[0] <= begin and a.at[-1] >= begin + seconds]
        if len(whole) > 1:
            indexes.append(jain([sum(begin <= t < begin + seconds for t in a.at) for a in whole]))
        begin += seconds
    return sum(indexes) / len(indexes) if indexes else float("nan")
