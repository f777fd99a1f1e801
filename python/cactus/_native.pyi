# The extension module. What is for users is in the package around it.
import os
from collections.abc import Callable, Sequence
from typing import Any, final

__version__: str

def prepare(
    name: str,
    *,
    bits: int,
    calibrate: bool,
    reconvert: bool,
    token: str | None,
    offline: bool,
    progress: Callable[[str, str, int, int], Any] | None,
) -> os.PathLike[str]: ...
def shutdown() -> None: ...
@final
class Model:
    @staticmethod
    def load(
        path: str | os.PathLike[str],
        name: str,
        *,
        context: int,
        chunk: int,
        kv: str,
        threads: int | None,
        decode_threads: int | None,
        pin: bool,
        sequences: int,
        queue: int,
        kv_tokens: int | None,
        prefix_cache: bool,
    ) -> Model: ...
    def info(self) -> str: ...
    def stats(self) -> str: ...
    def tokenize(self, text: str, special: bool) -> list[int]: ...
    def detokenize(self, ids: Sequence[int], skip_special: bool) -> str: ...
    def render(self, body: str) -> tuple[str, list[int]]: ...
    def set_policy(self, policy: Policy | None, ask: Callable[[str], bool | None] | None = None) -> None: ...
    def submit(self, api: str, body: str, options: str = "{}") -> Stream: ...
    def score(self, ids: Sequence[int]) -> list[float]: ...
    def session(self) -> Session: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...

@final
class Transcriber:
    @staticmethod
    def open(path: str | os.PathLike[str], threads: int | None) -> Transcriber: ...
    @property
    def languages(self) -> list[str]: ...
    @property
    def sample_rate(self) -> int: ...
    def begin(
        self,
        sound: tuple[Input, int] | str | os.PathLike[str],
        *,
        policy: Policy | None,
        language: str | None,
        translate: bool,
        words: bool,
        prompt: str,
        hotwords: Sequence[str],
        beams: int,
        carry_tokens: int,
        temperature: float,
        hallucination_silence: float | None,
    ) -> Hearing: ...
    def detect_language(self, sound: tuple[Input, int] | str | os.PathLike[str]) -> list[tuple[str, float]]: ...
    def close(self) -> None: ...

@final
class Hearing:
    def next(self) -> str | None: ...
    def consent(self, yes: bool | None) -> None: ...
    def cancel(self) -> None: ...

@final
class Vad:
    @staticmethod
    def open(path: str | os.PathLike[str]) -> Vad: ...
    @property
    def sample_rate(self) -> int: ...
    @property
    def chunk_samples(self) -> int: ...
    def spans(
        self,
        sound: tuple[Input, int] | str | os.PathLike[str],
        *,
        threshold: float,
        neg_threshold: float | None,
        min_speech_ms: int,
        max_speech_s: float | None,
        min_silence_ms: int,
        pad_ms: int,
    ) -> list[tuple[int, int]]: ...
    def push(self, samples: Input) -> list[float]: ...
    def finish(self) -> float | None: ...
    def reset(self) -> None: ...

@final
class Listening:
    @staticmethod
    def open(
        transcriber: Transcriber,
        vad: Vad,
        *,
        sample_rate: int,
        language: str | None,
        translate: bool,
        words: bool,
        prompt: str,
        hotwords: Sequence[str],
        beams: int,
        carry_tokens: int,
        temperature: float,
        hallucination_silence: float | None,
        step_ms: int,
        silence_ms: int,
        sentence_ms: int,
        margin_ms: int | None,
        max_phrase_s: float | None,
        threshold: float,
    ) -> Listening: ...
    def push(self, samples: bytes | Input) -> list[str]: ...
    def finish(self) -> list[str]: ...

@final
class Policy:
    @staticmethod
    def open(
        *,
        file: os.PathLike[str] | None,
        values: str | None,
        target: str | None,
        hears: bool,
        key: str | None,
        keys: dict[str, str],
        handoff: str | None,
        budget: str | None,
        consent: list[str],
        options: str,
        state: os.PathLike[str] | None,
    ) -> Policy: ...
    def spent(self) -> str: ...

@final
class Session:
    def submit(self, api: str, body: str) -> Stream: ...
    def save(self, path: str | os.PathLike[str], note: str) -> None: ...
    def restore(self, path: str | os.PathLike[str]) -> str: ...
    def reset(self) -> None: ...
    def tokens(self) -> list[int]: ...

@final
class Stream:
    def next(self) -> list[str] | None: ...
    def tell_events(self) -> None: ...
    def whole(self) -> str: ...
    def ends(self) -> str: ...
    def source(self) -> str | None: ...
    def decision(self) -> str | None: ...
    def cancel(self) -> None: ...

@final
class Function:
    @staticmethod
    def components(path: str | os.PathLike[str]) -> str: ...
    @staticmethod
    def open(path: str | os.PathLike[str], component: str, threads: int | None) -> Function: ...
    def run(self, inputs: dict[str, Input]) -> list[tuple[str, Array]]: ...

@final
class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

@final
class Input:
    def __new__(cls, value: Any) -> Input: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def in_place(self) -> bool: ...
