"""Ray Data: a predictor that answers batches of rows with a model in the actor's own process.

    rows.map_batches(Predictor, fn_constructor_args=("my-model", "question"), batch_size=16,
                     compute=ray.data.ActorPoolStrategy(size=2), num_cpus=2)

Ray itself is not needed to import this. An actor that dies is started again by Ray, and its batch asked again.
"""

from __future__ import annotations

from typing import Any

from .model import Model


class Predictor:
    """Chats with the text of `column` in every row, or scores it (`task="score"`).

    Rows get `answer`, `finish_reason` and `completion_tokens` beside what they have, or `logprob` and `tokens`. `options` are those
    of `Model.chat`, `load` those of `Model.load`.
    """

    def __init__(
        self,
        model: str,
        column: str,
        task: str = "chat",
        options: dict[str, Any] | None = None,
        load: dict[str, Any] | None = None,
    ):
        if task not in ("chat", "score"):
            raise ValueError(f"`task`: found {task!r}, expected 'chat' or 'score'")
        self.model = Model.load(model, progress=False, **(load or {}))
        self.column, self.task, self.options = column, task, options or {}

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        texts = [str(text) for text in batch[self.column]]
        if self.task == "score":
            scores = self.model.score(texts)
            return {**batch, "logprob": [s.logprob for s in scores], "tokens": [s.tokens for s in scores]}
        answers = self.model.chat_batch(texts, **self.options)
        return {
            **batch,
            "answer": [answer.text for answer in answers],
            "finish_reason": [answer.finish_reason for answer in answers],
            "completion_tokens": [answer.completion_tokens for answer in answers],
        }
