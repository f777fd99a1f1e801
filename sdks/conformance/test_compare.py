"""That the comparison finds what is wrong: python3 -m unittest discover -s sdks/conformance"""

import copy
import json
import sys
import tempfile
import time
import unittest
from pathlib import Path
from types import SimpleNamespace

import compare
import materials
import run

CASE = {
    "name": "c",
    "steps": [
        {"op": "stream", "request": {"options": {"max_tokens": 9}}},
        {"op": "respond", "says": ["context"], "fails": "argument"},
        {"op": "stream", "cancel_after": 2, "request": {"options": {"max_tokens": 9}}},
    ],
}


def event(kind: str, **fields: object) -> dict:
    return {"event": kind, **fields}


def result(text: str, reason: str = "stop") -> dict:
    """A token for each character."""
    usage = {"completion_tokens": len(text)}
    tokens = [ord(character) for character in text]
    return {"message": {"content": text}, "finish_reason": reason, "tokens": tokens, "usage": usage, "timings": {"total": 1}, "total_time_ms": 2}


GOOD = [
    {"events": [event("started", prompt_tokens=3), event("text", text="ab"), event("text", text="cä"), event("done", result=result("abcä"))]},
    {"error": {"kind": "argument", "message": "the context is full"}},
    {"events": [event("text", text=x) for x in "abcd"] + [event("cancelled", result=result("abcd", "cancelled"))]},
]


class Comparison(unittest.TestCase):
    def setUp(self) -> None:
        self.recorded = [compare.normal(CASE, each) for each in GOOD]

    def wrong(self, change: object) -> list[str]:
        found = copy.deepcopy(GOOD)
        change(found)  # type: ignore[operator]
        return compare.case(CASE, self.recorded, found, {}).wrong

    def test_what_is_the_same(self) -> None:
        self.assertEqual(self.wrong(lambda found: None), [])
        self.assertEqual(compare.sound(CASE, GOOD), [])
        self.assertNotEqual(compare.sound(CASE, [GOOD[1], *GOOD[1:]]), [], "an error that nobody expects is not recorded")
        self.assertNotEqual(compare.sound(CASE, [GOOD[0], {}, GOOD[2]]), [])

    def test_times_and_messages_may_differ(self) -> None:
        def change(found: list) -> None:
            found[0]["events"][-1]["result"]["total_time_ms"] = 77
            found[1]["error"]["message"] = "context, in other words"

        self.assertEqual(self.wrong(change), [])

    def test_streams(self) -> None:
        changes = {
            "another text": lambda found: found[0]["events"][1].update(text="aB"),
            "one event less": lambda found: found[0]["events"].pop(1),
            "no last event": lambda found: found[0]["events"].pop(),
            "two last events": lambda found: found[0]["events"].append(event("done", result=result("abcä"))),
            "an event after the last": lambda found: found[0]["events"].append(event("text", text="x")),
            "pieces cut otherwise": lambda found: found[0].update(
                events=[event("started", prompt_tokens=3), event("text", text="abcä"), event("done", result=result("abcä"))]
            ),
            "an empty text": lambda found: found[0]["events"].insert(1, event("text", text="")),
            "another number": lambda found: found[0]["events"][0].update(prompt_tokens=4),
            "a field more": lambda found: found[0]["events"][0].update(more=1),
            "true for 1": lambda found: found[0]["events"][0].update(prompt_tokens=True),
        }
        for name, change in changes.items():
            with self.subTest(name):
                self.assertNotEqual(self.wrong(change), [])

    def test_errors(self) -> None:
        changes = {
            "another kind": lambda found: found[1]["error"].update(kind="handle"),
            "no message": lambda found: found[1]["error"].update(message=""),
            "a message without the word": lambda found: found[1]["error"].update(message="no"),
            "no error": lambda found: found[1].clear(),
            "an error in place of a result": lambda found: found.__setitem__(0, found[1]),
        }
        for name, change in changes.items():
            with self.subTest(name):
                self.assertNotEqual(self.wrong(change), [])

    def test_cancelled_streams_go_as_far_as_they_came(self) -> None:
        def further(found: list) -> None:
            found[2]["events"].insert(4, event("text", text="e"))
            found[2]["events"][-1]["result"] = result("abcde", "cancelled")

        def shorter(found: list) -> None:
            del found[2]["events"][2:4]
            found[2]["events"][-1]["result"] = result("ab", "cancelled")

        self.assertEqual(self.wrong(further), [])
        self.assertEqual(self.wrong(shorter), [])
        changes = {
            "other text": lambda found: found[2]["events"][0].update(text="x"),
            "done": lambda found: found[2]["events"][-1].update(event="done"),
            "all tokens": lambda found: found[2]["events"][-1]["result"]["usage"].update(completion_tokens=9),
            "another text in the result": lambda found: found[2]["events"][-1]["result"]["message"].update(content="abc"),
            "no result": lambda found: found[2]["events"][-1].pop("result"),
            "other tokens": lambda found: found[2]["events"][-1]["result"]["tokens"].__setitem__(1, 0),
            "fewer tokens than were counted": lambda found: found[2]["events"][-1]["result"]["tokens"].pop(),
            "no tokens": lambda found: found[2]["events"][-1]["result"].pop("tokens"),
            "too few texts": lambda found: found[2].update(events=found[2]["events"][:1] + found[2]["events"][-1:]),
        }
        for name, change in changes.items():
            with self.subTest(name):
                self.assertNotEqual(self.wrong(change), [])

    def test_a_cancelled_stream_begins_as_the_answer_that_it_is_like(self) -> None:
        case = {"name": "c", "steps": [{"op": "respond"}, {**CASE["steps"][2], "like": 0}]}
        recorded = [compare.normal({}, each) for each in ({"answer": result("abcdefg", "length")}, GOOD[2])]

        def wrong(change: object) -> list[str]:
            found = copy.deepcopy(recorded)
            change(found[1]["events"])  # type: ignore[operator]
            return compare.case(case, recorded, found, {}).wrong

        self.assertEqual(wrong(lambda events: None), [])
        self.assertNotEqual(wrong(lambda events: events[-1]["result"]["tokens"].__setitem__(3, 0)), [])
        without = copy.deepcopy(recorded)
        del without[1]["events"][-1]["result"]
        self.assertEqual(compare.case(case, recorded, without, {"fields": ["result"]}).wrong, [])

    def test_missing_results(self) -> None:
        self.assertNotEqual(compare.case(CASE, self.recorded, GOOD[:2], {}).wrong, [])
        self.assertNotEqual(compare.case(CASE, self.recorded, None, {}).wrong, [])
        self.assertNotEqual(compare.case(CASE, self.recorded[:2], GOOD, {}).wrong, [], "a step that was never recorded")

    def test_only_what_may_be_absent_is(self) -> None:
        compared = compare.case(CASE, self.recorded, [{"absent": "why"}, *GOOD[1:]], {}, {0})
        self.assertEqual((compared.wrong, len(compared.absent), compared.count), ([], 1, 2))
        self.assertNotEqual(compare.case(CASE, self.recorded, [{"absent": "why"}, *GOOD[1:]], {}, {1}).wrong, [])
        self.assertEqual(compare.case(CASE, self.recorded, [{"absent": "why"}] * 3, {}, range(3)).count, 0)

    def test_what_an_sdk_leaves_out(self) -> None:
        found = copy.deepcopy(GOOD)
        del found[0]["events"][0]
        self.assertEqual(compare.case(CASE, self.recorded, found, {"events": ["started"]}).wrong, [])
        self.assertNotEqual(compare.case(CASE, self.recorded, found, {}).wrong, [])

    def test_files(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results"

            def read(*lines: object) -> tuple:
                path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
                return compare.read(path)

            one = {"case": "a", "results": []}
            self.assertEqual(read(one, {"end": 1}), ({"a": []}, [1], ""))
            self.assertEqual(read(one)[1], [])
            for lines in ([one, one, {"end": 2}], [{"end": 0}, one], ["nonsense"], [one, {"end": 1}, {"end": 1}], [5], [{"case": "a"}], [one, {"leaves_out": {}}]):
                self.assertNotEqual(read(*lines)[2], "")
            path.unlink()
            self.assertNotEqual(compare.read(path)[2], "")

    def test_ids_of_calls_are_numbers(self) -> None:
        one = {"events": [{"id": "x1"}, {"tool_call_id": "x1"}, {"id": "x2"}]}
        other = {"events": [{"id": "y"}, {"tool_call_id": "y"}, {"id": "z"}]}
        self.assertEqual(compare.normal({}, one), compare.normal({}, other))
        self.assertNotEqual(compare.normal({}, {"id": ""}), compare.normal({}, {"id": "x"}), "no id is no call")

    def test_damaged_arguments_are_a_difference(self) -> None:
        def call(arguments: object) -> dict:
            return {"function": {"name": "f", "arguments": arguments}}

        self.assertEqual(compare.normal({}, call('{"a": 1}')), compare.normal({}, call({"a": 1})))
        self.assertEqual(compare.normal({}, call('{"a": ')), call('{"a": '))


class Runs(unittest.TestCase):
    """What `run.py` makes of results."""

    def judged(self, sdk: str, case: dict, recorded: list, found: object, leaves_out: object = None, sent: object = None) -> run.Outcome:
        cloud = SimpleNamespace(sent=lambda *_: sent or [])
        made = SimpleNamespace(unfill=lambda sdk, case, value: value, cloud=cloud)
        outcome = run.Outcome(sdk)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "recorded").mkdir()
            (Path(folder) / "recorded" / f"{case['name']}.json").write_text(json.dumps({"results": recorded}))
            before, run.HERE = run.HERE, Path(folder)
            try:
                run.judge(outcome, {case["name"]: found, **({"": leaves_out} if leaves_out else {})}, [case], made)  # type: ignore[arg-type]
            finally:
                run.HERE = before
        return outcome

    def test_a_runner_without_anything_does_not_pass(self) -> None:
        for sdk in run.RUNNERS:
            for case in run.cases([]):
                recorded = json.loads((run.HERE / "recorded" / f"{case['name']}.json").read_text())["results"]
                outcome = self.judged(sdk, case, recorded, [{"absent": "everything"}] * len(recorded))
                self.assertEqual(outcome.passed, 0, f"{sdk}, {case['name']}")
                if case["name"] not in run.LACKS.get(sdk, {}).get("steps", ()):
                    self.assertNotEqual(outcome.failures, [], f"{sdk}, {case['name']}")

    def test_the_table_names_steps_that_there_are(self) -> None:
        steps = {f"{case['name']}:{number}" for case in run.cases([]) for number in range(len(case["steps"]))}
        cases = {case["name"] for case in run.cases([])}
        for sdk, lacks in run.LACKS.items():
            self.assertIn(sdk, run.RUNNERS)
            self.assertEqual(set(lacks["steps"]) - steps - cases, set())

    def test_only_what_may_be_left_out_is(self) -> None:
        case = {"name": "c", "steps": [{"op": "respond"}]}
        recorded = [{"answer": {"stop": None, "text": "a"}}]
        found = [{"answer": {"text": "a"}}]
        self.assertEqual(self.judged("python", case, recorded, found, {"fields": ["stop"]}).state, "passed")
        for sdk, leaves_out in (("c", {"fields": ["stop"]}), ("python", {"fields": ["stop", "text"]}), ("python", {"steps": ["c"]})):
            self.assertNotEqual(self.judged(sdk, case, recorded, found, leaves_out).failures, [], f"{sdk}, {leaves_out}")

    def test_what_was_sent_is_compared(self) -> None:
        case = {"name": "26-consent", "asked": 1, "sent": [["hi"]], "steps": [{"op": "set_policy"}, *[{"op": "respond"}] * 3]}
        recorded = [{}, {"answer": 1}, {"answer": 1}, {"answer": 1}]
        self.assertEqual(self.judged("c", case, recorded, recorded, sent=[["hi"]]).state, "passed")
        self.assertEqual(self.judged("c", case, recorded, recorded, sent=[["hello"]]).state, "failed")
        found = [*recorded[:3], {"absent": "why"}]
        self.assertEqual(self.judged("python", case, recorded, found, sent=[["hi"]]).in_part, ["26-consent"])
        self.assertEqual(self.judged("python", case, recorded, found).state, "failed", "an absent step excuses no request")
        absent = [{"absent": "why"}] * 4
        self.assertEqual(self.judged("web", case, recorded, absent).none, ["26-consent"])

    def test_results_of_another_form_fail(self) -> None:
        case = {"name": "c", "steps": [{"op": "stream", "cancel_after": 1}]}
        for found in ([{"events": [{"event": "cancelled", "result": 5}]}], [{"events": [{"event": "cancelled", "result": {}}]}], [{"events": 5}], [None], [[]], 5):
            recorded = [{"events": [event("text", text="a"), event("cancelled", result=result("a", "cancelled"))]}]
            self.assertNotEqual(self.judged("c", case, recorded, found).failures, [], str(found))

    def test_what_takes_too_long_ends_with_what_it_started(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "alive"
            child = f"import time\nwhile True:\n    open({str(file)!r}, 'a').write('x'); time.sleep(0.02)"
            code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])"
            with open(Path(folder) / "log", "wb") as log:
                self.assertIsNone(run.ended([sys.executable, "-c", code], {}, log, 2))
            self.assertTrue(file.is_file(), "it had begun")
            size = file.stat().st_size
            time.sleep(0.3)
            self.assertEqual(file.stat().st_size, size)
            with open(Path(folder) / "log", "wb") as log:
                self.assertEqual(run.ended([sys.executable, "-c", "raise SystemExit(3)"], {}, log, 60), 3)

    def test_other_models_make_other_bundles(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            golden = Path(folder) / "golden"
            for source in (*materials.BUNDLES.values(), materials.CHAT):
                (golden / source).mkdir(parents=True)
            model = golden / materials.CHAT / "model"
            places = set()
            for text in ("a", "b"):
                model.write_text(text)
                places.add(materials.place_of(golden, Path(__file__), Path(folder)))
            self.assertEqual(len(places), 2)


if __name__ == "__main__":
    unittest.main()
