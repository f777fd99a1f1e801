#!/usr/bin/env python3
"""Cactus beside llama.cpp, ik_llama.cpp and OpenVINO GenAI, in one command, on this machine.

    benches/compare.py [--models smollm2-135m,...] [--threads 1,2] [--bits 8|4] [--quick] [--no-cactus]

Fetches the models, builds the peers, converts the same GGUF files with `cactus convert --bits 8`
and with `llama-quantize ... Q8_0` (4 bits: to Q4_0 of all tensors, and to Q4_K_M), then measures
prefill of 1024 tokens, decode of 100 tokens from an empty context and from those of `--depths`, load
time and memory. ik_llama.cpp and OpenVINO take part where they are there (`build_llama_cpp.sh --ik`,
`--openvino`) and can read the model. Runs are interleaved (A B C, C B A, ...) so that a change in the
machine's mood meets every engine, and figures are medians over all rounds. Writes
compare.json, .md and .svg (compare-4 for 4 bits) to --out (default benches/results).

Ratios within one run mean something; absolute figures of two different hours do not. See
benches/README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import chart
import measure
from peers import ROOT, Model, PeerError, Workshop, default_cache, models_named

PREFILL_TOKENS = 1024
DECODE_TOKENS = 100
LOAD_REPEATS = 5
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
# What llama.cpp's files are, for each width of ours.
KINDS = {8: ("Q8_0",), 4: ("Q4_0", "Q4_K_M")}
OURS = {8: "INT8", 4: "CQ4"}


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class Engine:
    """How one engine is asked for speed, for speed at depth, and for one token. `{model}`, `{threads}`, `{repeats}` and
    `{depth}` are filled in. `files` holds the models that it can read."""

    name: str
    title: str
    bench: tuple[str, ...]
    deep: tuple[str, ...] | None
    first_token: tuple[str, ...] | None
    files: dict[str, Path]
    env: dict[str, str] = dataclasses.field(default_factory=dict)

    def command(
        self, template: tuple[str, ...], model: Model, threads: int, repeats: int, depth: int = 0
    ) -> list[str]:
        values = {"model": self.files[model.name], "threads": threads, "repeats": repeats, "depth": depth}
        return [part.format(**values) for part in template]


def llama_bench(program: Path, *extra: str) -> tuple[str, ...]:
    sizes = ("-p", str(PREFILL_TOKENS), "-n", str(DECODE_TOKENS), "-r", "{repeats}", "-t", "{threads}")
    return (str(program), "-m", "{model}", *sizes, "-o", "json", *extra)


def llama_engines(shop: Workshop, models: list[Model], kind: str) -> list[Engine]:
    files = {model.name: shop.quantized(model, kind) for model in models}
    bench = shop.llama("llama-bench")
    plain = llama_bench(bench)
    deep = (str(bench), "-m", "{model}", "-p", "0", "-n", str(DECODE_TOKENS), "-d", "{depth}", "-r", "1")
    deep += ("-t", "{threads}", "-o", "json")
    one_token = ("-no-cnv", "--no-warmup", "--temp", "0", "-n", "1", "-p", "The")
    completion = (str(shop.llama("llama-completion")), "-m", "{model}", "-t", "{threads}", *one_token)
    huge = ("-lm", "none")
    found = [
        Engine(f"llama.cpp {kind}", f"llama.cpp {kind}", plain, deep, completion, files),
        Engine(
            f"llama.cpp {kind} huge",
            f"llama.cpp {kind}, huge pages",
            plain + huge,
            deep + huge,
            None,
            files,
            HUGE_PAGES,
        ),
    ]
    if (ik := shop.ik("llama-bench")) is not None:
        bench = llama_bench(ik, "-rtr", "1", "-thp", "1")
        found.append(Engine(f"ik {kind}", f"ik_llama.cpp {kind}", bench, None, None, files))
    return found


def engines(shop: Workshop, models: list[Model], options: argparse.Namespace) -> list[Engine]:
    found = [engine for kind in KINDS[options.bits] for engine in llama_engines(shop, models, kind)]
    sizes = ("--prefill", str(PREFILL_TOKENS), "--decode", str(DECODE_TOKENS))
    deep_sizes = ("--prefill", "0", "--decode", str(DECODE_TOKENS), "--depth", "{depth}")
    if options.openvino:
        kind = KINDS[options.bits][0]
        files = {model.name: shop.quantized(model, kind) for model in models if model.openvino}
        bench = (str(shop.openvino()), str(ROOT / "benches" / "openvino_bench.py"), "{model}", "--threads", "{threads}")
        deep = (*bench, *deep_sizes, "--reps", "1")
        speed = (*bench, *sizes, "--reps", "{repeats}")
        found.append(Engine("openvino", f"OpenVINO GenAI {kind}", speed, deep, None, files))
    if not options.no_cactus:
        program = str(shop.cactus())
        bench = (program, "bench", "{model}", "--threads", "{threads}")
        speed = (*bench, *sizes, "--reps", "{repeats}", "--json")
        deep = (*bench, *deep_sizes, "--reps", "1", "--json")
        run = (program, "run", "{model}", "--threads", "{threads}", "--prompt", "The", "--max-new-tokens", "1")
        bundles = {model.name: shop.bundle(model, options.bits) for model in models}
        found.append(Engine("cactus", f"Cactus {OURS[options.bits]}", speed, deep, run, bundles))
    return found


def samples_of(engine: Engine, output: str) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Tokens per second by metric, and what else the engine says of itself."""
    try:
        report = json.loads(output)
        if isinstance(report, list):
            rows = {"prefill" if row["n_prompt"] else "decode": list(map(float, row["samples_ts"])) for row in report}
            return rows, {}
        rows = {row["name"].partition("-")[0]: list(map(float, row["tok_s_all"])) for row in report["rows"]}
        return rows, {key: report[key] for key in ("load_ms", "peak_rss_mb", "anon_mb", "isa") if key in report}
    except (ValueError, KeyError, TypeError) as error:
        raise measure.RunError(f"{engine.name}: unexpected benchmark output ({error!r}): {output[:300]}") from error


def bandwidth(machine: measure.Machine, program: Path | None, threads: int) -> float | None:
    if program is None:
        return None
    return float(measure.run(machine, [str(program), str(threads), "256", "8"], threads))


def speed_block(
    machine: measure.Machine,
    found: list[Engine],
    model: Model,
    threads: int,
    options: argparse.Namespace,
    probe: Path | None,
) -> dict[str, object]:
    """One model at one thread count: all engines, all rounds, bracketed by the bandwidth probe."""
    speeds: dict[str, dict[str, list[float]]] = {e.name: defaultdict(list) for e in found}
    reports: dict[str, dict[str, float]] = {}
    before = bandwidth(machine, probe, threads)
    for round_index in range(options.rounds):
        for engine in found if round_index % 2 == 0 else reversed(found):
            say(f"{model.name} t={threads} round {round_index + 1}/{options.rounds} {engine.name}")
            command = engine.command(engine.bench, model, threads, options.reps)
            rows, reports[engine.name] = samples_of(
                engine, measure.run(machine, command, threads, engine.env, options.timeout)
            )
            for metric in ("prefill", "decode"):
                speeds[engine.name][metric] += rows[metric]
            for depth in options.depths if engine.deep is not None and round_index < options.deep_rounds else ():
                command = engine.command(engine.deep, model, threads, 1, depth)
                rows, _ = samples_of(engine, measure.run(machine, command, threads, engine.env, options.timeout))
                speeds[engine.name][f"decode@{depth}"] += rows["decode"]
    after = bandwidth(machine, probe, threads)
    for name, s in speeds.items():
        say(f"  {name}: " + ", ".join(f"{metric} {statistics.median(v):.1f} tok/s" for metric, v in s.items()))
    results = {
        name: {
            **{m: {"median": statistics.median(v), "min": min(v), "max": max(v), "all": v} for m, v in s.items()},
            "reported": reports[name],
        }
        for name, s in speeds.items()
    }
    return {"model": model.name, "threads": threads, "bandwidth_gb_s": [before, after], "engines": results}


def memory_block(
    machine: measure.Machine, found: list[Engine], model: Model, options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Memory of a benchmark run, and the wall time of a process that makes one token, warm cache."""
    threads = min(options.threads)
    results: dict[str, dict[str, float]] = {}
    for engine in found:
        say(f"{model.name} memory and load {engine.name}")
        seen = measure.usage(machine, engine.command(engine.bench, model, threads, 1), threads, engine.env)
        megabyte = 1e6
        results[engine.name] = {
            "peak_rss_mb": seen.peak_rss_bytes / megabyte,
            "peak_anonymous_mb": seen.peak_anonymous_bytes / megabyte,
        }
        if engine.first_token is not None:
            command = engine.command(engine.first_token, model, threads, 1)
            walls = []
            for _ in range(LOAD_REPEATS):
                start = time.perf_counter()
                measure.run(machine, command, threads, engine.env)
                walls.append(time.perf_counter() - start)
            results[engine.name]["one_token_process_ms"] = 1000 * statistics.median(walls)
    return results


def ratio(block: dict, metric: str, peers: list[str]) -> float | None:
    """Cactus over the best of `peers`; None when either was not run."""
    seen = block["engines"]
    medians = [seen[name][metric]["median"] for name in peers if metric in seen.get(name, {})]
    if metric not in seen.get("cactus", {}) or not medians:
        return None
    return seen["cactus"][metric]["median"] / max(medians)


def metrics(options: dict[str, Any]) -> list[str]:
    return ["prefill", "decode", *(f"decode@{depth}" for depth in options["depths"])]


def table(results: dict, titles: dict[str, str], model_titles: dict[str, str]) -> str:
    """The Markdown report."""
    names = list(titles)
    peers = [name for name in names if name != "cactus"]
    default = [name for name in peers if name.startswith("llama.cpp") and not name.endswith("huge")]
    lines = [
        f"Machine: {results['machine']['cpu']}, {results['machine']['cpus']} CPUs, {results['machine']['kernel']}; "
        f"{'real-time priority, other CPUs held' if results['machine']['realtime'] else 'no real-time priority'}. "
        f"llama.cpp {results['llama_cpp']}, Cactus {results['cactus'] or 'not run'}. {results['date']}.",
        "",
        f"Tokens per second, median of {results['rounds']} interleaved rounds of {results['reps']} (prefill "
        f"{PREFILL_TOKENS} tokens, decode {DECODE_TOKENS}; `@` after so many tokens, {results['deep_rounds']} rounds of 1). "
        "The last columns divide Cactus by llama.cpp as it runs by default and by the best of all.",
        "",
        "| model | threads | metric | " + " | ".join(titles[n] for n in names) + " | ratio | ratio to best |",
        "|---|---|---|" + "---|" * (len(names) + 2),
    ]
    for block in results["speed"]:
        for metric in metrics(results):
            seen = [block["engines"].get(n, {}).get(metric) for n in names]
            cells = ["-" if s is None else f"{s['median']:.1f}" for s in seen]
            for baseline in (default, peers):
                value = ratio(block, metric, baseline)
                cells.append("-" if value is None else f"**{value:.2f}**")
            lines.append(f"| {model_titles[block['model']]} | {block['threads']} | {metric} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Memory in MB (anonymous = heap and copies; peak RSS also counts mapped file pages) of the benchmark process, "
        "and milliseconds from process start to exit for one token, file cache warm. `load` is what Cactus reports.",
        "",
        "| model | engine | anonymous | peak RSS | one-token process | load |",
        "|---|---|---|---|---|---|",
    ]
    reported = {b["model"]: b["engines"].get("cactus", {}).get("reported", {}) for b in results["speed"]}
    for model, rows in results["memory"].items():
        for name, row in rows.items():
            wall = row.get("one_token_process_ms")
            load = reported.get(model, {}).get("load_ms") if name == "cactus" else None
            lines.append(
                f"| {model_titles[model]} | {titles[name]} | {row['peak_anonymous_mb']:.0f} | {row['peak_rss_mb']:.0f} | "
                f"{'-' if wall is None else f'{wall:.0f}'} | {'-' if load is None else f'{load:.1f}'} |"
            )
    quiet = [f"{b['model']} t={b['threads']}: {' / '.join(f'{x:.1f}' for x in b['bandwidth_gb_s'] if x)}" for b in results["speed"]]
    lines += ["", "Memory bandwidth before / after each block, GB/s: " + "; ".join(quiet) + "."]
    return "\n".join(lines) + "\n"


def plot(results: dict, titles: dict[str, str], model_titles: dict[str, str]) -> str:
    panels = []
    for metric in metrics(results):
        for threads in results["threads"]:
            groups = [
                (
                    model_titles[b["model"]],
                    [b["engines"].get(n, {}).get(metric, {}).get("median", 0.0) for n in titles],
                )
                for b in results["speed"]
                if b["threads"] == threads
            ]
            what = f"prefill {PREFILL_TOKENS}" if metric == "prefill" else metric.replace("decode", f"decode {DECODE_TOKENS}")
            panels.append(chart.Panel(f"{what}, {threads} thread{'s' * (threads > 1)} (tok/s)", groups))
    return chart.grouped_bars(panels, list(titles.values()), columns=len(results["threads"]))


def cactus_version(shop: Workshop) -> str:
    version = subprocess.run([str(shop.cactus()), "--version"], capture_output=True, text=True, check=False).stdout
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout
    return re.sub(r"\s+", " ", f"{version.strip()} ({commit.strip()})")


def stem(results: dict[str, Any]) -> str:
    return "compare" if results["bits"] == 8 else f"compare-{results['bits']}"


def save(results: dict[str, Any], folder: Path) -> None:
    """Written after every block: a run that is cut short keeps what it measured."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem(results)}.json").write_text(json.dumps(results, indent=1) + "\n")


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=default_cache(), help="models and builds (default: %(default)s)")
    parser.add_argument("--cactus", type=Path, help="the cactus program (default: a release build of this checkout)")
    parser.add_argument("--no-cactus", action="store_true", help="measure the peers only")
    parser.add_argument("--models", help="comma-separated: smollm2-135m, gemma-3-270m, qwen2.5-0.5b, qwen2.5-1.5b (default: all but the last)")
    parser.add_argument("--threads", default="1,2", help="comma-separated thread counts (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: %(default)s)")
    parser.add_argument("--reps", type=int, default=2, help="repetitions per process (default: %(default)s)")
    parser.add_argument("--bits", type=int, choices=sorted(KINDS), default=8, help="of our bundles (default: %(default)s)")
    parser.add_argument("--depths", default="1024,4096", help="also decode after so many tokens; empty for none (default: %(default)s)")
    parser.add_argument("--deep-rounds", type=int, default=1, help="rounds that measure at depth (default: %(default)s)")
    parser.add_argument("--openvino", action="store_true", help="also OpenVINO GenAI, from its wheel (installed into the cache folder)")
    parser.add_argument("--quick", action="store_true", help="one round of one repetition")
    parser.add_argument("--no-realtime", action="store_true", help="pin only: on a machine that others need")
    parser.add_argument("--timeout", type=float, default=1200, help="seconds allowed for one process")
    parser.add_argument("--out", type=Path, default=ROOT / "benches" / "results", help="folder for the results")
    options = parser.parse_args(arguments)
    try:
        options.threads = [int(part) for part in options.threads.split(",")]
        options.depths = [int(part) for part in options.depths.split(",") if part]
    except ValueError:
        parser.error(f"--threads and --depths take numbers, found {options.threads!r} and {options.depths!r}")
    if min(options.threads) < 1 or options.rounds < 1 or options.reps < 1:
        parser.error("--threads, --rounds and --reps must be at least 1")
    if options.quick:
        options.rounds = options.reps = 1
    return options


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    machine = measure.Machine.detect(not options.no_realtime)
    try:
        models = models_named(options.models)
        shop = Workshop(options.cache.resolve(), options.cactus)
        found = engines(shop, models, options)
        probe = measure.build_bandwidth(ROOT / "benches" / "bandwidth.c", options.cache / "bandwidth")
        results: dict[str, Any] = {
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "machine": machine.describe(),
            "llama_cpp": shop.llama_version(),
            "cactus": None if options.no_cactus else cactus_version(shop),
            "rounds": options.rounds,
            "reps": options.reps,
            "threads": options.threads,
            "bits": options.bits,
            "depths": options.depths,
            "deep_rounds": min(options.deep_rounds, options.rounds),
            "speed": [],
            "memory": {},
        }
        for model in models:
            able = [engine for engine in found if model.name in engine.files]
            for threads in options.threads:
                results["speed"].append(speed_block(machine, able, model, threads, options, probe))
                save(results, options.out)
            results["memory"][model.name] = memory_block(machine, able, model, options)
            save(results, options.out)
    except (PeerError, measure.RunError) as error:
        say(f"error: {error}")
        return 1
    titles = {engine.name: engine.title for engine in found}
    model_titles = {model.name: model.title for model in models}
    report = table(results, titles, model_titles)
    (options.out / f"{stem(results)}.md").write_text(report)
    (options.out / f"{stem(results)}.svg").write_text(plot(results, titles, model_titles))
    print(report, end="")
    say(f"written: {options.out}/{stem(results)}.json, .md and .svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
