"""Who else may answer: a target, what may leave for it, and what that may cost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Union

from .engine import native
from .options import encoded, path_of, refused, text_of


@dataclass(frozen=True)
class Question:
    """What a person is asked before a conversation leaves this machine."""

    #: Kinds of content in it: "text", "tool_result", and so on.
    classes: list[str]
    #: The name of the target.
    target: str
    #: Its host and port.
    host: str
    #: What it may cost at most, such as "$0.0021".
    most: str
    #: Why the target is wanted, such as "low_confidence".
    reason: str
    #: How sure the answer here is, from 0 to 1; None where nobody has judged it.
    confidence: float | None


#: Dollars, as a number or as text.
Usd = Union[str, float]


@dataclass(frozen=True, kw_only=True)
class Target:
    """Who may answer elsewhere, as the table of a target in a policy file has it.

    Its key is `key` itself, or lies where `key_from` says (`env:NAME` or `file:PATH`). Without either it is the variable of the
    vendor's own clients, or what `cactus auth set` has kept for the host. It goes to the host of `base_url` alone.
    """

    #: Such as "https://api.example.com/v1".
    base_url: str
    #: The model's name there.
    model: str
    #: "anthropic", "openai_chat", "openai_responses", "gemini", or "openai_transcriptions", which writes down speech.
    protocol: str = "openai_chat"
    #: Dollars for a million tokens: the highest price of steps and hours, as the budget reserves with it.
    input_usd_per_million: Usd | None = None
    output_usd_per_million: Usd | None = None
    #: Dollars for a minute of sound, of a target that writes down speech.
    usd_per_minute: Usd | None = None
    #: Such a target gives times of words.
    word_times: bool = True
    #: The key itself. It is not shown, and written down nowhere.
    key: str | None = field(default=None, repr=False)
    key_from: str | None = None
    #: Plain `http` to a private network is meant.
    plain_http: bool = False
    #: The day on which somebody looked the price up, such as "2026-11-22".
    priced_on: str | None = None
    max_output_tokens: int | None = None
    #: What it can take.
    images: bool = False
    audio: bool = False
    tools: bool = True
    #: How often it is right, by kind of task: "tools" and "default".
    accuracy: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if not (self.key is None or isinstance(self.key, str)):
            raise refused("key", "a text", None, said=type(self.key).__name__)
        if self.key is not None and self.key.startswith(("env:", "file:", "keyring:")):
            raise refused("key", "the key itself (where it lies is `key_from`)", None, said="a place")
        if self.key is not None and self.key_from is not None:
            raise refused("key_from", "nothing beside `key`", None, said="both")

    def _values(self) -> dict[str, Any]:
        values = {**vars(self), "key": self.key_from}
        del values["key_from"]
        if isinstance(self.accuracy, Mapping):
            values["accuracy"] = dict(self.accuracy)
        return values


class Policy:
    """Who may answer what this machine should not.

    `target` is a name of the table of targets (`cactus run --cloud nobody` lists them) or of the policy, or an address with a
    model, such as `http://127.0.0.1:8081/v1#name`; `key` is its key. With `hears` such an address writes down speech, for
    `Transcriber.transcribe`. `file` is a policy file, for whose targets `keys` may have keys,
    by name. With a target alone nothing leaves before `ask`, called with a `Question`, has said yes; `consent` names kinds of content
    that need no question. `budget`, in dollars, is for all requests of this policy together; a request costs at most a cent and a day
    a dollar unless a policy says otherwise. `options` are those of the public Cactus package on handing off, such as
    `{"confidence_threshold": 0.7}`. Budget, record and keys lie in `state`, by default where the `cactus` command has them.

    In place of a file, `targets` has a `Target` by each name. Then `prefer` says who is asked first (in the order of `targets` without
    it), `caps` is the file's table of budgets, and `redaction`, `tools`, `deadlines`, `hold_back` and `routing` are those of the same
    names. `consent` may be a table as well, such as `{"text": "ask"}`. As with a file, nothing leaves without it.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        hears: bool = False,
        file: str | os.PathLike[str] | None = None,
        targets: Mapping[str, Target] | None = None,
        prefer: Iterable[str] | None = None,
        handoff: Literal["auto", "never", "always"] | None = None,
        budget: Usd | None = None,
        caps: Mapping[str, Usd] | None = None,
        consent: Iterable[str] | Mapping[str, str | list[str]] = (),
        redaction: Mapping[str, str] | None = None,
        tools: Mapping[str, Any] | None = None,
        deadlines: Mapping[str, int] | None = None,
        hold_back: Mapping[str, int] | None = None,
        routing: Mapping[str, Any] | None = None,
        ask: Callable[[Question], bool] | None = None,
        options: Mapping[str, Any] | None = None,
        key: str | None = None,
        keys: Mapping[str, str] | None = None,
        state: str | os.PathLike[str] | None = None,
    ):
        if target is None and file is None and targets is None:
            raise refused("target", "a target, a policy file or `targets`", target)
        if file is not None and targets is not None:
            raise refused("targets", "nothing beside `file`, which has its own", targets)
        if ask is not None and not callable(ask):
            raise TypeError(f"`ask`: expected a function, found {type(ask).__name__}")
        if not isinstance(hears, bool):
            raise refused("hears", "True or False", hears)
        if isinstance(consent, str):
            raise refused("consent", "a list of kinds of content, such as ['text']", consent)
        if isinstance(prefer, str):
            raise refused("prefer", "a list of names of targets", prefer)
        tables = {
            "consent": consent if isinstance(consent, Mapping) else None,
            "budget": caps,
            "redaction": redaction,
            "tools": tools,
            "deadlines": deadlines,
            "hold_back": hold_back,
            "routing": routing,
        }
        values = None
        if targets is not None:
            values = _values(targets, prefer, tables)
        else:
            for name, table in {"prefer": prefer, **tables}.items():
                if table is not None:
                    raise refused("caps" if name == "budget" else name, "`targets`, which it belongs to", None, said="none")
        given = _secrets(targets or {}, keys or {})
        if not (key is None or isinstance(key, str)):
            raise refused("key", "a text", None, said=type(key).__name__)
        words = () if isinstance(consent, Mapping) else consent
        if isinstance(budget, bool) or not (budget is None or isinstance(budget, (str, int, float))):
            raise refused("budget", "dollars", budget)
        if not (options is None or isinstance(options, Mapping)):
            raise refused("options", "a dict of options by name", options)
        self._ask = ask
        self._inner = native.Policy.open(
            file=None if file is None else Path(path_of("file", file)),
            values=None if values is None else encoded(values, "targets"),
            target=None if target is None else text_of("target", target),
            hears=hears,
            key=key,
            keys=given,
            handoff=handoff,
            # The shortest decimal that is this number is what was written.
            budget=budget if budget is None or isinstance(budget, str) else f"{budget:.12f}",
            consent=[text_of("consent", word) for word in words],
            options=encoded(dict(options or {}), "options"),
            state=None if state is None else Path(path_of("state", state)),
        )

    def spent(self) -> dict[str, Any]:
        """Dollars spent or reserved today and this month (UTC), by all programs that share the budget; requests without a bill."""
        return json.loads(self._inner.spent())

    def _asked(self, question: str) -> bool | None:
        if self._ask is None:
            return None  # Nobody is there to be asked, which is not a no.
        return bool(self._ask(Question(**json.loads(question))))


def _values(
    targets: Mapping[str, Target], prefer: Iterable[str] | None, tables: Mapping[str, Mapping[str, Any] | None]
) -> dict[str, Any]:
    """The policy as its file has it."""
    if not isinstance(targets, Mapping):
        raise refused("targets", "a dict of `cactus.Target` by name", targets)
    for name, target in targets.items():
        if not isinstance(target, Target):
            raise refused(f"targets[{name!r}]", "a `cactus.Target`", None, said=type(target).__name__)
    values: dict[str, Any] = {
        "prefer": list(targets) if prefer is None else list(prefer),
        "targets": {text_of("targets", name): target._values() for name, target in targets.items()},
    }
    for name, table in tables.items():
        if not (table is None or isinstance(table, Mapping)):
            raise refused("caps" if name == "budget" else name, "a dict, as the table of a policy file", table)
        if table is not None:
            values[name] = dict(table)
    return values


def _secrets(targets: Mapping[str, Target], keys: Mapping[str, str]) -> dict[str, str]:
    """Keys by names of targets. No error shows one."""
    if not isinstance(keys, Mapping):
        raise refused("keys", "a dict of keys by names of targets", None, said=type(keys).__name__)
    given = {name: target.key for name, target in targets.items() if target.key is not None}
    for name, key in keys.items():
        if not (isinstance(name, str) and isinstance(key, str)):
            raise refused("keys", "a dict of keys by names of targets, both texts", None, said="another type")
        given[name] = key
    return given
