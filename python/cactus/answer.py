"""What comes back: an answer, its pieces as they come, and scores."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import CancelledError, ClosedError
from .tools import parsed

if TYPE_CHECKING:
    from ._native import Stream


@dataclass(frozen=True)
class ToolCall:
    """A call that the model asks for. `arguments` follow the schema of the tool."""

    name: str
    arguments: dict[str, Any]
    id: str


@dataclass(frozen=True)
class Answer:
    """A whole answer. As text it is `text`."""

    text: str
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    #: "stop", "length", "tool_calls" or "cancelled".
    finish_reason: str = "stop"
    token_ids: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    #: Repeats the answer where it was drawn at random.
    seed: int = 0
    time_to_first_token_ms: float | None = None
    total_time_ms: float = 0.0
    logprobs: list[dict[str, Any]] | None = None
    #: What the caller should know, such as what of a schema is not enforced.
    notes: list[str] = field(default_factory=list)
    #: Who answered, why, how surely, for how much and how fast, where the model has a policy: `answered_by`, `route`, `reason`,
    #: `confidence`, `error_bound`, `cost_usd`, `time_to_first_token_ms`, `total_time_ms` and more.
    decision: dict[str, Any] | None = None
    #: The form that was asked for.
    schema: Any = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.text

    @property
    def tokens_per_second(self) -> float:
        """Tokens after the first, for each second after it."""
        first = self.time_to_first_token_ms
        if first is None or self.completion_tokens < 2 or self.total_time_ms <= first:
            return 0.0
        return (self.completion_tokens - 1) / (self.total_time_ms - first) * 1e3

    @property
    def parsed(self) -> Any:
        """The value in the form that was asked for: an instance of the pydantic model, or plain JSON.

        Raises CancelledError where the answer ended before it was whole.
        """
        if self.schema is None:
            raise ValueError("the answer was asked for without a schema")
        if self.finish_reason in ("length", "cancelled"):
            raise CancelledError(
                f"the answer ended ({self.finish_reason}) before it was whole; raise max_tokens or the context"
            )
        try:
            json.loads(self.text)
        except ValueError as error:
            # A stop string has cut it.
            raise CancelledError(f"the answer ended ({self.finish_reason}) before it was whole: {error}") from error
        return parsed(self.schema, self.text)

    def to_message(self) -> dict[str, Any]:
        """The answer as a message of a conversation that goes on."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or (None if self.tool_calls else "")}
        if self.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                }
                for call in self.tool_calls
            ]
        return message


@dataclass(frozen=True)
class Source:
    """Who gives an answer under a policy."""

    #: "local", or the name of the target.
    answered_by: str
    #: Why that side, as `Answer.decision` has it in the end; "unjudged" where nothing is decided yet.
    reason: str
    #: What is known so far, under the names of `Answer.decision`. What may still be billed counts with the most that it may cost.
    decision: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def _of(decision: dict[str, Any]) -> Source:
        return Source(decision["answered_by"], decision["reason"], decision)


@dataclass(frozen=True)
class Replaced:
    """What was said so far is void, and another answers from the beginning.

    Who said it failed, or was judged too unsure after a slow beginning had been given out.
    """

    #: What is known so far, under the names of `Answer.decision`: `answered_by` is whose answer is void, and `reason` why.
    decision: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Score:
    """How likely a text is to the model."""

    #: Sum of the natural logarithms of the probabilities of the scored tokens.
    logprob: float
    #: Tokens scored.
    tokens: int
    token_logprobs: list[float]

    @property
    def perplexity(self) -> float:
        return math.exp(-self.logprob / self.tokens)


def answers_of(
    whole: dict[str, Any], ends: list[dict[str, Any]], schema: Any = None, decision: str | None = None
) -> list[Answer]:
    """The answers in the API's form, with what it has no place for."""
    usage = whole["usage"]
    answers = []
    for choice, end in zip(whole["choices"], ends):
        message = choice.get("message") or {"content": choice.get("text")}
        calls = []
        for call in message.get("tool_calls") or []:
            try:
                arguments = json.loads(call["function"]["arguments"])
            except ValueError:
                # Cut off in the middle, which `finish_reason` says.
                continue
            calls.append(ToolCall(call["function"]["name"], arguments, call["id"]))
        reason = end["finish_reason"] if end["finish_reason"] == "cancelled" else choice["finish_reason"]
        answers.append(
            Answer(
                text=message.get("content") or "",
                reasoning=message.get("reasoning_content") or "",
                tool_calls=calls,
                finish_reason=reason,
                token_ids=end["token_ids"],
                prompt_tokens=usage["prompt_tokens"],
                cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
                completion_tokens=end["completion_tokens"],
                seed=end["seed"],
                time_to_first_token_ms=end["time_to_first_token_ms"],
                total_time_ms=end["prompt_ms"] + end["answer_ms"],
                logprobs=_logprobs(choice.get("logprobs")),
                notes=end["notes"],
                decision=None if decision is None else json.loads(decision),
                schema=schema,
            )
        )
    return answers


def _logprobs(given: dict[str, Any] | None) -> list[dict[str, Any]] | None:
    """Both APIs' forms as the one of chats."""
    if not given or "content" in given:
        return given["content"] if given else None
    tops = given.get("top_logprobs") or [None] * len(given["tokens"])
    return [
        {"token": token, "logprob": logprob, "top_logprobs": [{"token": t, "logprob": p} for t, p in (top or {}).items()]}
        for token, logprob, top in zip(given["tokens"], given["token_logprobs"], tops)
    ]


def whole_answers(stream: Stream, schema: Any = None) -> list[Answer]:
    """Waits for the end of a request."""
    try:
        whole = json.loads(stream.whole())
    except BaseException:
        stream.cancel()
        raise
    answers = answers_of(whole, json.loads(stream.ends()), schema, stream.decision())
    if answers and answers[0].finish_reason == "cancelled":
        raise ClosedError("the model was closed, or the interpreter is ending, before the answer was whole")
    return answers


class AnswerStream(Iterator[str]):
    """The pieces of an answer as they come: text to be shown. After the last, `answer` has all of it.

    Leaving a `for` loop early ends the answer when this object goes; `close`, or `with`, ends it at once.
    """

    def __init__(self, stream: Stream, schema: Any = None, done: Any = None):
        self._stream = stream
        self._schema = schema
        self._done = done
        self._pieces: list[str | Source | Replaced] = []
        self._answer: Answer | None = None
        self._over = False
        #: Reasoning so far.
        self.reasoning = ""

    def __iter__(self) -> AnswerStream:
        return self

    def __next__(self) -> str:
        while True:
            piece = self._next()
            if isinstance(piece, str):
                return piece

    def events(self) -> Iterator[str | Source | Replaced]:
        """The pieces of text, and between them what happens to an answer under a policy.

        A `Source` comes before the first piece of each side. A `Replaced` makes void what came before it, after which another
        answers from the beginning. Without this, nothing is given out before it is decided who answers, and an answer of who
        fails after that ends with an error.
        """
        self._stream.tell_events()
        return self._events()

    def _events(self) -> Iterator[str | Source | Replaced]:
        while True:
            try:
                yield self._next()
            except StopIteration:
                return

    def _next(self) -> str | Source | Replaced:
        while not self._pieces:
            if self._over:
                raise StopIteration
            try:
                frames = self._stream.next()
            except BaseException:
                self.close()
                raise
            self._take(frames)
        return self._pieces.pop(0)

    def _take(self, frames: list[str] | None) -> None:
        if frames is None:
            self._over = True
            ends = json.loads(self._stream.ends())
            answers = answers_of(json.loads(self._stream.whole()), ends, self._schema, self._stream.decision())
            self._answer = answers[0]
            if self._done is not None:
                self._done(self._answer)
            return
        for frame in frames:
            if frame == "[DONE]":
                continue
            chunk = json.loads(frame)
            if told := chunk.get("cactus"):
                if told["event"] == "source":
                    self._pieces.append(Source._of(told["source"]))
                else:
                    self.reasoning = ""
                    self._pieces.append(Replaced(told["void"]))
            for choice in chunk["choices"]:
                delta = choice.get("delta") or {"content": choice.get("text")}
                self.reasoning += delta.get("reasoning_content") or ""
                if text := delta.get("content"):
                    self._pieces.append(text)

    @property
    def source(self) -> Source | None:
        """Who answers, and why, from the first piece on; `None` before, and where the model has no policy."""
        source = self._stream.source()
        return None if source is None else Source._of(json.loads(source))

    @property
    def answer(self) -> Answer:
        """The whole answer; reads what has not been read yet."""
        for _ in self:
            pass
        if self._answer is None:
            raise CancelledError("the answer was ended before it was whole")
        return self._answer

    def cancel(self) -> None:
        """Ends the answer within a token, from any thread: what was made so far still comes."""
        self._stream.cancel()

    def close(self) -> None:
        """Ends the answer within a token; nothing comes any more."""
        self._over = True
        self._stream.cancel()

    def __enter__(self) -> AnswerStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        stream = getattr(self, "_stream", None)
        if stream is not None:
            stream.cancel()
