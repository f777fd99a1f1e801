"""How the families of transformers are called: from a model to the components that are captured.

Purpose: the one place that knows models. A *task adapter* wraps a model so that it takes and gives tensors only, with
stable names; a *family adapter* is a few lines for what a family does differently, by the `model_type` of its
configuration. A component is captured, transpiled and run on its own. Caches are never part of a component:
`use_cache=False`, the runtime adds its own. It imports torch, and transformers' classes only by what they have.

To add a family: a function in `FAMILIES` that gives its components, or `None` to use the adapter of the task.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.export import Dim

from .errors import TranspileError

TASKS = (
    "causal_lm_logits",
    "multimodal_causal_lm_logits",
    "encoder_hidden_states",
    "ctc_logits",
    "seq2seq_transcription",
    "tdt_transcription",
)

#: Positions of an example.
EXAMPLE_TOKENS = 12
#: Most positions that a captured program is asked to take, where the model states more.
MOST_TOKENS = 32768


@dataclass
class Component:
    """A module to capture: example inputs by name, the axes that vary, what the results are called."""

    name: str
    module: nn.Module
    inputs: dict[str, Tensor]
    dynamic: dict[str, dict[int, object]] | None = None
    outputs: tuple[str, ...] = ("output_0",)
    task: str = "function"

    def __post_init__(self):
        self.module.eval()

    def dynamic_shapes(self) -> tuple | None:
        """What varies, for torch.export: one entry for each input, in order."""
        if not self.dynamic:
            return None
        return tuple(self.dynamic.get(name) for name in self.inputs)


@dataclass
class Examples:
    """Inputs to capture with; what is absent is made up from the configuration."""

    tensors: dict[str, Tensor] = field(default_factory=dict)

    def get(self, name: str, otherwise: Callable[[], Tensor]) -> Tensor:
        return self.tensors[name] if name in self.tensors else otherwise()


class Calls(nn.Module):
    """Calls `call(model, *inputs)` and gives the tensors of what comes back: at most `keep` of them."""

    def __init__(self, model: nn.Module, call: Callable, keep: int | None = 1):
        super().__init__()
        self.model = model
        self._call, self._keep = call, keep
        # Inputs are called as `call` calls them: a captured program takes its names from here.
        names = list(inspect.signature(call).parameters)[1:]
        scope: dict = {}
        exec(f"def forward(self, {', '.join(names)}):\n    return self.apply_call({', '.join(names)})", scope)
        self.forward = types.MethodType(scope["forward"], self)

    def apply_call(self, *inputs):
        found = self._call(self.model, *inputs)
        if isinstance(found, Tensor):
            return found
        found = found.to_tuple() if hasattr(found, "to_tuple") else found
        found = tuple(x for x in found if isinstance(x, Tensor))[: self._keep]
        return found[0] if len(found) == 1 else found


class CausalLogits(nn.Module):
    """Token ids to next-token logits."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

        # RoBERTa and its like count the tokens that are no padding, so that positions depend on tokens. A sequence that is
        # continued has no padding.
        counts = [m for m in model.modules() if hasattr(m, "create_position_ids_from_input_ids")]
        self.first = counts[0].padding_idx + 1 if counts else None

    def forward(self, input_ids: Tensor) -> Tensor:
        more = {}
        if self.first is not None:
            more["position_ids"] = torch.arange(self.first, self.first + input_ids.shape[1])[None]
        return self.model(input_ids=input_ids, use_cache=False, return_dict=False, **more)[0]


class Encoder(nn.Module):
    """Token ids and which of them count to hidden states."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]


# ---- what examples are made of


def text_config(model: nn.Module):
    """The configuration of the language model within a model."""
    config = model.config
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def token_ids(model: nn.Module, examples: Examples, name: str = "input_ids") -> Tensor:
    vocab = int(text_config(model).vocab_size)
    generator = torch.Generator().manual_seed(0)
    return examples.get(
        name, lambda: torch.randint(min(3, vocab - 2), vocab - 1, (1, EXAMPLE_TOKENS), generator=generator)
    )


def positions(model: nn.Module, least: int = 2):
    """The axis of positions: as long as the model allows."""
    config = text_config(model)
    names = ("max_position_embeddings", "max_seq_len", "max_sequence_length")
    stated = next((n for name in names if isinstance(n := getattr(config, name, None), int) and n > 0), MOST_TOKENS)
    return Dim("seq", min=least, max=max(least + 1, min(int(stated), MOST_TOKENS)))


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


# ---- task adapters


def causal_lm_logits(model: nn.Module, examples: Examples) -> list[Component]:
    ids = token_ids(model, examples)
    shapes = {"input_ids": {1: positions(model)}}
    return [Component("decoder", CausalLogits(model), {"input_ids": ids}, shapes, ("logits",), "causal_lm_logits")]


def encoder_hidden_states(model: nn.Module, examples: Examples) -> list[Component]:
    given = getattr(model, "main_input_name", "input_ids")
    if given == "input_ids" and hasattr(model.config, "image_size"):
        given = "pixel_values"
    if given == "input_ids":
        ids = token_ids(model, examples)
        seq = positions(model)
        inputs = {"input_ids": ids, "attention_mask": examples.get("attention_mask", lambda: torch.ones_like(ids))}
        return [Component("encoder", Encoder(model), inputs, {name: {1: seq} for name in inputs}, ("hidden_states",))]
    if given == "pixel_values":
        # The towers of larger models take images too.
        call = Calls(model, lambda m, pixel_values: m(pixel_values=pixel_values, return_dict=False))
        return [Component("encoder", call, {given: pixels(model, examples)}, None, ("hidden_states",))]
    if given == "input_features":
        call = Calls(model, lambda m, input_features: m(input_features=input_features, return_dict=False))
        return [Component("encoder", call, {given: features(model, examples)}, None, ("hidden_states",))]
    raise TranspileError(
        f"{type(model).__name__} takes `{given}`, for which no example can be made up; capture it from a file: "
        "`module.py:function`"
    )


def _taking(name: str) -> Callable:
    """A call with one input of this name."""
    calls = {
        "input_features": lambda m, input_features: m(input_features, return_dict=False),
        "input_values": lambda m, input_values: m(input_values, return_dict=False),
    }
    if name not in calls:
        raise TranspileError(f"sound is expected as {' or '.join(calls)}, the model takes `{name}`")
    return calls[name]


def ctc_logits(model: nn.Module, examples: Examples) -> list[Component]:
    given = getattr(model, "main_input_name", "input_features")
    call = Calls(model, _taking(given))
    x = features(model, examples) if given == "input_features" else examples.get(given, lambda: random(1, 16000))
    return [Component("encoder", call, {given: x}, {given: {1: Dim.AUTO}}, ("logits",))]


def seq2seq_transcription(model: nn.Module, examples: Examples) -> list[Component]:
    encoder, given = model.get_encoder(), getattr(model, "main_input_name", "input_features")
    sound = features(model, examples) if given == "input_features" else examples.get(given, lambda: random(1, 16000))
    with torch.no_grad():
        hidden = encoder(sound, return_dict=False)[0]
    # An encoder with learned positions takes one length alone.
    varies = None if given == "input_features" else {1: Dim.AUTO}
    ids = token_ids(model, examples, "decoder_input_ids")
    most = int(
        getattr(model.config, "max_target_positions", 0) or getattr(model.config, "max_position_embeddings", 448)
    )
    shapes = {"decoder_input_ids": {1: Dim("seq", min=2, max=most)}}
    if varies is not None:
        shapes["encoder_hidden_states"] = {1: Dim("frames", min=2, max=4096)}

    def decode(m, decoder_input_ids, encoder_hidden_states):
        from transformers.modeling_outputs import BaseModelOutput

        states = BaseModelOutput(last_hidden_state=encoder_hidden_states)
        states.attention_mask = None  # Moonshine asks for one: every frame counts
        return m(decoder_input_ids=decoder_input_ids, encoder_outputs=states, use_cache=False, return_dict=False)

    return [
        Component(
            "encoder",
            Calls(encoder, _taking(given)),
            {given: sound},
            {given: varies} if varies else None,
            ("encoder_hidden_states",),
        ),
        Component(
            "decoder",
            Calls(model, decode),
            {"decoder_input_ids": ids, "encoder_hidden_states": hidden},
            shapes,
            ("logits",),
        ),
    ]


def tdt_transcription(model: nn.Module, examples: Examples) -> list[Component]:
    """Encoder, one step of the prediction network, and the joint network; the loop over frames is the caller's."""
    sound = features(model, examples)
    config = model.config
    layers, width = config.num_decoder_layers, config.decoder_hidden_size

    def encode(m, input_features):
        return m.encoder_projector(m.encoder(input_features).last_hidden_state)

    def step(m, token, h, c):
        y, (h, c) = m.decoder.lstm(m.decoder.embedding(token), (h, c))
        return m.decoder.decoder_projector(y), h, c

    encoder = Component(
        "encoder", Calls(model, encode), {"input_features": sound}, {"input_features": {1: Dim.AUTO}}, ("encoder_out",)
    )
    state = torch.zeros(layers, 1, width)
    decoder = Component(
        "decoder_step",
        Calls(model, step, 3),
        {"token": torch.tensor([[5]]), "h": state, "c": state.clone()},
        None,
        ("decoder_out", "h_out", "c_out"),
    )
    with torch.no_grad():
        frame = encoder.module(sound)[:, :1]
        predicted = decoder.module(*decoder.inputs.values())[0]

    def joint(m, encoder_out, decoder_out):
        return m.joint(decoder_hidden_states=decoder_out, encoder_hidden_states=encoder_out)

    both = {"encoder_out": frame.clone(), "decoder_out": predicted.clone()}
    return [encoder, decoder, Component("joint", Calls(model, joint, None), both, None, ("logits",))]


def multimodal_causal_lm_logits(model: nn.Module, examples: Examples) -> list[Component]:
    """What the engine shows pictures to, or of a family that it does not know: image to features, tokens and features to
    embeddings, embeddings to logits."""
    from . import seeing  # which is made of what is here

    if family := seeing.FAMILIES.get(getattr(model.config, "model_type", "")):
        return family(model, examples)
    inner = getattr(model, "model", model)
    if not hasattr(inner, "get_image_features"):
        raise TranspileError(f"{type(model).__name__} has no get_image_features; a family adapter is needed")
    image = pixels(model, examples)
    token = getattr(model.config, "image_token_id", None) or model.config.image_token_index

    def see(m, pixel_values):
        found = m.get_image_features(pixel_values=pixel_values)
        for name in ("pooler_output", "last_hidden_state"):
            if getattr(found, name, None) is not None:
                found = getattr(found, name)
                break
        found = torch.cat(list(found), 0) if isinstance(found, (list, tuple)) else found
        return found.reshape(-1, found.shape[-1])

    def place(m, input_ids, image_features):
        here = input_ids == token
        embedded = m.get_input_embeddings()(torch.where(here, torch.zeros_like(input_ids), input_ids))
        # The n-th image token takes the n-th row.
        row = (here.to(torch.int64).cumsum(1) - 1).clamp(0, image_features.shape[0] - 1)
        return torch.where(here.unsqueeze(-1), image_features[row], embedded)

    def decode(m, inputs_embeds):
        hidden = m.model.language_model(inputs_embeds=inputs_embeds, use_cache=False, return_dict=False)[0]
        return m.lm_head(hidden)

    vision = Component("vision_encoder", Calls(inner, see), {"pixel_values": image}, None, ("image_features",))
    with torch.no_grad():
        rows = vision.module(image)
    n = rows.shape[0]
    text = token_ids(model, Examples())
    ids = examples.get("input_ids", lambda: torch.cat([text, torch.full((1, n), token), text], 1))
    seq = positions(model)
    encoder = Component(
        "lm_encoder",
        Calls(model, place),
        {"input_ids": ids, "image_features": rows},
        {"input_ids": {1: seq}},
        ("inputs_embeds",),
    )
    with torch.no_grad():
        embedded = encoder.module(ids, rows)
    decoder = Component(
        "decoder", Calls(model, decode), {"inputs_embeds": embedded}, {"inputs_embeds": {1: seq}}, ("logits",)
    )
    return [vision, encoder, decoder]


ADAPTERS: dict[str, Callable[[nn.Module, Examples], list[Component]]] = {
    "causal_lm_logits": causal_lm_logits,
    "multimodal_causal_lm_logits": multimodal_causal_lm_logits,
    "encoder_hidden_states": encoder_hidden_states,
    "ctc_logits": ctc_logits,
    "seq2seq_transcription": seq2seq_transcription,
    "tdt_transcription": tdt_transcription,
}


def pixels(model: nn.Module, examples: Examples) -> Tensor:
    config = getattr(model.config, "vision_config", None) or model.config
    size = config.image_size
    high, wide = (size, size) if isinstance(size, int) else size
    channels = getattr(config, "num_channels", 3)
    return examples.get("pixel_values", lambda: random(1, channels, high, wide))


def features(model: nn.Module, examples: Examples) -> Tensor:
    """Frames of a spectrogram: as many as Whisper's positions want, or a second and a bit."""
    config = model.config
    if hasattr(config, "max_source_positions") and hasattr(config, "num_mel_bins"):
        return examples.get("input_features", lambda: random(1, config.num_mel_bins, 2 * config.max_source_positions))
    encoder = getattr(config, "encoder_config", config)
    return examples.get("input_features", lambda: random(1, 128, encoder.num_mel_bins))


# ---- family adapters


def gemma4_vision(model: nn.Module, examples: Examples) -> list[Component]:
    """Patches and where each lies; one square image."""
    config = model.config
    side = config.pooling_kernel_size * 2
    at = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="xy"), -1).reshape(1, -1, 2)
    inputs = {
        "pixel_values": examples.get("pixel_values", lambda: random(1, side * side, 3 * config.patch_size**2)),
        "pixel_position_ids": examples.get("pixel_position_ids", lambda: at),
    }

    def call(m, pixel_values, pixel_position_ids):
        # The model's own forward ends in taking the rows that are no padding, whose number depends on data. One image
        # alone has none.
        padding = (pixel_position_ids == -1).all(dim=-1)
        x = m.patch_embedder(pixel_values, pixel_position_ids, padding)
        x = m.encoder(inputs_embeds=x, attention_mask=~padding, pixel_position_ids=pixel_position_ids)
        x, _ = m.pooler(
            hidden_states=x.last_hidden_state,
            pixel_position_ids=pixel_position_ids,
            padding_positions=padding,
            output_length=pixel_values.shape[-2] // m.config.pooling_kernel_size**2,
        )
        x = x.flatten(0, 1)
        return (x - m.std_bias.float()) * m.std_scale.float() if m.config.standardize else x

    return [Component("vision_encoder", Calls(model, call), inputs, None, ("image_features",))]


def masked_audio(model: nn.Module, examples: Examples) -> list[Component]:
    """Frames of a spectrogram and which of them count."""
    bins = 128
    inputs = {
        "input_features": examples.get("input_features", lambda: random(1, 96, bins)),
        "attention_mask": examples.get("attention_mask", lambda: torch.ones(1, 96, dtype=torch.bool)),
    }

    def call(m, input_features, attention_mask):
        return m(input_features=input_features, attention_mask=attention_mask)

    return [Component("audio_encoder", Calls(model, call), inputs, None, ("audio_features",))]


def siglip2_vision(model: nn.Module, examples: Examples) -> list[Component]:
    """Patches of an image of eight by eight."""
    width = 3 * model.config.patch_size**2
    inputs = {"pixel_values": examples.get("pixel_values", lambda: random(1, 64, width))}
    shapes = torch.tensor([[8, 8]])
    embeddings = getattr(model, "vision_model", model).embeddings
    side = embeddings.position_embedding_size
    with torch.no_grad():
        table = embeddings.position_embedding.weight.reshape(side, side, -1)
        resized = embeddings.resize_positional_embeddings(table, shapes, max_length=64)

    def see(m, pixel_values):
        mask = torch.ones(1, 64, dtype=torch.int32)
        # Positions are those of this shape: resized once here, a constant of the capture.
        embeddings.resize_positional_embeddings = lambda *args, **more: resized
        try:
            return m(pixel_values=pixel_values, pixel_attention_mask=mask, spatial_shapes=shapes)
        finally:
            del embeddings.resize_positional_embeddings

    return [Component("vision_encoder", Calls(model, see), inputs, None, ("image_features",))]


def mel_audio(model: nn.Module, examples: Examples) -> list[Component]:
    """Frames of a spectrogram and which of them are padding (Gemma 3n)."""
    frames = 96
    inputs = {
        "audio_mel": examples.get("audio_mel", lambda: random(1, frames, model.config.input_feat_size)),
        "audio_mel_mask": examples.get("audio_mel_mask", lambda: torch.zeros(1, frames, dtype=torch.bool)),
    }

    def call(m, audio_mel, audio_mel_mask):
        return m(audio_mel=audio_mel, audio_mel_mask=audio_mel_mask, return_dict=False)

    return [Component("audio_encoder", Calls(model, call), inputs, None, ("audio_features",))]


class _OneImage:
    """Stands for the boundaries of packed images where there is one: all rows are its."""

    def __init__(self, rows):
        self._rows = rows

    def __getitem__(self, _):
        return self

    def __sub__(self, _):
        return self

    def tolist(self):
        return [self._rows]


def grid_vision(model: nn.Module, examples: Examples) -> list[Component]:
    """Patches of one image; where each lies, and between which learned positions, are inputs (Qwen3-VL, Qwen3.5).

    The library computes them from the grid of the image by data, so they come from outside: `interp_indices`,
    `interp_weights` `[patches, taps]` and `position_ids` `[patches, 2]`, as `transformers.vision_utils` makes them.
    """
    from transformers import vision_utils

    config = model.config
    merge = config.spatial_merge_size
    grid = examples.get("image_grid_thw", lambda: torch.tensor([[1, 2 * merge, 2 * merge]]))
    count = int(grid.prod(-1).sum())
    pair = lambda n: (n, n) if isinstance(n, int) else tuple(n)  # noqa: E731
    width = getattr(config, "in_channels", 3) * pair(config.temporal_patch_size)[0]
    width *= pair(config.patch_size)[0] * pair(config.patch_size)[1]
    indices, weights = vision_utils.get_vision_interpolation_indices_and_weights(
        grid,
        num_grid_per_side=model.num_grid_per_side,
        mode=model.interpolation_mode,
        align_corners=model.interpolation_align_corners,
        spatial_merge_size=merge,
    )
    inputs = {
        "pixel_values": examples.get("pixel_values", lambda: random(count, width)),
        "interp_indices": indices,
        "interp_weights": weights,
        "position_ids": vision_utils.get_vision_position_ids(grid, merge),
    }
    if inputs["pixel_values"].shape[0] != count:
        raise TranspileError(f"an image of the grid {grid.tolist()} has {count} patches, found {inputs['pixel_values'].shape[0]}")
    deep = len(getattr(config, "deepstack_visual_indexes", None) or ())

    def call(m, pixel_values, interp_indices, interp_weights, position_ids):
        found = m(
            pixel_values,
            grid_thw=grid,
            interp_indices=interp_indices,
            interp_weights=interp_weights,
            position_ids=position_ids,
            cu_seqlens=_OneImage(pixel_values.shape[0]),
        )
        return (found.pooler_output, *(getattr(found, "deepstack_features", None) or ()))

    names = ("image_features", *(f"deepstack_{i}" for i in range(deep)))
    return [Component("vision_encoder", Calls(model, call, None), inputs, None, names)]


FAMILIES: dict[str, Callable[[nn.Module, Examples], list[Component]]] = {
    "gemma4_vision": gemma4_vision,
    "gemma4_audio": masked_audio,
    "gemma3n_audio": mel_audio,
    "qwen3_vl_vision": grid_vision,
    "qwen3_5_vision": grid_vision,
    "siglip2_vision_model": siglip2_vision,
}


def infer_task(model: nn.Module) -> str:
    """The task of a model of transformers, by its class and configuration."""
    name, config = type(model).__name__, model.config
    if name.endswith("ForCTC"):
        return "ctc_logits"
    if name.endswith(("ForTDT", "ForRNNT")):
        return "tdt_transcription"
    if getattr(config, "is_encoder_decoder", False) and hasattr(model, "get_encoder"):
        return "seq2seq_transcription"
    if name.endswith("ForConditionalGeneration") or hasattr(config, "vision_config"):
        return "multimodal_causal_lm_logits"
    return "causal_lm_logits" if name.endswith(("ForCausalLM", "LMHeadModel")) else "encoder_hidden_states"


def components(model: nn.Module, task: str = "auto", examples: Examples | None = None) -> tuple[str, list[Component]]:
    """The task and the components of a model of transformers."""
    model.eval()
    if hasattr(model, "set_experts_implementation"):
        try:
            # Experts as products over chosen weights: no sorting by expert, no counts that depend on data.
            model.set_experts_implementation("batched_mm")
        except Exception:  # a model without experts may refuse
            pass
    examples = examples or Examples()
    family = FAMILIES.get(getattr(model.config, "model_type", ""))
    if task == "auto":
        task = "encoder_hidden_states" if family else infer_task(model)
    if task not in ADAPTERS:
        raise TranspileError(f"the task is expected to be one of {', '.join(TASKS)}, found `{task}`")
    adapter = family if family and task == "encoder_hidden_states" else ADAPTERS[task]
    return task, adapter(model, examples)
