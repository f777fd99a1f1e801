"""LlamaIndex: `CactusLLM`, a language model. Needs `pip install llama-index-core`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.custom import CustomLLM

from ..answer import Answer
from ..model import Model


class CactusLLM(CustomLLM):
    """A language model in this process; `options` are those of `Model.chat`."""

    _model: Model = PrivateAttr()
    _options: dict[str, Any] = PrivateAttr()

    def __init__(self, model: Model, **options: Any):
        super().__init__()
        self._model = model
        self._options = options

    @classmethod
    def class_name(cls) -> str:
        return "CactusLLM"

    @property
    def metadata(self) -> LLMMetadata:
        info = self._model.info
        return LLMMetadata(
            context_window=info["context_tokens"],
            is_chat_model=info["has_chat_template"],
            model_name=self._model.name,
        )

    def _asked(self, more: dict[str, Any]) -> dict[str, Any]:
        more.pop("formatted", None)
        return {**self._options, **more}

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **more: Any) -> ChatResponse:
        return _response(self._model.chat(_plain(messages), **self._asked(more)))

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **more: Any) -> ChatResponseGen:
        stream = self._model.chat(_plain(messages), stream=True, **self._asked(more))

        def pieces() -> ChatResponseGen:
            text = ""
            with stream:
                for piece in stream:
                    text += piece
                    yield ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content=text), delta=piece)

        return pieces()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **more: Any) -> CompletionResponse:
        return CompletionResponse(text=self._model.generate(prompt, **self._asked(more)).text)

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **more: Any) -> CompletionResponseGen:
        stream = self._model.generate(prompt, stream=True, **self._asked(more))

        def pieces() -> CompletionResponseGen:
            text = ""
            with stream:
                for piece in stream:
                    text += piece
                    yield CompletionResponse(text=text, delta=piece)

        return pieces()


def _plain(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    return [{"role": message.role.value, "content": message.content or ""} for message in messages]


def _response(answer: Answer) -> ChatResponse:
    return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content=answer.text), raw=answer)
