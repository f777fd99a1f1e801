"""Speech: what is said (`Transcriber`), also while somebody speaks (`Stream`), and where somebody speaks (`Vad`).

    transcriber = Transcriber.load("whisper-tiny.en")
    for segment in transcriber.stream("talk.mp3"):
        print(segment.start, segment.end, segment.text)

A recording is a file of any format, or samples: an array with one dimension, floats from -1 to 1 or integers of 16 bits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .asynchronous import in_thread
from .engine import native
from .errors import ClosedError
from .options import listed, path_of, refused, text_of, whole_number
from .policy import Policy

#: Samples a second of arrays where nobody says how many.
_RATE = 16_000


@dataclass(frozen=True)
class Word:
    """A word with its times in seconds, and how sure the model was of it."""

    text: str
    start: float
    end: float
    #: None where a target has said it.
    probability: float | None


@dataclass(frozen=True)
class Segment:
    """A stretch of speech with its times in seconds."""

    id: int
    start: float
    end: float
    text: str
    tokens: list[int] = field(repr=False)
    #: Mean natural logarithm of the probability of its window's tokens.
    mean_logprob: float
    #: How sure the model was: the geometric mean of the probabilities of its own tokens. It is not calibrated.
    confidence: float
    #: Probability that nobody speaks in its window.
    no_speech: float
    #: Temperature at which its window was written.
    temperature: float
    #: Bytes of its window's text by bytes of it compressed.
    compression: float
    #: Its words, where they were asked for.
    words: list[Word] = field(default_factory=list, repr=False)
    #: The target whose words are in it, or "local"; and how often its text was changed. A target says nothing of how sure it was, and
    #: what it changed has no tokens.
    answered_by: str = "local"
    revision: int = 0


@dataclass(frozen=True)
class Transcript:
    """What was said in a recording."""

    text: str
    #: Code of the language; None of a model that knows one alone.
    language: str | None
    #: Length of the recording in seconds.
    duration: float
    segments: list[Segment] = field(repr=False)
    #: Under a policy: who heard it, why and for how much, under the names of `Answer.decision`, and `heard_again`.
    decision: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Span:
    """Where somebody speaks, in seconds."""

    start: float
    end: float


@dataclass(frozen=True)
class SpeechStart:
    """Somebody begins to speak, `start` seconds from the beginning of the sound."""

    #: Number of the phrase, from 0.
    id: int
    start: float


@dataclass(frozen=True)
class SpeechPartial:
    """What is said so far."""

    id: int
    #: Text that stays: it only grows, and the final text begins with it.
    committed: str
    #: Text behind it that may still change.
    volatile: str
    #: Up to where the sound was heard, in seconds.
    until: float


@dataclass(frozen=True)
class SpeechFinal:
    """What was said. Nothing of it changes any more."""

    id: int
    text: str
    segment: Segment = field(repr=False)
    #: Code of the language; None of a model that knows one alone.
    language: str | None
    #: Why now: "silence", "length" or "end".
    reason: str
    #: Up to where the sound had come by then, in seconds.
    until: float


@dataclass(frozen=True)
class SpeechEnd:
    """The phrase is over, with a final text or without: noise has none."""

    id: int
    end: float


#: What happens in live speech.
SpeechEvent = SpeechStart | SpeechPartial | SpeechFinal | SpeechEnd


def _event(text: str) -> SpeechEvent:
    of = json.loads(text)
    match of["event"]:
        case "speech_start":
            return SpeechStart(of["id"], of["start_s"])
        case "partial":
            return SpeechPartial(of["id"], of["committed"], of["volatile"], of["until_s"])
        case "final":
            segment = of["segment"]
            return SpeechFinal(segment["id"], segment["text"], _segment(segment), of.get("language"), of["reason"], of["until_s"])
        case "speech_end":
            return SpeechEnd(of["id"], of["end_s"])
        case other:
            raise RuntimeError(f"an event of the kind {other!r} is not known; the package and its extension differ")


def _segment(of: dict[str, Any]) -> Segment:
    words = [Word(w["text"], w["start_s"], w["end_s"], w["probability"]) for w in of.get("words", ())]
    names = ("tokens", "mean_logprob", "confidence", "no_speech", "temperature", "compression")
    by = (of.get("answered_by", "local"), of.get("revision", 0))
    return Segment(of["id"], of["start_s"], of["end_s"], of["text"].strip(), *(of[name] for name in names), words, *by)


#: What integer samples are divided by.
_FULL_SCALE = {"int16": 1 << 15, "int32": 1 << 31, "uint8": 1 << 7}


def _samples(audio: Any) -> native.Input:
    """An array as floats. Integers are samples of their width, 8 bits without a sign around 128, as in WAV."""
    name = getattr(getattr(audio, "dtype", None), "name", "")
    full = _FULL_SCALE.get(str(name).rpartition(".")[2])
    if full is not None:
        import numpy

        middle = 128 if full == 128 else 0
        audio = ((numpy.asarray(audio, dtype=numpy.float64) - middle) / full).astype(numpy.float32)
    elif "float" not in str(name):
        raise refused("audio", "an array of float32, float64, float16, int16, int32 or uint8", f"one of {name}")
    try:
        return native.Input(audio)
    except BufferError:
        # NumPy hands over nothing that is read-only or has another order.
        import numpy

        return native.Input(numpy.array(audio, dtype=numpy.float32))


def _sound(audio: Any, sample_rate: int | None) -> tuple[native.Input, int] | str:
    if isinstance(audio, (str, bytes, os.PathLike)):
        if sample_rate is not None:
            raise refused("sample_rate", "None beside a file, which states its own", sample_rate)
        return path_of("audio", audio)
    if not hasattr(audio, "__dlpack__"):
        raise refused("audio", "a path, or an array of samples", audio)
    rate = whole_number("sample_rate", _RATE if sample_rate is None else sample_rate, 1, 1 << 31)
    return _samples(audio), rate


def _bundle(model: str | os.PathLike[str], bits: int, offline: bool) -> os.PathLike[str]:
    name = path_of("model", model)
    return native.prepare(
        name, bits=bits, calibrate=False, reconvert=False, token=None, offline=offline, progress=None
    )


def _flag(name: str, flag: Any) -> bool:
    if not isinstance(flag, bool):
        raise refused(name, "True or False", flag)
    return flag


def _number(name: str, expected: str, number: Any) -> float:
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise refused(name, expected, number)
    return float(number)


def _options(
    *,
    language: str | None = None,
    translate: bool = False,
    words: bool = False,
    prompt: str = "",
    hotwords: Sequence[str] = (),
    beams: int = 1,
    carry_tokens: int = 0,
    temperature: float = 0.0,
    hallucination_silence: float | None = None,
) -> dict[str, Any]:
    """How something is transcribed."""
    return {
        "language": None if language is None else text_of("language", language),
        "translate": _flag("translate", translate),
        "words": _flag("words", words),
        "prompt": text_of("prompt", prompt),
        "hotwords": [text_of("hotwords", word) for word in listed("hotwords", "a list of texts", hotwords)],
        "beams": whole_number("beams", beams, 0, 1 << 16),
        "carry_tokens": whole_number("carry_tokens", carry_tokens, 0, 1 << 16),
        "temperature": _number("temperature", "a number from 0 to 1", temperature),
        "hallucination_silence": None
        if hallucination_silence is None
        else _number("hallucination_silence", "a number of seconds, or None", hallucination_silence),
    }


class Transcriber:
    """A model that writes down what is said. `Transcriber.load` makes one; `with` or `close` frees it.

    It may be asked from any thread; one recording at a time has it, and the others wait.
    """

    def __init__(self, inner: native.Transcriber):
        if not isinstance(inner, native.Transcriber):
            raise TypeError("a Transcriber is made by Transcriber.load(path)")
        self._inner = inner
        self._policy: Policy | None = None

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str],
        *,
        bits: int = 8,
        threads: int | None = None,
        offline: bool = False,
        policy: Policy | None = None,
    ) -> Transcriber:
        """Loads a bundle of Whisper or Moonshine. What is no bundle is converted into the cache first: a folder of Hugging Face,
        CTranslate2 or ONNX Runtime, or a file of whisper.cpp. With a `policy`, others may hear recordings again, as `set_policy` says."""
        if threads is not None:
            whole_number("threads", threads, 1, 1024)
        _of_policy(policy)
        loaded = cls(native.Transcriber.open(_bundle(model, bits, offline), threads))
        loaded._policy = policy
        return loaded

    @classmethod
    async def aload(cls, model: str | os.PathLike[str], **options: Any) -> Transcriber:
        """As `load`, awaited."""
        return await in_thread(lambda _: cls.load(model, **options))

    @property
    def languages(self) -> list[str]:
        """Codes of the languages that it can be told, or held to by their letters; none where it knows English alone."""
        return self._inner.languages

    @property
    def sample_rate(self) -> int:
        """Samples a second that it takes. Other rates are resampled."""
        return self._inner.sample_rate

    def set_policy(self, policy: Policy | None) -> None:
        """Lets others hear again what is doubtful of recordings, as the policy says; with None nobody any more. Its targets have the
        protocol "openai_transcriptions". A recording under way stays as it is, and live speech stays on this machine."""
        self._policy = _of_policy(policy)

    def _begin(
        self, audio: Any, *, sample_rate: int | None = None, policy: Policy | None = None, **options: Any
    ) -> tuple[native.Hearing, Policy | None]:
        policy = self._policy if policy is None else _of_policy(policy)
        inner = None if policy is None else policy._inner
        return self._inner.begin(_sound(audio, sample_rate), policy=inner, **_options(**options)), policy

    def transcribe(self, audio: Any, **options: Any) -> Transcript:
        """What is said in a recording: a file of any format, or an array of samples (`sample_rate` of them a second, 16,000
        unless told otherwise).

        `language` is a code such as "de"; without it the model finds out. `translate` writes English. `words` adds when each word
        is said. `prompt` is text as if said before, `hotwords` are words that may be said. `beams` texts are followed side by
        side. `carry_tokens` of the text before are read by each window. `temperature` 0 takes the likeliest words; above it they
        are drawn. With `hallucination_silence`, text of Whisper's that nobody may have said is left out beside so many seconds of
        silence; live speech refuses it. With a `policy`, or one of the transcriber's own, targets hear again what is doubtful, and
        `Transcript.decision` says what came of it; sound leaves only where its consent, or the answer to its `ask`, is yes. Ctrl-C ends it.
        """
        return _whole(*self._begin(audio, **options))

    def stream(self, audio: Any, **options: Any) -> Iterator[Segment]:
        """As `transcribe`, segment by segment as they are known, which is at the end where others may hear them again. Whoever stops
        reading cancels the rest."""
        return _segments(*self._begin(audio, **options))

    async def atranscribe(self, audio: Any, **options: Any) -> Transcript:
        """As `transcribe`, awaited. Cancelling the task cancels the work."""
        def work(held: Any) -> Transcript:
            hearing, policy = self._begin(audio, **options)
            return _whole(held(hearing), policy)

        return await in_thread(work)

    async def adetect_language(self, audio: Any, *, sample_rate: int | None = None) -> dict[str, float]:
        """As `detect_language`, awaited."""
        return await in_thread(lambda _: self.detect_language(audio, sample_rate=sample_rate))

    def detect_language(self, audio: Any, *, sample_rate: int | None = None) -> dict[str, float]:
        """The languages at the beginning of a recording with their probabilities, the likeliest first; empty where nobody
        speaks."""
        return dict(self._inner.detect_language(_sound(audio, sample_rate)))

    def close(self) -> None:
        """Ends what is under way. Whatever is asked later is a ClosedError."""
        self._inner.close()

    def __enter__(self) -> Transcriber:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _of_policy(policy: Policy | None) -> Policy | None:
    if policy is not None and not isinstance(policy, Policy):
        raise refused("policy", "a cactus.Policy", policy)
    return policy


def _events(hearing: native.Hearing, policy: Policy | None) -> Iterator[dict[str, Any]]:
    while (text := hearing.next()) is not None:
        event = json.loads(text)
        if "question" in event and policy is not None:
            hearing.consent(policy._asked(event["question"]))
        else:
            yield event


def _whole(hearing: native.Hearing, policy: Policy | None) -> Transcript:
    try:
        for event in _events(hearing, policy):
            if found := event.get("transcript"):
                segments = [_segment(segment) for segment in found["segments"]]
                return Transcript(event["text"], found.get("language"), found["duration_s"], segments, event.get("decision"))
    except BaseException:
        # A person who is asked may raise something.
        hearing.cancel()
        raise
    raise RuntimeError("the model has stopped after a failure")


def _segments(hearing: native.Hearing, policy: Policy | None) -> Iterator[Segment]:
    try:
        for event in _events(hearing, policy):
            final = event["transcript"]["segments"] if "decision" in event else ()
            yield from map(_segment, event.get("segments", final))
    finally:
        hearing.cancel()


class Vad:
    """A model that finds speech. Whole recordings have `spans`; live sound is given to `push`, piece by piece."""

    def __init__(self, inner: native.Vad):
        if not isinstance(inner, native.Vad):
            raise TypeError("a Vad is made by Vad.load(path)")
        self._inner = inner

    @classmethod
    def load(cls, model: str | os.PathLike[str], *, offline: bool = False) -> Vad:
        """Loads a bundle of Silero VAD, or converts `silero_vad_16k.safetensors` of its package first."""
        return cls(native.Vad.open(_bundle(model, 32, offline)))

    @property
    def sample_rate(self) -> int:
        """Samples a second that `push` takes."""
        return self._inner.sample_rate

    @property
    def chunk_samples(self) -> int:
        """Samples for each probability."""
        return self._inner.chunk_samples

    def spans(
        self,
        audio: Any,
        *,
        sample_rate: int | None = None,
        threshold: float = 0.5,
        neg_threshold: float | None = None,
        min_speech_ms: int = 250,
        max_speech_s: float | None = None,
        min_silence_ms: int = 100,
        pad_ms: int = 30,
    ) -> list[Span]:
        """Where somebody speaks in a recording. Options have the meaning and the defaults of Silero's
        `get_speech_timestamps`. Forgets what was pushed."""
        found = self._inner.spans(
            _sound(audio, sample_rate),
            threshold=threshold,
            neg_threshold=neg_threshold,
            min_speech_ms=whole_number("min_speech_ms", min_speech_ms, 0, 1 << 31),
            max_speech_s=max_speech_s,
            min_silence_ms=whole_number("min_silence_ms", min_silence_ms, 0, 1 << 31),
            pad_ms=whole_number("pad_ms", pad_ms, 0, 1 << 31),
        )
        rate = self.sample_rate
        return [Span(start / rate, end / rate) for start, end in found]

    def push(self, samples: Any) -> list[float]:
        """The probability of speech in each chunk that is whole now. Samples may come in pieces of any size."""
        return self._inner.push(_samples(samples))

    def finish(self) -> float | None:
        """The probability of the chunk under way, with silence after it, if it has a sample. Begins anew."""
        return self._inner.finish()

    def reset(self) -> None:
        """Forgets what was pushed."""
        self._inner.reset()


class Stream:
    """Live speech: sound is pushed in pieces of any size, and events come out while somebody speaks.

        with Stream(transcriber, vad) as stream:
            for event in stream.events(microphone):
                if isinstance(event, SpeechFinal):
                    print(event.text)

    `vad` finds speech; half a second of silence (`silence_ms`) ends a phrase, a fifth where its text ends a sentence (`sentence_ms`), and so
    do 25 seconds (`max_phrase_s`). Every second (`step_ms`; 0 for never) a phrase is written again while it is spoken. With `margin_ms` the
    model hears so much silence behind it and no more, which takes less time (Whisper). What two texts in a row agree on stays; with
    `commit="attention"` what the model heard half a second ago stays at once (Whisper). Options are those of `Transcriber.transcribe`. Several streams
    can share one transcriber, by turns. The events are the same however the sound was cut.
    """

    def __init__(
        self,
        transcriber: Transcriber,
        vad: Vad,
        *,
        sample_rate: int = _RATE,
        step_ms: int = 1000,
        silence_ms: int = 500,
        sentence_ms: int = 200,
        margin_ms: int | None = None,
        max_phrase_s: float | None = None,
        threshold: float = 0.5,
        commit: str = "agreement",
        **options: Any,
    ):
        if commit not in ("agreement", "attention"):
            raise refused("commit", '"agreement" or "attention"', commit)
        if not isinstance(transcriber, Transcriber):
            raise refused("transcriber", "a Transcriber", transcriber)
        if not isinstance(vad, Vad):
            raise refused("vad", "a Vad", vad)
        # Whoever drops a transcriber closes it.
        self._transcriber = transcriber
        self._open = True
        self._inner = native.Listening.open(
            transcriber._inner,
            vad._inner,
            sample_rate=whole_number("sample_rate", sample_rate, 1, 1 << 31),
            step_ms=whole_number("step_ms", step_ms, 0, 3_600_000),
            silence_ms=whole_number("silence_ms", silence_ms, 0, 3_600_000),
            sentence_ms=whole_number("sentence_ms", sentence_ms, 0, 3_600_000),
            margin_ms=None if margin_ms is None else whole_number("margin_ms", margin_ms, 0, 3_600_000),
            max_phrase_s=None if max_phrase_s is None else _number("max_phrase_s", "a number of seconds", max_phrase_s),
            threshold=_number("threshold", "a number from 0 to 1", threshold),
            by_attention=commit == "attention",
            **_options(**options),
        )

    def push(self, samples: Any) -> list[SpeechEvent]:
        """What happens with the next samples: an array with one dimension, floats from -1 to 1 or integers of 16 bits, or bytes of 16 bits
        for each sample, the low ones first."""
        piece: Any = samples
        if isinstance(samples, (bytes, bytearray, memoryview)):
            piece = bytes(samples)
        elif not hasattr(samples, "__dlpack__"):
            raise refused("samples", "an array of samples, or bytes", samples)
        else:
            piece = _samples(samples)
        return [_event(event) for event in self._held().push(piece)]

    def finish(self) -> list[SpeechEvent]:
        """What happens when the sound is over: what was said last becomes final. Other sound may begin after it."""
        return [_event(event) for event in self._held().finish()]

    def events(self, pieces: Iterable[Any]) -> Iterator[SpeechEvent]:
        """What happens with one piece of sound after the other, and at their end."""
        for piece in pieces:
            yield from self.push(piece)
        yield from self.finish()

    async def apush(self, samples: Any) -> list[SpeechEvent]:
        """As `push`, awaited. One piece after the other has to be awaited."""
        return await in_thread(lambda _: self.push(samples))

    async def afinish(self) -> list[SpeechEvent]:
        """As `finish`, awaited."""
        return await in_thread(lambda _: self.finish())

    def _held(self) -> native.Listening:
        if not self._open:
            raise ClosedError("the stream is closed")
        return self._inner

    def close(self) -> None:
        """Forgets what was said and is not final. The transcriber stays open."""
        self._open = False

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
