"""The function names of the public Cactus package, over this engine: code written for those keeps working.

A model is a number that `cactus_init` gives. Messages, options and tools are lists and dicts, or the JSON of them. Results are dicts
with the keys that those functions have; an error is a RuntimeError, and its text is `cactus_get_last_error()` too. What this engine
does not do, or does under another name (speech, documents of a folder), raises one that says so.

Nothing leaves this machine unless `cactus_model_set_policy` has given the model a `cactus.Policy`. Then the options on handing off
(`confidence_threshold` and the others) change it for their request.

    from cactus.compat import cactus_complete, cactus_destroy, cactus_init
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from . import compat_index, pictures, sounds
from .answer import Answer, AnswerStream
from .errors import CactusError
from .model import Model
from .options import chat_body, encoded, token_ids
from .policy import Policy
from .session import Session

_NUMBERS = itertools.count(1)
_LOCK = threading.Lock()
_ERROR = threading.local()

#: Options by their names there, and here. What is not listed has the same name.
_RENAMED = {"stop_sequences": "stop"}
#: Options that mean something only for parts that are not here.
_IGNORED = {"include_stop_sequences", "timestamps", "use_vad"}
#: Options on handing off, which a policy reads and checks. Without one nothing is handed off, and they say nothing.
_OF_POLICY = {
    "auto_handoff",
    "cloud_timeout_ms",
    "confidence_threshold",
    "handoff_with_images",
    "no_cloud_handoff",
    "no_cloud_tele",
    "telemetry_enabled",
}


class _Held:
    def __init__(self, model: Model):
        self.model = model
        self.session: Session = model.session()
        self.stream: AnswerStream | None = None
        self.routed = False
        self._turn = threading.Lock()
        self._asks: int | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One answer after the other."""
        if self._asks == threading.get_ident():
            raise RuntimeError("it was called from the callback of an answer of the same model; let that end first")
        with self._turn:
            self._asks = threading.get_ident()
            try:
                yield
            finally:
                self._asks = None

    def begin(self, messages: list[dict[str, Any]], asked: dict[str, Any], handing_off: dict[str, Any]) -> AnswerStream:
        """An answer of this machine, or under a policy of whoever it says."""
        if not self.routed:
            # A copy: the caller keeps its list as it is, and the session appends to its own.
            self.session.messages = list(messages)
            stream = self.session.chat(stream=True, **asked)
            assert isinstance(stream, AnswerStream)
            return stream
        given = {name: asked.pop(name) for name in ("tools", "tool_choice", "reasoning") if name in asked}
        body = chat_body(messages, stream=True, options=asked, **given)
        return AnswerStream(self.model._inner.submit("chat", body, encoded(handing_off, "options")))


_HELD: dict[int, _Held] = {}


def _failed(message: str) -> RuntimeError:
    _ERROR.text = message
    return RuntimeError(message)


@contextmanager
def _told(function: str) -> Iterator[None]:
    """An error inside is one of `function`."""
    try:
        yield
    except (CactusError, TypeError, ValueError, RuntimeError) as error:
        text = str(error)
        raise _failed(text if text.startswith("cactus_") else f"{function}: {text}") from error


def _held(model: int) -> _Held:
    with _LOCK:
        held = _HELD.get(model)
    if held is None:
        raise RuntimeError(f"there is no model {model!r}: cactus_init gives one, and cactus_destroy ends it")
    return held


def _value(given: Any) -> Any:
    return json.loads(given) if isinstance(given, (str, bytes)) and given else given


def cactus_init(model_path: str, corpus_dir: str | None = None, cache_index: bool = False) -> int:
    """Loads a model: a bundle's folder, a model file, or a known name."""
    if corpus_dir:
        raise _failed("cactus_init: retrieval (`corpus_dir`) is not in this build")
    try:
        held = _Held(Model.load(model_path))
    except CactusError as error:
        raise _failed(str(error)) from error
    number = next(_NUMBERS)
    with _LOCK:
        _HELD[number] = held
    return number


def cactus_destroy(model: int) -> None:
    """Ends a model; an answer under way ends first."""
    with _LOCK:
        held = _HELD.pop(model, None)
    if held is not None:
        held.model.close()


def cactus_model_set_policy(model: int, policy: Policy | None) -> None:
    """Lets others answer what this machine should not, as a `cactus.Policy` says; with None nobody any more. The public package has
    no such function: there, who answers is given by its vendor."""
    with _told("cactus_model_set_policy"):
        held = _held(model)
        with held.turn():
            held.model.set_policy(policy)
            held.routed = policy is not None


def cactus_stop(model: int) -> None:
    """Ends the answer under way within a token."""
    with _told("cactus_stop"):
        stream = _held(model).stream
    if stream is not None:
        stream.cancel()


def cactus_reset(model: int) -> None:
    """Forgets the conversation."""
    with _told("cactus_reset"):
        held = _held(model)
        with held.turn():
            held.session.reset()


def cactus_get_last_error() -> str:
    """What went wrong last on this thread."""
    return getattr(_ERROR, "text", "")


def _asked(options: Any, tools: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {"temperature": 0.0, "max_tokens": 100}
    for name, value in (_value(options) or {}).items():
        if name == "force_tools":
            asked["tool_choice"] = "required" if value else None
        elif name == "enable_thinking_if_supported":
            asked["reasoning"] = bool(value)
        elif name == "seed" and not value:
            continue
        elif name == "top_p" and not 0 < value <= 1:
            continue
        elif name not in _IGNORED | _OF_POLICY and name != "tool_rag_top_k":
            asked[_RENAMED.get(name, name)] = value
    if tools := _value(tools):
        asked["tools"] = tools
    else:
        asked.pop("tool_choice", None)
    return {name: value for name, value in asked.items() if value is not None}


def _handing_off(options: Any) -> dict[str, Any]:
    given = _value(options) or {}
    return {name: value for name, value in given.items() if name in _OF_POLICY and value is not None}


def _messages(messages: Any) -> list[dict[str, Any]]:
    messages = _value(messages)
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ValueError("`messages` is expected to be a list of objects with `role` and `content`, or the JSON of one")
    return [_shown(i, message) for i, message in enumerate(messages)]


def _shown(i: int, message: dict[str, Any]) -> dict[str, Any]:
    """A message with the pictures and sounds in its files before its text."""
    rest = {name: value for name, value in message.items() if name not in ("images", "audio")}
    media: list[Any] = []
    for name, part_of in (("images", pictures.part_of), ("audio", sounds.part_of)):
        files = message.get(name)
        if not files:
            continue
        if isinstance(files, (str, bytes)) or not isinstance(files, Sequence):
            raise ValueError(f"`messages[{i}].{name}` is expected to be a list of files")
        media += [part_of(f"messages[{i}].{name}[{n}]", file) for n, file in enumerate(files)]
    return _first(rest, media) if media else rest


def _first(message: dict[str, Any], parts: list[Any]) -> dict[str, Any]:
    content = message.get("content")
    return {**message, "content": parts + (content if isinstance(content, list) else [{"type": "text", "text": content or ""}])}


def _heard(messages: list[dict[str, Any]], pcm: bytes | None) -> list[dict[str, Any]]:
    """The messages with a sound before the last text of the user."""
    if not pcm:
        return messages
    asked = [i for i, message in enumerate(messages) if message.get("role") == "user"]
    if not asked or len(pcm) % 2:
        raise ValueError("`pcm_data` is expected to be samples of 2 bytes for a message of the user")
    part = sounds.part_of("pcm_data", sounds.wav_of_pcm(bytes(pcm)))
    return [_first(message, [part]) if i == asked[-1] else message for i, message in enumerate(messages)]


def _result(answer: Answer, seconds: float) -> dict[str, Any]:
    first = answer.time_to_first_token_ms or 0.0
    decision = answer.decision or {}
    return {
        "success": True,
        "error": None,
        "cloud_handoff": decision.get("answered_by", "local") != "local",
        "response": answer.text,
        **({"thinking": answer.reasoning} if answer.reasoning else {}),
        "function_calls": [{"name": call.name, "arguments": call.arguments} for call in answer.tool_calls],
        "segments": [],
        # That package has a probe of its own models. Here a calibrated bundle has one, and a policy asks for it.
        "confidence": decision.get("confidence"),
        "time_to_first_token_ms": first,
        "total_time_ms": seconds * 1e3,
        "prefill_tps": answer.prompt_tokens / first * 1e3 if first else 0.0,
        "decode_tps": answer.tokens_per_second,
        "prefill_tokens": answer.prompt_tokens,
        "decode_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }


def cactus_complete(
    model: int,
    messages: Any,
    options: Any = None,
    tools: Any = None,
    callback: Callable[[str, int], Any] | None = None,
    pcm_data: bytes | None = None,
) -> dict[str, Any]:
    """Answers a conversation; `callback` gets each piece of text, and 0 (pieces are whole characters, not tokens). What it raises
    ends the answer and comes through. It may ask other models, and tokenize, stop or destroy this one. Under a policy the answer of
    another side may replace what the callback was given; the result is what counts."""
    begun = time.perf_counter()
    raised: BaseException | None = None
    with _told("cactus_complete"):
        held = _held(model)
        with held.turn():
            stream = held.begin(_heard(_messages(messages), pcm_data), _asked(options, tools), _handing_off(options))
            held.stream = stream
            try:
                for piece in stream.events():
                    if callback is None or not isinstance(piece, str):
                        continue
                    try:
                        callback(piece, 0)
                    except BaseException as error:  # noqa: BLE001, the caller gets it
                        raised = error
                        break
                answer = stream.answer if raised is None else None
            finally:
                held.stream = None
                stream.cancel()
    if answer is None:
        assert raised is not None
        raise raised
    return _result(answer, time.perf_counter() - begun)


def cactus_prefill(model: int, messages: Any, options: Any = None, tools: Any = None, pcm_data: bytes | None = None) -> dict[str, Any]:
    """Computes a conversation ahead, so that an answer to one that begins with it comes sooner."""
    begun = time.perf_counter()
    with _told("cactus_prefill"):
        one = {**(_value(options) or {}), "max_tokens": 1}
        one.pop("force_tools", None)
    made = cactus_complete(model, messages, one, tools, None, pcm_data)
    seconds = time.perf_counter() - begun
    tokens = made["prefill_tokens"]
    return {
        "success": True,
        "error": None,
        "prefill_tokens": tokens,
        "prefill_tps": tokens / seconds,
        "total_time_ms": seconds * 1e3,
    }


def cactus_tokenize(model: int, text: str) -> list[int]:
    """Token ids of a text."""
    with _told("cactus_tokenize"):
        return _held(model).model.tokenize(text)


def cactus_render_prompt(model: int, messages: Any, options: Any = None, tools: Any = None) -> str:
    """The prompt that a conversation becomes."""
    with _told("cactus_render_prompt"):
        return _held(model).model.render(_messages(messages), tools=_value(tools))


def cactus_score_window(model: int, tokens: Sequence[int], start: int, end: int, context: int) -> dict[str, Any]:
    """Log-likelihood of `tokens[start:end]`, each given at most `context` tokens before the first, and all after those."""
    with _told("cactus_score_window"):
        if not 0 <= start < end <= len(tokens):
            raise ValueError(f"expected 0 <= start < end <= {len(tokens)}, found {start} and {end}")
        begin = max(0, start - max(context, 1))
        held = _held(model).model
        logprobs = held._inner.score(token_ids("tokens", tokens, held._vocab)[begin:end])
    # The first of all tokens has nothing before it.
    scored = logprobs[max(0, start - begin - 1) :]
    return {"success": True, "logprob": sum(scored), "tokens": len(scored)}


def cactus_embed(model: int, text: str, normalize: bool = True) -> list[float]:
    """Raises: a model that writes has no vectors. `cactus.Embedder` is for those that do."""
    with _told("cactus_embed"):
        return list(_held(model).model.embed(text))


def _absent(name: str, what: str, instead: str = "") -> Callable[..., Any]:
    why = f"{what} is not in this build" if not instead else f"{what} is not in this module; use `{instead}`"

    def absent(*_: Any, **__: Any) -> Any:
        raise _failed(f"{name}: {why}")

    absent.__name__ = absent.__qualname__ = name
    absent.__doc__ = f"Raises: {why}."
    return absent


cactus_transcribe = _absent("cactus_transcribe", "transcription", "cactus.Transcriber")
cactus_stream_transcribe_start = _absent("cactus_stream_transcribe_start", "live speech", "cactus.Stream")
cactus_stream_transcribe_process = _absent("cactus_stream_transcribe_process", "live speech", "cactus.Stream")
cactus_stream_transcribe_stop = _absent("cactus_stream_transcribe_stop", "live speech", "cactus.Stream")
cactus_image_embed = _absent("cactus_image_embed", "a vector of a picture", "cactus.Embedder")
cactus_audio_embed = _absent("cactus_audio_embed", "an embedding of sound")
cactus_rag_query = _absent("cactus_rag_query", "retrieval", "cactus.Corpus")

def cactus_index_init(index_dir: str, embedding_dim: int) -> int:
    """Opens the index in a folder, or makes one there, for vectors of so many numbers."""
    with _told("cactus_index_init"):
        return compat_index.init(index_dir, embedding_dim)


def cactus_index_add(
    index: int,
    ids: Sequence[int],
    documents: Sequence[str],
    metadatas: Sequence[str | None] | None = None,
    embeddings: Any = None,
) -> None:
    """Adds documents with new ids, all or none."""
    with _told("cactus_index_add"):
        compat_index.add(index, ids, documents, metadatas, embeddings)


def cactus_index_delete(index: int, ids: Sequence[int]) -> None:
    """Deletes documents; ids that are not there are left out."""
    with _told("cactus_index_delete"):
        compat_index.delete(index, ids)


def cactus_index_get(index: int, ids: Sequence[int]) -> dict[str, Any]:
    """`results`: the `document`, `metadata` and `embedding` of each id."""
    with _told("cactus_index_get"):
        return compat_index.get(index, ids)


def cactus_index_query(index: int, embedding: Sequence[float], options: Any = None) -> dict[str, Any]:
    """`results`: the `id` and `score` of the nearest documents. `options` may have `top_k`, `score_threshold` and `filter`."""
    with _told("cactus_index_query"):
        return compat_index.query(index, embedding, _value(options))


def cactus_index_compact(index: int) -> None:
    """Writes the file anew, without what was deleted."""
    with _told("cactus_index_compact"):
        compat_index.compact(index)


def cactus_index_destroy(index: int) -> None:
    """Closes an index."""
    compat_index.destroy(index)


cactus_preprocess_audio_features = _absent("cactus_preprocess_audio_features", "a front end of sound")


def cactus_set_telemetry_environment(*_: Any) -> None:
    """Does nothing: this engine sends nothing to anybody."""


def cactus_set_app_id(*_: Any) -> None:
    """Does nothing: this engine sends nothing to anybody."""


def cactus_telemetry_flush() -> None:
    """Does nothing: this engine sends nothing to anybody."""


def cactus_telemetry_shutdown() -> None:
    """Does nothing: this engine sends nothing to anybody."""


def cactus_set_backend(*_: Any) -> None:
    """Does nothing: this engine computes on the CPU."""


def cactus_log_set_callback(*_: Any) -> None:
    """Does nothing: the engine does not log."""


def cactus_log_set_level(level: int) -> None:
    """Does nothing: the engine does not log."""
