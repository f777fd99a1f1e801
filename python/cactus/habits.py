"""`pipeline`, as transformers has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import UnsupportedError
from .model import Model
from .options import messages_of


class TextGeneration:
    """What `pipeline("text-generation")` gives: called with a text or a conversation, or with a list of these."""

    def __init__(self, model: Model):
        self.model = model

    def __call__(self, inputs: Any, *, return_full_text: bool = True, max_new_tokens: int | None = None, **options: Any) -> Any:
        if max_new_tokens is not None:
            options["max_tokens"] = max_new_tokens
        if options.pop("do_sample", None) is False:
            options["temperature"] = 0.0
        if isinstance(inputs, str):
            return self._texts([inputs], return_full_text, options)[0]
        if inputs and all(isinstance(each, str) for each in inputs):
            return self._texts(inputs, return_full_text, options)
        is_one = bool(inputs) and not isinstance(inputs[0], (list, tuple))
        conversations = [messages_of(each) for each in ([inputs] if is_one else inputs)]
        answers = self.model.chat_batch(conversations, **options)
        made = []
        for conversation, answer in zip(conversations, answers):
            full = [*conversation, {"role": "assistant", "content": answer.text}]
            made.append([{"generated_text": full if return_full_text else answer.text}])
        return made[0] if is_one else made

    def _texts(self, texts: Sequence[str], full: bool, options: dict[str, Any]) -> list[list[dict[str, str]]]:
        answers = self.model.generate_batch(texts, **options)
        return [[{"generated_text": text * full + answer.text}] for text, answer in zip(texts, answers)]


def pipeline(task: str = "text-generation", model: Any = None, **load: Any) -> TextGeneration:
    """A function from prompts to results in the form of transformers. `model` is a loaded one, or what `Model.load` takes."""
    if task != "text-generation":
        raise UnsupportedError(f"there is no task {task!r} here; expected 'text-generation'")
    if model is None:
        raise TypeError("pipeline needs a model: a cactus.Model, or a name or path for Model.load")
    return TextGeneration(model if isinstance(model, Model) else Model.load(model, **load))
