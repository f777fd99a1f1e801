"""A model beside its bundle: captured, transpiled, run, and continued through the states.

Purpose: what `sweep.py` finds out of one model, as a row of JSON, and the process of its own in which it does so. It
imports torch and the package; it knows no list of models and no page.
"""

import contextlib
import json
import multiprocessing
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
import torch
from cactus.transpile import program
from cactus.transpile.capture_pytorch import capture_model
from cactus.transpile.errors import TranspileError
from cactus.transpile.lower import options

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


def component(c, folder, row):
    """Captures, transpiles and runs one component; fills a row of the table as far as it comes."""
    row |= {"component": c.name, "exports": False}
    if c.task == "causal_lm_logits":
        row["causal"] = causal(c.module, *c.inputs.values())
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
    if c.task == "causal_lm_logits" and captured.notes:
        row["states"] = "the length is fixed"
    elif c.task == "causal_lm_logits" or decoder:
        row |= greedy(captured, archive, folder / "lm")


def causal(module, ids, *rest):
    """Whether logits depend on no later token, as far as one change of the last four shows it."""
    other = ids.clone()
    other[:, -4:] = ids[:, -4:].flip(1) + 1
    other[:, -4:] %= int(ids.max())
    with torch.no_grad():
        a, b = module(ids, *rest)[:, :-4], module(other, *rest)[:, :-4]
    return bool((a - b).abs().max() <= 1e-4 * a.abs().max())


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
            out.append(torch.cat([x, others(x)], 1))
        else:
            return None
    return tuple(out)


def others(x):
    """As many tokens, none of them in `x`. A token that comes twice has the same scores twice in a first layer, and which of
    equal ones `torch.topk` takes is left to chance: a model that chooses keys by scores would differ from itself. A mask of
    ones is repeated."""
    seen = set(x.flatten().tolist())
    free = [i for i in range(min(seen), max(seen)) if i not in seen]
    # Tokens with a meaning of their own have small numbers.
    return torch.tensor(free[-x.shape[1] :]).expand_as(x) if len(free) >= x.shape[1] else x


def greedy(captured, archive, bundle):
    """Tokens of the stateful program beside those that PyTorch picks by computing the whole sequence again."""
    try:
        made = program.transpile(archive, bundle, "--task", "causal_lm_logits")
        ids, rest = captured.args[0][0].tolist(), captured.args[1:]
        names = captured.ir_graph.input_names[1:]
        given = {n: x.numpy() for n, x in zip(names, rest) if n not in WITHOUT_ROWS}
        found = program.generate(bundle, ids, GREEDY_TOKENS, given)
    except TranspileError as e:
        return {"states": str(e)}
    del made
    beside = lambda count: [WITHOUT_ROWS[n](x, count) if n in WITHOUT_ROWS else x for n, x in zip(names, rest)]  # noqa: E731
    same, gap = picked(captured.module, ids, beside, found)
    row = {"states": "yes", "greedy": f"{same} of {GREEDY_TOKENS}"}
    if gap is None:
        return row
    # What half precision turns around is no mistake: a model that chooses experts may jump where two scores are near.
    with half_precision():
        same, _ = picked(captured.module, ids, beside, found)
    return row | {"gap": gap, "half": f"{same} of {GREEDY_TOKENS}"}


#: What a decoder of a model that sees or hears reads beside so many tokens of a text: no rows.
WITHOUT_ROWS = {
    "media_mask": lambda x, count: x.new_zeros(1, count, 1),
    "media_rows": lambda x, count: x.new_zeros(1, count, x.shape[2]),
    "media_until": lambda x, count: torch.arange(count),
    "media_positions": lambda x, count: torch.arange(count)[:, None].expand(count, x.shape[1]),
}


def picked(module, ids, beside, found):
    """How many tokens of `found` are those that PyTorch picks behind `ids`, and how near the two were where they part;
    `beside` gives what the module reads beside so many tokens."""
    want, gap = list(ids), None
    with torch.no_grad():
        for i in range(GREEDY_TOKENS):
            logits = module(torch.tensor([want]), *beside(len(want)))[0, -1]
            want.append(int(logits.argmax()))
            if gap is None and i < len(found) and found[i] != want[-1]:
                gap = float((logits.max() - logits[found[i]]) / logits.abs().max())
    return sum(a == b for a, b in zip(found, want[len(ids) :])), gap


@contextlib.contextmanager
def half_precision():
    """PyTorch with keys and values rounded to half precision, where it attends by its own operation."""
    attend = torch.nn.functional.scaled_dot_product_attention

    def rounded(q, k, v, *args, **more):
        return attend(q, k.half().to(k.dtype), v.half().to(v.dtype), *args, **more)

    torch.nn.functional.scaled_dot_product_attention = rounded
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = attend


def said(error):
    """What an error says, and where it comes from unless it is one of ours."""
    if isinstance(error, TranspileError):
        return {"failed": str(error)}
    return {"failed": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}


def model(name, find):
    """The rows of one model; `find` gives what is known of it, its task and its components."""
    from cactus.transpile.model_adapters import Component, components

    torch.set_num_threads(1)
    result = {"name": name, "rows": []}
    try:
        about, made, task = find(name)
        result |= about
        if made is None:
            return result
        if isinstance(made, Component):
            result["task"], parts = "function", [made]
        elif isinstance(made, list):
            result["task"], parts = task, made
        else:
            result["task"], parts = components(made, task)
    except Exception as e:
        return result | said(e)
    with tempfile.TemporaryDirectory() as folder:
        for c in parts:
            row = {"component": c.name}
            result["rows"].append(row)
            try:
                component(c, Path(folder), row)
            except Exception as e:
                row |= said(e)
    return result


def warm():
    """Loads what torch loads at the first capture, once for all the processes to come."""
    torch.set_num_threads(1)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).eval()
    with tempfile.TemporaryDirectory() as folder:
        shapes = ({1: torch.export.Dim("seq", min=2, max=64)},)
        capture_model(layer, (torch.zeros(1, 4, 8),), dynamic_shapes=shapes).ir_graph.save(Path(folder) / "x.pt2")


def _child(name, find, path):
    path.write_text(json.dumps(model(name, find)))


def each(names, find, jobs=1, limit_seconds=240):
    """The result of each model, taken in a process of its own forked from this one: torch is imported once, and a crash or
    a model that takes too long is a row."""
    warm()
    context = multiprocessing.get_context("fork")
    waiting, running = list(names), []
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                path = Path(folder) / f"{len(waiting)}.json"
                child = context.Process(target=_child, args=(name, find, path))
                child.start()
                running.append((name, path, child, time.monotonic()))
            for entry in list(running):
                name, path, child, start = entry
                child.join(0.2)
                seconds = time.monotonic() - start
                if child.is_alive() and seconds < limit_seconds:
                    continue
                why = f"it took more than {limit_seconds} seconds"
                if child.is_alive():
                    child.kill()
                    child.join()
                else:
                    why = f"the process ended with code {child.exitcode}"
                result = {"name": name, "rows": [], "failed": why}
                if path.is_file() and child.exitcode == 0:
                    result = json.loads(path.read_text())
                    path.unlink()
                running.remove(entry)
                yield result | {"seconds": round(seconds, 1)}
