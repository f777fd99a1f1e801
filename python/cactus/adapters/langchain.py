"""LangChain: `ChatCactus`, a chat model. Needs `pip install langchain-core`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field

from ..answer import Answer
from ..model import Model


class ChatCactus(BaseChatModel):
    """A chat model in this process. `options` are those of `Model.chat`, such as `{"temperature": 0.2}`."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    model: Model
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def _llm_type(self) -> str:
        return "cactus"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model.name, **self.options}

    def _asked(self, stop: list[str] | None, more: dict[str, Any]) -> dict[str, Any]:
        asked = {**self.options, **more}
        asked.pop("ls_structured_output_format", None)
        if asked.get("tool_choice") in ("any", True):
            asked["tool_choice"] = "required"
        if form := asked.pop("response_format", None):
            asked["schema"] = form
        return {**asked, "stop": stop} if stop else asked

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **more: Any,
    ) -> ChatResult:
        return _result(self.model.chat(convert_to_openai_messages(messages), **self._asked(stop, more)))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **more: Any,
    ) -> ChatResult:
        return _result(await self.model.achat(convert_to_openai_messages(messages), **self._asked(stop, more)))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **more: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with self.model.chat(convert_to_openai_messages(messages), stream=True, **self._asked(stop, more)) as pieces:
            for piece in pieces:
                chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece))
                if run_manager is not None:
                    run_manager.on_llm_new_token(piece, chunk=chunk)
                yield chunk
            answer = pieces.answer
            calls = [
                tool_call_chunk(name=call.name, args=json.dumps(call.arguments), id=call.id, index=i)
                for i, call in enumerate(answer.tool_calls)
            ]
            last = AIMessageChunk(
                content="",
                tool_call_chunks=calls,
                usage_metadata=_usage(answer),
                response_metadata={"finish_reason": answer.finish_reason},
            )
            yield ChatGenerationChunk(message=last)

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **more: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        entries = [convert_to_openai_tool(tool) for tool in tools]
        return self.bind(tools=entries, **({"tool_choice": tool_choice} if tool_choice else {}), **more)


class CactusEmbeddings(Embeddings):
    """Vectors of texts. No model that is converted today has them; `embed_query` says so."""

    def __init__(self, model: Model):
        self.model = model

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [list(map(float, row)) for row in self.model.embed(texts)]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def _usage(answer: Answer) -> UsageMetadata:
    total = answer.prompt_tokens + answer.completion_tokens
    return UsageMetadata(input_tokens=answer.prompt_tokens, output_tokens=answer.completion_tokens, total_tokens=total)


def _result(answer: Answer) -> ChatResult:
    message = AIMessage(
        content=answer.text,
        tool_calls=[tool_call(name=call.name, args=call.arguments, id=call.id) for call in answer.tool_calls],
        usage_metadata=_usage(answer),
        response_metadata={"finish_reason": answer.finish_reason},
        additional_kwargs={"reasoning_content": answer.reasoning} if answer.reasoning else {},
    )
    return ChatResult(generations=[ChatGeneration(message=message)])
