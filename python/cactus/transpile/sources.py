"""What a source on the command line means: a model and its example inputs.

Purpose: to find and build the module behind `folder`, `org/name`, `file.py:Name`, `file.pt` or `file.pt2`, with weights
loaded, as components to capture. Code of others runs only where the user named it (`file.py:Name`) or allowed it
(`--trust-remote-code`). It imports torch, and transformers for its models.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
import wave
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .errors import TranspileError
from .model_adapters import Component, Examples, components
from .seeing import FAMILIES


@dataclass
class Request:
    """What the command line says about the model."""

    source: str
    task: str = "auto"
    prompt: str | None = None
    images: list[Path] = field(default_factory=list)
    audio: Path | None = None
    state_dict: Path | None = None
    init: dict = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    static: bool = False
    trust_remote_code: bool = False
    local_files_only: bool = False


@dataclass
class Found:
    """A model as components, and what to call it."""

    name: str
    task: str
    components: list[Component]
    #: Bits of the stored weights, where the source has fewer than what is computed with.
    bits: int | None = None
    #: Folder with tokenizer and chat template.
    tokenizer: Path | None = None
    #: Whether the engine prepares pictures and sounds for it.
    prepared: bool = False


def find(request: Request) -> Found:
    """The model behind a source."""
    source = request.source
    path, _, name = source.rpartition(":")
    if path.endswith(".py") and name:
        return _from_code(Path(path), name, request)
    if source.endswith((".pt", ".pth", ".bin")):
        return _from_pickle(Path(source), request)
    if source.endswith(".py"):
        raise TranspileError(f"`{source}` is a Python file; name the class or function in it too: `{source}:MyModel`")
    return _from_transformers(request)


# ---- code of the user


def _from_code(path: Path, name: str, request: Request) -> Found:
    if not path.is_file():
        raise TranspileError(f"`{path}` is not a file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    code = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = code
    sys.path.insert(0, str(path.resolve().parent))
    spec.loader.exec_module(code)
    made = getattr(code, name, None)
    if made is None:
        raise TranspileError(f"`{path}` has no `{name}`")
    if not isinstance(made, nn.Module):
        try:
            torch.manual_seed(0)
            made = made(**request.init)
        except TypeError as e:
            raise TranspileError(
                f"`{name}` cannot be created: {e}; give its arguments as JSON: --init '{{\"width\": 64}}'"
            ) from e
    if not isinstance(made, nn.Module):
        raise TranspileError(f"`{name}` should be a torch.nn.Module, or create one; found {type(made).__name__}")
    made.eval()
    if request.state_dict is not None:
        _load_state(made, request.state_dict)
    if hasattr(made, "config") and hasattr(made.config, "model_type") and not request.examples:
        task, parts = components(made, request.task)
        return Found(path.stem, task, parts)
    inputs = _examples(made, code, request)
    shapes = None if request.static else _varying(made, code, inputs)
    return Found(path.stem, "function", [Component("model", made, inputs, shapes)])


def _load_state(module: nn.Module, path: Path) -> None:
    state = torch.load(path, map_location="cpu", weights_only=True)
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    try:
        module.load_state_dict(state)
    except RuntimeError as e:
        raise TranspileError(f"the weights in `{path}` do not belong to {type(module).__name__}: {e}") from e


def _examples(module: nn.Module, code, request: Request) -> dict[str, Tensor]:
    """Example inputs by the names of `forward`: from the command line, or `example_inputs` of the class or file."""
    names = list(inspect.signature(module.forward).parameters)
    given: dict[str, Tensor] = {}
    if not request.examples:
        make = getattr(module, "example_inputs", None) or getattr(code, "example_inputs", None)
        if make is None:
            wanted = " ".join(f"--example '{n}=f32[1,64]'" for n in names)
            raise TranspileError(
                f"example inputs are needed to capture {type(module).__name__}: define `example_inputs()` beside it, or give "
                f"{wanted} (a type and sizes, or a file: `{names[0] if names else 'x'}=x.npy`)"
            )
        values = make() if callable(make) else make
        if isinstance(values, dict):
            return dict(values)
        values = values if isinstance(values, (tuple, list)) else (values,)
        return dict(zip(names, values))
    for i, text in enumerate(request.examples):
        name, sign, value = text.partition("=")
        if not sign:
            name, value = names[i] if i < len(names) else str(i), text
        if name.isdigit() and int(name) < len(names):
            name = names[int(name)]
        given[name] = _example(value)
    return given


_TYPES = {"f32": torch.float32, "f16": torch.float16, "i64": torch.int64, "i32": torch.int32, "bool": torch.bool}


def _example(text: str) -> Tensor:
    """`f32[1,64]`, or the name of a `.npy` file."""
    if text.endswith(".npy"):
        return torch.from_numpy(np.load(text))
    kind, _, sizes = text.partition("[")
    if kind not in _TYPES or not sizes.endswith("]"):
        raise TranspileError(f"an example should be a .npy file, or a type and sizes like `f32[1,64]`; found `{text}`")
    shape = [int(n) for n in sizes[:-1].split(",") if n.strip()]
    generator = torch.Generator().manual_seed(0)
    if kind in ("i64", "i32"):
        return torch.randint(0, 2, shape, generator=generator, dtype=_TYPES[kind])
    if kind == "bool":
        return torch.ones(shape, dtype=torch.bool)
    return torch.randn(shape, generator=generator).to(_TYPES[kind])


def _varying(module: nn.Module, code, inputs: dict[str, Tensor]):
    """Axes that vary: `dynamic_shapes` of the class or file, by input."""
    return getattr(module, "dynamic_shapes", None) or getattr(code, "dynamic_shapes", None)


# ---- files of torch.save


def _from_pickle(path: Path, request: Request) -> Found:
    if not path.is_file():
        raise TranspileError(f"`{path}` is not a file")
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as e:
        if not request.trust_remote_code:
            raise TranspileError(
                f"`{path}` has Python objects besides tensors, and reading them runs code: give --trust-remote-code if "
                "you trust it, or its class and a state dict"
            ) from e
        held = torch.load(path, map_location="cpu", weights_only=False)
    if isinstance(held, nn.Module):
        held.eval()
        inputs = _examples(held, None, request)
        return Found(path.stem, "function", [Component("model", held, inputs)])
    state = held.get("state_dict", held) if isinstance(held, dict) else {}
    tensors = {k: tuple(v.shape) for k, v in state.items() if isinstance(v, Tensor)}
    shown = ", ".join(f"{k} {list(v)}" for k, v in list(tensors.items())[:6])
    raise TranspileError(
        f"`{path}` is a state dict: {len(tensors)} tensors ({shown}{', …' if len(tensors) > 6 else ''}) and no program. "
        "Transpiling needs the class that computes with them. Put it in a file with an example of its inputs and give both:\n"
        f"  cactus transpile my_model.py:MyModel --state-dict {path}\n"
        "where my_model.py has the class and `def example_inputs(): return (torch.zeros(1, 16, dtype=torch.int64),)`; or "
        f"--example 'input_ids=i64[1,16]' on the command line. --bits 4 quantizes the weights on the way; `cactus convert` converts them alone, for --weights-dir"
    )


# ---- transformers


def _from_transformers(request: Request) -> Found:
    import transformers

    transformers.logging.set_verbosity_error()
    source = request.source
    local = Path(source)
    if local.exists() and not (local / "config.json").is_file():
        raise TranspileError(f"`{source}` should be a Hugging Face folder, but it has no config.json")
    more = {
        "trust_remote_code": request.trust_remote_code,
        "local_files_only": request.local_files_only or local.exists(),
    }
    try:
        config = transformers.AutoConfig.from_pretrained(source, **more)
    except Exception as e:
        raise TranspileError(f"the model `{source}` cannot be found or read: {e}") from e
    model = _model_class(config, request).from_pretrained(source, dtype=torch.float32, **more).eval()
    prepared = config.model_type in FAMILIES and request.task in ("auto", "multimodal_causal_lm_logits")
    examples = _inputs(request, model, more, prepared)
    task, parts = components(model, request.task, examples)
    if request.static:
        for part in parts:
            part.dynamic = None
    stored = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    bits = 16 if str(stored).removeprefix("torch.") in ("float16", "bfloat16") else None
    folder = local if (local / "tokenizer.json").is_file() else None
    if folder is None and not local.exists():
        folder = _cached_folder(source, more)
    name = local.resolve().name if local.exists() else source.rsplit("/", 1)[-1].lower()
    return Found(name, task, parts, bits, folder, prepared)


def _model_class(config, request: Request):
    import transformers

    for name in getattr(config, "architectures", None) or []:
        if found := getattr(transformers, name, None):
            return found
    by_task = {
        "causal_lm_logits": transformers.AutoModelForCausalLM,
        "ctc_logits": transformers.AutoModelForCTC,
        "seq2seq_transcription": transformers.AutoModelForSpeechSeq2Seq,
        "multimodal_causal_lm_logits": transformers.AutoModelForImageTextToText,
    }
    return by_task.get(request.task, transformers.AutoModel)


#: What a folder has beside the tokenizer that goes into a bundle, where it is there.
_BESIDE = (
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
)


def _cached_folder(source: str, more: dict) -> Path | None:
    from transformers.utils import cached_file

    def fetched(name):
        try:
            return cached_file(source, name, local_files_only=more["local_files_only"])
        except Exception:  # a model without it
            return None

    found = fetched("tokenizer.json")
    if not found:
        return None
    for name in _BESIDE:
        fetched(name)
    return Path(found).parent


def _inputs(request: Request, model: nn.Module, more: dict, prepared: bool) -> Examples:
    """The prompt, images and sound that the user gave, as the model's own preparation makes them unless the engine does."""
    from transformers import AutoFeatureExtractor, AutoImageProcessor, AutoTokenizer

    tensors: dict[str, Tensor] = {}
    if request.prompt is not None:
        tokenizer = AutoTokenizer.from_pretrained(request.source, **more)
        ids = tokenizer(request.prompt, return_tensors="pt").input_ids
        # One position is captured as a constant.
        tensors["input_ids"] = ids if ids.shape[1] > 1 else torch.cat([ids, ids], 1)
    if request.images and not prepared:
        from PIL import Image

        processor = AutoImageProcessor.from_pretrained(request.source, **more)
        images = [Image.open(p).convert("RGB") for p in request.images]
        tensors["pixel_values"] = processor(images=images, return_tensors="pt").pixel_values
    if request.audio is not None and not prepared:
        extractor = AutoFeatureExtractor.from_pretrained(request.source, **more)
        samples = _samples(request.audio, extractor.sampling_rate)
        made = extractor(samples, sampling_rate=extractor.sampling_rate, return_tensors="pt")
        name = model.main_input_name
        tensors[name] = made[name]
    return Examples(tensors)


def _samples(path: Path, rate: int) -> np.ndarray:
    """One channel of a WAV file of 16 bits."""
    with wave.open(str(path), "rb") as f:
        if f.getsampwidth() != 2 or f.getframerate() != rate:
            raise TranspileError(
                f"`{path}` should have {rate} samples of 16 bits a second, found {f.getframerate()} of {8 * f.getsampwidth()}"
            )
        frames = np.frombuffer(f.readframes(f.getnframes()), "<i2").reshape(-1, f.getnchannels())
    return frames.mean(1).astype(np.float32) / 32768.0


def read_json(text: str) -> dict:
    """An object on the command line."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as e:
        raise TranspileError(f"--init should be a JSON object, found `{text}`: {e}") from e
    if not isinstance(value, dict):
        raise TranspileError(f"--init should be a JSON object, found `{text}`")
    return value
