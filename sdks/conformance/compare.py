"""What is the same in every run, and where two results differ."""

from __future__ import annotations

import json
from collections.abc import Container
from pathlib import Path
from typing import Any

#: Fields that say how fast it was, or how much memory this machine has.
UNSTEADY = {"timings", "ram_usage_mb", "prefill_tps", "decode_tps"}

ENDS = ("done", "cancelled", "failed")


def read(path: Path) -> tuple[dict[str, Any], list[int], str]:
    """Results by case, the numbers of all lines that say it is the end, and what cannot be read."""
    results: dict[str, Any] = {}
    ends: list[int] = []
    if not path.is_file():
        return results, ends, "it has written no results"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            value = json.loads(line)
        except ValueError as error:
            return results, ends, f"line {number} of its results is no JSON ({error}): {line[:200]}"
        if ends:
            return results, ends, f"line {number} of its results comes after the end"
        if not isinstance(value, dict) or not ({"end", "leaves_out"} & value.keys() or {"case", "results"} <= value.keys()):
            return results, ends, f"line {number} of its results is none: {line[:200]}"
        if "end" in value:
            ends.append(value["end"])
        elif "leaves_out" in value:
            if results:
                return results, ends, f"line {number} of its results says what it leaves out, which the first line has to say"
            results[""] = value["leaves_out"]
        elif value["case"] in results:
            return results, ends, f"there are two results of {value['case']}"
        else:
            results[value["case"]] = value["results"]
    return results, ends, ""


def steady(value: Any, without: tuple[str, ...] = ()) -> Any:
    """Without what is not the same in every run."""
    if isinstance(value, list):
        return [steady(each, without) for each in value]
    if not isinstance(value, dict):
        return value
    left = {}
    for name, each in value.items():
        if name in UNSTEADY or name in without or name.endswith(("_ms", "_per_second")):
            continue
        left[name] = steady(each, without)
    if left.keys() == {"name", "arguments"}:
        # A call: an SDK may have read its arguments already.
        left["arguments"] = read_arguments(left["arguments"])
    if isinstance(left.get("text"), str) and {"end", "end_s"} & left.keys():
        # A segment, before whose text there may be a space.
        left["text"] = left["text"].strip()
    return left


def read_arguments(arguments: Any) -> Any:
    """The arguments of a call, which stay text where they are damaged."""
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def numbered(value: Any, ids: dict[str, str], key: str = "") -> Any:
    """Ids of calls, which are made of a hash, as numbers in the order in which they come."""
    if isinstance(value, list):
        return [numbered(each, ids) for each in value]
    if isinstance(value, dict):
        return {name: numbered(each, ids, name) for name, each in value.items()}
    if isinstance(value, str) and value and key in ("id", "tool_call_id"):
        return ids.setdefault(value, f"call-{len(ids) + 1}")
    return value


def normal(case: dict, result: Any) -> Any:
    """A result as it is recorded."""
    return numbered(steady(result, tuple(case.get("without", ()))), {})


def texts(events: list[dict]) -> str:
    return "".join(event.get("text", "") for event in events if event.get("event") == "text")


def stream(events: Any, is_whole: bool) -> list[str]:
    """What is wrong with a stream whatever it says: the contract."""
    if not isinstance(events, list):
        return ["`events` is no list"]
    kinds = [event.get("event") for event in events]
    ends = [place for place, kind in enumerate(kinds) if kind in ENDS]
    wrong = []
    if is_whole and events and len(ends) != 1:
        wrong.append(f"expected exactly one last event, found {[kinds[place] for place in ends]}")
    if ends and ends[0] != len(events) - 1:
        wrong.append(f"events come after the last: {kinds[ends[0] :]}")
    for event in events:
        if event.get("event") == "text" and (not event.get("text") or "\x00" in event["text"]):
            wrong.append(f"a text is empty: {event}")
    return wrong


def cancelled(step: dict, recorded: list[dict], results: list[dict], place: int, without: Container[str] = ()) -> list[str]:
    """A stream that was cancelled goes as far as it came, which is not the same in every run. `like` names the step whose answer begins as
    its text and its tokens do, `behind` the step that has read its beginning. `without` are fields that an SDK does not have."""
    found = results[place].get("events", [])
    wrong = stream(found, True)
    end = found[-1] if found else {}
    if end.get("event") != "cancelled":
        wrong.append(f"expected the end `cancelled`, found {end.get('event')}")
    theirs = texts(found)
    if "behind" in step:
        theirs = texts(results[step["behind"]].get("events", [])) + theirs
    if "like" in step:
        answer = recorded[step["like"]]["answer"]
        ours, our_tokens = answer["message"]["content"], answer["tokens"]
    else:
        ours, our_tokens = texts(recorded[place]["events"]), recorded[place]["events"][-1]["result"]["tokens"]
    if not (ours.startswith(theirs) or theirs.startswith(ours)):
        wrong.append(f"the texts differ: recorded {ours!r}, found {theirs!r}")
    pieces = sum(event.get("event") == "text" for event in found)
    if pieces < step.get("cancel_after", 0):
        wrong.append(f"expected at least {step['cancel_after']} texts, found {pieces}")
    if "result" in without:
        return wrong
    result = end.get("result")
    if not isinstance(result, dict):
        return [*wrong, f"the last event has no result: {short(end)}"]
    if result["message"]["content"] != theirs:
        wrong.append(f"the result has another text than the events: {result['message']['content']!r}, {theirs!r}")
    if result["finish_reason"] != "cancelled":
        wrong.append(f"expected the reason `cancelled`, found {result['finish_reason']}")
    made = result["usage"]["completion_tokens"]
    most = step["request"]["options"]["max_tokens"] if "request" in step else None
    if most is not None and made >= most:
        wrong.append(f"all {most} tokens were made")
    if "tokens" in without:
        return wrong
    tokens = result.get("tokens")
    if not isinstance(tokens, list):
        return [*wrong, f"the result has no tokens: {short(result)}"]
    both = min(len(our_tokens), len(tokens))
    if our_tokens[:both] != tokens[:both]:
        wrong.append(f"the tokens differ: recorded {short(our_tokens)}, found {short(tokens)}")
    if len(tokens) != made:
        wrong.append(f"the result has {len(tokens)} tokens, and says that {made} were made")
    return wrong


def differ(recorded: Any, found: Any, place: str = "") -> list[str]:
    """Where two values differ."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        wrong = []
        for name in sorted({*recorded, *found}):
            inside = f"{place}.{name}" if place else name
            if name not in found:
                wrong.append(f"{inside}: recorded {short(recorded[name])}, found nothing")
            elif name not in recorded:
                wrong.append(f"{inside}: nothing is recorded, found {short(found[name])}")
            else:
                wrong += differ(recorded[name], found[name], inside)
        return wrong
    if isinstance(recorded, list) and isinstance(found, list):
        wrong = []
        for number, (ours, theirs) in enumerate(zip(recorded, found)):
            wrong += differ(ours, theirs, f"{place}[{number}]")
        if len(recorded) != len(found):
            wrong.append(f"{place}: recorded {len(recorded)} items, found {len(found)}")
        return wrong
    if isinstance(recorded, bool) or isinstance(found, bool):
        same = recorded is found
    else:
        same = recorded == found
    return [] if same else [f"{place}: recorded {short(recorded)}, found {short(found)}"]


def short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else f"{text[:160]}…"


def left_out(value: Any, leaves_out: dict[str, list[str]]) -> Any:
    """Without what an SDK does not have."""
    if isinstance(value, list):
        events = leaves_out.get("events", ())
        left = [each for each in value if not (isinstance(each, dict) and each.get("event") in events)]
        return [left_out(each, leaves_out) for each in left]
    if isinstance(value, dict):
        fields = leaves_out.get("fields", ())
        return {name: left_out(each, leaves_out) for name, each in value.items() if name not in fields}
    return value


def error(step: dict, recorded: Any, found: Any) -> list[str]:
    ours = recorded["error"]
    theirs = found.get("error") if isinstance(found, dict) else None
    # Some look at it later, with what comes next.
    if theirs is None and None in step.get("or_kinds", ()) and found == {}:
        return []
    if not isinstance(theirs, dict):
        return [f"expected an error of the kind {ours['kind']}, found {short(found)}"]
    wrong = []
    if theirs.get("kind") not in (ours["kind"], *step.get("or_kinds", ())):
        wrong.append(f"expected an error of the kind {ours['kind']}, found {short(theirs)}")
    message = theirs.get("message")
    if not isinstance(message, str) or not message:
        wrong.append(f"an error without a message: {short(theirs)}")
    for word in step.get("says", ()):
        if word not in str(message):
            wrong.append(f"the message does not say {word!r}: {message!r}")
    return wrong


class Compared:
    """What comparing a case has found."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        #: Steps that the SDK does not have.
        self.absent: list[str] = []
        #: How many results were compared that say something.
        self.count = 0


def case(
    case: dict, recorded: list, found: Any, leaves_out: dict[str, list[str]], may_be_absent: Container[int] = ()
) -> Compared:  # fmt: skip
    """Compares the results of a case. `may_be_absent` are the numbers of the steps that the SDK need not have."""
    steps, compared = case["steps"], Compared()
    wrong = compared.wrong
    if len(recorded) != len(steps):
        wrong.append(f"{len(recorded)} results are recorded of {len(steps)} steps; record it again")
        return compared
    if not isinstance(found, list) or len(found) != len(steps):
        count = len(found) if isinstance(found, list) else "no list of"
        wrong.append(f"expected {len(steps)} results, found {count}")
        return compared
    for number, (step, ours, theirs) in enumerate(zip(steps, recorded, found)):
        place = f"step {number} ({step['op']})"
        if isinstance(theirs, dict) and "absent" in theirs:
            compared.absent.append(f"{place}: {theirs['absent']}")
            if number not in may_be_absent:
                wrong.append(f"{place}: it may not be absent: {theirs['absent']}")
            continue
        compared.count += ours != {}
        if "error" in ours:
            wrong += [f"{place}: {what}" for what in error(step, ours, theirs)]
            continue
        if isinstance(theirs, dict) and "error" in theirs:
            wrong.append(f"{place}: {short(theirs)}")
            continue
        theirs = normal(case, theirs)
        ours, theirs = left_out(ours, leaves_out), left_out(theirs, leaves_out)
        if "cancel_after" in step or "ends" in step:
            without = leaves_out.get("fields", ())
            found_wrong = cancelled(step, recorded, [normal(case, each) for each in found], number, without)
        else:
            found_wrong = differ(ours, theirs)
            if "events" in theirs:
                found_wrong = stream(theirs["events"], step["op"] != "read") + found_wrong
        wrong += [f"{place}: {what}" for what in found_wrong[:6]]
        if len(found_wrong) > 6:
            wrong.append(f"{place}: {len(found_wrong) - 6} more")
    return compared


def sound(case_: dict, found: list) -> list[str]:
    """What is wrong with results that are to be recorded."""
    wrong = [f"{len(found)} results of {len(case_['steps'])} steps"] if len(found) != len(case_["steps"]) else []
    for number, (step, result) in enumerate(zip(case_["steps"], found)):
        kind = result["error"]["kind"] if "error" in result else None
        if kind != step.get("fails"):
            wrong.append(f"step {number}: the case says that it fails with {step.get('fails')}, it gave {short(result)}")
        elif kind is not None:
            wrong += [f"step {number}: {what}" for what in error(step, result, result)]
        elif "cancel_after" in step or "ends" in step:
            wrong += [f"step {number}: {what}" for what in cancelled(step, found, found, number)]
        elif "events" in result:
            wrong += [f"step {number}: {what}" for what in stream(result["events"], step["op"] != "read")]
        elif "absent" in result:
            wrong.append(f"step {number}: the Rust API has everything, but not this: {result['absent']}")
    return wrong
