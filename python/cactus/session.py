"""A conversation that remembers: its messages here, keys and values in the engine, both in a file where it is saved."""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from .answer import Answer, AnswerStream, whole_answers
from .asynchronous import AsyncAnswerStream, in_thread, streamed
from .calling import ROUNDS, Calls, Confirm
from .errors import ClosedError, SavedSessionError
from .options import ASKED, Messages, chat_body, encoded, messages_of, path_of, with_media

if TYPE_CHECKING:
    from .model import Model



class Session:
    """A conversation with a model. Each question continues it, and only what is new is computed.

    Its answers are made one after the other, beside those of the model's other callers. `save` and `restore` keep it over the end
    of the process; the file is as private as the conversation.
    """

    def __init__(self, model: Model, messages: Messages | None = None, options: Mapping[str, Any] | None = None):
        self.model = model
        #: What was said, as messages of the OpenAI API. They may be changed: only what is unlike before is computed again.
        self.messages: list[Any] = messages_of(messages) if messages is not None else []
        self._options = dict(options or {})
        self._open: Any = model._inner.session()
        self._under_way: weakref.WeakSet[Any] = weakref.WeakSet()
        # So that nothing begins between the last look at what is under way and the end.
        self._beginning = threading.Lock()

    @property
    def _inner(self) -> Any:
        if self._open is None:
            raise ClosedError("the conversation is closed")
        return self._open

    def _start(self, message: Any, stream: bool, asked: Mapping[str, Any]) -> tuple[Any, Any]:
        merged = {**self._options, **asked}
        before = list(self.messages)
        if message is not None:
            self.messages += messages_of(message) if isinstance(message, (str, list)) else messages_of([message])
        given = {name: merged.pop(name) for name in ASKED if name in merged}
        try:
            media = [merged.pop(name, None) for name in ("images", "sounds")]
            self.messages[:] = with_media(self.messages, *media)
            body = chat_body(self.messages, stream=stream, options=merged, **given)
            with self._beginning:
                submitted = self._inner.submit("chat", body)
                self._under_way.add(submitted)
        except BaseException:
            self.messages[:] = before
            raise
        return submitted, given.get("schema")

    def _say(self, answer: Answer) -> Answer:
        self.messages.append(answer.to_message())
        return answer

    def chat(self, message: Any = None, *, stream: bool = False, **asked: Any) -> Union[Answer, AnswerStream]:
        """Says `message` (a text, a message, or several) and answers. Without one, the conversation is answered as it is, for
        instance after the results of tools were added to `messages`. Further arguments are those of `Model.chat`."""
        submitted, schema = self._start(message, stream, asked)
        if stream:
            return AnswerStream(submitted, schema, self._say)
        return self._say(whole_answers(submitted, schema)[0])

    async def achat(self, message: Any = None, *, stream: bool = False, **asked: Any) -> Union[Answer, AsyncAnswerStream]:
        """As `chat`, awaited."""
        if stream:

            def start() -> AnswerStream:
                submitted, schema = self._start(message, True, asked)
                return AnswerStream(submitted, schema, self._say)

            return await streamed(start)

        def whole(held: Any) -> Answer:
            submitted, schema = self._start(message, False, asked)
            return self._say(whole_answers(held(submitted), schema)[0])

        return await in_thread(whole)

    def chat_with_tools(
        self, message: Any, tools: Sequence[Any], *, rounds: int = ROUNDS, confirm: Confirm | None = None, **asked: Any
    ) -> Answer:
        """As `chat`, with calls of what the model asks for, as `Model.chat_with_tools` makes them. The conversation keeps the calls and what was told of
        them."""
        calls = Calls(tools, rounds, confirm, asked)
        while not calls.over(answer := self.chat(message, tools=tools, **asked)):
            message, asked = calls.results(answer), calls.later(asked)
        return answer

    async def achat_with_tools(
        self, message: Any, tools: Sequence[Any], *, rounds: int = ROUNDS, confirm: Confirm | None = None, **asked: Any
    ) -> Answer:
        """As `chat_with_tools`, awaited."""
        calls = Calls(tools, rounds, confirm, asked)
        while not calls.over(answer := await self.achat(message, tools=tools, **asked)):
            message, asked = await calls.aresults(answer), calls.later(asked)
        return answer

    @property
    def closed(self) -> bool:
        """Whether it was closed, or its model was."""
        return self._open is None or self.model.closed

    def close(self) -> None:
        """Ends its answers, waits for that, and frees its memory. Any later answer raises ClosedError; a second `close` does nothing.
        Without it, a conversation that is forgotten is closed."""
        with self._beginning:
            inner, self._open = self._open, None
            under_way = list(self._under_way)
        if inner is None:
            return
        for stream in under_way:
            stream.cancel()
        # Waits for who computes.
        inner.reset()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def tokens(self) -> list[int]:
        """Token ids whose keys and values are held."""
        return self._inner.tokens()

    def reset(self) -> None:
        """Forgets everything."""
        self.messages.clear()
        self._inner.reset()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the conversation, keys and values with the messages, in place of what is there."""
        self._inner.save(path_of("path", path), encoded(self.messages, "messages"))

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Takes back what was saved, in place of what is there. A file of another model raises SavedSessionError."""
        note = self._inner.restore(path_of("path", path))
        try:
            messages = json.loads(note)
        except ValueError:
            messages = None
        if not isinstance(messages, list):
            self.reset()
            raise SavedSessionError(f"{os.fspath(path)}: it was not saved from Python, so its messages cannot be read")
        self.messages = messages

    async def asave(self, path: str | os.PathLike[str]) -> None:
        """As `save`, awaited."""
        await in_thread(lambda _: self.save(path))

    async def arestore(self, path: str | os.PathLike[str]) -> None:
        """As `restore`, awaited."""
        await in_thread(lambda _: self.restore(path))

