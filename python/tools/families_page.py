"""The page docs/reference/families.md out of what `sweep.py` found.

Purpose: text only; it needs nothing beyond the standard library.
"""

HEAD = """# Captured models

Every model that `python/tools/zoo.py` and `user_models.py` have, built small with random weights (nothing zero or one, so that no part
is idle), captured by `torch.export`, transpiled, and run beside PyTorch {torch} on one CPU in F32. The page is generated:

```sh
python python/tools/sweep.py families --write
```

*Captured* counts the operations of the exported program, *ops* those of the bundle's graph, *moves* those of them that
only rearrange elements, *fused* those that passes made of several. *Error* is the largest difference to PyTorch relative
to the largest value of the output, the worst of all outputs, at two lengths where the length varies. *Tokens* are greedy
ones of the same model with states (a KV cache and the like that nobody wrote), beside those that PyTorch picks by
computing the whole sequence again for each. *Length*: whether it may vary.

"""


def page(results: list[dict], torch: str, missing: list[str] = ()) -> str:
    families = [r for r in results if not r["name"].startswith(("user_", "torchvision_", "timm_"))]
    users = [r for r in results if r not in families]
    text = HEAD.format(torch=torch.split("+")[0])
    if missing:
        text += "Not run for this state of the page: " + ", ".join(f"`{name}`" for name in missing) + ".\n\n"
    text += "## Families of transformers\n\n" + table(families)
    text += "\n## Models that nobody tuned for\n\n" + table(users)
    text += "\n## What falls short\n\n" + shortfalls(results)
    return text


def table(results: list[dict]) -> str:
    lines = [
        "| Model | Task | Component | Exports | Length | Captured | Ops | Moves | Fused | Error | Tokens |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        for row in r["rows"] or [{"component": "", "failed": r.get("failed", "")}]:
            lines.append("| " + " | ".join(cells(r, row)) + " |")
    return "\n".join(lines) + "\n"


def cells(r: dict, row: dict) -> list[str]:
    exports = "yes" if row.get("exports") else "no"
    name, task = r.get("family", r["name"]), r.get("task", "")
    if "error" not in row:
        return [name, f"`{task}`", row["component"], exports, "", "", "", "", "", "see below", ""]
    length = "fixed" if row.get("notes") or "lengths" not in row else "varies"
    tokens = row.get("greedy", "no states" if "states" in row else "")
    return [
        name,
        f"`{task}`",
        row["component"],
        exports,
        length,
        str(row["captured"]),
        str(row["ops"]),
        str(row["ops"] - row["computing"]),
        str(row["fused"]),
        f"{row['error']:.0e}",
        tokens,
    ]


def shortfalls(results: list[dict]) -> str:
    lines = []
    for r in results:
        if not r["rows"]:
            lines.append(f"- **{r.get('family', r['name'])}**: {short(r.get('failed', ''))}")
        for row in r["rows"]:
            what = f"**{r['family']}**, {row['component']}"
            if "failed" in row:
                lines.append(f"- {what}: {short(row['failed'])}")
            elif row["error"] > 1e-4:
                lines.append(f"- {what}: the error is {row['error']:.1e}, above 1e-4.")
            if row.get("states", "yes") != "yes":
                lines.append(f"- {what}: no states, so it runs one whole sequence a call: {short(row['states'])}")
            for note in row.get("notes", []):
                lines.append(f"- {what}: {short(note)}")
    return "\n".join(lines or ["Nothing that was tried."]) + "\n"


def short(text: str) -> str:
    """One line without paths of the machine that ran it."""
    import re

    text = re.sub(r"\S*/([\w.-]+\.(?:pt2|py))", r"\1", " ".join(text.split()))
    text = text.removeprefix("error: ").replace("|", "/")
    return text if len(text) < 300 else text[:297] + "…"
