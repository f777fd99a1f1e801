"""That the comparison finds what is wrong: python3 -m unittest discover -s sdks/conformance"""

import copy
import json
import tempfile
import unittest
from pathlib import Path

import compare

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
    return {"message": {"content": text}, "finish_reason": reason, "usage": {"completion_tokens": 3}, "timings": {"total": 1}, "total_time_ms": 2}


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
        return compare.case(CASE, self.recorded, found, {})[0]

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
            found[2]["events"][-1]["result"]["message"]["content"] = "abcde"

        def shorter(found: list) -> None:
            del found[2]["events"][2:4]
            found[2]["events"][-1]["result"]["message"]["content"] = "ab"

        self.assertEqual(self.wrong(further), [])
        self.assertEqual(self.wrong(shorter), [])
        changes = {
            "other text": lambda found: found[2]["events"][0].update(text="x"),
            "done": lambda found: found[2]["events"][-1].update(event="done"),
            "all tokens": lambda found: found[2]["events"][-1]["result"]["usage"].update(completion_tokens=9),
            "another text in the result": lambda found: found[2]["events"][-1]["result"]["message"].update(content="abc"),
            "too few texts": lambda found: found[2].update(events=found[2]["events"][:1] + found[2]["events"][-1:]),
        }
        for name, change in changes.items():
            with self.subTest(name):
                self.assertNotEqual(self.wrong(change), [])

    def test_missing_results(self) -> None:
        self.assertNotEqual(compare.case(CASE, self.recorded, GOOD[:2], {})[0], [])
        self.assertNotEqual(compare.case(CASE, self.recorded, None, {})[0], [])

    def test_what_is_absent_is_told(self) -> None:
        differences, absent = compare.case(CASE, self.recorded, [{"absent": "why"}, *GOOD[1:]], {})
        self.assertEqual((differences, len(absent)), ([], 1))

    def test_what_an_sdk_leaves_out(self) -> None:
        found = copy.deepcopy(GOOD)
        del found[0]["events"][0]
        self.assertEqual(compare.case(CASE, self.recorded, found, {"events": ["started"]})[0], [])
        self.assertNotEqual(compare.case(CASE, self.recorded, found, {})[0], [])

    def test_files(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results"

            def read(*lines: object) -> tuple:
                path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
                return compare.read(path)

            one = {"case": "a", "results": []}
            self.assertEqual(read(one, {"end": 1}), ({"a": []}, [1], ""))
            self.assertEqual(read(one)[1], [])
            for lines in ([one, one, {"end": 2}], [{"end": 0}, one], ["nonsense"], [one, {"end": 1}, {"end": 1}]):
                self.assertNotEqual(read(*lines)[2], "")
            path.unlink()
            self.assertNotEqual(compare.read(path)[2], "")

    def test_ids_of_calls_are_numbers(self) -> None:
        one = {"events": [{"id": "x1"}, {"tool_call_id": "x1"}, {"id": "x2"}]}
        other = {"events": [{"id": "y"}, {"tool_call_id": "y"}, {"id": "z"}]}
        self.assertEqual(compare.normal({}, one), compare.normal({}, other))


if __name__ == "__main__":
    unittest.main()
