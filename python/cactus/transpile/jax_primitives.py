"""What the primitives of a jaxpr mean in ATen operations: the table, one row each.

Purpose: a row gets the equation and the names of its operands and writes calls. To add a primitive, add a row. A row
that meets a form it does not know raises NotImplementedError saying which. It imports NumPy; jaxprs are read by their
attributes.
"""

from __future__ import annotations

import math

import numpy as np

from .archive import ArchiveWriter, Dtype, Name, dtype_code

#: Calls of functions that are written in place.
INLINED = {
    "jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "remat2",
    "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
}  # fmt: skip


class Walk:
    """What rows write with."""

    def __init__(self, writer: ArchiveWriter):
        self.writer = writer
        #: Numbers that are known while the program is written.
        self.known: dict[Name, float] = {}

    def call(self, target: str, aval, /, **arguments) -> Name:
        """A result of the type `aval`."""
        return self.writer.call(target, aval.shape, aval.dtype, **arguments)

    def literal(self, value: np.ndarray) -> Name:
        name = self.writer.constant(value)
        if value.size == 1:
            self.known[name] = float(value.reshape(()))
        return name

    def reshaped(self, x: Name, shape, dtype) -> Name:
        if self.writer.shape(x) == tuple(shape):
            return x
        return self.writer.call("view", shape, dtype, self=x, size=shape)

    def permuted(self, x: Name, order, dtype) -> Name:
        if list(order) == list(range(len(order))):
            return x
        shape = [self.writer.shape(x)[i] for i in order]
        return self.writer.call("permute", shape, dtype, self=x, dims=order)

    def sliced(self, x: Name, axis: int, start: int, end: int, step: int, dtype) -> Name:
        shape = list(self.writer.shape(x))
        if (start, end, step) == (0, shape[axis], 1):
            return x
        shape[axis] = max(0, -(-(end - start) // step))
        return self.writer.call("slice.Tensor", shape, dtype, self=x, dim=axis, start=start, end=end, step=step)

    def at(self, x: Name, i: int, aval) -> Name:
        return self.writer.call("select.int", aval.shape, aval.dtype, self=x, dim=0, index=i)

    def padded(self, x: Name, pads, value: float, dtype) -> Name:
        """`pads` of (before, after) for each axis; negative ones cut."""
        if not any(b or a for b, a in pads):
            return x
        shape = [n + b + a for n, (b, a) in zip(self.writer.shape(x), pads)]
        flat = [n for b, a in reversed(list(pads)) for n in (b, a)]
        return self.writer.call("constant_pad_nd", shape, dtype, self=x, pad=flat, value=value)


def _out(eqn):
    return eqn.outvars[0].aval


def _unary(target: str):
    return lambda w, e, x: w.call(target, _out(e), self=x[0])


def _erfc(w, e, x):
    y = w.call("neg", _out(e), self=w.call("erf", _out(e), self=x[0]))
    return w.call("add.Tensor", _out(e), self=y, other=1.0)


def _binary(target: str):
    return lambda w, e, x: w.call(target, _out(e), self=x[0], other=x[1])


def _same(w, e, x):
    return list(x)


def _is_float(aval) -> bool:
    return np.issubdtype(aval.dtype, np.floating)


def _div(w, e, x):
    if _is_float(_out(e)):
        return w.call("div.Tensor", _out(e), self=x[0], other=x[1])
    return w.call("div.Tensor_mode", _out(e), self=x[0], other=x[1], rounding_mode="trunc")


def _logic(logical: str, bitwise: str):
    def row(w, e, x):
        target = logical if _out(e).dtype == np.bool_ else bitwise
        return w.call(target, _out(e), self=x[0], other=x[1])

    return row


def _not(w, e, x):
    return w.call("logical_not" if _out(e).dtype == np.bool_ else "bitwise_not", _out(e), self=x[0])


def _integer_pow(w, e, x):
    y = e.params["y"]
    return (
        w.call("square", _out(e), self=x[0]) if y == 2 else w.call("pow.Tensor_Scalar", _out(e), self=x[0], exponent=y)
    )


def _cast(w, e, x):
    y = w.call("_to_copy", _out(e), self=x[0], dtype=Dtype(dtype_code(_out(e).dtype)))
    if x[0] in w.known:
        w.known[y] = float(np.asarray(w.known[x[0]], dtype=_out(e).dtype))
    return y


def _select_n(w, e, x):
    if len(x) != 3:
        raise NotImplementedError(f"a choice of {len(x) - 1}")
    if e.invars[0].aval.dtype != np.bool_:
        raise NotImplementedError("a choice by number")
    return w.call("where.self", _out(e), condition=x[0], self=x[2], other=x[1])


def _broadcast(w, e, x):
    shape, axes = e.params["shape"], e.params["broadcast_dimensions"]
    narrow = [1] * len(shape)
    for i, axis in enumerate(axes):
        narrow[axis] = e.invars[0].aval.shape[i]
    y = w.reshaped(x[0], narrow, _out(e).dtype)
    return y if tuple(narrow) == tuple(shape) else w.call("expand", _out(e), self=y, size=shape)


def _reshape(w, e, x):
    if e.params.get("dimensions") is not None:
        raise NotImplementedError("a reshape that permutes")
    return w.reshaped(x[0], _out(e).shape, _out(e).dtype)


def _view(w, e, x):
    return w.reshaped(x[0], _out(e).shape, _out(e).dtype)


def _transpose(w, e, x):
    return w.permuted(x[0], e.params["permutation"], _out(e).dtype)


def _slice(w, e, x):
    p, y = e.params, x[0]
    steps = p["strides"] or [1] * len(p["start_indices"])
    for axis, (start, end, step) in enumerate(zip(p["start_indices"], p["limit_indices"], steps)):
        y = w.sliced(y, axis, start, end, step, _out(e).dtype)
    return y


def _pad(w, e, x):
    config = e.params["padding_config"]
    if any(inside for _, _, inside in config):
        raise NotImplementedError("padding between elements")
    if x[1] not in w.known:
        raise NotImplementedError("padding with a number that is computed")
    return w.padded(x[0], [(b, a) for b, a, _ in config], w.known[x[1]], _out(e).dtype)


def _concatenate(w, e, x):
    return w.call("cat", _out(e), tensors=x, dim=e.params["dimension"])


def _stack(w, e, x):
    return w.call("stack", _out(e), tensors=x, dim=e.params["axis"])


def _is_finite(w, e, x):
    aval = e.invars[0].aval
    return w.call("lt.Scalar", _out(e), self=w.call("abs", aval, self=x[0]), other=math.inf)


def _split(w, e, x):
    results = [(v.aval.shape, v.aval.dtype) for v in e.outvars]
    sizes, axis = e.params["sizes"], e.params["axis"]
    return w.writer.calls("split_with_sizes", results, as_list=True, self=x[0], split_sizes=sizes, dim=axis)


def _iota(w, e, x):
    p, aval = e.params, _out(e)
    n, axis = aval.shape[p["dimension"]], p["dimension"]
    y = w.writer.call("arange", (n,), aval.dtype, end=n, dtype=Dtype(dtype_code(aval.dtype)))
    y = w.reshaped(y, [n if i == axis else 1 for i in range(len(aval.shape))], aval.dtype)
    return w.call("expand", aval, self=y, size=aval.shape)


def _reduce(target: str):
    def row(w, e, x):
        axes = list(e.params["axes"])
        if not axes:
            return x[0]
        if target == "sum.dim_IntList" and _out(e).dtype != np.bool_ and not _is_float(_out(e)):
            return w.call(target, _out(e), self=x[0], dim=axes, dtype=Dtype(dtype_code(_out(e).dtype)))
        return w.call(target, _out(e), self=x[0], dim=axes)

    return row


def _prod(w, e, x):
    y, dtype = x[0], _out(e).dtype
    for axis in sorted(e.params["axes"], reverse=True):
        shape = [n for i, n in enumerate(w.writer.shape(y)) if i != axis]
        y = w.writer.call("prod.dim_int", shape, dtype, self=y, dim=axis)
    return y


def _arg(target: str):
    def row(w, e, x):
        [axis] = e.params["axes"]
        return w.call(target, _out(e), self=x[0], dim=axis)

    return row


def _cumulative(target: str, with_places: bool = False):
    def row(w, e, x):
        axis, y, aval = e.params["axis"], x[0], _out(e)
        if e.params["reverse"]:
            y = w.call("flip", aval, self=y, dims=[axis])
        if with_places:
            y = w.writer.calls(target, [(aval.shape, aval.dtype), (aval.shape, np.int64)], self=y, dim=axis)[0]
        else:
            y = w.call(target, aval, self=y, dim=axis)
        return w.call("flip", aval, self=y, dims=[axis]) if e.params["reverse"] else y

    return row


def _sort(w, e, x):
    """By the first operand; the others go with it."""
    if e.params.get("num_keys", 1) != 1:
        raise NotImplementedError("a sort by several keys")
    aval, axis = _out(e), e.params["dimension"]
    results = [(aval.shape, aval.dtype), (aval.shape, np.int64)]
    first, order = w.writer.calls("sort", results, self=x[0], dim=axis)
    return [first] + [w.call("gather", v.aval, self=y, dim=axis, index=order) for v, y in zip(e.outvars[1:], x[1:])]


def _top_k(w, e, x):
    results = [(v.aval.shape, v.aval.dtype) for v in e.outvars]
    axis = e.params.get("axis", e.params.get("operand_axis", -1))
    return w.writer.calls("topk", results, self=x[0], k=e.params["k"], dim=axis)


def _clamp(w, e, x):
    low, y, high = x
    y = w.call("maximum", _out(e), self=y, other=low)
    return w.call("minimum", _out(e), self=y, other=high)


def _dot_general(w, e, x):
    (lc, rc), (lb, rb) = e.params["dimension_numbers"]
    a, b = (v.aval for v in e.invars)
    dtype = _out(e).dtype
    free_a = [i for i in range(len(a.shape)) if i not in (*lc, *lb)]
    free_b = [i for i in range(len(b.shape)) if i not in (*rc, *rb)]
    sizes = [a.shape[i] for i in lb]
    m, k = (math.prod(a.shape[i] for i in axes) for axes in (free_a, lc))
    n = math.prod(b.shape[i] for i in free_b)
    left = w.reshaped(w.permuted(x[0], [*lb, *free_a, *lc], dtype), [*sizes, m, k], dtype)
    if not lb:
        # One matrix for every row: what a linear layer computes.
        weight = w.reshaped(w.permuted(x[1], [*free_b, *rc], dtype), [n, k], dtype)
        y = w.writer.call("linear", [m, n], dtype, input=left, weight=weight)
    else:
        right = w.reshaped(w.permuted(x[1], [*rb, *rc, *free_b], dtype), [*sizes, k, n], dtype)
        y = w.writer.call("matmul", [*sizes, m, n], dtype, self=left, other=right)
    return w.reshaped(y, _out(e).shape, dtype)


def _gather(w, e, x):
    """Whole slices by index, of one axis or of neighboring ones."""
    d, sizes = e.params["dimension_numbers"], e.params["slice_sizes"]
    operand, indices = (v.aval for v in e.invars)
    axes = d.start_index_map
    if (
        d.operand_batching_dims
        or d.collapsed_slice_dims != axes
        or list(axes) != list(range(axes[0], axes[0] + len(axes)))
    ):
        raise NotImplementedError("a gather that is not slices of neighboring axes by index")
    whole = all(n == (1 if i in axes else operand.shape[i]) for i, n in enumerate(sizes))
    if not whole:
        raise NotImplementedError("a gather of parts of slices")
    ids_shape, first = indices.shape[:-1], axes[0]
    count = math.prod(ids_shape)
    flat, dtype = None, indices.dtype
    for i, axis in enumerate(axes):
        here = w.sliced(x[1], len(ids_shape), i, i + 1, 1, dtype)
        here = w.reshaped(here, [count], dtype)
        if flat is not None:
            flat = w.writer.call("mul.Tensor", [count], dtype, self=flat, other=operand.shape[axis])
            flat = w.writer.call("add.Tensor", [count], dtype, self=flat, other=here)
        flat = flat or here
    shape = list(operand.shape)
    shape[first : first + len(axes)] = [math.prod(operand.shape[i] for i in axes)]
    merged = w.reshaped(x[0], shape, operand.dtype)
    shape[first] = count
    y = w.writer.call("index_select", shape, operand.dtype, self=merged, dim=first, index=flat)
    # [before, ids…, after] to where the result has the axes of slices.
    shape[first : first + 1] = ids_shape
    y = w.reshaped(y, shape, operand.dtype)
    of_ids = range(first, first + len(ids_shape))
    own, batch = iter([i for i in range(len(shape)) if i not in of_ids]), iter(of_ids)
    order = [next(own) if i in d.offset_dims else next(batch) for i in range(len(shape))]
    return w.permuted(y, order, operand.dtype)


def _scatter(target: str):
    """Whole slices placed at, or added to, an index of one axis or of neighboring ones; or one part of one axis."""

    def row(w, e, x):
        d = e.params["dimension_numbers"]
        operand, indices, updates = (v.aval for v in e.invars)
        axes, ids_shape, dtype = list(d.scatter_dims_to_operand_dims), indices.shape[:-1], indices.dtype
        if getattr(d, "operand_batching_dims", ()):
            raise NotImplementedError("a scatter with axes of its own for each index")
        own = [i for i in range(len(operand.shape)) if i not in d.inserted_window_dims]
        sizes = {i: updates.shape[j] for i, j in zip(own, d.update_window_dims)}
        if not ids_shape and not d.inserted_window_dims:
            parts = [i for i in axes if sizes[i] != operand.shape[i]]
            if len(parts) != 1 or any(sizes[i] != operand.shape[i] for i in own if i not in axes):
                raise NotImplementedError("a part smaller along several axes")
            [axis] = parts
            place = axes.index(axis)
            start = w.reshaped(w.sliced(x[1], 0, place, place + 1, 1, dtype), (), dtype)
            at = _starts(w, start, sizes[axis], operand.shape[axis] - sizes[axis])
            return w.call(target, _out(e), self=x[0], dim=axis, index=at, source=x[2])
        neighbors = axes == list(range(axes[0], axes[0] + len(axes)))
        whole = all(sizes[i] == operand.shape[i] for i in own)
        if sorted(d.inserted_window_dims) != axes or not neighbors or not whole:
            raise NotImplementedError("a scatter that is not slices of neighboring axes by index")
        count, first, flat = math.prod(ids_shape), axes[0], None
        for i, axis in enumerate(axes):
            here = w.reshaped(w.sliced(x[1], len(ids_shape), i, i + 1, 1, dtype), [count], dtype)
            if flat is not None:
                flat = w.writer.call("mul.Tensor", [count], dtype, self=flat, other=operand.shape[axis])
                flat = w.writer.call("add.Tensor", [count], dtype, self=flat, other=here)
            flat = flat or here
        # The axes of indices come together, where the axes indexed were.
        of_ids = [j for j in range(len(updates.shape)) if j not in d.update_window_dims]
        before = [j for i, j in zip(own, d.update_window_dims) if i < first]
        after = [j for i, j in zip(own, d.update_window_dims) if i > first]
        source = w.permuted(x[2], [*before, *of_ids, *after], updates.dtype)
        shape = list(operand.shape)
        shape[first : first + len(axes)] = [count]
        source = w.reshaped(source, shape, updates.dtype)
        shape[first] = math.prod(operand.shape[i] for i in axes)
        merged = w.reshaped(x[0], shape, operand.dtype)
        y = w.writer.call(target, shape, operand.dtype, self=merged, dim=first, index=flat, source=source)
        return w.reshaped(y, operand.shape, operand.dtype)

    return row


def _starts(w, start: Name, count: int, room: int) -> Name:
    """`count` indices from a start that is moved so that they fit."""
    start = w.writer.call("clamp", (), np.int64, self=start, min=0, max=room)
    at = w.writer.call("arange", (count,), np.int64, end=count)
    return w.writer.call("add.Tensor", (count,), np.int64, self=at, other=start)


def _dynamic_slice(w, e, x):
    y, sizes, dtype = x[0], e.params["slice_sizes"], _out(e).dtype
    for axis, size in enumerate(sizes):
        shape = list(w.writer.shape(y))
        if size == shape[axis]:
            continue
        at = _starts(w, x[1 + axis], size, shape[axis] - size)
        shape[axis] = size
        y = w.writer.call("index_select", shape, dtype, self=y, dim=axis, index=at)
    return y


def _dynamic_update_slice(w, e, x):
    whole, part = (v.aval.shape for v in e.invars[:2])
    axes = [i for i in range(len(whole)) if whole[i] != part[i]]
    if len(axes) > 1:
        raise NotImplementedError("a part smaller along several axes")
    if not axes:
        return x[1]
    [axis] = axes
    at = _starts(w, x[2 + axis], part[axis], whole[axis] - part[axis])
    return w.call("index_copy", _out(e), self=x[0], dim=axis, index=at, source=x[1])


def _conv(w, e, x):
    p, dtype = e.params, _out(e).dtype
    d = p["dimension_numbers"]
    if p["batch_group_count"] != 1 or any(n != 1 for n in p["lhs_dilation"]):
        raise NotImplementedError("a transposed or batch-grouped convolution")
    y = w.permuted(x[0], d.lhs_spec, dtype)
    kernel = w.permuted(x[1], d.rhs_spec, dtype)
    y = w.padded(y, [(0, 0), (0, 0), *p["padding"]], 0.0, dtype)
    rank = len(p["padding"])
    shape = [_out(e).shape[i] for i in d.out_spec]
    y = w.writer.call(
        "convolution", shape, dtype, input=y, weight=kernel, stride=p["window_strides"], padding=[0] * rank,
        dilation=p["rhs_dilation"], transposed=False, output_padding=[0] * rank, groups=p["feature_group_count"],
    )  # fmt: skip
    back = [list(d.out_spec).index(i) for i in range(len(shape))]
    return w.permuted(y, back, dtype)


def _window(largest: bool):
    def row(w, e, x):
        p, dtype = e.params, _out(e).dtype
        window, strides = p["window_dimensions"], p["window_strides"]
        if any(n != 1 for n in (*p["base_dilation"], *p["window_dilation"])):
            raise NotImplementedError("a window with gaps")
        moving = [i for i, n in enumerate(window) if n != 1 or strides[i] != 1 or any(p["padding"][i])]
        still = [i for i in range(len(window)) if i not in moving]
        if not 1 <= len(moving) <= 2:
            raise NotImplementedError(f"a window along {len(moving)} axes")
        order = [*still, *moving]
        shape = [e.invars[0].aval.shape[i] for i in order]
        sizes = shape[len(still) :]
        y = w.reshaped(w.permuted(x[0], order, dtype), [1, math.prod(shape[: len(still)]), *sizes], dtype)
        y = w.padded(y, [(0, 0), (0, 0), *(p["padding"][i] for i in moving)], -math.inf if largest else 0.0, dtype)
        kernel, stride = ([v[i] for i in moving] for v in (window, strides))
        out = [_out(e).shape[i] for i in moving]
        kind = f"{'max' if largest else 'avg'}_pool{len(moving)}d"
        y = w.writer.call(kind, [1, w.writer.shape(y)[1], *out], dtype, self=y, kernel_size=kernel, stride=stride)
        if not largest:
            y = w.writer.call("mul.Tensor", w.writer.shape(y), dtype, self=y, other=float(math.prod(kernel)))
        y = w.reshaped(y, [*shape[: len(still)], *out], dtype)
        return w.permuted(y, [order.index(i) for i in range(len(order))], dtype)

    return row


PRIMITIVES = {
    "abs": _unary("abs"), "ceil": _unary("ceil"), "cos": _unary("cos"), "erf": _unary("erf"), "erf_inv": _unary("erfinv"),
    "erfc": _erfc,
    "exp": _unary("exp"), "exp2": _unary("exp2"), "expm1": _unary("expm1"), "floor": _unary("floor"), "log": _unary("log"),
    "log1p": _unary("log1p"), "logistic": _unary("sigmoid"), "neg": _unary("neg"), "round": _unary("round"),
    "rsqrt": _unary("rsqrt"), "sign": _unary("sign"), "sin": _unary("sin"), "sqrt": _unary("sqrt"),
    "asin": _unary("asin"), "acos": _unary("acos"), "atan": _unary("atan"), "sinh": _unary("sinh"), "cosh": _unary("cosh"),
    "asinh": _unary("asinh"), "acosh": _unary("acosh"), "atanh": _unary("atanh"), "atan2": _binary("atan2"),
    "scatter": _scatter("index_copy"), "scatter-add": _scatter("index_add"),
    "square": _unary("square"), "tan": _unary("tan"), "tanh": _unary("tanh"),
    "add": _binary("add.Tensor"), "add_any": _binary("add.Tensor"), "sub": _binary("sub.Tensor"),
    "mul": _binary("mul.Tensor"), "max": _binary("maximum"), "min": _binary("minimum"), "rem": _binary("fmod.Tensor"),
    "eq": _binary("eq.Tensor"), "ne": _binary("ne.Tensor"), "lt": _binary("lt.Tensor"), "le": _binary("le.Tensor"),
    "gt": _binary("gt.Tensor"), "ge": _binary("ge.Tensor"),
    "pow": lambda w, e, x: w.call("pow.Tensor_Tensor", _out(e), self=x[0], exponent=x[1]),
    "div": _div, "and": _logic("logical_and", "bitwise_and.Tensor"), "or": _logic("logical_or", "bitwise_or.Tensor"), "not": _not,
    "integer_pow": _integer_pow, "convert_element_type": _cast, "select_n": _select_n, "clamp": _clamp,
    "stop_gradient": _same, "copy": _same, "copy_p": _same, "optimization_barrier": _same, "reduce_precision": _same,
    "broadcast_in_dim": _broadcast, "reshape": _reshape, "squeeze": _view, "expand_dims": _view, "transpose": _transpose,
    "slice": _slice, "pad": _pad, "concatenate": _concatenate, "stack": _stack, "is_finite": _is_finite, "split": _split, "iota": _iota,
    "rev": lambda w, e, x: w.call("flip", _out(e), self=x[0], dims=e.params["dimensions"]),
    "tile": lambda w, e, x: w.call("repeat", _out(e), self=x[0], repeats=e.params["reps"]),
    "reduce_sum": _reduce("sum.dim_IntList"), "reduce_max": _reduce("amax"), "reduce_min": _reduce("amin"),
    "reduce_and": _reduce("all.dims"), "reduce_or": _reduce("any.dims"), "reduce_prod": _prod,
    "argmax": _arg("argmax"), "argmin": _arg("argmin"), "sort": _sort,
    "cumsum": _cumulative("cumsum"), "cumprod": _cumulative("cumprod"), "cumlogsumexp": _cumulative("logcumsumexp"),
    "cummax": _cumulative("cummax", True), "cummin": _cumulative("cummin", True), "top_k": _top_k,
    "dot_general": _dot_general, "gather": _gather, "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice, "conv_general_dilated": _conv,
    "reduce_window_max": _window(True), "reduce_window_sum": _window(False),
}  # fmt: skip
