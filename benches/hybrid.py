#!/usr/bin/env python3
"""What a router that follows the calibrated confidence of a small model would have done, from answers that were written once.

The local side is what `cactus calibrate BUNDLE ... --dry-run --json` prints: each answer with the confidence that a fit which
has not seen it gives. The other side is files of results that `cactus eval OTHER ... --results` saved for the same questions.
Nothing is asked here; policies are replayed. Prints tables in Markdown and writes plots:

    benches/hybrid.py --local bfcl=local-bfcl.json --local all=local-all.json --cloud simple.json --cloud multiple.json \\
        --unseen gsm8k=without-gsm8k/confidence.json,local-gsm8k-results.json --svg docs/hybrid.svg > tables.md
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import chart

SEED = 14
RESAMPLES = 1000
SPLITS = 1000
DELTA = 0.1
BINS = 10
MAX_ERROR = 0.2
# What issue and report call reached.
GOALS = {"AUROC": 0.80, "AUROC of calls": 0.88, "APGR": 0.75, "skill": 0.5}
ECE_GOAL = 0.03
# Dollars for a million tokens, in and out: list prices of 22 Nov 2026, second hand.
PRICES = {"claude-haiku-5-5": (0.10, 0.50), "claude-sonnet-5-5": (2.0, 10.0)}
# Assumed of the target: seconds to its first token, tokens a second after it.
CLOUD_FIRST_S, CLOUD_TOKENS_S = 0.6, 80.0


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer of the small model, and what the large one's was worth (`None`: it was not asked)."""

    task: str
    id: str
    score: float
    right: bool
    cloud: bool | None
    along: tuple[tuple[int, int, float], ...]
    prompt_tokens: int
    answer_tokens: int


Scored = Sequence[tuple[float, bool]]


def auroc(cases: Scored) -> float:
    """The chance that a right answer has a higher score than a wrong one; ties count half."""
    right = sorted(score for score, label in cases if label)
    wrong = sorted(score for score, label in cases if not label)
    if not right or not wrong:
        return math.nan
    below = ties = 0
    low = high = 0
    for score in right:
        while low < len(wrong) and wrong[low] < score:
            low += 1
        high = max(high, low)
        while high < len(wrong) and wrong[high] <= score:
            high += 1
        below, ties = below + low, ties + high - low
    return (below + ties / 2) / (len(right) * len(wrong))


def bins(cases: Scored) -> list[tuple[float, float, int]]:
    """Mean score, share of right ones and number of cases, in bins of equally many."""
    ordered = sorted(cases, key=lambda case: case[0])
    out = []
    for k in range(BINS):
        part = ordered[len(ordered) * k // BINS : len(ordered) * (k + 1) // BINS]
        if part:
            out.append((sum(s for s, _ in part) / len(part), sum(r for _, r in part) / len(part), len(part)))
    return out


def ece(cases: Scored) -> float:
    return sum(n * abs(score - right) for score, right, n in bins(cases)) / len(cases)


def brier(cases: Scored) -> float:
    return sum((score - right) ** 2 for score, right in cases) / len(cases)


def ece_floor(scores: Sequence[float], draw: random.Random) -> list[float]:
    """What a perfect predictor would have, in order."""
    return sorted(ece([(score, draw.random() < score) for score in scores]) for _ in range(RESAMPLES))


@dataclasses.dataclass(frozen=True)
class Routing:
    """Accuracy when 0, 1, ... all are handed off, the least sure first; of the best possible router too."""

    accuracy: list[float]
    oracle: list[float]

    @property
    def local(self) -> float:
        return self.accuracy[0]

    @property
    def cloud(self) -> float:
        return self.accuracy[-1]

    @property
    def apgr(self) -> float:
        gap = self.cloud - self.local
        return (sum(self.accuracy) / len(self.accuracy) - self.local) / gap if gap > 0 else math.nan

    @property
    def skill(self) -> float:
        chance = (self.local + self.cloud) / 2
        best = sum(self.oracle) / len(self.oracle) - chance
        return (sum(self.accuracy) / len(self.accuracy) - chance) / best if best > 1e-12 else math.nan

    def share_for_gap(self, part: float) -> float:
        """The least share handed off that closes this part of the gap between both models (CPT)."""
        return self.share_for(self.local + part * (self.cloud - self.local))

    def share_for(self, accuracy: float) -> float:
        """The least share handed off that reaches an accuracy."""
        reached = (k for k, found in enumerate(self.accuracy) if found >= accuracy - 1e-12)
        return next(reached, len(self.accuracy) - 1) / (len(self.accuracy) - 1)


def routing(answers: Sequence[Answer]) -> Routing:
    def curve(gains: Sequence[int]) -> list[float]:
        right = sum(a.right for a in answers)
        out = [right]
        for gain in gains:
            right += gain
            out.append(right)
        return [x / len(answers) for x in out]

    gain = lambda a: int(bool(a.cloud)) - int(a.right)  # noqa: E731
    return Routing(
        curve([gain(a) for a in sorted(answers, key=lambda a: a.score)]),
        curve(sorted((gain(a) for a in answers), reverse=True)),
    )


def errors_allowed(n: int, share: float) -> int:
    """Most errors among n that show, with 1 - DELTA confidence, a share of at most `share`; -1 for none."""
    total, term, k = 0.0, (1 - share) ** n, 0
    while k <= n:
        total += term
        if total > DELTA:
            return k - 1
        term *= (n - k) / (k + 1) * share / (1 - share)
        k += 1
    return n


def certify(cases: Scored, share: float) -> float | None:
    """The lowest threshold, of those that keep one, two, ... ten tenths, up to the first that fails; those that keep too few to
    show anything are passed over."""
    ordered = sorted((score for score, _ in cases), reverse=True)
    found = None
    for tenth in range(1, 11):
        if len(ordered) * tenth // 10 == 0:
            continue
        threshold = ordered[len(ordered) * tenth // 10 - 1]
        kept = [right for score, right in cases if score >= threshold]
        allowed = errors_allowed(len(kept), share)
        if allowed < 0:
            continue
        if kept.count(False) > allowed:
            break
        found = threshold
    return found


def bound_kept(cases: Scored, draw: random.Random) -> tuple[int, int, float]:
    """Over splits into halves: how often one half gave a threshold, how often the other half then had too many wrong among
    what was kept, and the mean share that was kept."""
    shuffled, given, broken, share = list(cases), 0, 0, 0.0
    for _ in range(SPLITS):
        draw.shuffle(shuffled)
        half = len(shuffled) // 2
        threshold = certify(shuffled[:half], MAX_ERROR)
        if threshold is None:
            continue
        kept = [right for score, right in shuffled[half:] if score >= threshold]
        given += 1
        share += len(kept) / (len(shuffled) - half)
        broken += bool(kept) and kept.count(False) / len(kept) > MAX_ERROR
    return given, broken, share / max(1, given)


def resampled(items: Sequence, of: Callable[[Sequence], float], draw: random.Random) -> tuple[float, float, float] | None:
    """Value, and the lower and upper end of its 95 % interval by resampling."""
    found = sorted(x for _ in range(RESAMPLES) if not math.isnan(x := of(draw.choices(items, k=len(items)))))
    value = of(items)
    if math.isnan(value) or len(found) < RESAMPLES // 2:
        return None
    return value, found[len(found) * 25 // 1000], found[len(found) * 975 // 1000]


def interval(items: Sequence, of: Callable[[Sequence], float], draw: random.Random) -> str:
    found = resampled(items, of, draw)
    return "-" if found is None else f"{found[0]:.3f} ({found[1]:.3f} to {found[2]:.3f})"


def claim(name: str, what: str, goal: float, items: Sequence, of: Callable[[Sequence], float], draw: random.Random) -> str:
    """How many answers a claim takes. An interval reaches h(n) = h sqrt(N / n) to a side with n answers, where h was found with N;
    a value v shows the goal g as soon as h(n) <= v - g, so from n = N (h / (v - g))^2 on, and that it is missed likewise."""
    found = resampled(items, of, draw)
    if found is None:
        return f"| {name}: {what} | {len(items)} | - | - | - | - | - |"
    value, low, high = found
    half = (high - low) / 2
    takes = lambda width, side=half: round(len(items) * (side / width) ** 2) if width else 10**9  # noqa: E731
    needed = takes(abs(value - goal), value - low if value >= goal else high - value)
    shown = "reached" if value >= goal else "missed"
    shown = f"{shown}, from n = {needed}" if needed < 100_000 else "no number of answers: it is at the goal"
    return f"| {name}: {what} | {len(items)} | {value:.3f} | {half:.3f} | {takes(0.05)} | {takes(0.02)} | {goal} {shown} |"


def ece_claim(name: str, cases: Scored, draw: random.Random) -> str:
    """From how many answers on 95 of 100 sets with a perfect confidence would have at most the ECE of the goal."""
    scores = [score for score, _ in cases]
    at = lambda n: (  # noqa: E731
        sorted(ece([(x, draw.random() < x) for x in draw.choices(scores, k=n)]) for _ in range(200))[189]
    )
    low, high = BINS, 20_000
    while high - low > max(10, low // 50):
        middle = (low + high) // 2
        low, high = (low, middle) if at(middle) <= ECE_GOAL else (middle, high)
    floor = ece_floor(scores, draw)
    return f"| {name} | {len(cases)} | {ece(cases):.3f} | {floor[len(floor) * 95 // 100]:.3f} | {high} |"


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def applied(section: dict, features: Sequence[float]) -> float:
    """What a bundle's section makes of the statistics of an answer."""
    c, calibrator = section["combiner"], section["calibrator"]
    columns = zip(features, c["mean"], c["scale"], c["weight"], strict=True)
    odds = c["bias"] + sum(w * ((x - mean) / scale) for x, mean, scale, w in columns)
    if calibrator["kind"] == "platt":
        return sigmoid(calibrator["slope"] * odds + calibrator["offset"])
    if calibrator["kind"] == "temperature":
        return sigmoid(odds / calibrator["temperature"])
    steps = [p for start, p in zip(calibrator["from"], calibrator["probability"], strict=True) if start <= odds]
    return steps[-1] if steps else calibrator["probability"][0]


def unseen(name: str, section: dict, files: Sequence[Path], known: dict[tuple[str, str], Answer], draw: random.Random) -> str:
    """A fit that knew nothing of a task, on its answers; beside it the fit that knew others of the task."""
    cases, own = [], []
    for file in files:
        results = json.loads(file.read_text())
        for case in results["cases"]:
            seen = (case.get("gathered") or {}).get("seen")
            answer = known.get((results["setup"]["task"], case["id"]))
            if seen and answer:
                cases.append((applied(section, seen[-1]["features"]), case["correct"]))
                own.append((answer.score, answer.right))
    return (
        f"| {name} | {section['task']} | {len(cases)} | {interval(cases, auroc, draw)} | {auroc(own):.3f} | "
        f"{auroc(own) - auroc(cases):.3f} | {ece(cases):.3f} | {ece(own):.3f} |"
    )


def watched(answers: Sequence[Answer]) -> list[Answer]:
    """Those that were watched along the way, not only at their end; none where they are the smaller part."""
    part = [a for a in answers if len(a.along) > 1]
    return part if 2 * len(part) > len(answers) else []


def early(answers: Sequence[Answer], limit: int, column: int) -> Scored:
    """Scores after at most `limit` tokens (column 0) or tokens of values (1); what has none yet is of middling sureness."""
    base = sum(a.right for a in answers) / len(answers)
    out = []
    for a in answers:
        seen = [entry[2] for entry in a.along if entry[column] <= limit]
        out.append((seen[-1] if seen else base, a.right))
    return out


def read(local: Path, cloud: dict[tuple[str, str], bool]) -> list[Answer]:
    return [
        Answer(
            task=row["task"],
            id=row["id"],
            score=row["confidence"],
            right=row["correct"],
            cloud=cloud.get((row["task"], row["id"])),
            along=tuple((e["tokens"], e["values"], e["confidence"]) for e in row["along"]),
            prompt_tokens=row["prompt_tokens"],
            answer_tokens=row["answer_tokens"],
        )
        for row in json.loads(local.read_text())["answers"]
    ]


def scored(answers: Sequence[Answer]) -> Scored:
    return [(a.score, a.right) for a in answers]


def sureness(name: str, answers: Sequence[Answer], draw: random.Random) -> str:
    cases = scored(answers)
    floor = ece_floor([score for score, _ in cases], draw)
    right = sum(a.right for a in answers)
    return (
        f"| {name} | {len(cases)} | {100 * right / len(cases):.1f} % | {interval(cases, auroc, draw)} | {ece(cases):.3f} | "
        f"{sum(floor) / len(floor):.3f}, {floor[len(floor) * 95 // 100]:.3f} | {brier(cases):.3f} |"
    )


def routed(name: str, answers: Sequence[Answer], draw: random.Random) -> str:
    found = routing(answers)
    return (
        f"| {name} | {len(answers)} | {100 * found.local:.1f} % | {100 * found.cloud:.1f} % | "
        f"{interval(answers, lambda a: routing(a).apgr, draw)} | {interval(answers, lambda a: routing(a).skill, draw)} |"
    )


def shares(name: str, answers: Sequence[Answer]) -> str:
    """What has to be handed off for parts of the target's accuracy, and for parts of the gap."""
    found = routing(answers)
    whole = [found.share_for(part * found.cloud) for part in (0.5, 0.8, 0.95)]
    gap = [found.share_for_gap(part) for part in (0.5, 0.8, 0.95)]
    return f"| {name} | {len(answers)} | " + " | ".join(f"{100 * x:.0f} %" for x in [*whole, *gap]) + " |"


def reliable(name: str, answers: Sequence[Answer], draw: random.Random) -> str:
    """Mean confidence and share of right answers, of all and of the least and the most sure third."""
    ordered = sorted(scored(answers))
    third = len(ordered) // 3
    parts = [ordered, ordered[:third], ordered[-third:]]
    shown = (f"{sum(s for s, _ in part) / len(part):.2f} / {sum(r for _, r in part) / len(part):.2f}" for part in parts)
    floor = ece_floor([score for score, _ in ordered], draw)
    return f"| {name} | {len(ordered)} | " + " | ".join(shown) + f" | {ece(ordered):.3f} | {floor[len(floor) * 95 // 100]:.3f} |"


def money(name: str, answers: Sequence[Answer], speed: tuple[float, float]) -> list[str]:
    """Dollars for 1,000 requests and seconds for one, at 95 % of the target's accuracy, beside sending everything."""
    found = routing(answers)
    ordered = sorted(answers, key=lambda a: a.score)
    away = ordered[: round(found.share_for(0.95 * found.cloud) * len(ordered))]
    local = sum(a.prompt_tokens / speed[0] + a.answer_tokens / speed[1] for a in answers) / len(answers)

    def remote(part: Sequence[Answer]) -> float:
        return sum(CLOUD_FIRST_S + a.answer_tokens / CLOUD_TOKENS_S for a in part) / len(answers)

    rows = []
    for model, (price_in, price_out) in PRICES.items():

        def dollars(part: Sequence[Answer], prices: tuple[float, float] = (price_in, price_out)) -> float:
            each = (a.prompt_tokens * prices[0] + a.answer_tokens * prices[1] for a in part)
            return 1000 * sum(each) / 1e6 / len(answers)

        rows.append(
            f"| {name} | {model} | {dollars(away):.4f} | {dollars(answers):.4f} | {local + remote(away):.2f} | "
            f"{remote(answers):.2f} |"
        )
    return rows


def diagram(name: str, answers: Sequence[Answer], draw: random.Random) -> chart.Plot:
    found = bins(scored(answers))
    bands = []
    for score, _, n in found:
        outcomes = sorted(sum(draw.random() < score for _ in range(n)) / n for _ in range(RESAMPLES))
        bands.append((score, outcomes[25], outcomes[975]))
    return chart.Plot(
        f"{name}: share of right answers",
        "confidence (gray: 95 % of what a perfect one shows)",
        f"n = {len(answers)}",
        (0, 1),
        (0, 1),
        [("perfect", [(0, 0), (1, 1)])],
        dots=[(score, right) for score, right, _ in found],
        bands=bands,
    )


def curves(answers: Sequence[Answer], name: str) -> chart.Plot:
    found = routing(answers)
    n = len(answers)
    points = lambda curve: [(k / n, value) for k, value in enumerate(curve)]  # noqa: E731
    low = math.floor(20 * found.local) / 20
    high = math.ceil(20 * max(found.oracle)) / 20
    lines = [
        ("by confidence", points(found.accuracy)),
        ("by chance", [(0, found.local), (1, found.cloud)]),
        ("best possible", points(found.oracle)),
    ]
    return chart.Plot(f"{name}: accuracy", "share handed off", f"n = {n}", (0, 1), (low, max(high, low + 0.05)), lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local", action="append", required=True, metavar="NAME=FILE", help="output of calibrate --json")
    parser.add_argument("--cloud", action="append", required=True, type=Path, help="results of eval")
    parser.add_argument("--speed", default="1234,91", help="local tokens a second of prompts and answers (%(default)s)")
    parser.add_argument(
        "--unseen",
        action="append",
        default=[],
        metavar="NAME=SECTION,FILE...",
        help="the confidence.json of a fit without a task, and results of calibrate of that task",
    )
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args(arguments)
    cloud = {}
    for file in options.cloud:
        results = json.loads(file.read_text())
        cloud |= {(results["setup"]["task"], case["id"]): case["correct"] for case in results["cases"]}
    draw = random.Random(SEED)
    speed = tuple(float(x) for x in options.speed.split(","))
    panels = []
    sets = {}
    for named in options.local:
        name, _, file = named.partition("=")
        answers = read(Path(file), cloud)
        sets[name] = answers
        tasks = sorted({a.task for a in answers})
        if len(tasks) > 1:
            sets |= {f"{name}, {task}": [a for a in answers if a.task == task] for task in tasks}
    print("| answers | n | right | AUROC (95 %) | ECE | ECE of a perfect score: mean, 95 % | Brier |")
    print("|---|---|---|---|---|---|---|")
    for name, answers in sets.items():
        print(sureness(name, answers, draw))
    print("\n| AUROC after | 0 | 1 | 4 | 16 | 64 | all | 16 beside all |")
    print("|---|---|---|---|---|---|---|---|")
    for name, answers in ((name, part) for name, answers in sets.items() if (part := watched(answers))):
        end = auroc(scored(answers))
        for column, what in enumerate(("tokens", "tokens of values")):
            row = [auroc(early(answers, k, column)) for k in (0, 1, 4, 16, 64)]
            print(f"| {name}: {what} |", " | ".join(f"{x:.3f}" for x in [*row, end]), f"| {100 * row[3] / end:.0f} % |")
    print("\n| confidence / share of right answers | n | all | least sure third | surest third | ECE | ECE of a perfect score, 95 % |")
    print("|---|---|---|---|---|---|---|")
    for name, answers in sets.items():
        print(reliable(name, answers, draw))
    if options.unseen:
        known = {(a.task, a.id): a for answers in sets.values() for a in answers}
        print("\n| tried on | fitted to | n | AUROC (95 %) | of the fit that knew the set | loss | ECE | of that fit |")
        print("|---|---|---|---|---|---|---|---|")
        for named in options.unseen:
            name, _, files = named.partition("=")
            section, *results = map(Path, files.split(","))
            print(unseen(name, json.loads(section.read_text()), results, known, draw))
    print("\n| requests that both answered | n | local | target | APGR (95 %) | skill (95 %) |")
    print("|---|---|---|---|---|---|")
    both = {name: [a for a in answers if a.cloud is not None] for name, answers in sets.items()}
    both = {name: answers for name, answers in both.items() if answers}
    for name, answers in both.items():
        print(routed(name, answers, draw))
    print("\n| handed off for | n | 50 % of the target's accuracy | 80 % | 95 % | 50 % of the gap | 80 % | 95 % |")
    print("|---|---|---|---|---|---|---|---|")
    for name, answers in both.items():
        print(shares(name, answers))
    print("\n| claim | n here | value | half of the interval | n for 0.05 | n for 0.02 | goal |")
    print("|---|---|---|---|---|---|---|")
    for name, answers in sets.items():
        calls = {a.task for a in answers} == {"bfcl"}
        goal = GOALS["AUROC of calls" if calls else "AUROC"]
        print(claim(name, "AUROC", goal, scored(answers), auroc, draw))
    for name, answers in both.items():
        print(claim(name, "APGR", GOALS["APGR"], answers, lambda a: routing(a).apgr, draw))
        print(claim(name, "skill", GOALS["skill"], answers, lambda a: routing(a).skill, draw))
    print(f"\n| ECE of at most {ECE_GOAL} | n here | ECE | of a perfect score, 95 % | n for a claim |")
    print("|---|---|---|---|---|")
    for name, answers in sets.items():
        print(ece_claim(name, scored(answers), draw))
    print("\n| at 95 % of the target's accuracy | prices of | $ for 1,000 | $ if all are sent | s | s if all are sent |")
    print("|---|---|---|---|---|---|")
    for name, answers in both.items():
        print("\n".join(money(name, answers, speed)))
    print(f"\n| at most {100 * MAX_ERROR:.0f} % wrong | threshold found | bound broken in the other half | of all splits | kept |")
    print("|---|---|---|---|---|")
    for name, answers in sets.items():
        given, broken, share = bound_kept(scored(answers), draw)
        part = f"{100 * broken / given:.1f} %" if given else "-"
        print(f"| {name} | {given} of {SPLITS} splits | {part} | {100 * broken / SPLITS:.1f} % | {100 * share:.0f} % |")
    first = next(iter(sets))
    if both.get(first):
        panels.append(curves(both[first], first))
    ks = (1, 4, 16, 64)
    ticks = [(i, str(k)) for i, k in enumerate(ks)] + [(len(ks), "all")]
    for name, answers in sets.items():
        if not (along := watched(answers)):
            continue
        lines = []
        for column, what in enumerate(("tokens of the answer", "tokens of values")):
            row = [auroc(early(along, k, column)) for k in ks] + [auroc(scored(along))]
            lines.append((what, list(enumerate(row))))
        low = 0.4 if min(y for _, line in lines for _, y in line) >= 0.4 else 0.2
        panels.append(chart.Plot(f"{name}: AUROC", "tokens seen", f"n = {len(along)}", (0, 4), (low, 1), lines, ticks=ticks))
    panels += [diagram(name, answers, draw) for name, answers in sets.items()]
    panels += [curves(part, name) for name, part in both.items() if len(part) >= 50 and part != both.get(first)]
    if options.svg:
        options.svg.write_text(chart.plots(panels, columns=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
