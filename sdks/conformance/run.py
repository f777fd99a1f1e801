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
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

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
    "web": ["sdks/web/conformance/run.sh", "node"],
    "chromium": ["sdks/web/conformance/run.sh", "chromium"],
    "flutter": ["sdks/flutter/conformance/run.sh"],
}

#: What is about policies.
WITHOUT_POLICIES = ["25-hybrid", "26-consent", "27-hybrid-failure", "32-closed:19"]

#: What an SDK need not have, which its README names. Everything else has to be there. `steps` are cases, or their steps by number;
#: `events` and `fields` are what a runner may leave out of its results.
LACKS: dict[str, dict[str, list[str]]] = {
    # Python is the engine in its process, without the layer over C.
    "python": {
        "steps": [
            "01-versions:0", "10-torn-characters:2", "10-torn-characters:3", "10-torn-characters:5", "26-consent:3", "31-errors:7",
            "32-closed:4", "32-closed:8",
        ],
        "events": ["started", "tool_call"],
        "fields": [
            "stop", "whole", "logprobs", "cached_tokens", "success", "cloud_handoff", "function_calls", "confidence", "prefill_tokens",
            "token_id", "language_token", "window_s", "code",
        ],
    },
    # Pages ask nobody else. What they load comes from an address always; in Node that build reads files.
    "web": {"steps": [*WITHOUT_POLICIES, "34-address"]},
    # An index of theirs is in memory.
    "chromium": {"steps": [*WITHOUT_POLICIES, "30-full-disk", "34-address"]},
}  # fmt: skip

#: What a runner says with its exit code where the tools of its SDK are missing.
SKIPPED = 77


class Outcome:
    """What came of one SDK."""

    def __init__(self, name: str):
        self.name = name
        self.state = "failed"
        self.why = ""
        self.passed = 0
        #: Cases of those that passed of which the SDK does not have every step, and cases of which it has none that says something.
        self.in_part: list[str] = []
        self.none: list[str] = []
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


def library(arguments: argparse.Namespace) -> str:
    """A folder's name for this checkout and its library, which built runners are linked with by its path."""
    lib = arguments.lib or (arguments.prefix and arguments.prefix / "lib" / "libcactus.so")
    return hashlib.sha256(f"{ROOT} {lib}".encode()).hexdigest()[:16]


def ended(command: list[str], env: dict[str, str], log: BinaryIO, timeout: float) -> int | None:
    """Runs a command, and gives its exit code, or nothing where it took too long. What it has started ends with it."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=os.name == "posix",
    )  # fmt: skip
    try:
        return process.wait(timeout)
    except BaseException as error:
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            return None
        raise


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
        code = ended(command, environment(arguments, work), log, arguments.timeout)
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


def may_be_absent(sdk: str, case: dict) -> set[int]:
    """The steps of a case that an SDK need not have."""
    steps = LACKS.get(sdk, {}).get("steps", ())
    numbers = range(len(case["steps"]))
    return {number for number in numbers if case["name"] in steps or f"{case['name']}:{number}" in steps}


def judge(outcome: Outcome, results: dict, plan: list[dict], made: materials.Materials) -> None:
    """Compares results with the recordings."""
    leaves_out = results.get("", {})
    lacks = LACKS.get(outcome.name, {})
    for kind, names in leaves_out.items():
        outcome.absent.append(f"{kind}: {', '.join(names)}")
        unknown = sorted({*names} - {*(lacks.get(kind, ()) if kind in ("events", "fields") else ())})
        if unknown:
            outcome.failures.append(f"it leaves out what it may not, {kind}: {', '.join(unknown)}")
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
        try:
            compared = compare.case(case, recorded, found, leaves_out, may_be_absent(outcome.name, case))
            policies = [result for step, result in zip(case["steps"], found) if step["op"] == "set_policy"]
            has_policies = not any("absent" in result for result in policies)
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            outcome.failures.append(f"{name}: its results have another form: {type(error).__name__}: {error}")
            continue
        differences = compared.wrong
        # Without policies nobody was asked.
        if has_policies:
            differences += told(outcome.name, case, made.cloud)
        outcome.absent += [f"{name}: {what}" for what in compared.absent]
        if differences:
            outcome.failures += [f"{name}: {what}" for what in differences]
        elif compared.count == 0:
            outcome.none.append(name)
        else:
            outcome.passed += 1
            if compared.absent:
                outcome.in_part.append(name)
    if not outcome.failures:
        outcome.state = "passed"


def told(sdk: str, case: dict, cloud: materials.Cloud) -> list[str]:
    """What is wrong with what the target was told: `sent` are the messages of each request."""
    sent = cloud.sent(sdk, case["name"])
    wrong = []
    if "asked" in case and len(sent) != case["asked"]:
        wrong.append(f"the target was asked {len(sent)} times, expected {case['asked']}")
    if "sent" in case:
        wrong += [f"the target was told otherwise: {what}" for what in compare.differ(case["sent"], sent, "sent")]
    return wrong


def record(results: dict, plan: list[dict], made: materials.Materials) -> None:
    folder = HERE / "recorded"
    folder.mkdir(exist_ok=True)
    for case in plan:
        found = made.unfill("rust", case["name"], results[case["name"]])
        problems = compare.sound(case, found)
        problems += told("rust", case, made.cloud)
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
        notes = [each.why] if each.why else []
        if each.in_part:
            notes.append(f"{len(each.in_part)} in part")
        if each.none:
            notes.append(f"{len(each.none)} not at all: {', '.join(each.none)}")
        print(f"{each.name:<8} {each.state:<8} {number:>7} {each.seconds:>8.1f}  {'; '.join(notes)}")
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
    arguments.build = (arguments.build or kept / "build" / library(arguments)).resolve()
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
