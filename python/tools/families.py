"""Captures every model of the zoo, transpiles it, runs it beside PyTorch, and writes docs/reference/families.md.

    python python/tools/families.py [--only NAME ...] [--json FILE] [--write]

Needs torch, transformers and the cactus program (`CACTUS_PROGRAM`, or on the path). Every model is taken in a process
of its own forked from this one, so that torch is imported once and a failure stays where it is.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "tools")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from cactus.transpile import program  # noqa: E402
from cactus.transpile.capture_pytorch import capture_model  # noqa: E402
from cactus.transpile.errors import TranspileError  # noqa: E402
from cactus.transpile.lower import options  # noqa: E402

#: Operations that only move elements.
MOVES = {"reshape", "permute", "slice", "concat", "expand", "cast"}
#: Operations that passes make of several.
FUSED = {"rms_norm", "layer_norm", "rope", "attention", "gated", "short_conv", "gated_delta"}
GREEDY_TOKENS = 24


def relative(found, want):
    """The largest difference, relative to the largest value."""
    found, want = np.asarray(found, np.float64), np.asarray(want, np.float64)
    if found.shape != want.shape:
        return float("inf")
    if not np.isfinite(want).all():
        raise TranspileError("the reference is not finite")
    most = np.abs(want).max(initial=0.0)
    if most == 0.0:
        raise TranspileError("the reference is all zeros, which proves nothing")
    return float(np.abs(found - want).max(initial=0.0) / most)


def component(c, folder):
    """Captures, transpiles and runs one component; gives a row of the table."""
    row = {"component": c.name, "exports": False}
    captured = capture_model(c.module, tuple(c.inputs.values()), dynamic_shapes=c.dynamic_shapes(), name=c.name)
    row |= {"exports": True, "notes": captured.notes, "captured": captured.ir_graph.operations}
    archive = captured.ir_graph.save(folder / f"{c.name}.pt2")
    bundle = folder / c.name
    program.transpile(archive, bundle, *options(task="function"))
    ops = program.inspect(bundle)["components"][0]["ops"]
    row["ops"] = sum(ops.values())
    row["computing"] = sum(n for op, n in ops.items() if op not in MOVES)
    row["fused"] = sum(n for op, n in ops.items() if op in FUSED)
    row["error"] = compare(captured, bundle, captured.args)
    if c.dynamic and not captured.notes and (longer := other_length(c)) is not None:
        row["error"] = max(row["error"], compare(captured, bundle, longer))
        row["lengths"] = 2
    decoder = c.name == "decoder" and not captured.notes and next(iter(c.inputs)).endswith("input_ids")
    if c.task == "causal_lm_logits" or decoder:
        row |= greedy(captured, archive, folder / "lm")
    return row


def compare(captured, bundle, args):
    inputs = dict(zip(captured.ir_graph.input_names, args))
    with torch.no_grad():
        want = captured.module(*args)
    want = [want] if isinstance(want, torch.Tensor) else list(want)
    found = program.run(bundle, {k: v.numpy() for k, v in inputs.items()})
    return max(relative(f, w.numpy()) for (_, f), w in zip(found, want, strict=True))


def other_length(c):
    """Inputs of another length along the axes that vary; `None` where they are not token positions alone."""
    if any(set(axes) != {1} for axes in c.dynamic.values() if axes):
        return None
    out = []
    for name, x in c.inputs.items():
        if not c.dynamic.get(name):
            out.append(x)
        elif x.dtype == torch.int64 and x.shape[1] < 40:
            out.append(torch.cat([x, x], 1))
        else:
            return None
    return tuple(out)


def greedy(captured, archive, bundle):
    """Tokens of the stateful program beside those that PyTorch picks."""
    try:
        program.transpile(archive, bundle, "--task", "causal_lm_logits")
        ids, rest = captured.args[0][0].tolist(), captured.args[1:]
        names = captured.ir_graph.input_names[1:]
        found = program.generate(bundle, ids, GREEDY_TOKENS, {n: x.numpy() for n, x in zip(names, rest)})
    except TranspileError as e:
        return {"states": str(e)}
    want = list(ids)
    with torch.no_grad():
        for _ in range(GREEDY_TOKENS):
            want.append(int(captured.module(torch.tensor([want]), *rest)[0, -1].argmax()))
    same = sum(a == b for a, b in zip(found, want[len(ids) :]))
    return {"states": "yes", "greedy": f"{same} of {GREEDY_TOKENS}"}


def work(name, out):
    from zoo import ZOO

    torch.set_num_threads(1)
    make, family, task = ZOO[name]
    result = {"name": name, "family": family, "task": task, "rows": []}
    try:
        from cactus.transpile.model_adapters import Component, components

        made = make()
        if isinstance(made, Component):
            result["task"], parts = "function", [made]
        else:
            result["task"], parts = components(made, task)
        with tempfile.TemporaryDirectory() as folder:
            for c in parts:
                row = {"component": c.name}
                result["rows"].append(row)
                try:
                    row |= component(c, Path(folder))
                except Exception as e:
                    row["failed"] = str(e) if isinstance(e, TranspileError) else f"{type(e).__name__}: {e}"
                    if not isinstance(e, TranspileError):
                        row["trace"] = traceback.format_exc()
    except Exception as e:
        result["failed"] = f"{type(e).__name__}: {e}"
        result["trace"] = traceback.format_exc()
    out.put(result)


def everything(names):
    context = multiprocessing.get_context("fork")
    for name in names:
        out = context.SimpleQueue()
        start = time.monotonic()
        child = context.Process(target=work, args=(name, out))
        child.start()
        child.join(120)
        if child.is_alive():
            child.kill()
        result = {"name": name, "rows": [], "failed": "it took more than two minutes or ended early"}
        if not out.empty():
            result = out.get()
        result["seconds"] = time.monotonic() - start
        yield result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true", help="write docs/reference/families.md")
    args = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers

    transformers.logging.set_verbosity_error()
    import user_models  # noqa: F401  registers into the zoo
    from zoo import ZOO

    unknown = set(args.only) - set(ZOO)
    if unknown:
        parser.error(f"not in the zoo: {', '.join(sorted(unknown))}")
    results = []
    for result in everything(args.only or list(ZOO)):
        results.append(result)
        if args.json:
            args.json.write_text(json.dumps(results, indent=1))
        for row in result["rows"] or [result]:
            shown = {k: v for k, v in row.items() if k not in ("trace", "rows")}
            print(f"{result['name']} ({result['seconds']:.1f} s): {shown}", flush=True)
    if args.write:
        from families_page import page

        (ROOT / "docs" / "reference" / "families.md").write_text(
            page(results, torch.__version__, [n for n in ZOO if n not in {r["name"] for r in results}])
        )


if __name__ == "__main__":
    main()
