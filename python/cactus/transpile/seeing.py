"""Models that write about pictures and sounds, as the components that the engine shows pictures and plays sounds to.

Purpose: to capture a model with the inputs and outputs that its family has in the engine, so that a bundle of it is
used as one that `cactus convert` makes. `picture_encoder` takes the patches of one view, those of a token next to each
other, and says where they are as weights over the table of positions (`places`) or as rows and columns (`cells`).
`sound_encoder` takes the blocks of a spectrogram. Both give rows as wide as an embedding, which the `decoder` takes in
place of embeddings where `media_mask` says so. What becomes of files before that is not captured: the engine reads it
from the model's folder. It imports torch, and knows classes of transformers only by what they have.

To add a family: a function in `FAMILIES`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from .errors import TranspileError
from .model_adapters import Calls, Component, Examples, positions, random, text_config, token_ids

#: Most tokens of a view that a captured encoder is asked to take.
MOST_VIEW_TOKENS = 1 << 16
#: Most blocks of a sound.
MOST_BLOCKS = 1 << 12
#: Added to scores of keys that are not seen.
OUTSIDE = -1e30
#: Axes of positions by input.
_POSITIONS = {"input_ids": 1, "media_mask": 1, "media_rows": 1, "media_until": 0, "media_positions": 0}


# ---- what the families share


class Parts(nn.Module):
    """Some parts of a model, so that the archive of a component has no weights of others."""

    def __init__(self, **parts: nn.Module):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


def decoder(
    model: nn.Module, examples: Examples, call: Callable, layers: int = 0, **more: Callable[[int], Tensor]
) -> Component:
    """The language model, with rows of pictures and sounds among its embeddings, which have what `layers` early layers
    add behind them.

    `call(parts, input_ids, media_mask, media_rows, …)` gives logits with `language_model` and `lm_head`; `more` makes
    the inputs beside, given how many positions there are.
    """
    ids = token_ids(model, examples)
    count = ids.shape[1]
    mask = torch.zeros(1, count, 1, dtype=torch.bool)
    mask[:, count // 4 : count // 2] = True
    rows = random(1, count, (1 + layers) * text_config(model).hidden_size)
    inputs = {"input_ids": ids, "media_mask": mask, "media_rows": rows} | {name: of(count) for name, of in more.items()}
    seq = positions(model)
    shapes = {name: {_POSITIONS[name]: seq} for name in inputs}
    parts = Parts(language_model=model.model.get_decoder(), lm_head=model.lm_head)
    return Component("decoder", Calls(parts, call), inputs, shapes, ("logits",), "causal_lm_logits")


def logits(m: Parts, **given) -> Tensor:
    """Next-token logits of what the language model is given."""
    found = m.lm_head(m.language_model(use_cache=False, return_dict=False, **given)[0])
    cap = getattr(m.language_model.config, "final_logit_softcapping", None)
    return found if cap is None else torch.tanh(found / cap) * cap


def embedded(m: Parts, input_ids: Tensor, media_mask: Tensor, media_rows: Tensor) -> Tensor:
    """Embeddings of token ids, and rows in their place."""
    return torch.where(media_mask, media_rows, m.language_model.get_input_embeddings()(input_ids))


def causal(m: Parts, input_ids: Tensor, media_mask: Tensor, media_rows: Tensor) -> Tensor:
    """A decoder whose rows see what is before them, as tokens do."""
    return logits(m, inputs_embeds=embedded(m, input_ids, media_mask, media_rows))


def picture_encoder(
    parts: Parts, call: Callable, merge: int, tokens: int | None = None, **inputs: int | Tensor
) -> Component:
    """The encoder of pictures, which `call(parts, …)` computes, of views of any size unless all have so many
    `tokens`.

    `inputs` are how many numbers a patch has, or examples of them.
    """
    count = tokens or 6
    made = {}
    for name, of in inputs.items():
        made[name] = random(1, count, merge**2, of) if isinstance(of, int) else of
    if "places" in made:
        made["places"] = made["places"].softmax(-1)
    varies = Dim("tokens", min=1, max=MOST_VIEW_TOKENS)
    shapes = None if tokens else {name: {1: varies} for name in made}
    return Component("picture_encoder", Calls(parts, call), made, shapes, ("rows",))


# ---- towers whose patches see each other, with a table of positions


def filters(embedding: nn.Module) -> Tensor:
    """The weights of a patch's embedding, a product or a convolution over patches, as a matrix."""
    return embedding.weight.flatten(1)


def seen(tower: nn.Module, patches: Tensor, table: Callable[[Tensor], Tensor]) -> Tensor:
    """The states of the patches, to whose embeddings `table` gives positions of the weights that were trained."""
    embeddings = tower.embeddings
    x = F.linear(patches.flatten(1, 2), filters(embeddings.patch_embedding), embeddings.patch_embedding.bias)
    x = x + table(embeddings.position_embedding.weight)
    x = tower.encoder(inputs_embeds=x, attention_mask=None).last_hidden_state
    return tower.post_layernorm(x)


def joined(x: Tensor, patches: Tensor) -> Tensor:
    """States of patches as those of tokens."""
    return x.reshape(1, patches.shape[1], patches.shape[2] * x.shape[-1])


def tower_numbers(tower: nn.Module) -> dict[str, int]:
    """Numbers of a patch and of its place."""
    embeddings = tower.embeddings
    table = embeddings.position_embedding.weight
    return {"patches": filters(embeddings.patch_embedding).shape[1], "places": table.shape[0]}


def smolvlm(model: nn.Module, examples: Examples) -> list[Component]:
    """Idefics 3 and SmolVLM."""
    inner = model.model

    def see(m, patches, places):
        x = seen(m.vision_model, patches, lambda table: places.flatten(1, 2) @ table)
        return m.connector.modality_projection(joined(x, patches))

    parts = Parts(vision_model=inner.vision_model, connector=inner.connector)
    encoder = picture_encoder(parts, see, model.config.scale_factor, **tower_numbers(inner.vision_model))
    return [encoder, decoder(model, examples, causal)]


def lfm2_vl(model: nn.Module, examples: Examples) -> list[Component]:
    """LFM2-VL."""
    inner = model.model

    def see(m, patches, places):
        x = seen(m.vision_tower, patches, lambda table: places.flatten(1, 2) @ table)
        x, projector = joined(x, patches), m.multi_modal_projector
        x = projector.layer_norm(x) if projector.use_layer_norm else x
        return projector.linear_2(projector.act(projector.linear_1(x)))

    parts = Parts(vision_tower=inner.vision_tower, multi_modal_projector=inner.multi_modal_projector)
    encoder = picture_encoder(parts, see, model.config.downsample_factor, **tower_numbers(inner.vision_tower))
    return [encoder, decoder(model, examples, causal)]


def gemma3(model: nn.Module, examples: Examples) -> list[Component]:
    """Gemma 3: views of one size, whose rows see each other."""
    inner, config = model.model, model.config
    side = config.vision_config.image_size // config.vision_config.patch_size
    tokens = config.mm_tokens_per_image
    merge = side // int(tokens**0.5)

    def by_tokens(table):
        # Row after row of a square; here with those of a token next to each other.
        x = table.reshape(side // merge, merge, side // merge, merge * table.shape[1])
        return x.transpose(1, 2).reshape(table.shape)

    def see(m, patches):
        x = seen(m.vision_tower, patches, by_tokens)
        x = x.reshape(1, tokens, merge**2, -1).mean(2)
        projector = m.multi_modal_projector
        return projector.mm_soft_emb_norm(x) @ projector.mm_input_projection_weight

    def read(m, input_ids, media_mask, media_rows, media_until):
        masks = masks_until(m.language_model.config, media_until)
        return logits(m, inputs_embeds=embedded(m, input_ids, media_mask, media_rows), attention_mask=masks)

    numbers = tower_numbers(inner.vision_tower)["patches"]
    parts = Parts(vision_tower=inner.vision_tower, multi_modal_projector=inner.multi_modal_projector)
    encoder = picture_encoder(parts, see, merge, tokens, patches=numbers)
    return [encoder, decoder(model, examples, read, media_until=ahead)]


def ahead(count: int) -> Tensor:
    """Up to which position each one sees: a picture in the first half sees itself."""
    until = torch.arange(count)
    until[count // 4 : count // 2] = count // 2 - 1
    return until


def masks_until(config, until: Tensor) -> dict[str, Tensor]:
    """Which keys each position sees, by the kind of layer: those up to the given one, and within the window behind it
    where there is one."""
    at = torch.arange(until.shape[0])
    before = at[None, :] <= until[:, None]
    near = at[None, :] > at[:, None] - config.sliding_window
    return {"full_attention": before[None, None], "sliding_attention": (before & near)[None, None]}


# ---- pictures in grids, whose patches turn by row and column


@contextlib.contextmanager
def replaced(*places: tuple[nn.Module, str, Callable]) -> Iterator[None]:
    """While a module is called: methods of these modules are others."""
    for module, name, other in places:
        setattr(module, name, other)
    try:
        yield
    finally:
        for module, name, _ in places:
            delattr(module, name)


def turns(at: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines, `[count, width]`, of positions `[count, axes]` for the frequencies `[axes, width / 2]` of
    each pair."""
    angles = at.float() @ frequencies
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def by_axes(inverse: Tensor, first: int) -> Tensor:
    """Frequencies of rows and columns: half of the pairs turn by the axis `first`, the others by the other one."""
    none = torch.zeros_like(inverse)
    axes = [torch.cat([inverse, none]), torch.cat([none, inverse])]
    return torch.stack(axes if first == 0 else axes[::-1])


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Heads, whose halves turn into each other."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def grid_attention(
    attention: nn.Module, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], **_
) -> Tensor:
    """All patches of one picture see each other."""
    heads = lambda x: x.view(*x.shape[:-1], attention.num_heads, attention.head_dim).transpose(1, 2)  # noqa: E731
    query, key, value = map(heads, attention.qkv(hidden_states).split(attention.dim, -1))
    query, key = (turned(x, *position_embeddings) for x in (query, key))
    x = F.scaled_dot_product_attention(query, key, value, scale=attention.scaling)
    return attention.proj(x.transpose(1, 2).reshape(hidden_states.shape))


def merged(merger: nn.Module, x: Tensor, patches: Tensor) -> Tensor:
    """The rows of tokens, of the states of their patches, which are normed before they are joined or behind."""
    x = merger.norm(joined(x, patches)) if merger.use_postshuffle_norm else joined(merger.norm(x), patches)
    return merger.linear_fc2(merger.act_fn(merger.linear_fc1(x)))


def cells(tokens: int, merge: int) -> Tensor:
    """Rows and columns of the patches of some tokens in a row."""
    rows = torch.arange(merge).repeat_interleave(merge).repeat(tokens)
    columns = torch.arange(merge).repeat(merge * tokens)
    columns = columns + merge * torch.arange(tokens).repeat_interleave(merge**2)
    return torch.stack([rows, columns], -1).reshape(1, tokens, merge**2, 2)


def qwen3_vl(model: nn.Module, examples: Examples) -> list[Component]:
    """Qwen3-VL and Qwen3.5: positions on three axes, and what early layers add (DeepStack)."""
    visual, text = model.model.visual, model.model.language_model
    config = visual.config
    taps = list(getattr(config, "deepstack_visual_indexes", None) or ())
    spatial = by_axes(visual.rotary_pos_emb.inv_freq.float(), first=0)
    inverse, sections = text.rotary_emb.inv_freq.float(), text.rotary_emb.mrope_section
    # Pairs take turns between time, row and column, as long as there are such.
    axis = [i % 3 if i < 3 * sections[i % 3] else 0 for i in range(len(inverse))]
    on_axes = torch.stack([torch.where(torch.tensor(axis) == own, inverse, 0.0) for own in range(3)])

    def see(m, patches, places, cells):
        v = m.visual
        projection = v.patch_embed.proj
        x = F.linear(patches.flatten(1, 2), filters(projection), projection.bias)
        x = x + places.flatten(1, 2) @ v.pos_embed.weight
        turn = turns(cells.flatten(0, 2), spatial)
        attention = [(block.attn, "forward", functools.partial(grid_attention, block.attn)) for block in v.blocks]
        rows = []
        with replaced(*attention):
            for i, block in enumerate(v.blocks):
                x = block(x, cu_seqlens=None, position_embeddings=turn)
                if i in taps:
                    rows.append(merged(v.deepstack_merger_list[taps.index(i)], x, patches))
        rows.insert(0, merged(v.merger, x, patches))
        return torch.cat(rows, -1) if taps else rows[0]

    def read(m, input_ids, media_mask, media_rows, media_positions):
        lm, width = m.language_model, m.language_model.config.hidden_size
        own, *more = media_rows.split(width, -1)
        x = embedded(m, input_ids, media_mask, own)
        cos, sin = turns(media_positions, on_axes)
        scale = lm.rotary_emb.attention_scaling
        turn = (cos[None] * scale, sin[None] * scale)
        places = [(lm.rotary_emb, "forward", lambda x, position_ids: turn)]
        if more:
            places.append((lm, "_deepstack_process", lambda x, mask, rows: torch.where(media_mask, x + rows, x)))
        given = {"visual_pos_masks": media_mask, "deepstack_visual_embeds": more} if more else {}
        with replaced(*places):
            return logits(m, inputs_embeds=x, **given)

    merge = config.spatial_merge_size
    numbers, table = filters(visual.patch_embed.proj).shape[1], visual.pos_embed.weight.shape[0]
    encoder = picture_encoder(Parts(visual=visual), see, merge, patches=numbers, places=table, cells=cells(6, merge))
    there = lambda count: torch.arange(count)[:, None].expand(count, 3).contiguous()  # noqa: E731
    return [encoder, decoder(model, examples, read, layers=len(taps), media_positions=there)]


# ---- Gemma 4


def clipped(product: nn.Module, x: Tensor, weight: Tensor) -> Tensor:
    """What a product that keeps to bounds gives with another matrix."""
    bounds = product.use_clipped_linears
    x = torch.clamp(x, product.input_min, product.input_max) if bounds else x
    x = F.linear(x, weight)
    return torch.clamp(x, product.output_min, product.output_max) if bounds else x


def by_halves(weight: Tensor, heads: int) -> Tensor:
    """Rows of heads that are stored axis by axis, each in two halves, as halves with both axes: so one rotation turns a
    whole head."""
    return weight.reshape(heads, 2, 2, weight.numel() // heads // 4).transpose(1, 2).reshape(weight.shape)


def axial_attention(
    attention: nn.Module, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], **_
) -> tuple[Tensor, None]:
    """All patches see each other; half of each head turns by the column, half by the row."""
    width = attention.head_dim
    shape = (*hidden_states.shape[:-1], -1, width)

    def of(product, norm):
        x = clipped(product, hidden_states, by_halves(product.linear.weight, product.linear.weight.shape[0] // width))
        x = norm._norm(x.view(shape)) * by_halves(norm.weight, 1)
        return turned(x.transpose(1, 2), *position_embeddings)

    value = attention.v_norm(attention.v_proj(hidden_states).view(shape)).transpose(1, 2)
    query, key = of(attention.q_proj, attention.q_norm), of(attention.k_proj, attention.k_norm)
    x = F.scaled_dot_product_attention(query, key, value, scale=1.0)
    return attention.o_proj(x.transpose(1, 2).reshape(*hidden_states.shape[:-1], -1)), None


def local_attention(
    attention: nn.Module, hidden_states: Tensor, position_embeddings: Tensor, block: int, unseen: Tensor, **_
) -> tuple[Tensor, None]:
    """Positions in blocks, each of which sees as many as a block has, itself among them, by content and by distance."""
    blocks, heads, width = hidden_states.shape[1] // block, attention.num_heads, attention.head_dim
    split = lambda x: x.reshape(blocks, block, heads, width)  # noqa: E731

    def with_before(x):
        before = torch.cat([torch.zeros(1, block, heads, width), x])[:blocks]
        return torch.cat([before, x], 1)

    query = split(attention.q_proj(hidden_states)) * (F.softplus(attention.per_dim_scale) * attention.q_scale)
    key = with_before(split(attention.k_proj(hidden_states)) * attention.k_scale)
    value = with_before(split(attention.v_proj(hidden_states)))
    query = query.transpose(1, 2)
    near = query @ key.permute(0, 2, 3, 1)
    distances = attention.relative_k_proj(position_embeddings).reshape(1, block, heads, width)
    far = query @ distances.permute(0, 2, 3, 1)
    # Each row moves one element further than the one before, by reading what lies there with rows that are one shorter.
    zeros = torch.zeros(blocks, heads, block, 1)
    far = torch.cat([zeros, far, zeros.expand(-1, -1, -1, block)], -1)
    far = far.reshape(blocks, heads, block * (2 * block + 1))[..., : 2 * block * block]
    scores = near + far.reshape(blocks, heads, block, 2 * block)
    cap = attention.attention_logits_soft_cap
    scores = torch.tanh(scores / cap) * cap + unseen
    x = scores.softmax(-1) @ value.transpose(1, 2)
    return attention.post(x.transpose(1, 2).reshape(hidden_states.shape)), None


def sound_encoder(model: nn.Module) -> Component:
    """Blocks of a spectrogram, behind `count` frames zeros, to rows."""
    tower = model.audio_tower
    config = tower.config
    block, bands = config.attention_chunk_size, config.subsampling_conv_channels[0]
    if config.attention_context_left != block + 1 or config.attention_context_right != 0:
        raise TranspileError(
            "a position of a sound is expected to see as many positions as a block has, itself among them, and none "
            f"behind it: attention_context_left {block + 1} and attention_context_right 0; found "
            f"{config.attention_context_left} and {config.attention_context_right}"
        )
    # What is added to scores of keys that are not seen: those too far away, and those behind.
    at, key = torch.arange(block)[:, None], torch.arange(2 * block)
    near = (key > at) & (key <= at + block)
    near = torch.where(near, 0.0, OUTSIDE).reshape(1, 1, block, 2 * block)

    def hear(m, features, count):
        blocks = features.shape[0]
        a = m.audio_tower
        first, second = a.subsample_conv_projection.layer0, a.subsample_conv_projection.layer1
        x, _ = first(features.reshape(1, 1, blocks * 4 * block, bands))
        heard = torch.arange(x.shape[2]) < (count + 1) // 2
        x, _ = second(torch.where(heard[None, None, :, None], x, 0.0))
        x = x.permute(0, 2, 3, 1).reshape(1, blocks * block, -1)
        x = a.subsample_conv_projection.input_proj_linear(x)
        # The farthest position that is seen has the first wave.
        waves = a.rel_pos_enc(x)[:, -block:]
        begun = torch.where(torch.arange(2 * blocks) >= 1, 0.0, OUTSIDE)
        begun = begun.reshape(blocks, 1, 1, 2, 1).expand(-1, -1, -1, -1, block).reshape(blocks, 1, 1, 2 * block)
        unseen = near + begun

        attention = [layer.self_attn for layer in a.layers]
        local = functools.partial(local_attention, block=block, unseen=unseen)
        with replaced(*((one, "forward", functools.partial(local, one)) for one in attention)):
            for layer in a.layers:
                x = layer(x, attention_mask=None, position_embeddings=waves)
        return m.embed_audio(inputs_embeds=a.output_proj(x))

    inputs = {"features": random(3, 4 * block, bands), "count": torch.tensor([10 * block + 1])}
    shapes = {"features": {0: Dim("blocks", min=1, max=MOST_BLOCKS)}, "count": None}
    parts = Parts(audio_tower=tower, embed_audio=model.embed_audio)
    return Component("sound_encoder", Calls(parts, hear), inputs, shapes, ("rows",))


def gemma4(model: nn.Module, examples: Examples) -> list[Component]:
    """Gemma 4: tokens of a picture by a budget, and sounds in the small models."""
    inner = model.model
    tower, text = inner.vision_tower, text_config(model)
    frequencies = by_axes(tower.encoder.rotary_emb.inv_freq.float(), first=1)

    def see(m, patches, cells):
        v = m.vision_tower
        embedder, at = v.patch_embedder, cells.flatten(0, 2)
        table = embedder.position_embedding_table.flatten(0, 1)
        x = embedder.input_proj(2 * (patches.flatten(1, 2) - 0.5))
        rows = F.embedding(at[:, 0][None] + embedder.position_embedding_size, table)
        x = x + (F.embedding(at[:, 1][None], table) + rows)
        turn = turns(at, frequencies)

        attention = [layer.self_attn for layer in v.encoder.layers]
        with replaced(*((one, "forward", functools.partial(axial_attention, one)) for one in attention)):
            for layer in v.encoder.layers:
                x = layer(x, attention_mask=None, position_embeddings=turn, position_ids=None)
        x = x.reshape(*patches.shape[:3], -1).mean(2) * v.pooler.root_hidden_size
        x = (x - v.std_bias) * v.std_scale if v.config.standardize else x
        return m.embed_vision(inputs_embeds=x)

    def reads(m, input_ids, media_mask, media_rows, **more):
        lm = m.language_model
        more["inputs_embeds"] = embedded(m, input_ids, media_mask, media_rows)
        if lm.hidden_size_per_layer_input:
            # Rows have what layers take of the token that stands for none.
            pad = text.pad_token_id or 0
            ids = torch.where(media_mask.reshape(input_ids.shape), pad, input_ids)
            more["per_layer_inputs"] = lm.get_per_layer_inputs(ids)
        return logits(m, **more)

    def read(m, input_ids, media_mask, media_rows):
        return reads(m, input_ids, media_mask, media_rows)

    def read_both_ways(m, input_ids, media_mask, media_rows, media_until):
        masks = masks_until(text, media_until)
        # Only layers with a window see behind.
        masks["full_attention"] = masks_until(text, torch.arange(input_ids.shape[1]))["full_attention"]
        return reads(m, input_ids, media_mask, media_rows, attention_mask=masks)

    merge = tower.config.pooling_kernel_size
    numbers = tower.patch_embedder.input_proj.weight.shape[1]
    seeing = Parts(vision_tower=tower, embed_vision=inner.embed_vision)
    parts = [picture_encoder(seeing, see, merge, patches=numbers, cells=cells(6, merge))]
    if getattr(inner, "audio_tower", None) is not None:
        parts.append(sound_encoder(inner))
    if text.use_bidirectional_attention == "vision":
        return [*parts, decoder(model, examples, read_both_ways, media_until=ahead)]
    return [*parts, decoder(model, examples, read)]


#: By `model_type` of the configuration.
FAMILIES: dict[str, Callable[[nn.Module, Examples], list[Component]]] = {
    "gemma3": gemma3,
    "gemma4": gemma4,
    "idefics3": smolvlm,
    "lfm2_vl": lfm2_vl,
    "qwen3_5": qwen3_vl,
    "qwen3_5_moe": qwen3_vl,
    "qwen3_vl": qwen3_vl,
    "qwen3_vl_moe": qwen3_vl,
    "smolvlm": smolvlm,
}
