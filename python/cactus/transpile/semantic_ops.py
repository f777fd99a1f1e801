"""Operations that a capture puts in the place of code that torch.export would take apart badly.

Purpose: recurrences over positions. Captured as they are written, chunks and loops become a thousand operations of one
length; as one operation they are one, of any length, which can be continued call by call. `captured_as_operations` puts
them in place while a model is captured and takes them away again: what PyTorch computes as the reference is the library's
own code. It imports torch; of transformers it uses what is loaded.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor


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


@torch.library.custom_op("cactus::linear_recurrence", mutates_args=())
def linear_recurrence(query: Tensor, key: Tensor, value: Tensor, decay: Tensor) -> Tensor:
    """A matrix for each head of `value`, position by position: `S = decay S + key valueᵀ`, of which the result is `Sᵀ query`.

    `query`, `key` `[batch, seq, key_heads, width]`, `value` `[batch, seq, heads, values]`, `decay` `[batch, seq, heads]`.
    """
    repeats = value.shape[2] // key.shape[2]
    q, k = (x.repeat_interleave(repeats, 2) for x in (query, key))
    state = torch.zeros(value.shape[0], value.shape[2], k.shape[3], value.shape[3])
    out = torch.empty(value.shape, dtype=value.dtype)
    for t in range(value.shape[1]):
        state = state * decay[:, t, :, None, None] + k[:, t, :, :, None] * value[:, t, :, None]
        out[:, t] = torch.einsum("bhkv,bhk->bhv", state, q[:, t])
    return out


@linear_recurrence.register_fake
def _(query, key, value, decay):
    return value.new_empty(value.shape)


def _whole(state) -> None:
    if state is not None:
        raise NotImplementedError("a recurrence from a state; capture without a cache")


def _gated_delta_rule(
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
    _whole(initial_state)
    out = torch.ops.cactus.gated_delta_rule(query, key, value, g, beta, bool(use_qk_l2norm_in_kernel))
    if not output_final_state:
        return out, None
    # Nobody reads it in a capture without a cache.
    return out, value.new_zeros(value.shape[0], value.shape[2], key.shape[3], value.shape[3])


def _mamba2(
    hidden_states,
    dt,
    A,
    B,
    C,
    chunk_size,
    D=None,
    dt_bias=None,
    initial_states=None,
    dt_softplus=False,
    dt_limit=(0.0, float("inf")),
    return_final_states=False,
    **more,
):
    """Dao and Gu 2024: a scalar decay for each head. `hidden_states` `[batch, seq, heads, width]`, `B`, `C`
    `[batch, seq, groups, state]`."""
    _whole(initial_states)
    dt = dt if dt_bias is None else dt + dt_bias.to(dt.dtype)
    dt = F.softplus(dt) if dt_softplus else dt
    least, most = dt_limit
    dt = dt if (least, most) == (0.0, float("inf")) and dt_softplus else torch.clamp(dt, min=least, max=most)
    x = hidden_states.float()
    decay = torch.exp(A.float() * dt.float())
    out = torch.ops.cactus.linear_recurrence(C.float(), B.float(), x * dt[..., None].float(), decay)
    if D is not None:
        out = out + D[..., None] * x
    if not return_final_states:
        return out
    return out, x.new_zeros(x.shape[0], x.shape[2], x.shape[3], B.shape[3])


def _mamba(
    hidden_states,
    dt,
    A,
    B,
    C,
    D=None,
    z=None,
    delta_bias=None,
    delta_softplus=False,
    return_last_state=False,
    **more,
):
    """Gu and Dao 2023: a decay for each channel and number of its state, so each such pair is a head of one number.
    `hidden_states`, `dt` `[batch, channels, seq]`, `A` `[channels, state]`, `B`, `C` `[batch, state, seq]`."""
    dt = dt if delta_bias is None else dt + delta_bias.to(dt.dtype)[..., None]
    dt = F.softplus(dt) if delta_softplus else dt
    x, dt = hidden_states.transpose(1, 2).float(), dt.transpose(1, 2).float()
    batch, seq, channels = x.shape
    state = A.shape[1]
    heads = (batch, seq, state * channels)
    # Heads of one number of the state lie together: they share its part of B and C.
    decay = torch.exp(A.float().T * dt[:, :, None]).reshape(heads)
    value = (x * dt)[:, :, None].expand(batch, seq, state, channels).reshape(*heads, 1)
    key, query = (t.transpose(1, 2).float()[..., None] for t in (B, C))
    out = torch.ops.cactus.linear_recurrence(query, key, value, decay)
    out = out.reshape(batch, seq, state, channels).sum(2).to(hidden_states.dtype).transpose(1, 2)
    if D is not None:
        out = out + hidden_states * D[None, :, None]
    if z is not None:
        out = out * F.silu(z)
    return (out, x.new_zeros(batch, channels, state)) if return_last_state else out


def _rg_lru(self, hidden_states, recurrent_gate, reset, recurrent_states=None, acc_dtype=torch.float32):
    """De et al. 2024: a decay for each channel."""
    decay = (recurrent_gate * ~reset).float()
    one = torch.ones_like(decay[..., :1, None])
    out = torch.ops.cactus.linear_recurrence(one, one, hidden_states.float()[..., None], decay)
    return out[..., 0].to(hidden_states.dtype), None


def _lightning(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **more):
    """MiniMax 2025: a fixed decay for each head; the layer but for its cache."""
    _whole(past_key_values)
    batch, seq, _ = hidden_states.shape
    qkv = self.act_fn(self.qkv_proj(hidden_states)).reshape(batch, seq, self.num_attention_heads, 3 * self.head_dim)
    query, key, value = torch.split(qkv, self.head_dim, dim=3)
    decay = torch.exp(-self.slope_rate.float()).reshape(1, 1, -1).expand(batch, seq, -1)
    out = torch.ops.cactus.linear_recurrence(query, key, value, decay)
    out = self.norm(out.reshape(batch, seq, self.num_attention_heads * self.head_dim))
    return self.out_proj(F.sigmoid(self.output_gate(hidden_states)) * out), None


#: What is replaced, by name, wherever a loaded module of transformers has it: functions, and methods of classes.
FUNCTIONS = {
    "torch_chunk_gated_delta_rule": _gated_delta_rule,
    "mamba2_chunk_scan": _mamba2,
    "mamba_selective_scan": _mamba,
}
METHODS = {("RecurrentGemmaRglru", "_rnn_scan"): _rg_lru, ("MiniMaxLightningAttention", "forward"): _lightning}


def _places() -> Iterator[tuple[object, str, object]]:
    for name, module in list(sys.modules.items()):
        if not name.startswith("transformers.models."):
            continue
        for function, operation in FUNCTIONS.items():
            if hasattr(module, function):
                yield module, function, operation
        for (made, method), operation in METHODS.items():
            if hasattr(module, made):
                yield getattr(module, made), method, operation


@contextlib.contextmanager
def captured_as_operations() -> Iterator[None]:
    """While a model is captured."""
    replaced = []
    for place, name, operation in _places():
        replaced.append((place, name, getattr(place, name)))
        setattr(place, name, operation)
    try:
        yield
    finally:
        for place, name, before in replaced:
            setattr(place, name, before)
