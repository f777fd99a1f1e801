#!/usr/bin/env python3
"""Asks a running `cactus serve` the questions of a set, several at a time, and judges the answers as `cactus eval` does.

What a person would measure by hand: how many answers are right, who gave them, what they cost and how long they took.

    cactus serve coder-1.5b --port 8091                        # the target
    benches/routed.py delay --to 8091 --port 8092              # a vendor's distance before it
    cactus serve coder-0.5b --policy policy.toml --port 8093   # the router
    benches/routed.py ask --port 8093 --model auto --set bfcl BFCL_v4_multiple.json possible_answer/BFCL_v4_multiple.json \\
        --limit 100 --out routed.json

It goes on where `--out` ends; SIGTERM ends it after what is under way. With `--record FILE` (the decisions.jsonl of a server whose
policy has a target with an input price of 0) each answer also gets the statistics that the router judged it by, and `--setup FILE`
(what `cactus calibrate --results` saved for the same bundle) makes the output one that `cactus calibrate --also` learns from: many
answers at once cost a fifth of one after another.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import http.server
import json
import re
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TYPES = {
    **dict.fromkeys(("dict", "HashMap", "Hashtable"), "object"),
    **dict.fromkeys(("float", "double"), "number"),
    **dict.fromkeys(("tuple", "ArrayList", "Array", "list"), "array"),
    **dict.fromkeys(("long", "short", "byte", "Bigint"), "integer"),
    **dict.fromkeys(("String", "char", "any"), "string"),
    "Boolean": "boolean",
}


def schema(value: object) -> object:
    """The set's names of types as JSON Schema has them."""
    if isinstance(value, dict):
        return {k: TYPES.get(v, v) if k == "type" and isinstance(v, str) else schema(v) for k, v in value.items()}
    return [schema(v) for v in value] if isinstance(value, list) else value


def plain(text: str) -> str:
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')


def equal(allowed: object, value: object) -> bool:
    if isinstance(allowed, bool) or isinstance(value, bool):
        return allowed is value
    if isinstance(allowed, str) and isinstance(value, str):
        return plain(allowed) == plain(value)
    if isinstance(allowed, list) and isinstance(value, list):
        return len(allowed) == len(value) and all(map(equal, allowed, value))
    if isinstance(allowed, dict) and isinstance(value, dict) and all(isinstance(v, list) for v in allowed.values()):
        return allows(allowed, value)
    return allowed == value


def allows(allowed: dict, given: dict) -> bool:
    """Every argument one of its allowed values; one is left out only where an empty text is allowed."""
    return all(k in given or "" in values for k, values in allowed.items()) and all(
        k in allowed and any(equal(a, v) for a in allowed[k]) for k, v in given.items()
    )


def calls_right(expected: list[dict], calls: list[tuple[str, dict]]) -> bool:
    left = list(calls)
    for call in expected:
        ((name, arguments),) = call.items()
        fits = (c for c in left if c[0] in (name, name.replace(".", "_")) and allows(arguments, c[1]))
        found = next(fits, None)
        if found is None:
            return False
        left.remove(found)
    return not left


NUMBER = re.compile(r"(?:(?:(?<=^)|(?<=[\s(=*:$]))-)?\$?\d[\d,.]*", re.MULTILINE)


def final_number(text: str) -> str | None:
    """The number on the last line that is `####` and a number, else the one in the last `\\boxed{}`, else the last one."""
    marked = [line.split("####", 1)[1] for line in text.splitlines() if "####" in line]
    bare = [m for m in marked if re.fullmatch(r"[\d$€£\-.,% ]*\d[\d$€£\-.,% ]*", m.strip())]
    boxed = NUMBER.findall(text.rpartition("\\boxed{")[2].partition("}")[0]) if "\\boxed{" in text else []
    numbers = NUMBER.findall(bare[-1]) if bare else boxed or NUMBER.findall(text)
    if not numbers:
        return None
    digits = numbers[-1].replace("$", "").replace(",", "").rstrip(".")
    whole, _, part = digits.partition(".")
    sign, whole = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
    whole, part = whole.lstrip("0") or "0", part.rstrip("0")
    value = f"{whole}.{part}" if part else whole
    return value if value == "0" else sign + value


def questions(task: str, data: Path, answers: Path | None) -> list[dict]:
    """Id, request, and whether an answer is right."""
    rows = [json.loads(line) for line in data.read_text().splitlines() if line.strip()]
    if task == "gsm8k":
        return [
            {
                "id": str(row.get("id", f"line {i + 1}")),
                "group": None,
                "request": {"messages": [{"role": "user", "content": row.get("question") or row["prompt"]}]},
                "right": lambda message, want=final_number(str(row.get("expected") or row["answer"])): (
                    final_number(message.get("content") or "") == want
                ),
            }
            for i, row in enumerate(rows)
        ]
    assert answers is not None, "the set of calls needs its file of answers"
    allowed = {row["id"]: row["ground_truth"] for row in map(json.loads, answers.read_text().splitlines())}

    def judged(expected: list[dict]):
        def right(message: dict) -> bool:
            try:
                calls = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message["tool_calls"]]
            except (KeyError, TypeError, ValueError):
                return False
            return calls_right(expected, calls)

        return right

    return [
        {
            "id": row["id"],
            "group": next(iter(allowed[row["id"]][0])),
            "request": {
                "messages": row["question"][0],
                "tools": [{"type": "function", "function": schema(f)} for f in row["function"]],
                "tool_choice": "required",
                "parallel_tool_calls": False,
            },
            "right": judged(allowed[row["id"]]),
        }
        for row in rows
    ]


def post(port: int, body: dict) -> dict:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    if response.status != 200:
        return {"error": text.decode(errors="replace")}
    return json.loads(text)


def ask(options: argparse.Namespace) -> int:
    task, data, *rest = options.set
    asked = questions(task, Path(data), Path(rest[0]) if rest else None)[options.skip :][: options.limit]
    out = Path(options.out)
    done = {case["id"]: case for case in json.loads(out.read_text())["cases"]} if out.exists() else {}
    lock = threading.Lock()
    left = iter([q for q in asked if q["id"] not in done])
    skip = len(options.record.read_text().splitlines()) if options.record and options.record.exists() else 0
    told: dict[int, list[str]] = {}

    # What is under way is finished, so that nothing is lost.
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    def worker(slot: int) -> None:
        limit = options.max_tokens + slot
        while True:
            with lock:
                question = None if stopped.is_set() else next(left, None)
            if question is None:
                return
            begun = time.perf_counter()
            reply = post(options.port, {"model": options.model, "temperature": 0, "max_tokens": limit, **question["request"]})
            seconds = time.perf_counter() - begun
            if "error" in reply and options.record:
                raise SystemExit(f"{question['id']}: {reply['error']}")
            message = reply["choices"][0]["message"] if "choices" in reply else {"content": reply["error"]}
            case = {"id": question["id"], "correct": question["right"](message), "answer": json.dumps(message)}
            case["group"] = question["group"]
            case["seconds"] = round(seconds, 3)
            case["usage"] = reply.get("usage", {})
            case["cactus"] = reply.get("cactus", {})
            with lock:
                done[case["id"]] = case
                told.setdefault(limit, []).append(case["id"])
                save()

    def save() -> None:
        order = [q["id"] for q in asked if q["id"] in done]
        whole = {"setup": {"task": task}, "cases": [done[i] for i in order]}
        part = out.with_suffix(".part")
        part.write_text(json.dumps(whole))
        part.replace(out)

    begun = time.perf_counter()
    with ThreadPoolExecutor(options.workers) as pool:
        for future in [pool.submit(worker, slot) for slot in range(options.workers)]:
            future.result()
    elapsed = time.perf_counter() - begun
    if options.record:
        gather(done, told, options.record.read_text().splitlines()[skip:])
        save()
    right = sum(case["correct"] for case in done.values())
    print(f"{right} of {len(done)} right, {elapsed:.1f} s for all that were asked now")
    if options.setup:
        learned(out, options)
    return 0


# Pico-dollars of an output token at the price that this program asks for, $0.50 for a million.
PICO = 500_000


def gather(done: dict[str, dict], told: dict[int, list[str]], lines: list[str]) -> None:
    """Each worker has a limit of tokens of its own, and one request at a time: the worst case that a record says is its own."""
    records: dict[int, list[dict]] = {}
    for record in map(json.loads, lines):
        records.setdefault(record["worst_case"] // PICO, []).append(record)
    for limit, ids in told.items():
        found = records.get(limit, [])
        if len(found) != len(ids):
            raise SystemExit(f"{len(ids)} requests with a limit of {limit} tokens, {len(found)} records of them")
        for i, record in zip(ids, found, strict=True):
            usage = done[i]["usage"]
            features = record["features"]
            seen = [{"tokens": record["tokens"], "values": record["tokens"], "features": features}] if features else []
            done[i]["gathered"] = {
                "prompt_tokens": usage["prompt_tokens"],
                "answer_tokens": usage["completion_tokens"],
                "seen": seen,
            }


def learned(out: Path, options: argparse.Namespace) -> None:
    """Writes what was asked as `cactus calibrate` reads it."""
    whole = json.loads(out.read_text())
    setup = json.loads(options.setup.read_text())["setup"]
    files = b"".join(Path(f).read_bytes() for f in options.set[1:])
    cases = [
        {k: case[k] for k in ("id", "correct", "answer", "group", "gathered") if case.get(k) is not None} for case in whole["cases"]
    ]
    tools = options.set[0] == "bfcl"
    setup |= {"task": options.set[0], "data": hashlib.sha256(files).hexdigest()[:16], "cases": len(cases)}
    setup |= {"max_tokens": options.max_tokens, "constrained": tools, "one_call": tools, "signals": True}
    right = sum(case["correct"] for case in cases)
    share = right / len(cases)
    document = {"version": 1, "setup": setup, "correct": right, "accuracy": share}
    document |= {"error": (share * (1 - share) / len(cases)) ** 0.5, "cases": cases}
    out.with_suffix(".learned.json").write_text(json.dumps(document))


def report(options: argparse.Namespace) -> int:
    """What was taken, of the questions that all runs asked."""
    runs = {}
    for named in options.run_files:
        name, _, file = named.partition("=")
        runs[name] = {case["id"]: case for case in json.loads(Path(file).read_text())["cases"]}
    shared = set.intersection(*(set(cases) for cases in runs.values()))
    print(f"| {len(shared)} questions | right | answered by the target | $ for 1,000 | s, mean | median | 95 of 100 within |")
    print("|---|---|---|---|---|---|---|")
    for name, cases in runs.items():
        part = [cases[i] for i in shared]
        n = len(part)
        right = sum(case["correct"] for case in part) / n
        away = sum(case["cactus"].get("answered_by") not in (None, "local") for case in part) / n
        cost = 1000 * sum(case["cactus"].get("cost_usd", 0.0) for case in part) / n
        times = sorted(case["seconds"] for case in part)
        print(
            f"| {name} | {100 * right:.1f} % | {100 * away:.0f} % | {cost:.4f} | {sum(times) / n:.2f} | {times[n // 2]:.2f} | "
            f"{times[min(n - 1, n * 95 // 100)]:.2f} |"
        )
    return 0


def delay(options: argparse.Namespace) -> int:
    """Hands requests on to a server of this machine, and answers no sooner than a vendor would: so long to the first token, and so
    many tokens a second after it. A server that takes longer by itself is not made slower."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            begun = time.perf_counter()
            body = self.rfile.read(int(self.headers["content-length"]))
            connection = http.client.HTTPConnection("127.0.0.1", options.to, timeout=3600)
            connection.request("POST", self.path, body, {"content-type": "application/json"})
            response = connection.getresponse()
            if "event-stream" in response.getheader("content-type", ""):
                self.stream(response, begun)
                return
            text = response.read()
            tokens = json.loads(text).get("usage", {}).get("completion_tokens", 0) if response.status == 200 else 0
            time.sleep(max(0.0, begun + options.first + tokens / options.rate - time.perf_counter()))
            self.send_response(response.status)
            self.send_header("content-type", response.getheader("content-type", "application/json"))
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def stream(self, response: http.client.HTTPResponse, begun: float) -> None:
            self.send_response(response.status)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            events = 0
            for line in response:
                if line.startswith(b"data:"):
                    time.sleep(max(0.0, begun + options.first + events / options.rate - time.perf_counter()))
                    events += 1
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    asking = commands.add_parser("ask", help="ask a server")
    asking.add_argument("--port", type=int, required=True)
    asking.add_argument("--model", required=True, help="auto, local, cloud:NAME, or a name of the server's")
    asking.add_argument("--set", nargs="+", required=True, metavar="FILE", help="gsm8k or bfcl, its file, its file of answers")
    asking.add_argument("--skip", type=int, default=0)
    asking.add_argument("--limit", type=int)
    asking.add_argument("--workers", type=int, default=1, help="requests at a time (%(default)s)")
    asking.add_argument("--max-tokens", type=int, default=192)
    asking.add_argument("--record", type=Path, metavar="FILE")
    asking.add_argument("--setup", type=Path, metavar="FILE")
    asking.add_argument("--out", required=True)
    asking.set_defaults(run=ask)
    telling = commands.add_parser("report", help="a table of several outputs of `ask`")
    telling.add_argument("run_files", nargs="+", metavar="NAME=FILE")
    telling.set_defaults(run=report)
    far = commands.add_parser("delay", help="a vendor's distance before a server of this machine")
    far.add_argument("--port", type=int, required=True)
    far.add_argument("--to", type=int, required=True)
    far.add_argument("--first", type=float, default=0.6, help="seconds to the first token (%(default)s)")
    far.add_argument("--rate", type=float, default=80.0, help="tokens a second after it (%(default)s)")
    far.set_defaults(run=delay)
    options = parser.parse_args(arguments)
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
