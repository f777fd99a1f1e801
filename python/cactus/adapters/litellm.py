"""LiteLLM, and DSPy over it: `register` makes models in this process answer to names such as `cactus/mine`.

Needs `pip install litellm`.

    register({"mine": model})
    litellm.completion(model="cactus/mine", messages=[{"role": "user", "content": "Hello"}])
    dspy.configure(lm=dspy.LM("cactus/mine"))
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import litellm
from litellm import CustomLLM
from litellm.types.utils import GenericStreamingChunk, ModelResponse

from ..model import Model

#: What of LiteLLM's optional parameters goes to the model as it is.
_PARAMETERS = (
    "max_tokens", "max_completion_tokens", "temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "stop", "n",
    "tools", "tool_choice", "response_format", "logprobs", "top_logprobs", "logit_bias",
)  # fmt: skip


class CactusLLM(CustomLLM):
    """A provider of LiteLLM over models in this process."""

    def __init__(self, models: Mapping[str, Model]):
        super().__init__()
        self.models = dict(models)

    def _of(self, name: str) -> Model:
        name = name.removeprefix("cactus/")
        if name not in self.models:
            raise litellm.BadRequestError(
                message=f"there is no model `{name}`; registered are {', '.join(self.models)}", model=name, llm_provider="cactus"
            )
        return self.models[name]

    @staticmethod
    def _body(asked: Mapping[str, Any]) -> dict[str, Any]:
        given = asked.get("optional_params") or {}
        return {name: given[name] for name in _PARAMETERS if given.get(name) is not None}

    def completion(self, model: str, messages: list[Any], **asked: Any) -> ModelResponse:  # type: ignore[override]
        return ModelResponse(**self._of(model).create_chat_completion(messages, **self._body(asked)))

    async def acompletion(self, model: str, messages: list[Any], **asked: Any) -> ModelResponse:  # type: ignore[override]
        return ModelResponse(**await self._of(model).acreate_chat_completion(messages, **self._body(asked)))

    def streaming(self, model: str, messages: list[Any], **asked: Any) -> Iterator[GenericStreamingChunk]:  # type: ignore[override]
        for chunk in self._of(model).create_chat_completion(messages, stream=True, **self._body(asked)):
            yield from _pieces(chunk)

    async def astreaming(self, model: str, messages: list[Any], **asked: Any) -> AsyncIterator[GenericStreamingChunk]:  # type: ignore[override]
        async for chunk in await self._of(model).acreate_chat_completion(messages, stream=True, **self._body(asked)):
            for piece in _pieces(chunk):
                yield piece


def _pieces(chunk: Mapping[str, Any]) -> Iterator[GenericStreamingChunk]:
    """A chunk of the OpenAI API in LiteLLM's form, which has one call of a tool at most."""
    for choice in chunk["choices"]:
        delta, reason = choice["delta"], choice["finish_reason"]
        for call in delta.get("tool_calls") or [None]:
            yield GenericStreamingChunk(
                text=delta.get("content") or "",
                is_finished=reason is not None,
                finish_reason=reason or "",
                index=choice["index"],
                tool_use=call,
                usage=None,
            )


def register(models: Mapping[str, Model]) -> CactusLLM:
    """Makes LiteLLM ask `models` for the names `cactus/NAME`."""
    handler = CactusLLM(models)
    others = [entry for entry in litellm.custom_provider_map if entry["provider"] != "cactus"]
    litellm.custom_provider_map = [*others, {"provider": "cactus", "custom_handler": handler}]
    return handler
