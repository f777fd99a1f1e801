"""Runs the plan of the conformance suite through the package `cactus`: runner.py PLAN RESULTS"""

from __future__ import annotations

import copy
import json
import math
import sys
from pathlib import Path
from typing import Any

import cactus
import numpy

#: Errors of the package by kinds of the C library, special ones first.
KINDS: list[tuple[type[Exception], str]] = [
    (cactus.ContextFullError, "context_full"),
    (cactus.ModelNotFoundError, "not_found"),
    (cactus.DownloadError, "offline"),
    (cactus.StorageError, "system"),
    (cactus.BundleError, "bundle"),
    (cactus.UnsupportedError, "unsupported"),
    (cactus.BusyError, "busy"),
    (cactus.ClosedError, "handle"),
    (cactus.CancelledError, "cancelled"),
    (cactus.ConversionError, "fetch"),
    (cactus.InvalidRequestError, "argument"),
    # What Python itself says of an argument that a function does not have.
    (TypeError, "argument"),
    (cactus.CactusError, "internal"),
]

#: What the package has no place for, or has in another form: answers have no `stop` and no `whole`, streams do not tell when the prompt is
#: computed, and tools come with the answer. A session has its own memory, so it finds other tokens again.
LEAVES_OUT = {
    "events": ["started", "tool_call"],
    "fields": [
        "stop", "whole", "logprobs", "cached_tokens", "success", "cloud_handoff", "function_calls", "confidence", "prefill_tokens",
        "token_id", "language_token", "window_s", "code",
    ],
}  # fmt: skip


class Absent(Exception):
    """The package does not have it."""


class Stream:
    """A stream with the events that it gave."""

    def __init__(self, stream: cactus.AnswerStream, asked: list[dict]):
        self.stream = stream
        self.asked = asked
        self.pieces = stream.events()
        self.over = False
        self.closed = False

    def next(self) -> list[dict]:
        if self.over:
            return []
        try:
            piece = next(self.pieces)
        except StopIteration:
            self.over = True
            return [*self._asked(), end_of(self.stream.answer)]
        except cactus.CancelledError:
            self.over = True
            return [*self._asked(), {"event": "cancelled"}]
        if isinstance(piece, str):
            return [*self._asked(), {"event": "text", "text": piece}]
        name = "source" if isinstance(piece, cactus.Source) else "replaced"
        by = piece.decision["answered_by"]
        sides = {"side": "local", "target": None} if by == "local" else {"side": "cloud", "target": by}
        return [*self._asked(), {"event": name, **piece.decision, **sides}]

    def _asked(self) -> list[dict]:
        asked = list(self.asked)
        self.asked.clear()
        return asked


def end_of(answer: cactus.Answer) -> dict:
    return {"event": "cancelled" if answer.finish_reason == "cancelled" else "done", "result": result_of(answer)}


def result_of(answer: cactus.Answer) -> dict:
    message = {**answer.to_message(), "content": answer.text}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    for call, written in zip(answer.tool_calls, message.get("tool_calls", ())):
        written["function"]["arguments"] = json.dumps(call.arguments, separators=(",", ":"))
    total = answer.prompt_tokens + answer.completion_tokens
    return {
        "message": message,
        "finish_reason": answer.finish_reason,
        "usage": {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens, "total_tokens": total},
        "tokens": answer.token_ids,
        "seed": answer.seed,
        "notes": answer.notes,
        **(answer.decision or {}),
    }


def happened(event: Any) -> dict:
    """What happened in live speech, in the form of the C library."""
    match event:
        case cactus.SpeechStart():
            return {"event": "speech_start", "id": event.id, "start_s": event.start}
        case cactus.SpeechPartial():
            return {
                "event": "partial", "id": event.id, "committed": event.committed, "volatile": event.volatile, "until_s": event.until,
            }  # fmt: skip
        case cactus.SpeechFinal():
            names = ("id", "text", "tokens", "mean_logprob", "confidence", "no_speech", "temperature", "compression")
            segment = {name: getattr(event.segment, name) for name in names}
            segment.update(start_s=event.segment.start, end_s=event.segment.end)
            return {"event": "final", "segment": segment, "language": event.language, "reason": event.reason, "until_s": event.until}
        case _:
            return {"event": "speech_end", "id": event.id, "end_s": event.end}


def hex_of(floats: Any) -> str:
    return "".join(f"{bits:08x}" for bits in numpy.ascontiguousarray(floats, dtype=numpy.float32).ravel().view(numpy.uint32).tolist())


def floats_of(text: str) -> list[float]:
    return numpy.frombuffer(bytes.fromhex(text), dtype=">f4").astype(float).tolist()


def number(value: int) -> int:
    """An `int` of C as the number that its index has."""
    return value & 0xFFFFFFFF


def signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


class Case:
    """One case, and what it has made, by name."""

    def __init__(self) -> None:
        self.things: dict[str, Any] = {}
        self.policies: dict[int, dict] = {}
        self.written = 0
        self.questions: list[dict] = []
        self.heard: dict[str, Any] = {}

    def run(self, step: dict) -> dict:
        try:
            return getattr(self, step["op"])(step) or {}
        except AttributeError as error:
            if error.obj is not self:
                raise
            return {"absent": "this runner does not know the operation"}
        except Absent as error:
            return {"absent": str(error)}
        except tuple(kind for kind, _ in KINDS) as error:
            kind = next(name for each, name in KINDS if isinstance(error, each))
            return {"error": {"kind": kind, "message": str(error)}}

    def _thing(self, step: dict) -> Any:
        thing = self.things.get(step.get("on", step.get("of")))
        if thing is None:
            raise KeyError(f"the case has made nothing that this step names: {step}")
        return thing

    # ---- models and answers

    def load(self, step: dict) -> None:
        names = {"context_tokens": "context"}
        options = {names.get(name, name): value for name, value in (step["options"] or {}).items()}
        self.things[step["as"]] = cactus.Model.load(step["source"], progress=False, **options)

    def tokenize(self, step: dict) -> dict:
        return {"tokens": self._thing(step).tokenize(step["text"], special=step["special"])}

    def detokenize(self, step: dict) -> dict:
        return {"text": self._thing(step).detokenize(step["tokens"], special=step["special"])}

    def score(self, step: dict) -> dict:
        model, tokens = self._thing(step), step["tokens"]
        text = model.detokenize(tokens)
        if model.tokenize(text, special=True) != tokens:
            raise Absent("texts are scored, and these tokens are not those of their text")
        logprobs = model.score(text).token_logprobs[step["first"] - 1 :]
        return {"score": {"logprob": sum(logprobs), "tokens": len(logprobs), "logprobs": logprobs}}

    def session(self, step: dict) -> None:
        defaults = dict(step["defaults"] or {})
        model = self._thing(step)
        options = defaults.pop("options", {})
        self.things[step["as"]] = model.session(defaults.pop("messages", None), **options, **defaults)

    def _begin(self, step: dict, stream: bool, request: Any = None) -> Any:
        on, request = self._thing(step), step["request"] if request is None else request
        if isinstance(on, cactus.Session):
            request = {"messages": request} if isinstance(request, str) else dict(request)
            return on.chat(request.pop("messages", None), stream=stream, **request.pop("options", {}), **request)
        request = dict(request)
        options = request.pop("options", {})
        self._policy(on, step.get("consent"), request.pop("handoff", None))
        form = {name: request.pop(name) for name in ("schema", "regex", "grammar", "response_format") if name in request}
        if "schema" in form or "response_format" in form:
            request["schema"] = form.get("schema", form.get("response_format"))
        if "messages" in request:
            form = {name: each for name, each in form.items() if name in ("regex", "grammar")}
            return on.chat(request.pop("messages"), stream=stream, **form, **request, **options)
        if "regex" in form or "grammar" in form:
            raise Absent("a text that is continued follows no form")
        given = [name for name in ("prompt", "tokens") if name in request]
        if not given:
            return on.chat(stream=stream, **request, **options)
        if "schema" in request:
            raise Absent("a text that is continued follows no form")
        return on.generate(request.pop(given[0]), stream=stream, **request, **options)

    def respond(self, step: dict) -> dict:
        answer = self._begin(step, False)
        self.questions.clear()
        return {"answer": result_of(answer)}

    def stream(self, step: dict) -> dict:
        stream = Stream(self._begin(step, True), self.questions)
        found = self._events(stream, step)
        if found["events"][-1].get("result", {}).get("reason") == "nobody_to_ask":
            raise Absent("a policy without a function that asks has no event of consent")
        return found

    def start(self, step: dict) -> None:
        self.things[step["as"]] = Stream(self._begin(step, True), self.questions)

    def _events(self, stream: Stream, step: dict, most: float = math.inf) -> dict:
        if stream.closed:
            raise Absent("a stream that was closed has ended, which is no error")
        events: list[dict] = []
        while len(events) < most and (more := stream.next()):
            events += more
            if "cancel_after" in step and sum(event["event"] == "text" for event in events) == step["cancel_after"]:
                stream.stream.cancel()
        return {"events": events}

    def read(self, step: dict) -> dict:
        # Without the event that tells when the prompt is computed.
        return self._events(self._thing(step), step, step["count"] - 1)

    def collect(self, step: dict) -> dict:
        return self._events(self._thing(step), step)

    def cancel(self, step: dict) -> None:
        self._thing(step).stream.cancel()

    def messages(self, step: dict) -> dict:
        if self._thing(step).closed:
            raise Absent("the messages of a closed conversation can be read")
        return {"messages": copy.deepcopy(self._thing(step).messages)}

    def tools(self, step: dict) -> dict:
        called, request = [], dict(step["request"])
        refused, throws = step.get("refuse", ()), step.get("throws", ())

        def tool(function: dict) -> cactus.Tool:
            def run(**arguments: Any) -> str:
                called.append([function["name"], arguments])
                if function["name"] in throws:
                    raise RuntimeError(step["results"][function["name"]])
                return step["results"][function["name"]]

            return cactus.Tool(run, function["name"], function.get("description", ""), function["parameters"])

        tools = [tool(each["function"]) for each in request.pop("tools")]
        options = request.pop("options", {})
        answer = self._thing(step).chat_with_tools(
            request.pop("messages"), tools, rounds=step["most"], confirm=lambda name, _: name not in refused, **request, **options
        )
        return {"answer": result_of(answer), "calls": called}

    def structured(self, step: dict) -> dict:
        request = dict(step["request"])
        options = request.pop("options")
        answer = self._thing(step).chat(request["messages"], schema=step["schema"], **options)
        return {"value": answer.parsed}

    # ---- policies

    def set_policy(self, step: dict) -> None:
        model = self._thing(step)
        if step["policy"] is None and step["options"] is None:
            self.policies.pop(id(model), None)
            model.set_policy(None)
            return
        options = dict(step["options"])
        given = {"state": options["state"], "target": options.get("target")}
        if step["policy"] is not None:
            # One that is wrong changes nothing of the one before.
            self.written += 1
            given["file"] = Path(f"{options['state']}-{self.written}.toml")
            given["file"].write_text(step["policy"])
        model.set_policy(cactus.Policy(**given))
        self.policies[id(model)] = given

    def _policy(self, model: cactus.Model, consent: bool | None, handoff: str | None) -> None:
        """Who is asked, and whether this request may be handed over, belongs to the policy here."""
        given = self.policies.get(id(model))
        if given is None:
            if handoff is not None:
                raise Absent("a request says nothing of handing over")
            return

        def ask(question: cactus.Question) -> bool:
            self.questions.append({"event": "consent", **vars(question)})
            return bool(consent)

        model.set_policy(cactus.Policy(**given, ask=None if consent is None else ask, handoff=handoff))

    # ---- vectors

    def load_embedder(self, step: dict) -> None:
        self.things[step["as"]] = cactus.Embedder.load(step["source"])

    def embed(self, step: dict) -> dict:
        vectors = numpy.asarray(self._thing(step).embed(step["texts"]).vectors)
        return {"vectors": [hex_of(vector) for vector in vectors]}

    def embed_image(self, step: dict) -> dict:
        vectors = numpy.asarray(self._thing(step).embed(images=[step["path"]]).vectors)
        return {"vectors": [hex_of(vector) for vector in vectors]}

    def index_open(self, step: dict) -> None:
        try:
            Path(step["folder"]).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cactus.StorageError(str(error)) from error
        path = Path(step["folder"]) / "cactus.index"
        self.things[step["as"]] = cactus.Index(path, dimensions=step["dimension"], model="caller", ids="number")

    def index_add(self, step: dict) -> None:
        metadata = [{} if text is None else {"metadata": text} for text in step["metadatas"]]
        vectors = [floats_of(vector) for vector in step["vectors"]]
        ids = [number(each) for each in step["ids"]]
        self._thing(step).add(ids, vectors, texts=step["documents"], metadata=metadata)

    def index_query(self, step: dict) -> dict:
        options = step["options"]
        found = []
        for vector in step["vectors"]:
            hits = self._thing(step).search(floats_of(vector), filter=options.get("filter"), k=options.get("top_k", 10))
            near = [hit for hit in hits if hit.score >= options.get("score_threshold", -math.inf)]
            found.append([[signed(hit.id), hex_of([hit.score])] for hit in near])
        return {"found": found}

    def index_get(self, step: dict) -> dict:
        documents = []
        for each, stored in zip(step["ids"], self._thing(step).get([number(each) for each in step["ids"]])):
            if stored is None:
                raise cactus.InvalidRequestError(f"the index has no document {each}")
            documents.append([stored.text, stored.metadata.get("metadata", ""), hex_of(numpy.asarray(stored.vector))])
        return {"documents": documents}

    def index_delete(self, step: dict) -> None:
        self._thing(step).delete([number(each) for each in step["ids"]])

    def index_compact(self, step: dict) -> None:
        self._thing(step).compact()

    # ---- sound

    def load_transcriber(self, step: dict) -> None:
        try:
            self.things[step["as"]] = cactus.Transcriber.load(step["source"])
        except cactus.UnsupportedError:
            self.things[step["as"]] = cactus.Vad.load(step["source"])

    def _sound(self, step: dict) -> Any:
        return step["file"] if "file" in step else numpy.fromfile(step["pcm"], dtype="<i2")

    def _hears(self, step: dict, kind: type) -> Any:
        thing = self._thing(step)
        if not isinstance(thing, kind):
            raise cactus.UnsupportedError(f"a {type(thing).__name__} does not do that")
        return thing

    def transcribe(self, step: dict) -> dict:
        found = self._hears(step, cactus.Transcriber).transcribe(self._sound(step), **step["options"])
        tokens = sum(len(segment.tokens) for segment in found.segments)
        segments = [{"start": round(s.start, 2), "end": round(s.end, 2), "text": s.text} for s in found.segments]
        return {
            "result": {
                "error": None, "response": found.text, "segments": segments, "language": found.language,
                "decode_tokens": tokens, "total_tokens": tokens,
            }
        }  # fmt: skip

    def detect_language(self, step: dict) -> dict:
        found = self._hears(step, cactus.Transcriber).detect_language(self._sound(step))
        chances = list(found.values())
        entropy = {0: 1.0, 1: 0.0}.get(len(chances))
        if entropy is None:
            entropy = -sum(p * math.log(p) for p in chances if p > 0.0) / math.log(len(chances))
        return {"result": {"error": None, "language": next(iter(found), "unknown"), "entropy": entropy}}

    def speech(self, step: dict) -> dict:
        names = {"min_silence_duration_ms": "min_silence_ms", "speech_pad_ms": "pad_ms"}
        options = {names.get(name, name): value for name, value in step["options"].items()}
        vad = self._hears(step, cactus.Vad)
        spans = vad.spans(self._sound(step), **options)
        segments = [{"start": round(s.start * vad.sample_rate), "end": round(s.end * vad.sample_rate)} for s in spans]
        return {"result": {"error": None, "segments": segments}}

    def live(self, step: dict) -> None:
        options = dict(step["options"])
        vad = cactus.Vad.load(options.pop("vad"))
        stream = cactus.Stream(
            self._thing(step),
            vad,
            language=options.pop("language"),
            step_ms=round(options.pop("min_chunk_sec") * 1000),
            silence_ms=round(options.pop("silence_sec") * 1000),
            max_phrase_s=options.pop("max_segment_sec"),
        )
        self.things[step["as"]] = stream
        self.heard = {"phrase": 0, "pending": "", "language": None}

    def _heard(self, events: list) -> dict:
        state, confirmed = self.heard, ""
        for event in events:
            match event:
                case cactus.SpeechStart():
                    state["phrase"] = 0
                case cactus.SpeechPartial():
                    confirmed += event.committed[state["phrase"] :]
                    state["phrase"], state["pending"] = len(event.committed), event.volatile
                case cactus.SpeechFinal():
                    confirmed += event.text[state["phrase"] :]
                    state["phrase"], state["pending"], state["language"] = len(event.text), "", event.language
                case _:
                    state["pending"] = ""
        result = {"error": None, "confirmed": confirmed, "pending": state["pending"], "language": state["language"]}
        return {"result": {**result, "events": [happened(event) for event in events]}}

    def push(self, step: dict) -> dict:
        samples = numpy.fromfile(step["pcm"], dtype="<i2")[step["from"] : step["to"]]
        return self._heard(self._thing(step).push(samples))

    def finish(self, step: dict) -> dict:
        stream = self._thing(step)
        result = self._heard(stream.finish())
        stream.close()
        return result

    # ---- the rest

    def close(self, step: dict) -> None:
        thing = self.things.get(step["of"])
        if isinstance(thing, Stream):
            thing.stream.close()
            thing.closed = True
        else:
            thing.close()

    def versions(self, step: dict) -> dict:
        raise Absent("the package is the engine itself, without the ABI of C")

    def info(self, step: dict) -> dict:
        info = self._thing(step).info
        lacking = [field for field in step["fields"] if field not in info]
        if lacking:
            raise Absent(f"`info` does not have {', '.join(lacking)}")
        return {"info": {field: info[field] for field in step["fields"]}}

    def check_bundle(self, step: dict) -> dict:
        report = cactus.check_bundle(step["path"], verify=step["verify"])
        error = report.pop("error")
        if error is not None:
            kind = next(name for each, name in KINDS if isinstance(error, each))
            report.update(kind=kind, message=str(error))
        return {"report": report}

    def set_threads(self, step: dict) -> None:
        self._thing(step).set_threads(step["threads"] or None, step["decode_threads"] or None)

    def memory_pressure(self, _step: dict) -> None:
        cactus.memory_pressure()


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    with open(sys.argv[2], "w") as out:

        def line(value: dict) -> None:
            print(json.dumps(value), file=out, flush=True)

        line({"leaves_out": LEAVES_OUT})
        for each in plan["cases"]:
            case = Case()
            line({"case": each["name"], "results": [case.run(step) for step in each["steps"]]})
        line({"end": len(plan["cases"])})


main()
