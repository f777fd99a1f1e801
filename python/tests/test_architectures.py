"""A sample of what `tools/sweep.py` takes whole: architectures of transformers, small, as functions and through their states."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import architectures_page  # noqa: E402
import measure  # noqa: E402
from groups import GROUPS  # noqa: E402


@pytest.mark.parametrize(
    "name",
    [
        "bart",  # learned positions with an offset
        "bert",  # the first rows of tables, types of tokens chosen from a buffer
        "deepseek_v2",  # complex rotary embedding, values narrower than keys
        "exaone_moe",  # a router of groups
        "gpt_neo",  # a mask that is a stored band
        "jamba",  # selective scan and attention
        "mamba2",  # chunked scan
        "minimax",  # lightning attention
        "mixtral",
        "recurrent_gemma",  # linear recurrence
    ],
)
def test_architecture_is_right_and_continues_call_by_call(name):
    result = measure.model(name, GROUPS["causal"].find)
    assert "failed" not in result, result
    [row] = result["rows"]
    assert "failed" not in row, row
    assert row["causal"] and row["notes"] == [] and row["lengths"] == 2
    assert row["error"] < architectures_page.TOLERANCE
    assert (row["states"], row["greedy"]) == ("yes", "24 of 24"), row


def test_model_that_crashes_or_hangs_is_a_row():
    import os
    import time

    def find(name):
        os._exit(3) if name == "crash" else time.sleep(60)

    crash, hang = measure.each(["crash", "hang"], find, limit_seconds=1)
    assert crash["failed"] == "the process ended with code 3"
    assert hang["failed"] == "it took more than 1 seconds"


def test_page_counts_and_gives_reasons():
    good = {"component": "decoder", "exports": True, "notes": [], "error": 2e-7, "states": "yes", "greedy": "24 of 24"}
    lost = good | {"states": "/x/decoder.pt2: positions | are cut", "greedy": "0 of 24"}
    del lost["greedy"]
    results = {
        "a": {"name": "a", "rows": [good]},
        "b": {"name": "b", "rows": [lost]},
        "c": {"name": "c", "rows": [], "unbuilt": "ImportError: no timm"},
    }
    text = architectures_page.page({"causal": results}, {"torch": "2.15.0", "transformers": "5.23.0"})
    assert "| Causal language models | 3 | 2 | 2 | 2 | 2 | 1 | 1 |" in text
    assert "earlier build" not in text
    results["a"]["program"] = "2026-11-22 20:00"
    text = architectures_page.page({"causal": results}, {"torch": "2.15.0", "transformers": "5.23.0"})
    assert "2 of 3 models were taken with an earlier build of the program" in text
    assert "Without exception (equal tokens, the largest error is 2e-07): `a`." in text
    assert "| `b` | yes | 2e-07 | no states | positions / are cut |" in text
    assert "- `c`: ImportError: no timm" in text
    assert "/x" not in text
