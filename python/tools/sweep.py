"""Every architecture of transformers, small, and models of timm and torchvision, with random weights: captured, transpiled,
and run beside PyTorch.

    python python/tools/sweep.py [GROUP ...] [--only NAME ...] [--jobs N] [--exceptions] [--again] [--json FILE] [--write]

Groups are those of `groups.py`: `causal`, `masked`, `encoder`, `image`, `audio`, `seq2seq`, `speech`, `families` (the models of
`zoo.py`), and `timm` and `torchvision`, which are taken where those packages are. Results are kept in FILE (`target/sweep.json`) after each model, and a model that is there is not taken again, so
a run that was broken off goes on where it was; `--exceptions` takes those anew that were not right, `--again` all, `--only`
those named. `--write` makes
docs/reference/families.md, architectures.md and picture-models.md of what FILE holds.

Needs torch, transformers and the cactus program (`CACTUS_PROGRAM`, or on the path).
"""

import argparse
import json
import os
import sys
import time
import warnings
from importlib import metadata, util
from pathlib import Path

#: Groups that are packages of their own.
PICTURES = ("timm", "torchvision")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "tools")]


def read(path):
    return json.loads(path.read_text()) if path.is_file() else {}


def keep(path, results):
    """Replaces the file whole: a run that is broken off leaves the last state."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".partial")
    beside.write_text(json.dumps(results, indent=1, sort_keys=True))
    os.replace(beside, path)


def program_built():
    """When the program was built, which tells results of several builds apart."""
    from cactus.transpile.program import find

    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(os.stat(find()).st_mtime))


def shown(group, result):
    for row in result["rows"] or [result]:
        keys = ("failed", "notes", "causal", "error", "states", "greedy", "gap")
        what = "; ".join(f"{k} {row[k]}" for k in keys if row.get(k) not in (None, []))
        yield f"{group} {result['name']} ({result['seconds']} s) {row.get('component', '')}: {what}"


def write_pages(results):
    import torch
    import transformers
    from architectures_page import page as architectures
    from architectures_page import pictures
    from families_page import page as families
    from groups import GROUPS

    pages = ROOT / "docs" / "reference"
    versions = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    if zoo := results.get("families"):
        known = GROUPS["families"].names()
        (pages / "families.md").write_text(
            families([zoo[n] for n in known if n in zoo], versions["torch"], [n for n in known if n not in zoo])
        )
    seen = {g: results[g] for g in PICTURES if results.get(g)}
    if seen:
        versions |= {g: metadata.version(g) for g in seen}
        (pages / "picture-models.md").write_text(pictures(seen, versions))
    others = [g for g in GROUPS if g not in ("families", *PICTURES)]
    if rest := {g: results[g] for g in others if results.get(g)}:
        (pages / "architectures.md").write_text(architectures(rest, versions, {g: GROUPS[g].names() for g in others}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="all unless named")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of each group, these")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--limit", type=int, default=240, help="seconds for a model")
    parser.add_argument("--again", action="store_true", help="also those that FILE holds")
    parser.add_argument("--exceptions", action="store_true", help="also those that FILE holds as exceptions")
    parser.add_argument("--json", type=Path, default=ROOT / "target" / "sweep.json", metavar="FILE")
    parser.add_argument("--write", action="store_true", help="write the pages")
    args = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.simplefilter("ignore")
    import transformers

    transformers.logging.set_verbosity_error()
    from architectures_page import fine
    from groups import GROUPS
    from measure import each

    if unknown := set(args.groups) - set(GROUPS):
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    results, program = read(args.json), program_built()
    for name in args.groups or [g for g in GROUPS if g not in PICTURES or util.find_spec(g)]:
        group, found = GROUPS[name], results.setdefault(name, {})
        chosen = [n for n in group.names() if not args.only or n in args.only]
        if not (args.again or args.only):
            open_ = lambda n: n not in found or args.exceptions and not fine(name, found[n])  # noqa: E731
            chosen = [n for n in chosen if open_(n)]
        for result in each(chosen, group.find, args.jobs, args.limit):
            found[result["name"]] = result | {"program": program}
            keep(args.json, results)
            for line in shown(name, result):
                print(line, flush=True)
    if args.write:
        write_pages(results)


if __name__ == "__main__":
    main()
