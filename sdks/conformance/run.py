#!/usr/bin/env python3
"""Runs the conformance suite: the same calls through every SDK, whose outputs have to be equal to the recordings.

    python3 sdks/conformance/run.py                      every SDK whose tools are on this machine
    python3 sdks/conformance/run.py --only c,node        some
    python3 sdks/conformance/run.py --cases 02-chat,03   some cases, by the beginnings of their names
    python3 sdks/conformance/run.py --record             record again, from the Rust API

README.md beside this file says what a plan, a step and a result are. Nothing but Python's own library is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import compare
import materials

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

#: How each SDK's runner is started; the plan and the file for results follow.
RUNNERS = {
    "rust": ["sdks/rust/conformance/run.sh"],
    "c": ["sdks/conformance/c/run.sh"],
    "cpp": ["sdks/cpp/conformance/run.sh"],
    "python": ["sdks/python/conformance/run.sh"],
    "node": ["node", "sdks/node/conformance/run.mjs"],
    "bun": ["bun", "sdks/node/conformance/run.mjs"],
    "deno": ["deno", "run", "--allow-all", "sdks/node/conformance/run.mjs"],
    "kotlin": ["sdks/kotlin/conformance/run.sh"],
    "swift": ["sdks/swift/conformance/run.sh"],
    "dart": ["sdks/dart/conformance/run.sh"],
    "jsi": ["sdks/react-native/conformance/run.sh"],
    "web": ["sdks/web/conformance/run.sh"],
    "flutter": ["sdks/flutter/conformance/run.sh"],
}

#: What a runner says with its exit code where the tools of its SDK are missing.
SKIPPED = 77


class Outcome:
    """What came of one SDK."""

    def __init__(self, name: str):
        self.name = name
        self.state = "failed"
        self.why = ""
        self.passed = 0
        self.failures: list[str] = []
        self.absent: list[str] = []
        self.seconds = 0.0


def cases(chosen: list[str]) -> list[dict]:
    found = []
    for path in sorted((HERE / "cases").glob("*.json")):
        case = json.loads(path.read_text())
        if case["name"] != path.stem:
            raise SystemExit(f"{path}: its name is {case['name']}")
        if not chosen or any(case["name"].startswith(prefix) for prefix in chosen):
            found.append(case)
    if not found:
        raise SystemExit("no case has such a name")
    return found


def environment(arguments: argparse.Namespace, work: Path) -> dict[str, str]:
    env = dict(os.environ)
    if arguments.prefix:
        env["CACTUS_PREFIX"] = str(arguments.prefix)
        env["CACTUS_LIB_PATH"] = str(arguments.prefix / "lib" / "libcactus.so")
    if arguments.lib:
        env["CACTUS_LIB_PATH"] = str(arguments.lib)
    # Nothing of this user is read or written.
    env["CACTUS_CACHE"] = str(work / "cache")
    env["CACTUS_STATE"] = str(work / "state-of-user")
    env["CACTUS_CONFORMANCE_BUILD"] = str(arguments.build)
    for name in ("CACTUS_EMBEDDER", "HF_TOKEN", "HF_ENDPOINT"):
        env.pop(name, None)
    return env


def run(name: str, plan: list[dict], made: materials.Materials, arguments: argparse.Namespace) -> tuple[Outcome, dict]:
    """Starts the runner of an SDK, and reads its results, by case."""
    outcome = Outcome(name)
    work = made.work_of(name)
    plan_file, results_file, log_file = (work / file for file in ("plan.json", "results.jsonl", "log.txt"))
    made_plan = {"cases": [made.fill(name, case) for case in plan]}
    plan_file.write_text(json.dumps(made_plan, ensure_ascii=False))
    command = [*RUNNERS[name], str(plan_file), str(results_file)]
    if not (ROOT / command[0]).is_file() and shutil.which(command[0]) is None:
        outcome.state, outcome.why = "absent", f"there is no {command[0]}"
        return outcome, {}
    script = next((part for part in command[1:-2] if part.startswith("sdks/")), None)
    if script is not None and not (ROOT / script).is_file():
        outcome.state, outcome.why = "absent", f"there is no {script}"
        return outcome, {}
    started = time.monotonic()
    with open(log_file, "wb") as log:
        try:
            ended = subprocess.run(
                command, cwd=ROOT, env=environment(arguments, work), stdout=log, stderr=subprocess.STDOUT,
                timeout=arguments.timeout, stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
            code = ended.returncode
        except subprocess.TimeoutExpired:
            code = None
    outcome.seconds = time.monotonic() - started
    said = log_file.read_text(errors="replace")
    if code == SKIPPED:
        lines = [line for line in said.splitlines() if line.startswith("SKIPPED:")]
        outcome.state, outcome.why = "skipped", lines[-1][8:].strip() if lines else "its runner does not say why"
        return outcome, {}
    results, ends, broken = compare.read(results_file)
    if code != 0:
        what = "it took too long" if code is None else f"its runner ended with {code}"
        outcome.failures.append(f"{what}:\n" + "\n".join(said.splitlines()[-30:]))
    if broken:
        outcome.failures.append(broken)
    if ends != [len(plan)]:
        outcome.failures.append(f"expected one line {{\"end\": {len(plan)}}}, found {ends}")
    return outcome, results


def judge(outcome: Outcome, results: dict, plan: list[dict], made: materials.Materials) -> None:
    """Compares results with the recordings."""
    leaves_out = results.get("", {})
    for kind, names in leaves_out.items():
        outcome.absent.append(f"{kind}: {', '.join(names)}")
    for case in plan:
        name = case["name"]
        recorded_file = HERE / "recorded" / f"{name}.json"
        if not recorded_file.is_file():
            outcome.failures.append(f"{name}: nothing is recorded; record with --record")
            continue
        recorded = json.loads(recorded_file.read_text())["results"]
        if name not in results:
            outcome.failures.append(f"{name}: there is no result")
            continue
        found = made.unfill(outcome.name, name, results[name])
        differences, absent = compare.case(case, recorded, found, leaves_out)
        asked = made.cloud.asked(outcome.name, name)
        if "asked" in case and asked != case["asked"] and not absent:
            differences.append(f"the target was asked {asked} times, expected {case['asked']}")
        outcome.absent += [f"{name}: {what}" for what in absent]
        if differences:
            outcome.failures += [f"{name}: {what}" for what in differences]
        else:
            outcome.passed += 1
    if not outcome.failures:
        outcome.state = "passed"


def record(results: dict, plan: list[dict], made: materials.Materials) -> None:
    folder = HERE / "recorded"
    folder.mkdir(exist_ok=True)
    for case in plan:
        found = made.unfill("rust", case["name"], results[case["name"]])
        problems = compare.sound(case, found)
        asked = made.cloud.asked("rust", case["name"])
        if "asked" in case and asked != case["asked"]:
            problems.append(f"the target was asked {asked} times, expected {case['asked']}")
        if problems:
            raise SystemExit(f"{case['name']}: not recorded:\n  " + "\n  ".join(problems))
        lines = [json.dumps(compare.normal(case, result), ensure_ascii=False, sort_keys=True) for result in found]
        text = ",\n    ".join(lines)
        (folder / f"{case['name']}.json").write_text(f'{{\n  "results": [\n    {text}\n  ]\n}}\n')
    print(f"recorded {len(plan)} cases")


def table(outcomes: list[Outcome], count: int) -> None:
    print()
    print(f"{'SDK':<8} {'':<8} {'cases':>7} {'seconds':>8}")
    for each in outcomes:
        number = f"{each.passed}/{count}" if each.state in ("passed", "failed") else "–"
        print(f"{each.name:<8} {each.state:<8} {number:>7} {each.seconds:>8.1f}  {each.why}")
    for each in outcomes:
        for what in each.absent:
            print(f"{each.name}: absent: {what}")
    for each in outcomes:
        if each.state == "skipped":
            print(f"SKIPPED: {each.name}: {each.why}")
        for what in each.failures:
            print(f"\n{each.name}: {what}")


def main() -> int:
    # Whoever stops it leaves no disk mounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="SDKs, with commas between them")
    parser.add_argument("--cases", default="", help="beginnings of names of cases, with commas between them")
    parser.add_argument("--cactus", type=Path, help="the program that makes bundles (target/debug/cactus)")
    parser.add_argument("--prefix", type=Path, default=os.environ.get("CACTUS_PREFIX"), help="where scripts/install_c.sh installed")
    parser.add_argument("--lib", type=Path, default=os.environ.get("CACTUS_LIB_PATH"), help="libcactus.so, where it is not in the prefix")
    parser.add_argument("--build", type=Path, help="folder in which runners are built and kept")
    parser.add_argument("--bundles", type=Path, help="folder of the bundles, which are kept there")
    parser.add_argument("--record", action="store_true", help="record from the Rust API")
    parser.add_argument("--keep", action="store_true", help="keep plans, results and logs, and say where they are")
    parser.add_argument("--require", default="", help="SDKs that may not be skipped")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for each SDK")
    arguments = parser.parse_args()
    chosen = [name for name in arguments.only.split(",") if name] or (["rust"] if arguments.record else list(RUNNERS))
    if arguments.record and chosen != ["rust"]:
        raise SystemExit("what is recorded comes from the Rust API: --record goes with no --only")
    unknown = [name for name in chosen if name not in RUNNERS]
    if unknown:
        raise SystemExit(f"no SDK is called {', '.join(unknown)}; there are {', '.join(RUNNERS)}")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    arguments.cactus = (arguments.cactus or target / "debug" / "cactus").resolve()
    arguments.prefix = arguments.prefix and Path(arguments.prefix).resolve()
    arguments.lib = arguments.lib and Path(arguments.lib).resolve()
    kept = materials.kept()
    arguments.build = (arguments.build or kept / "build").resolve()
    arguments.build.mkdir(parents=True, exist_ok=True)
    plan = cases([name for name in arguments.cases.split(",") if name])

    work = Path(tempfile.mkdtemp(prefix="cactus-conformance-"))
    outcomes = []
    try:
        with materials.Materials(ROOT, arguments.cactus, (arguments.bundles or kept / "bundles").resolve(), work) as made:
            for what, why in made.missing.items():
                without = [case["name"] for case in plan if what in case.get("needs", ())]
                plan = [case for case in plan if what not in case.get("needs", ())]
                if without:
                    print(f"SKIPPED: {', '.join(without)}: {why}")
            for name in chosen:
                print(f"{name} ...", flush=True)
                outcome, results = run(name, plan, made, arguments)
                outcomes.append(outcome)
                if outcome.state in ("skipped", "absent"):
                    continue
                if arguments.record:
                    if outcome.failures:
                        raise SystemExit("\n".join(outcome.failures))
                    record(results, plan, made)
                judge(outcome, results, plan, made)
    finally:
        if arguments.keep:
            print(f"kept in {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    table(outcomes, len(plan))
    required = [name for name in arguments.require.split(",") if name]
    lacking = [each.name for each in outcomes if each.name in required and each.state != "passed"]
    if not any(each.state == "passed" for each in outcomes):
        print("\nno SDK has passed")
        return 1
    return 1 if lacking or any(each.state == "failed" for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
