"""Awaiting what waits: a thread for each call, which hands its result to the event loop. The engine computes what the threads ask for
together, so they cost no speed; there is no other event loop.

`asyncio` is imported where it is used: it takes longer than the rest of the package, and who awaits has it already."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .answer import Answer, AnswerStream

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class _Held:
    """What is to be cancelled with the task, once it is there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream: Any = None
        self._cancelled = False

    def __call__(self, stream: T) -> T:
        with self._lock:
            self._stream = stream
            cancelled = self._cancelled
        if cancelled:
            self.cancel()
        return stream

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            stream = self._stream
        if stream is not None:
            stream.cancel()


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[..., Any], *arguments: Any) -> None:
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        # The loop has ended, and with it whoever waited.
        pass


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


async def in_thread(work: Callable[[_Held], T]) -> T:
    """The result of `work`. It calls what it is given with the stream that is to be cancelled if the task is."""
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    held = _Held()

    def run() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = work(held)
        except BaseException as e:  # noqa: BLE001, whoever awaits gets it
            error = e
        _tell(loop, _settle, future, result, error)

    threading.Thread(target=run, name="cactus-await", daemon=True).start()
    try:
        return await future
    except asyncio.CancelledError:
        held.cancel()
        raise


class AsyncAnswerStream(AsyncIterator[str]):
    """The pieces of an answer as they come, for `async for`. After the last, `answer` has all of it."""

    _END = object()

    def __init__(self, stream: AnswerStream):
        import asyncio

        self._stream = stream
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._over = False
        loop, queue, over = asyncio.get_running_loop(), self._queue, self._END

        # Without `self`, which ends the answer when nobody has it any more.
        def read() -> None:
            end: Any = over
            try:
                for piece in stream:
                    _tell(loop, queue.put_nowait, piece)
            except BaseException as error:  # noqa: BLE001, whoever awaits gets it
                end = error
            _tell(loop, queue.put_nowait, end)

        threading.Thread(target=read, name="cactus-await", daemon=True).start()

    def __aiter__(self) -> AsyncAnswerStream:
        return self

    async def __anext__(self) -> str:
        if self._over:
            raise StopAsyncIteration
        try:
            piece = await self._queue.get()
        except BaseException:
            await self.aclose()
            raise
        if piece is self._END:
            self._over = True
            raise StopAsyncIteration
        if isinstance(piece, BaseException):
            self._over = True
            raise piece
        return piece

    @property
    def reasoning(self) -> str:
        """Reasoning so far."""
        return self._stream.reasoning

    async def answer(self) -> Answer:
        """The whole answer; reads what has not been read yet."""
        async for _ in self:
            pass
        return self._stream.answer

    async def aclose(self) -> None:
        """Ends the answer within a token."""
        self._over = True
        self._stream.cancel()

    async def __aenter__(self) -> AsyncAnswerStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        stream = getattr(self, "_stream", None)
        if stream is not None:
            stream.cancel()


async def streamed(start: Callable[[], AnswerStream]) -> AsyncAnswerStream:
    """A stream that `start` begins on a thread, because preparing a prompt takes its time."""
    return AsyncAnswerStream(await in_thread(lambda held: held(start())))


async def chunked(submit: Callable[[], Any]) -> AsyncIterator[dict[str, Any]]:
    """The chunks of a request that `submit` begins on a thread. The answer ends when nobody has them any more."""
    stream = await in_thread(lambda held: held(submit()))

    async def chunks() -> AsyncIterator[dict[str, Any]]:
        try:
            while (frames := await in_thread(lambda _: stream.next())) is not None:
                for frame in frames:
                    if frame != "[DONE]":
                        yield json.loads(frame)
        finally:
            stream.cancel()

    return chunks()
