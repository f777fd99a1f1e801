"""Decode with several threads beside as many processes with one thread each, over the same mapped pages; a table of medians.

    python benches/threads.py BUNDLE … [--cactus target/release/cactus …] [--threads 2] [--rounds 5] [--decode 100] [--depth 0]

What the processes reach together is what the machine gives where nothing waits for anything: the share of it that threads reach is what
their joins leave. Programs take turns, and so do threads and processes. How processes are made comparable is in measure.py.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import statistics
from pathlib import Path

import measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, nargs="+")
    parser.add_argument("--cactus", type=Path, nargs="+", default=[Path("target/release/cactus")], help="programs that take turns")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--decode", type=int, default=100)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--no-realtime", action="store_true", help="pin only: on a machine that others need")
    args = parser.parse_args()
    machine = measure.Machine.detect(not args.no_realtime)
    print(json.dumps(machine.describe()))
    if args.threads > len(machine.cpus):
        parser.error(f"--threads {args.threads}: this process may use {len(machine.cpus)} CPUs")

    def decode(on: measure.Machine, program: Path, bundle: Path, threads: int) -> float:
        command = [program, "bench", bundle, "--json", "--threads", threads, "--reps", 5]
        command += ["--prefill", 0, "--decode", args.decode, "--depth", args.depth]
        found = json.loads(measure.run(on, [str(part) for part in command], threads))
        return found["rows"][0]["tok_s_median"]

    def apart(program: Path, bundle: Path) -> float:
        alone = [dataclasses.replace(machine, cpus=(cpu,)) for cpu in machine.chosen(args.threads)]
        with concurrent.futures.ThreadPoolExecutor(len(alone)) as pool:
            return sum(pool.map(lambda one: decode(one, program, bundle, 1), alone))

    ways = {
        "one thread": lambda program, bundle: decode(machine, program, bundle, 1),
        f"{args.threads} threads": lambda program, bundle: decode(machine, program, bundle, args.threads),
        f"{args.threads} processes": apart,
    }
    print("| bundle | program | " + " | ".join(ways) + " | threads to processes |\n|---|---|" + "---:|" * (len(ways) + 1))
    for bundle in args.bundle:
        found: dict[Path, dict[str, list[float]]] = {program: {way: [] for way in ways} for program in args.cactus}
        for turn in range(args.rounds):
            for program in args.cactus if turn % 2 == 0 else reversed(args.cactus):
                for way, measured in ways.items():
                    found[program][way].append(measured(program, bundle))
        for program, rates in found.items():
            medians = [statistics.median(all_) for all_ in rates.values()]
            cells = [f"{rate:.1f}" for rate in medians] + [f"{medians[1] / medians[2]:.2f}"]
            print(f"| {bundle.stem} | {program.stem} | " + " | ".join(cells) + " |", flush=True)


main()
