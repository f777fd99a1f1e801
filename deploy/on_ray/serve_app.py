"""Cactus servers under Ray Serve: several replicas behind one address.

    CACTUS_MODEL=/models/my-model serve run deploy.on_ray.serve_app:app

Settings are environment variables: CACTUS_MODEL (needed), CACTUS_REPLICAS (2), CACTUS_THREADS for each replica (2).

- A conversation stays with one replica, whose prefix cache knows it: requests are routed by `prompt_cache_key`, or by how the
  conversation begins. Where that replica is busy or gone, another takes the request and computes the prefix again.
- A replica is healthy while its server answers. One that is stopped drains first.
- No request is lost when a replica dies. The same question with the same seed has the same tokens on every replica, so an
  answer that breaks off is asked again elsewhere, and goes on at the event where it stopped.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import random
import re
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
from ray import serve
from ray.exceptions import RayError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from .child import Child

log = logging.getLogger("ray.serve")

REPLICAS = int(os.environ.get("CACTUS_REPLICAS", "2"))
THREADS = int(os.environ.get("CACTUS_THREADS", "2"))
# How often a request is asked before its failure is the answer.
ATTEMPTS = 6
# Conversations that a replica is known for.
KEYS = 512
MAX_BODY = 32 << 20
# Ids that a server makes up: they differ when a request is asked again.
IDS = re.compile(rb"\b(?:chatcmpl|cmpl|resp|msg|rs|fc|call|toolu)[-_][A-Za-z0-9]{6,}\b")


@serve.deployment(
    num_replicas=REPLICAS,
    ray_actor_options={"num_cpus": THREADS},
    max_ongoing_requests=64,
    health_check_period_s=5,
    health_check_timeout_s=10,
    graceful_shutdown_timeout_s=60,
)
class Replica:
    """One server, and the way to it."""

    def __init__(self, model: str, threads: int):
        self.child = Child(model, threads)
        # A replica without its server is none: Ray starts another.
        threading.Thread(target=self.end_with_server, daemon=True).start()
        self.client = httpx.AsyncClient(base_url=self.child.url, timeout=httpx.Timeout(600, connect=10))

    def end_with_server(self) -> None:
        self.child.process.wait()
        if not self.child.stopping:
            os._exit(1)

    def check_health(self) -> None:
        if not self.child.is_alive():
            raise RuntimeError("the server of this replica has ended")

    def __del__(self) -> None:
        if child := getattr(self, "child", None):
            child.stop()

    @serve.multiplexed(max_num_models_per_replica=KEYS)
    async def known(self, key: str) -> str:
        """Tells the router that this replica has seen the conversation."""
        return key

    async def ask(self, method: str, path: str, body: bytes) -> AsyncIterator[Any]:
        """First status and content type, then the bytes of the answer as they come: whole events of a stream."""
        if key := serve.get_multiplexed_model_id():
            await self.known(key)
        request = self.client.build_request(method, path, content=body, headers={"content-type": "application/json"})
        answer = await self.client.send(request, stream=True)
        try:
            yield answer.status_code, answer.headers.get("content-type", "application/json")
            # Lines are what an event stream and NDJSON have in common; pings are nobody's answer.
            end = b"\n" if "ndjson" in answer.headers.get("content-type", "") else b"\n\n"
            rest = b""
            async for part in answer.aiter_bytes():
                *whole, rest = (rest + part).split(end)
                for event in whole:
                    if not event.startswith(b":"):
                        yield event + end
            if rest:
                yield rest
        finally:
            # Whoever goes away cancels the request.
            await answer.aclose()


def routing_key(request: dict[str, Any]) -> str:
    """What requests of one conversation have in common."""
    if key := request.get("prompt_cache_key"):
        return str(key)
    begin = request.get("messages") or request.get("input") or request.get("prompt") or ""
    if isinstance(begin, list):
        # Instructions and the first question stay as the conversation grows.
        begin = begin[:2]
    text = json.dumps([request.get("model"), request.get("system"), request.get("instructions"), begin])[:4096]
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def with_seed(fields: dict[str, Any], path: str) -> dict[str, Any]:
    """The request with a seed, so that every replica draws the same tokens."""
    holder = fields
    if path.startswith("/api/"):
        options = fields.setdefault("options", {})
        holder = options if isinstance(options, dict) else fields
    if holder.get("seed") is None:
        holder["seed"] = random.getrandbits(31)
    return fields


class Said:
    """What a client has of an answer, to go on with the same answer from elsewhere."""

    def __init__(self) -> None:
        self.events = 0
        self.started = False
        self.ids: list[bytes] = []
        self.begin()

    def begin(self) -> None:
        """Another replica begins the answer anew."""
        self.seen, self.theirs = 0, []

    def next(self, event: bytes) -> bytes | None:
        """The event as the client is to see it; None for one that it has."""
        self.theirs.extend(i for i in dict.fromkeys(IDS.findall(event)) if i not in self.theirs)
        self.ids.extend(self.theirs[len(self.ids) :])
        self.seen += 1
        if self.seen <= self.events:
            return None
        self.events = self.seen
        for theirs, ours in zip(self.theirs, self.ids):
            event = event.replace(theirs, ours)
        return event


@serve.deployment(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=1000)
class Router:
    """Gives requests to replicas, and again to another where one dies."""

    def __init__(self, replicas: Any):
        self.replicas = replicas.options(stream=True)

    async def __call__(self, request: Request) -> Response:
        body, path, key = await request.body(), request.url.path, ""
        if len(body) > MAX_BODY:
            return failure(413, f"the request has more than {MAX_BODY >> 20} MiB")
        if body:
            try:
                fields = json.loads(body)
            except ValueError as error:
                return failure(400, f"the body is not JSON: {error}")
            if isinstance(fields, dict):
                key = routing_key(fields)
                body = json.dumps(with_seed(fields, path)).encode()
        if request.url.query:
            path = f"{path}?{request.url.query}"
        answer = self.answer(key, request.method, path, body)
        status, content_type = await anext(answer)
        if content_type.startswith(("text/event-stream", "application/x-ndjson")):
            headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
            return StreamingResponse(answer, status, headers, content_type)
        return Response(b"".join([part async for part in answer]), status, media_type=content_type)

    async def answer(self, key: str, method: str, path: str, body: bytes) -> AsyncIterator[Any]:
        """Status and content type, then the events that a replica says, for as many replicas as it takes."""
        said = Said()
        for attempt in range(ATTEMPTS):
            # After a failure, whoever is there.
            first = key and attempt == 0
            replicas = self.replicas.options(multiplexed_model_id=key) if first else self.replicas
            said.begin()
            try:
                async for part in replicas.ask.remote(method, path, body):
                    if isinstance(part, tuple):
                        if not said.started:
                            said.started = True
                            yield part
                    elif (event := said.next(part)) is not None:
                        yield event
                return
            except (RayError, httpx.HTTPError, OSError) as error:
                log.warning("a replica failed after %d events: %s", said.events, error)
                if attempt + 1 == ATTEMPTS:
                    raise
                await asyncio.sleep(0.2 * 2**attempt)


def failure(status: int, message: str) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"error": error}, status)


def build(model: str, threads: int = THREADS) -> serve.Application:
    return Router.bind(Replica.bind(model, threads))


if "CACTUS_MODEL" in os.environ:
    app = build(os.environ["CACTUS_MODEL"])
