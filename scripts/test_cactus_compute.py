#!/usr/bin/env python3
"""Run the published Python bindings of Cactus, unmodified, with our library.

    CACTUS_LIB_PATH=.../libcactus.so python scripts/test_cactus_compute.py BUNDLE

The Python that runs it needs the packages cactus-compute 2.2.2 and numpy (`scripts/test_cactus_compute.sh` sets both up). BUNDLE
is a chat model whose template knows tools, such as one converted from `golden/models/qwen2_tied`.
"""

import json
import math
import sys

from cactus.bindings import cactus as public

BUNDLE = sys.argv[1]
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello there"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Weather of a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Bern", "Rome"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]


def answer(result):
    """The object of an answer, however the bindings give it."""
    return json.loads(result) if isinstance(result, str) else result


def fails(function, *arguments, says=""):
    try:
        result = function(*arguments)
    except RuntimeError as error:
        assert says in str(error), error
        return
    raise AssertionError(f"{function.__name__} gave {result!r}, and should have failed")


def complete(model, messages=MESSAGES, tools=None, callback=None, **options):
    messages = json.dumps(messages)
    tools = json.dumps(tools) if tools else None
    return answer(public.cactus_complete(model, messages, json.dumps(options), tools, callback))


def main():
    fails(public.cactus_init, "/nowhere", None, False, says="/nowhere")
    model = public.cactus_init(BUNDLE, None, False)
    assert model

    first = complete(model, max_tokens=12)
    assert first["success"] and first["response"] is not None, first
    pieces = []
    streamed = complete(model, callback=lambda text, token: pieces.append((text, token)), max_tokens=12)
    texts = "".join(text.decode() if isinstance(text, bytes) else text for text, _ in pieces)
    assert texts.strip() == streamed["response"] == first["response"], (texts, streamed)
    assert streamed["cached_tokens"] >= 0 and streamed["decode_tokens"] <= 12

    called = complete(model, tools=TOOLS, force_tools=True, max_tokens=80)
    (call,) = called["function_calls"][:1]
    assert call["name"] == "weather" and call["arguments"]["city"] in ("Bern", "Rome"), called

    long = json.dumps([{"role": "user", "content": "word " * 60}])
    filled = answer(public.cactus_prefill(model, long, None, None))
    assert filled["success"] and filled["prefill_tokens"] > 60, filled
    after = complete(model, json.loads(long), max_tokens=1)
    assert after["cached_tokens"] > 0, after
    public.cactus_reset(model)
    assert complete(model, json.loads(long), max_tokens=1)["cached_tokens"] == 0

    tokens = public.cactus_tokenize(model, "hello there")
    assert len(tokens) > 1 and all(isinstance(token, int) for token in tokens)
    prompt = public.cactus_render_prompt(model, json.dumps(MESSAGES), None, None)
    assert "hello there" in (prompt if isinstance(prompt, str) else json.dumps(prompt))
    score = answer(public.cactus_score_window(model, tokens, 0, len(tokens), 64))
    assert score["success"] and score["tokens"] == len(tokens) - 1 and score["logprob"] < 0, score
    assert math.isfinite(score["logprob"])

    # A tiny model may be done before it is told to stop.
    stopped = complete(model, callback=lambda text, token: public.cactus_stop(model), max_tokens=200)
    assert stopped["success"] and stopped["decode_tokens"] <= 200, stopped

    fails(complete, model, [], says="messages")
    fails(complete, model, [{"role": "nobody", "content": ""}], says="role")
    fails(public.cactus_embed, model, "hello", True, says="makes no vectors")
    fails(public.cactus_image_embed, model, __file__, says="makes no vectors")
    assert public.cactus_get_last_error()
    public.cactus_destroy(model)
    print("the published bindings work with this library")


if __name__ == "__main__":
    main()
