#!/usr/bin/env python3
"""What an SDK's streaming costs: CPU time for each event, beside the engine's own.

    python3 sdks/conformance/overhead.py --only c,cpp,node

Each runner streams some answers, and then some more; the difference is without start and warm-up. From it goes what the same answers cost
through C where nobody reads their events, which is the engine alone. What is left is what the SDK and its runner do with an event: fetch it, read
its JSON, hand it over, keep it and write it down. At 200 tokens a second a token takes 5,000 microseconds, of which an SDK may use 2 %.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
from pathlib import Path

import materials
import run

#: Microseconds of a token at 200 tokens a second, and the share of it that an SDK may use.
TOKEN, SHARE = 5000.0, 0.02
TOKENS = 400


def plan(streams: int, op: str) -> dict:
    """A case with so many answers, each of its own text."""
    steps: list[dict] = [{"op": "load", "source": "${chat}", "options": {"context_tokens": 2048, "threads": 1}, "as": "m"}]
    for number in range(streams):
        options = {"max_tokens": TOKENS, "temperature": 1.0, "seed": number, "ignore_eos": True}
        steps.append({"op": op, "on": "m", "request": {"prompt": f"Count to {number}:", "options": options}})
    return {"name": "overhead", "what": "many events", "steps": steps}


def cpu(name: str, case: dict, made: materials.Materials, arguments: argparse.Namespace) -> tuple[float, int]:
    """Seconds of CPU of a runner and of what it starts, and how many events it wrote down."""
    work = made.work_of(name)
    plan_file, results = work / "plan.json", work / "results.jsonl"
    plan_file.write_text(json.dumps({"cases": [made.fill(name, case)]}))
    results.unlink(missing_ok=True)
    command = [*run.RUNNERS[name], str(plan_file), str(results)]
    program = shutil.which(command[0]) or str(run.ROOT / command[0])
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(run.ROOT)
            log = os.open(work / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.execve(program, command, run.environment(arguments, work))
        finally:
            os._exit(127)
    _, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        said = (work / "log.txt").read_text(errors="replace").splitlines()
        raise RuntimeError(f"{name} ended with {code}: {said[-1] if said else ''}")
    written = json.loads(results.read_text().splitlines()[-2])["results"]
    for result in written:
        if "error" in result or "absent" in result:
            raise RuntimeError(f"{name}: {result}")
    return used.ru_utime + used.ru_stime, sum(len(result.get("events", ())) for result in written)


def main() -> int:
    # Whoever stops it leaves no disk mounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--cactus", type=Path)
    parser.add_argument("--prefix", type=Path, default=os.environ.get("CACTUS_PREFIX"))
    parser.add_argument("--lib", type=Path, default=os.environ.get("CACTUS_LIB_PATH"))
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement, of which the median counts")
    parser.add_argument("--streams", type=int, default=20, help="answers in the longer plan")
    arguments = parser.parse_args()
    target = Path(os.environ.get("CARGO_TARGET_DIR", run.ROOT / "target"))
    cactus = (arguments.cactus or target / "debug" / "cactus").resolve()
    arguments.prefix = arguments.prefix and Path(arguments.prefix).resolve()
    arguments.lib = arguments.lib and Path(arguments.lib).resolve()
    kept = materials.kept()
    arguments.build = kept / "build" / run.library(arguments)
    arguments.build.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="cactus-overhead-"))
    few, many = 4, 4 + arguments.streams
    slow = False
    try:
        with materials.Materials(run.ROOT, cactus, kept / "bundles", work) as made:

            def cost(name: str, op: str) -> tuple[float, int]:
                """Microseconds of CPU for what the longer plan has more, and how many events that are."""
                cpu(name, plan(1, op), made, arguments)
                found = []
                for _ in range(arguments.rounds):
                    (short, _), (long, events) = cpu(name, plan(few, op), made, arguments), cpu(name, plan(many, op), made, arguments)
                    found.append((long - short) * 1e6)
                return statistics.median(found), events * arguments.streams // many

            engine, _ = cost("c", "respond")
            tokens = TOKENS * arguments.streams
            print(f"the engine alone: {engine / tokens:.1f} µs for each token of the tiny model")
            print(f"{'SDK':<8} {'µs for each event':>18} {'of a token at 200/s':>20}")
            for name in [name for name in arguments.only.split(",") if name] or list(run.RUNNERS):
                try:
                    used, events = cost(name, "stream")
                except (RuntimeError, OSError) as error:
                    print(f"SKIPPED: {error}")
                    continue
                each = (used - engine) / max(events, 1)
                slow |= each > TOKEN * SHARE
                print(f"{name:<8} {each:>18.1f} {each / TOKEN:>20.2%}", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
