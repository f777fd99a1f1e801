"""A loaded model: chat, plain text, scores, tokens; each call waits, and its twin with an `a` before it is awaited.

Calls from many threads, or awaited together, are computed together: every answer is a row of the same pass over the weights.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, overload

from . import progress as bars
from .answer import Answer, AnswerStream, Score, whole_answers
from .asynchronous import AsyncAnswerStream, chunked, in_thread, streamed
from .calling import ROUNDS, Calls, Confirm
from .engine import native
from .errors import ClosedError, ForkedError, InvalidRequestError, UnsupportedError
from .options import (
    ASKED,
    Messages,
    Sampling,
    chat_body,
    checked,
    encoded,
    item,
    listed,
    messages_of,
    path_of,
    prompt_of,
    refused,
    shown,
    text_of,
    token_ids,
    whole_number,
    with_media,
)
from .policy import Policy

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Unpack

    from .session import Session

#: Requests of one list that are under way at a time; the scheduler computes its own number of them together.
_WINDOW = 256
#: Sizes of a loaded model, and the most that each may be.
_SIZES = {
    "context": 1 << 24,
    "threads": 1024,
    "decode_threads": 1024,
    "batch": 1 << 16,
    "queue": 1 << 24,
    "chunk": 1 << 16,
    "kv_tokens": 1 << 32,
}
_BITS = (1, 2, 3, 4, 5, 6, 8, 16, 32)
#: Models that are in use, for `memory_pressure`.
_OPEN: weakref.WeakSet[Model] = weakref.WeakSet()
_OPENING = threading.Lock()


def check_bundle(path: str | os.PathLike[str], *, verify: bool = False) -> dict[str, Any]:
    """What is known of the bundle in a folder, and whether this build can use it: `usable`, and where not, `error`, an exception
    that may be raised. With `verify`, all of it is read and compared with its checksums.

    Beside these, `readable_versions`, and where the bundle can be opened, `version`, `name`, `family`, `task`, `context_tokens`,
    `vocab_size`, `mapped_bytes` and `checksum`.
    """
    report, error = native.check_bundle(path_of("path", path), verify)
    return {**json.loads(report), "usable": error is None, "error": error}


def memory_pressure() -> None:
    """Says that memory is short: every open model forgets what it keeps of earlier prompts. Answers stay the same."""
    with _OPENING:
        models = list(_OPEN)
    for model in models:
        try:
            model._inner.forget_prefixes()
        except (ClosedError, ForkedError):
            # Nothing is kept of it.
            pass


class Model:
    """A model in this process. `Model.load` makes one; `with` or `close` frees it.

    Its answers may be asked for from any thread. A forked process cannot use it (the engine's threads are not there) and says so;
    processes started with `spawn` or `forkserver` can, and pickling hands the path and the options over.
    """

    def __init__(self, inner: native.Model, path: Path = Path(), name: str = "", options: Mapping[str, Any] | None = None):
        if not isinstance(inner, native.Model):
            raise TypeError("a Model is not made by its name alone: Model.load(name or path) finds, converts and loads it")
        self._inner = inner
        self._options = dict(options or {})
        info = json.loads(inner.info())
        self._context: int = info["context_tokens"]
        self._vocab: int = info["vocab_size"]
        with _OPENING:
            _OPEN.add(self)
        #: The folder of the bundle.
        self.path = path
        #: As it was asked for.
        self.name = name

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str],
        *,
        bits: int = 8,
        calibrate: bool = True,
        reconvert: bool = False,
        token: str | None = None,
        offline: bool = False,
        progress: Callable[[bars.Progress], Any] | bool = True,
        context: int = 2048,
        kv: Literal["int8", "f16"] = "int8",
        threads: int | None = None,
        decode_threads: int | None = None,
        pin: bool = False,
        batch: int = 32,
        queue: int = 4096,
        chunk: int = 256,
        kv_tokens: int | None = None,
        prefix_cache: bool = True,
        policy: Policy | None = None,
    ) -> Model:
        """Loads a bundle, a GGUF file, an address (`https://`) of either, a Hugging Face folder or id, or a known model by name.

        What is not here is downloaded, and what is no bundle converted, into the cache first, with `bits` for each weight (1, 2, 3, 4, 5, 6, 8, 16
        or 32). `progress` is called with each step of that; by default a bar is shown on a terminal and in a notebook.
        With a `policy`, others may answer conversations, as `set_policy` says.
        `context` is in tokens, of prompt and answer together. `batch` answers are computed together at most. Ctrl-C stops a
        download and a conversion.
        """
        name = path_of("model", model)
        if not isinstance(progress, bool) and not callable(progress):
            raise TypeError(f"`progress`: expected a function, True or False, found {type(progress).__name__}")
        sizes = {
            "context": context,
            "threads": threads,
            "decode_threads": decode_threads,
            "batch": batch,
            "queue": queue,
            "chunk": chunk,
            "kv_tokens": kv_tokens,
        }
        for option, value in sizes.items():
            if value is not None or option not in ("threads", "decode_threads", "kv_tokens"):
                whole_number(option, value, 1, _SIZES[option])
        if isinstance(bits, bool) or not hasattr(bits, "__index__") or bits not in _BITS:
            raise refused("bits", "one of " + ", ".join(map(str, _BITS)), bits)
        if kv not in ("int8", "f16"):
            raise refused("kv", "'int8' or 'f16'", kv)
        for flag, given in {
            "calibrate": calibrate, "reconvert": reconvert, "offline": offline, "pin": pin, "prefix_cache": prefix_cache,
        }.items():  # fmt: skip
            if not isinstance(given, bool):
                raise refused(flag, "True or False", given)
        if token is not None:
            text_of("token", token)
        bar = bars.shown() if progress is True else None
        told = bar if progress is True else (progress or None)

        def step(stage: str, what: str, done: int, total: int) -> None:
            told(bars.Progress(stage, what, done, total))  # type: ignore[misc]

        try:
            path = native.prepare(
                name,
                bits=bits,
                calibrate=calibrate,
                reconvert=reconvert,
                token=token,
                offline=offline,
                progress=step if told else None,
            )
        finally:
            if bar is not None:
                bar.close()
        options = {
            "context": context,
            "chunk": chunk,
            "kv": kv,
            "threads": threads,
            "decode_threads": decode_threads,
            "pin": pin,
            "sequences": batch,
            "queue": queue,
            "kv_tokens": kv_tokens,
            "prefix_cache": prefix_cache,
        }
        loaded = _load(os.fspath(path), name, options)
        if policy is not None:
            loaded.set_policy(policy)
        return loaded

    @classmethod
    async def aload(cls, model: str | os.PathLike[str], **options: Any) -> Model:
        """As `load`, awaited."""
        return await in_thread(lambda _: cls.load(model, **options))

    def set_policy(self, policy: Policy | None) -> None:
        """Lets others answer the conversations of this model, as the policy says; with None nobody any more.

        What is asked afterwards carries `Answer.decision`. Sessions and plain texts stay on this machine. A pickled model has no
        policy.
        """
        if policy is not None and not isinstance(policy, Policy):
            raise refused("policy", "a cactus.Policy", policy)
        if policy is None:
            self._inner.set_policy(None)
        else:
            self._inner.set_policy(policy._inner, policy._asked)

    def set_threads(self, threads: int | None = None, decode_threads: int | None = None) -> None:
        """Uses at most so many threads from now on, `threads` for prompts and `decode_threads` for answers, and at most as many as
        the model was loaded with. None leaves one as it is. Answers are the same with any number."""
        for name, value in (("threads", threads), ("decode_threads", decode_threads)):
            if value is not None:
                whole_number(name, value, 1, _SIZES[name])
        self._inner.set_threads(threads, decode_threads)

    # ---- chat

    @overload
    def chat(
        self,
        messages: Messages,
        *,
        images: Sequence[Any] | None = ...,
        sounds: Sequence[Any] | None = ...,
        tools: Sequence[Any] | None = ...,
        tool_choice: Any = ...,
        parallel_tool_calls: bool | None = ...,
        schema: Any = ...,
        regex: str | None = ...,
        grammar: str | None = ...,
        reasoning: bool | None = ...,
        template_variables: Mapping[str, Any] | None = ...,
        stream: Literal[False] = ...,
        **options: Unpack[Sampling],
    ) -> Answer: ...
    @overload
    def chat(
        self,
        messages: Messages,
        *,
        images: Sequence[Any] | None = ...,
        sounds: Sequence[Any] | None = ...,
        tools: Sequence[Any] | None = ...,
        tool_choice: Any = ...,
        parallel_tool_calls: bool | None = ...,
        schema: Any = ...,
        regex: str | None = ...,
        grammar: str | None = ...,
        reasoning: bool | None = ...,
        template_variables: Mapping[str, Any] | None = ...,
        stream: Literal[True],
        **options: Unpack[Sampling],
    ) -> AnswerStream: ...
    def chat(
        self,
        messages: Messages,
        *,
        images: Sequence[Any] | None = None,
        sounds: Sequence[Any] | None = None,
        tools: Sequence[Any] | None = None,
        tool_choice: Any = None,
        parallel_tool_calls: bool | None = None,
        schema: Any = None,
        regex: str | None = None,
        grammar: str | None = None,
        reasoning: bool | None = None,
        template_variables: Mapping[str, Any] | None = None,
        stream: bool = False,
        **options: Unpack[Sampling],
    ) -> Union[Answer, AnswerStream]:
        """Answers a conversation: a text, or messages as the OpenAI API has them.

        `images` go before the text of the last message: files, their bytes, images of Pillow, or arrays `[height, width, 3]` of bytes.
        In messages they are parts `{"type": "image", "image": …}`. So do `sounds`, for a model that hears: files, their bytes, or arrays
        `[samples]` of floats, mono, 16,000 a second; in messages `{"type": "audio", "audio": …}`.
        `tools` are plain functions, pydantic models or the API's dicts; what the model calls is in `Answer.tool_calls`, and
        `chat_with_tools` calls it. With `tool_choice`, "required" or a name, it has to; `parallel_tool_calls=False` allows one call in
        an answer. `schema` is the form that the answer is held to: a pydantic model, a dataclass, a type, or a JSON Schema;
        `Answer.parsed` is the value. `regex`, or `grammar` in the form of Lark, hold it to something else. With `stream`, the pieces of
        text come as they are made.
        """
        body = chat_body(
            messages,
            images=images,
            sounds=sounds,
            tools=tools,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            schema=schema,
            regex=regex,
            grammar=grammar,
            reasoning=reasoning,
            template_variables=template_variables,
            stream=stream,
            options=options,
        )
        submitted = self._inner.submit("chat", body)
        return AnswerStream(submitted, schema) if stream else whole_answers(submitted, schema)[0]

    @overload
    async def achat(self, messages: Messages, *, stream: Literal[False] = ..., **asked: Any) -> Answer: ...
    @overload
    async def achat(self, messages: Messages, *, stream: Literal[True], **asked: Any) -> AsyncAnswerStream: ...
    async def achat(
        self, messages: Messages, *, stream: bool = False, **asked: Any
    ) -> Union[Answer, AsyncAnswerStream]:
        """As `chat`, awaited; what is awaited together is computed together. A task that is cancelled ends its answer."""
        schema = asked.get("schema")
        body = _body(messages, stream=stream, **asked)
        if stream:
            return await streamed(lambda: AnswerStream(self._inner.submit("chat", body), schema))
        return (await in_thread(lambda held: whole_answers(held(self._inner.submit("chat", body)), schema)))[0]

    def chat_with_tools(
        self,
        messages: Messages,
        tools: Sequence[Any],
        *,
        rounds: int = ROUNDS,
        confirm: Confirm | None = None,
        **asked: Any,
    ) -> Answer:
        """Answers a conversation, and calls what the model asks for until it asks for nothing more, at most `rounds` times.

        `tools` are plain functions and `cactus.Tool`s. What one gives is told to the model: a text as it is, anything else as JSON. What it raises is
        told, too. `confirm` is asked before each call; where it does not give True, the model is told that the call was refused.
        Further arguments are those of `chat`.
        """
        calls = Calls(tools, rounds, confirm, asked)
        said = with_media(messages_of(messages), asked.get("images"), asked.get("sounds"))
        asked = calls.later(asked)
        while not calls.over(answer := self.chat(said, tools=tools, **asked)):
            said = [*said, answer.to_message(), *calls.results(answer)]
        return answer

    async def achat_with_tools(
        self, messages: Messages, tools: Sequence[Any], *, rounds: int = ROUNDS, confirm: Confirm | None = None, **asked: Any
    ) -> Answer:
        """As `chat_with_tools`, awaited; so are functions of the tools, and `confirm`, where they are `async`."""
        calls = Calls(tools, rounds, confirm, asked)
        said = with_media(messages_of(messages), asked.get("images"), asked.get("sounds"))
        asked = calls.later(asked)
        while not calls.over(answer := await self.achat(said, tools=tools, **asked)):
            said = [*said, answer.to_message(), *await calls.aresults(answer)]
        return answer

    def chat_batch(self, conversations: Sequence[Messages], **asked: Any) -> list[Answer]:
        """Answers many conversations, computed together."""
        schema = asked.get("schema")
        conversations = listed("conversations", "a list of texts or conversations", conversations)
        bodies = []
        for i, messages in enumerate(conversations):
            with item("conversations", i):
                bodies.append(_body(messages, **asked))
        return self._batch("chat", "conversations", bodies, schema)

    # ---- plain text

    @overload
    def generate(
        self, prompt: str | Sequence[int], *, stream: Literal[False] = ..., **options: Unpack[Sampling]
    ) -> Answer: ...
    @overload
    def generate(
        self, prompt: str | Sequence[int], *, stream: Literal[True], **options: Unpack[Sampling]
    ) -> AnswerStream: ...
    def generate(
        self, prompt: str | Sequence[int], *, stream: bool = False, **options: Unpack[Sampling]
    ) -> Union[Answer, AnswerStream]:
        """Continues a text, or token ids, as it is, without a chat template."""
        submitted = self._inner.submit("completion", self._text_body(prompt, stream, options))
        return AnswerStream(submitted) if stream else whole_answers(submitted)[0]

    @overload
    async def agenerate(
        self, prompt: str | Sequence[int], *, stream: Literal[False] = ..., **options: Unpack[Sampling]
    ) -> Answer: ...
    @overload
    async def agenerate(
        self, prompt: str | Sequence[int], *, stream: Literal[True], **options: Unpack[Sampling]
    ) -> AsyncAnswerStream: ...
    async def agenerate(
        self, prompt: str | Sequence[int], *, stream: bool = False, **options: Unpack[Sampling]
    ) -> Union[Answer, AsyncAnswerStream]:
        """As `generate`, awaited."""
        body = self._text_body(prompt, stream, options)
        if stream:
            return await streamed(lambda: AnswerStream(self._inner.submit("completion", body)))
        return (await in_thread(lambda held: whole_answers(held(self._inner.submit("completion", body)))))[0]

    def generate_batch(self, prompts: Sequence[str | Sequence[int]], **options: Unpack[Sampling]) -> list[Answer]:
        """Continues many texts, computed together."""
        prompts = listed("prompts", "a list of texts or lists of token ids", prompts)
        bodies = []
        for i, prompt in enumerate(prompts):
            with item("prompts", i):
                bodies.append(self._text_body(prompt, False, options))
        return self._batch("completion", "prompts", bodies)

    # ---- scores, vectors, tokens

    @overload
    def score(self, text: str) -> Score: ...
    @overload
    def score(self, text: list[str]) -> list[Score]: ...
    def score(self, text: str | list[str]) -> Union[Score, list[Score]]:
        """How likely a text is: the logarithms of the probabilities of its tokens, each given all before it. Texts of a list are
        computed together."""
        if isinstance(text, str):
            ids = self.tokenize(text, special=True)
            if len(ids) < 2:
                what = "a text of at least two tokens, each of which but the first is scored given those before it"
                raise refused("text", what, text, said=f"{len(ids)} in {shown(text)}")
            logprobs = self._inner.score(ids)
            return Score(sum(logprobs), len(logprobs), logprobs)
        texts = listed("text", "a text or a list of texts", text)
        for i, each in enumerate(texts):
            text_of(f"text[{i}]", each)
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(max(1, min(len(texts), 32))) as pool:
            return list(pool.map(self.score, texts))

    @overload
    async def ascore(self, text: str) -> Score: ...
    @overload
    async def ascore(self, text: list[str]) -> list[Score]: ...
    async def ascore(self, text: str | list[str]) -> Union[Score, list[Score]]:
        """As `score`, awaited."""
        return await in_thread(lambda _: self.score(text))

    def embed(self, texts: str | Sequence[str]) -> numpy.ndarray:
        """Vectors of texts. A model that writes text has none, so this raises UnsupportedError; `cactus.Embedder` makes them."""
        raise UnsupportedError(
            f"the model `{self.name}` writes text and has no embeddings: load one that was made for them with cactus.Embedder"
        )

    async def aembed(self, texts: str | Sequence[str]) -> numpy.ndarray:
        """As `embed`, awaited."""
        return self.embed(texts)

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text. With `special`, the ids that the tokenizer puts around every text are there, too."""
        return self._inner.tokenize(text_of("text", text), special)

    async def atokenize(self, text: str, *, special: bool = False) -> list[int]:
        """As `tokenize`, awaited."""
        return await in_thread(lambda _: self.tokenize(text, special=special))

    def detokenize(self, ids: Sequence[int], *, special: bool = True) -> str:
        """The text of token ids. Without `special`, special tokens are left out."""
        return self._inner.detokenize(token_ids("ids", ids, self._vocab), not special)

    async def adetokenize(self, ids: Sequence[int], *, special: bool = True) -> str:
        """As `detokenize`, awaited."""
        return await in_thread(lambda _: self.detokenize(ids, special=special))

    def render(self, messages: Messages, *, tools: Sequence[Any] | None = None) -> str:
        """The prompt that a conversation becomes by the model's template."""
        return self._inner.render(_body(messages, tools=tools))[0]

    # ---- conversations

    def session(self, messages: Messages | None = None, **options: Any) -> Session:
        """A conversation that remembers what was said and computed, and can be saved."""
        from .session import Session

        return Session(self, messages, options)

    # ---- habits: what other libraries call it

    def create_chat_completion(self, messages: Sequence[Any], **body: Any) -> Any:
        """Chat completions as the OpenAI API has them: a dict; with `stream=True`, an iterator of chunks."""
        return self._raw("chat", {"messages": messages, **body})

    def create_completion(self, prompt: str | Sequence[int] | Sequence[str], **body: Any) -> Any:
        """Completions as the OpenAI API has them: a dict; with `stream=True`, an iterator of chunks."""
        return self._raw("completion", {"prompt": prompt, **body})

    async def acreate_chat_completion(self, messages: Sequence[Any], **body: Any) -> Any:
        """As `create_chat_completion`, awaited: a dict; with `stream=True`, chunks for `async for`."""
        text = encoded({"messages": messages, **body})
        if body.get("stream"):
            return await chunked(lambda: self._inner.submit("chat", text))
        return await in_thread(lambda held: json.loads(held(self._inner.submit("chat", text)).whole()))

    def encode(self, sentences: str | Sequence[str], **_: Any) -> numpy.ndarray:
        """As `embed`, under the name that sentence-transformers has."""
        return self.embed(sentences)

    # ---- itself

    @property
    def info(self) -> dict[str, Any]:
        """Family, task, whether it chats, context, vocabulary, threads, default options, checksum."""
        return json.loads(self._inner.info())

    @property
    def stats(self) -> dict[str, Any]:
        """What the scheduler has done and has to do."""
        return json.loads(self._inner.stats())

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._inner.closed

    def close(self) -> None:
        """Ends its answers and frees it. Any later call raises ClosedError; a second `close` does nothing."""
        self._inner.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<cactus.Model {self.name!r}{' closed' if self.closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _load, (os.fspath(self.path), self.name, self._options)

    def _batch(self, api: str, field: str, bodies: list[str], schema: Any = None) -> list[Answer]:
        answers: list[Answer] = []
        for begin in range(0, len(bodies), _WINDOW):
            streams: list[native.Stream] = []
            try:
                for i, body in enumerate(bodies[begin : begin + _WINDOW], begin):
                    with item(field, i):
                        streams.append(self._inner.submit(api, body))
                for i, stream in enumerate(streams, begin):
                    with item(field, i):
                        answers.append(whole_answers(stream, schema)[0])
            finally:
                for stream in streams:
                    stream.cancel()
        return answers

    def _text_body(self, prompt: str | Sequence[int], stream: bool, options: Mapping[str, Any]) -> str:
        body = checked(options)
        body.setdefault("max_tokens", self._context)
        return encoded({**body, "prompt": prompt_of(prompt), "stream": stream})

    def _raw(self, api: str, body: dict[str, Any]) -> Any:
        submitted = self._inner.submit(api, encoded(body))
        if not body.get("stream"):
            return json.loads(submitted.whole())
        return _chunks(submitted)


def _body(messages: Messages, **asked: Any) -> str:
    names = (*ASKED, "images", "sounds", "stream")
    options = {name: value for name, value in asked.items() if name not in names}
    return chat_body(messages, options=options, **{name: asked[name] for name in names if name in asked})


def _chunks(stream: native.Stream) -> Iterator[dict[str, Any]]:
    try:
        while (frames := stream.next()) is not None:
            for frame in frames:
                if frame != "[DONE]":
                    yield json.loads(frame)
    finally:
        stream.cancel()


def _load(path: str, name: str, options: Mapping[str, Any]) -> Model:
    # Bytes of a path that are no text are shown as such.
    inner = native.Model.load(path, os.fsencode(name).decode(errors="replace"), **options)
    return Model(inner, Path(path), name, options)
