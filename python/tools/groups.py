"""What the sweep takes: the architectures that transformers maps to a task, by the type of their configuration.

Purpose: for each group, the names and how a model of a name is made and called. A model that is not built, or that no rule
here can call, says why and counts as such. It imports transformers and, of the package, the adapters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import picture_models
import tiny
import torch
from cactus.transpile.model_adapters import (
    ADAPTERS,
    Calls,
    Component,
    Encoder,
    Examples,
    positions,
    random,
    token_ids,
)
from torch.export import Dim
from transformers.models.auto import modeling_auto
from zoo import ZOO, randomized

#: More numbers than a small model has: a rule of `tiny.py` is missing.
MOST_PARAMETERS = 40_000_000


@dataclass
class Group:
    """Names, and `find(name)`: what is known of it, the model or its components, the task."""

    title: str
    names: Callable[[], list[str]]
    find: Callable[[str], tuple]


class NotSmall(Exception):
    """A configuration that no rule makes small."""


def mapping(name: str) -> list[str]:
    return sorted(getattr(modeling_auto, f"{name}_NAMES"))


def build(classes: str, name: str, decoder: bool = False):
    """A model of a mapping with seed 0, small, with nothing zero or one."""
    config = tiny.config(name, decoder)
    made = getattr(modeling_auto, classes)[type(config)]
    made = made[0] if isinstance(made, (list, tuple)) else made
    if not issubclass(type(config), made.config_class):
        # The library takes the text model of a model with more.
        config = config.get_text_config(decoder=True)
    with torch.device("meta"):
        size = tiny.parameters(made(config))
    if size > MOST_PARAMETERS:
        raise NotSmall(f"{size} parameters: no rule makes it small")
    torch.manual_seed(0)
    return randomized(made(config)).eval()


def group(title: str, classes: str, call: Callable, names: Callable[[], list[str]] | None = None, decoder=False) -> Group:
    """The architectures of a mapping; `call` gives the components and the task of a model."""

    def find(name: str):
        try:
            model = build(classes, name, decoder)
            about = {"class": type(model).__name__, "type": model.config.model_type}
            return about, *call(model)
        except Exception as e:
            return {"unbuilt": f"{type(e).__name__}: {e}"}, None, None

    return Group(title, names or (lambda: mapping(classes)), find)


# ---- how models are called


def tokens_and_mask(model) -> tuple:
    ids = token_ids(model, Examples())
    seq = positions(model)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    found = [Component("model", Encoder(model), inputs, {name: {1: seq} for name in inputs})]
    called(found[0])
    return found, "function"


def called(c: Component) -> None:
    """Whether the model takes what was made up for it."""
    with torch.no_grad():
        c.module(*c.inputs.values())


def first_that_runs(candidates: list[tuple[str, tuple[int, ...]]], model) -> tuple:
    """The first of several made-up inputs that the model takes."""
    error = None
    for name, shape in candidates:
        scope: dict = {}
        exec(f"def call(m, {name}):\n    return m({name}={name}, return_dict=False)", scope)
        c = Component("model", Calls(model, scope["call"]), {name: random(*shape)})
        try:
            called(c)
        except Exception as e:
            error = error or e
            continue
        return [c], "function"
    raise error or ValueError("no input is known for it")


def image(model) -> tuple:
    config = getattr(model.config, "vision_config", None) or model.config
    side = getattr(config, "image_size", None)
    side = side if isinstance(side, int) else side[0] if isinstance(side, (list, tuple)) else None
    channels = getattr(config, "num_channels", 3) or 3
    sides = [s for s in (side, 32, 64, 224) if s]
    return first_that_runs([("pixel_values", (1, channels, s, s)) for s in sides], model)


def sound(model) -> tuple:
    config = model.config
    given = model.main_input_name
    mels = getattr(config, "num_mel_bins", 16)
    shapes = [
        (given, (1, 4000)),
        (given, (1, mels, 2 * getattr(config, "max_source_positions", 50))),
        (given, (1, getattr(config, "max_length", 64) or 64, mels)),
        (given, (1, 64, getattr(config, "feature_projection_input_dim", mels))),
    ]
    return first_that_runs(shapes if given == "input_values" else shapes[1:], model)


def anything(model) -> tuple:
    """A model of which only its main input is known."""
    given = getattr(model, "main_input_name", "input_ids")
    if given == "pixel_values":
        return image(model)
    if given in ("input_values", "input_features"):
        return sound(model)
    return tokens_and_mask(model)


def text_to_text(model) -> tuple:
    """The encoder of a text, and the decoder beside what it gives."""
    if getattr(model, "main_input_name", "input_ids") != "input_ids":
        return ADAPTERS["seq2seq_transcription"](model, Examples()), "seq2seq_transcription"
    ids = token_ids(model, Examples())
    seq = positions(model)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    encoder = Component("encoder", Encoder(model.get_encoder()), inputs, {name: {1: seq} for name in inputs})
    with torch.no_grad():
        hidden = encoder.module(*inputs.values())

    def decode(m, decoder_input_ids, encoder_hidden_states):
        from transformers.modeling_outputs import BaseModelOutput

        states = BaseModelOutput(last_hidden_state=encoder_hidden_states)
        return m(decoder_input_ids=decoder_input_ids, encoder_outputs=states, use_cache=False, return_dict=False)

    given = {"decoder_input_ids": ids, "encoder_hidden_states": hidden}
    varies = {"decoder_input_ids": {1: positions(model)}, "encoder_hidden_states": {1: Dim("source", min=2, max=512)}}
    decoder = Component("decoder", Calls(model, decode), given, varies, ("logits",))
    called(decoder)
    return [encoder, decoder], "seq2seq"


def family(name: str):
    make, family, task = ZOO[name]
    return {"family": family}, make(), task


def zoo() -> list[str]:
    import user_models  # noqa: F401  registers into the zoo

    return list(ZOO)


_TASKS = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING",
    "image": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
    "audio": "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING",
    "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "speech": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
}


def remaining() -> list[str]:
    """What no task above has."""
    taken = {n for classes in _TASKS.values() for n in mapping(classes)}
    return [n for n in mapping("MODEL_MAPPING") if n not in taken]


GROUPS = {
    "causal": group(
        "Causal language models", _TASKS["causal"], lambda m: (m, "causal_lm_logits"), decoder=True
    ),
    "masked": group("Masked language models", _TASKS["masked"], tokens_and_mask),
    "image": group("Image classification", _TASKS["image"], image),
    "audio": group("Audio classification", _TASKS["audio"], sound),
    "seq2seq": group("Text to text", _TASKS["seq2seq"], text_to_text),
    "speech": group("Speech to text", _TASKS["speech"], text_to_text),
    "encoder": group("Other models of AutoModel, by their main input", "MODEL_MAPPING", anything, remaining),
    "families": Group("Families", zoo, family),
    "timm": Group("timm", picture_models.timm_names, picture_models.of_timm),
    "torchvision": Group("torchvision", lambda: picture_models.TORCHVISION, picture_models.of_torchvision),
}
