"""Who else may answer: a target, what may leave for it, and what that may cost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

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


class Policy:
    """Who may answer what this machine should not.

    `target` is a name of the table of targets (`cactus run --cloud nobody` lists them) or of the policy file, or an address with a
    model, such as `http://127.0.0.1:8081/v1#name`. `file` is a policy file. With a target alone nothing leaves before `ask`, called
    with a `Question`, has said yes; `consent` names kinds of content that need no question. `budget`, in dollars, is for all
    requests of this policy together; a request costs at most a cent and a day a dollar unless a file says otherwise. `options` are
    those of the public Cactus package on handing off, such as `{"confidence_threshold": 0.7}`. Budget, record and keys lie in
    `state`, by default where the `cactus` command has them.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        file: str | os.PathLike[str] | None = None,
        handoff: Literal["auto", "never", "always"] | None = None,
        budget: str | float | None = None,
        consent: Iterable[str] = (),
        ask: Callable[[Question], bool] | None = None,
        options: Mapping[str, Any] | None = None,
        state: str | os.PathLike[str] | None = None,
    ):
        if target is None and file is None:
            raise refused("target", "a target or a policy file", target)
        if ask is not None and not callable(ask):
            raise TypeError(f"`ask`: expected a function, found {type(ask).__name__}")
        if isinstance(consent, str):
            raise refused("consent", "a list of kinds of content, such as ['text']", consent)
        if isinstance(budget, bool) or not (budget is None or isinstance(budget, (str, int, float))):
            raise refused("budget", "dollars", budget)
        if not (options is None or isinstance(options, Mapping)):
            raise refused("options", "a dict of options by name", options)
        self._ask = ask
        self._inner = native.Policy.open(
            file=None if file is None else Path(path_of("file", file)),
            target=None if target is None else text_of("target", target),
            handoff=handoff,
            # The shortest decimal that is this number is what was written.
            budget=budget if budget is None or isinstance(budget, str) else f"{budget:.12f}",
            consent=[text_of("consent", word) for word in consent],
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
