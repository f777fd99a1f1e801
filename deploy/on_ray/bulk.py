"""Bulk work over data sets with Ray Data: chat with every row, or score its text.

    python -m deploy.on_ray.bulk --model /models/my-model --in questions.jsonl --out answers/ --column question
    python -m deploy.on_ray.bulk --model /models/my-model --in texts.parquet --out scores/ --column text --task score

Each actor has a server of its own and gives it a batch at a time, whose rows it computes together. A server or an actor that dies
is started again and its batch asked again: no row is lost, and none comes twice.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import json
import sys
import urllib.error
import urllib.request
from typing import Any

import ray

from .child import Child

# How often a batch is asked before its failure is the job's.
ATTEMPTS = 4


class Asker:
    """An actor that answers batches."""

    def __init__(self, model: str, threads: int, task: str, column: str, options: dict[str, Any]):
        self.start = lambda: Child(model, threads)
        self.child = self.start()
        self.task, self.column, self.options = task, column, options

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        texts = [str(text) for text in batch[self.column]]
        for _ in range(ATTEMPTS - 1):
            try:
                return self.answer(batch, texts)
            except (OSError, http.client.HTTPException):
                # Its server has ended. An error that it answered with is no reason to ask again.
                self.child.stop(0)
                self.child = self.start()
        return self.answer(batch, texts)

    def answer(self, batch: dict[str, Any], texts: list[str]) -> dict[str, Any]:
        with concurrent.futures.ThreadPoolExecutor(max(1, len(texts))) as pool:
            rows = list(pool.map(self.score if self.task == "score" else self.chat, texts))
        return {**batch, **{name: [row[name] for row in rows] for name in rows[0]}} if rows else batch

    def chat(self, text: str) -> dict[str, Any]:
        answer = self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **self.options})
        choice = answer["choices"][0]
        return {
            "answer": choice["message"]["content"] or "",
            "finish_reason": choice["finish_reason"],
            "completion_tokens": answer["usage"]["completion_tokens"],
        }

    def score(self, text: str) -> dict[str, Any]:
        """Log-likelihood of the text after its first token."""
        request = {"prompt": text, "max_tokens": 0, "echo": True, "logprobs": 0}
        logprobs = self.post("/v1/completions", request)["choices"][0]["logprobs"]["token_logprobs"]
        known = [p for p in logprobs if p is not None]
        return {"logprob": sum(known), "tokens": len(known)}

    def post(self, path: str, fields: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            self.child.url + path, json.dumps(fields).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.code} {error.read(2000).decode(errors='replace')}") from error


def run(
    rows: ray.data.Dataset,
    model: str,
    column: str,
    task: str = "chat",
    actors: int = 1,
    threads: int = 2,
    batch: int = 16,
    options: dict[str, Any] | None = None,
) -> ray.data.Dataset:
    """`rows` with the answers (`answer`, `finish_reason`, `completion_tokens`) or scores (`logprob`, `tokens`) beside them."""
    return rows.map_batches(
        Asker,
        fn_constructor_args=(model, threads, task, column, options or {}),
        batch_size=batch,
        num_cpus=threads,
        compute=ray.data.ActorPoolStrategy(size=actors),
        max_restarts=-1,
        max_task_retries=-1,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="bundle folder or name of a known model, on every node")
    parser.add_argument("--in", dest="source", required=True, help="JSON lines, CSV or Parquet: a file or a folder")
    parser.add_argument("--out", required=True, help="folder for Parquet files")
    parser.add_argument("--column", required=True)
    parser.add_argument("--task", choices=("chat", "score"), default="chat")
    parser.add_argument("--actors", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="threads of each actor")
    parser.add_argument("--batch", type=int, default=16, help="rows that an actor computes together")
    parser.add_argument("--max-tokens", type=int, default=256)
    args = parser.parse_args()
    kind = "csv" if ".csv" in args.source else "parquet" if ".parquet" in args.source else "json"
    rows = getattr(ray.data, f"read_{kind}")(args.source)
    options = {"max_tokens": args.max_tokens, "temperature": 0}
    run(rows, args.model, args.column, args.task, args.actors, args.threads, args.batch, options).write_parquet(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
