"""The pages docs/reference/architectures.md and picture-models.md out of what `sweep.py` found.

Purpose: text only; it needs nothing beyond the standard library.
"""

import re

HEAD = """# Architectures of transformers

Every architecture that transformers {transformers} maps to one of the tasks below, built small with random weights (nothing
zero or one, so that no part is idle), captured by `torch.export` with PyTorch {torch}, transpiled, and run beside PyTorch on
one CPU. What a real checkpoint brings beyond it is its size. The page is generated; the command goes on where it was broken
off, and takes an hour or two:

```sh
python python/tools/sweep.py --write
```

A causal language model is run as a function (*error*: the largest difference to PyTorch relative to the largest logit, at
two lengths) and continued call by call through the states that the passes inserted (*tokens*: 24 greedy ones with keys and
values in half precision, beside those that PyTorch picks by computing the whole sequence again for each). The others are run
as functions. A model counts as *causal* where changing the last tokens changes no logits before them. Of equal scores
PyTorch's `topk` may take any, so models that choose keys by scores are compared where no two are equal: the small models have
16 index heads, and the longer input has no token twice.

"""

PICTURES_HEAD = """# Models of timm and torchvision

Models of timm {timm} and torchvision {torchvision} with random weights (nothing zero or one, so that no part is idle), captured by `torch.export` with PyTorch
{torch}, transpiled at 32 bits, and run beside PyTorch on one CPU with a picture as small as the model takes. From timm one of the smallest
models of each of its modules, and a second one where a module has many; from torchvision one of each kind but those that find objects. The *error* is the largest difference to PyTorch
relative to the largest number of the result. The page is generated; the command needs both packages and takes an hour:

```sh
python python/tools/sweep.py timm torchvision --write
```

"""

#: An error of a function above this is a mistake, not rounding.
TOLERANCE = 1e-4


def page(groups: dict[str, dict], versions: dict[str, str], known: dict[str, list[str]] | None = None) -> str:
    """`groups` has the results by group and name; what of `known` is not among them is said to be missing."""
    from groups import GROUPS

    missing = {g: [n for n in names if n not in groups.get(g, {})] for g, names in (known or {}).items()}

    text = HEAD.format(**versions) + "| Group | Architectures | Built | Captured | Transpiled | Right | With states | Equal tokens |\n"
    text += "|---|---|---|---|---|---|---|---|\n"
    titles = [(name, GROUPS[name].title) for name in GROUPS if name in groups]
    for name, title in titles:
        text += "| " + " | ".join([title, *map(str, counts(name, groups[name]))]) + " |\n"
    text += older(groups)
    for name, names in missing.items():
        if names:
            text += f"\n{GROUPS[name].title}: {len(names)} are not run for this state of the page.\n"
    for name, title in titles:
        text += f"\n## {title}\n\n" + body(name, groups[name])
    return text


def pictures(groups: dict[str, dict], versions: dict[str, str]) -> str:
    """The page of the models of pictures; `groups` as for `page`."""
    text = PICTURES_HEAD.format(**versions) + "| Package | Models | Built | Captured | Transpiled | Right |\n|---|---|---|---|---|---|\n"
    for name, results in groups.items():
        text += "| " + " | ".join([name, *map(str, counts(name, results)[:5])]) + " |\n"
    text += older(groups)
    for name, results in groups.items():
        text += f"\n## {name}\n\n" + body(name, results).replace("| Architecture | Captured | Error | Tokens |", "| Model | Captured | Error | Tokens |")
    return text


def older(groups: dict[str, dict]) -> str:
    """How many rows are not of the newest build of the program."""
    programs = [r.get("program", "") for results in groups.values() for r in results.values()]
    count = sum(p != max(programs) for p in programs) if programs else 0
    return f"\n{count} of {len(programs)} models were taken with an earlier build of the program than the others.\n" if count else ""


def built(result: dict) -> bool:
    return "unbuilt" not in result


def parts(result: dict) -> list[dict]:
    return result["rows"] or [{"component": "", "failed": result.get("failed", "")}]


def right(row: dict) -> bool:
    return row.get("error", 1.0) <= TOLERANCE


def counts(name: str, results: dict) -> list:
    models = [r for r in results.values() if built(r)]
    every = lambda test: sum(all(test(row) for row in parts(r)) for r in models)  # noqa: E731
    out = [len(results), len(models), every(lambda row: row.get("exports")), every(lambda row: "error" in row), every(right)]
    if name != "causal":
        return [*out, "", ""]
    return [*out, every(lambda row: row.get("states") == "yes"), every(lambda row: "greedy" in row and whole(row))]


def whole(row: dict) -> bool:
    same, _, of = row["greedy"].partition(" of ")
    return same == of


def fine(name: str, result: dict) -> bool:
    """Whether a model is no exception."""
    if not built(result):
        return False
    rows = parts(result)
    if name == "causal":
        return all(right(row) and row.get("states") == "yes" and whole(row) for row in rows)
    return all(right(row) for row in rows)


def body(name: str, results: dict) -> str:
    models = {n: r for n, r in sorted(results.items()) if built(r)}
    good = [n for n, r in models.items() if fine(name, r)]
    text = ""
    if good:
        most = max(row["error"] for n in good for row in parts(models[n]))
        what = "equal tokens, " if name == "causal" else ""
        text += f"Without exception ({what}the largest error is {most:.0e}): " + ", ".join(f"`{n}`" for n in good) + ".\n\n"
    rest = [line for n, r in models.items() if n not in good for line in exceptions(n, r)]
    if rest:
        text += "| Architecture | Captured | Error | Tokens | Why |\n|---|---|---|---|---|\n" + "".join(rest) + "\n"
    unbuilt = {n: r for n, r in sorted(results.items()) if not built(r)}
    if unbuilt:
        text += "Not built small, or not called by a rule of the sweep:\n\n"
        text += "".join(f"- `{n}`: {short(r['unbuilt'])}\n" for n, r in unbuilt.items())
    return text


def exceptions(name: str, result: dict):
    for row in parts(result):
        captured = "no" if not row.get("exports") else "one length" if row.get("notes") else "yes"
        error = f"{row['error']:.0e}" if "error" in row else ""
        tokens = row.get("greedy", "no states" if "states" in row else "")
        shown = name if row["component"] in ("", "model", "decoder") else f"{name}, {row['component']}"
        yield f"| `{shown}` | {captured} | {error} | {tokens} | {short(reason(row))} |\n"


def reason(row: dict) -> str:
    """Why a row is an exception."""
    if "failed" in row:
        return row["failed"]
    why = []
    if not right(row):
        why.append(f"the error is above {TOLERANCE:.0e}")
    if row.get("causal") is False:
        why.append("it is not causal in PyTorch either: a later token changes earlier logits")
    if row.get("notes"):
        why.append(row["notes"][0])
    elif row.get("states", "yes") != "yes":
        why.append(row["states"])
    if "gap" in row:
        why.append(f"where they part, the two tokens are {row['gap']:.0e} of the largest logit apart")
    if "half" in row:
        why.append(f"with keys and values in half precision PyTorch picks {row['half']} of these tokens")
    return "; ".join(why)


def short(text: str) -> str:
    """One line without paths of the machine that ran it."""
    text = " ".join(text.split())
    text = re.sub(r"\S*/site-packages/([\w/.-]+\.py)", r"\1", text)
    text = re.sub(r"(?<![\w-])/\S*/([\w.-]+\.(?:pt2|py))", r"\1", text)
    text = text.replace("decoder.pt2: ", "").replace("model.pt2: ", "")
    text = text.replace("the graph cannot be made: pass insert_states: ", "").replace("|", "/")
    text = text.replace(' For more information, run with TORCH_LOGS="+dynamic".', "")
    return text if len(text) < 360 else text[:357] + "…"
