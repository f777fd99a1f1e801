"""Operations that a capture puts in the place of code that torch.export would take apart badly.

Purpose: the gated delta rule of Qwen3.5 and its like. Captured as it is written, its triangular solve becomes a thousand
operations and the length is fixed below 64; as one operation it is one, of any length. `captured_as_operations` puts it in
place while a model is captured and takes it away again: what PyTorch computes as the reference is the library's own
code. It imports torch; of transformers it uses what is loaded.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch
from torch import Tensor

#: The function that is replaced, wherever a loaded module of transformers has it.
FUNCTION = "torch_chunk_gated_delta_rule"


@torch.library.custom_op("cactus::gated_delta_rule", mutates_args=())
def gated_delta_rule(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, l2norm: bool) -> Tensor:
    """The rule, position by position: `[batch, seq, heads, width]`, `g` logarithms of decays."""
    repeats = value.shape[2] // key.shape[2]
    q, k = (x.float().repeat_interleave(repeats, 2) for x in (query, key))
    if l2norm:
        q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    q = q * q.shape[-1] ** -0.5
    state = torch.zeros(*value.shape[:1], value.shape[2], k.shape[3], value.shape[3])
    out = torch.empty(value.shape, dtype=value.dtype)
    for t in range(value.shape[1]):
        state = state * g[:, t].float().exp()[..., None, None]
        new = beta[:, t].float()[..., None] * (value[:, t].float() - torch.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + k[:, t, :, :, None] * new[:, :, None]
        out[:, t] = torch.einsum("bhkv,bhk->bhv", state, q[:, t])
    return out


@gated_delta_rule.register_fake
def _(query, key, value, g, beta, l2norm):
    return value.new_empty(value.shape)


def _as_operation(
    query,
    key,
    value,
    g,
    beta,
    chunk_size=64,
    initial_state=None,
    output_final_state=False,
    use_qk_l2norm_in_kernel=False,
    **more,
):
    if initial_state is not None:
        raise NotImplementedError("the gated delta rule from a state; capture without a cache")
    out = torch.ops.cactus.gated_delta_rule(query, key, value, g, beta, bool(use_qk_l2norm_in_kernel))
    if not output_final_state:
        return out, None
    # Nobody reads it in a capture without a cache.
    return out, value.new_zeros(value.shape[0], value.shape[2], key.shape[3], value.shape[3])


@contextlib.contextmanager
def captured_as_operations() -> Iterator[None]:
    """While a model is captured."""
    replaced = []
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.models.") and hasattr(module, FUNCTION):
            replaced.append((module, getattr(module, FUNCTION)))
            setattr(module, FUNCTION, _as_operation)
    try:
        yield
    finally:
        for module, function in replaced:
            setattr(module, FUNCTION, function)
