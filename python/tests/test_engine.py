"""The engine in this process, with a tiny model: what it answers, what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("cactus._native", reason="the extension module is not built: cargo xtask ci wheel, or pip install ./python")

import cactus  # noqa: E402
from cactus import Model  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = 65_536
LONG = {"max_tokens": 60_000, "ignore_eos": True}


def run(code: str, bundle: str, timeout: float = 120) -> subprocess.CompletedProcess:
    """Runs code in an interpreter of its own, with `PATH` the bundle."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    return subprocess.run(
        [sys.executable, "-c", f"PATH = {bundle!r}\n{textwrap.dedent(code)}"],
        capture_output=True, text=True, timeout=timeout, env=environment,
    )  # fmt: skip


# ---- answers


def test_chat_is_the_same_whole_streamed_awaited_and_by_the_api(model):
    asked = {"max_tokens": 12, "ignore_eos": True, "temperature": 0}
    whole = model.chat("Hello", **asked)
    assert (len(whole.token_ids), whole.finish_reason) == (12, "length")
    assert whole.prompt_tokens == len(model.tokenize(model.render("Hello")))
    stream = model.chat("Hello", stream=True, **asked)
    pieces = list(stream)
    assert "".join(pieces) == whole.text and len(pieces) > 1
    assert stream.answer.token_ids == whole.token_ids
    assert asyncio.run(model.achat("Hello", **asked)).token_ids == whole.token_ids
    messages = [{"role": "user", "content": "Hello"}]
    api = model.create_chat_completion(messages, **asked)
    assert api["choices"][0]["message"]["content"] == whole.text
    assert api["object"] == "chat.completion" and api["usage"]["completion_tokens"] == 12
    chunks = list(model.create_chat_completion(messages, stream=True, **asked))
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == whole.text


def test_generate_continues_text_and_ids(model):
    asked = {"max_tokens": 8, "ignore_eos": True, "temperature": 0}
    whole = model.generate("Once upon", **asked)
    ids = model.tokenize("Once upon", special=True)
    assert model.generate(ids, **asked).token_ids == whole.token_ids
    assert "".join(model.generate("Once upon", stream=True, **asked)) == whole.text
    assert model.generate("Once upon", logprobs=2, **asked).logprobs[0]["logprob"] <= 0


def test_numbers_of_numpy_and_one_message_are_taken(model):
    numpy = pytest.importorskip("numpy", reason="NumPy is not installed")
    asked = {"ignore_eos": True, "temperature": 0}
    want = model.chat("Hello", max_tokens=4, **asked).token_ids
    assert model.chat({"role": "user", "content": "Hello"}, max_tokens=numpy.int64(4), **asked).token_ids == want
    ids = numpy.array(model.tokenize("Once upon", special=True))
    assert model.generate(ids, max_tokens=4, **asked).token_ids == model.generate("Once upon", max_tokens=4, **asked).token_ids
    assert model.detokenize(ids) == model.detokenize(ids.tolist())


def test_many_at_once_have_the_answers_of_one_each_and_are_computed_together(model):
    texts = [f"Question {i}" for i in range(6)]
    # Long enough that none ends before the last one begins.
    asked = {"max_tokens": 1500, "ignore_eos": True, "temperature": 0}
    alone = [model.chat(text, **asked).token_ids for text in texts]

    def passes(work) -> int:
        before = model.stats["passes"]
        assert work() == alone
        return model.stats["passes"] - before

    def threads():
        answers: list = [None] * len(texts)

        def ask(i):
            answers[i] = model.chat(texts[i], **asked).token_ids

        workers = [threading.Thread(target=ask, args=(i,)) for i in range(len(texts))]
        [worker.start() for worker in workers]
        [worker.join() for worker in workers]
        return answers

    async def gathered():
        return [a.token_ids for a in await asyncio.gather(*(model.achat(text, **asked) for text in texts))]

    batch = passes(lambda: [a.token_ids for a in model.chat_batch(texts, **asked)])
    # One after the other would take 1500 passes each.
    assert batch < 6 * 1500 / 2
    assert passes(threads) < 6 * 1500 / 2
    assert passes(lambda: asyncio.run(gathered())) < 6 * 1500 / 2


def test_scores_are_likelihoods(model):
    score = model.score("Once upon a time")
    assert score.tokens == len(model.tokenize("Once upon a time", special=True)) - 1
    assert score.logprob < 0 and score.perplexity > 1
    both = model.score(["Once upon a time", "Once"])
    assert both[0].logprob == pytest.approx(score.logprob)
    assert asyncio.run(model.ascore("Once upon a time")).token_logprobs == score.token_logprobs


def test_schemas_bind_the_answer_and_are_parsed(model):
    pydantic = pytest.importorskip("pydantic")

    class Choice(pydantic.BaseModel):
        yes: bool

    answer = model.chat("Is it?", schema=Choice, max_tokens=200)
    assert isinstance(answer.parsed, Choice)
    assert set(model.chat("Is it?", schema={"enum": ["a", "b"]}, max_tokens=50).parsed) <= {"a", "b"}
    cut = model.chat("Is it?", schema=Choice, max_tokens=1)
    with pytest.raises(cactus.CancelledError, match="length"):
        cut.parsed
    cut = model.chat("Is it?", schema=Choice, max_tokens=200, stop=[":"])
    with pytest.raises(cactus.CancelledError, match="stop"):
        cut.parsed


def test_sessions_remember_and_come_back(model, tmp_path):
    session = model.session("You are brief.")
    first = session.chat("Hello", max_tokens=8, ignore_eos=True)
    assert [m["role"] for m in session.messages] == ["user", "user", "assistant"]
    second = session.chat("More", max_tokens=4, ignore_eos=True)
    assert second.cached_tokens > first.prompt_tokens // 2
    held = session.tokens
    session.save(tmp_path / "s")
    other = model.session()
    other.restore(tmp_path / "s")
    assert (other.tokens, other.messages) == (held, session.messages)
    pieces = list(other.chat("And?", stream=True, max_tokens=6, ignore_eos=True))
    assert other.messages[-1]["content"] == "".join(pieces)
    (tmp_path / "s").write_bytes(b"no session")
    with pytest.raises(cactus.SavedSessionError):
        other.restore(tmp_path / "s")


def test_pipeline_has_the_form_of_transformers(model):
    generate = cactus.pipeline("text-generation", model)
    asked = {"max_new_tokens": 4, "ignore_eos": True, "temperature": 0}
    chat = [{"role": "user", "content": "Hi"}]
    [one] = generate(chat, **asked)
    assert one["generated_text"][:-1] == chat and one["generated_text"][-1]["role"] == "assistant"
    assert generate("Hi", **asked)[0]["generated_text"].startswith("Hi")
    assert len(generate(["Hi", "Ho"], return_full_text=False, **asked)) == 2
    with pytest.raises(cactus.UnsupportedError):
        cactus.pipeline("translation", model)


# ---- what is refused


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda m: m.chat([]), cactus.InvalidRequestError, "messages"),
        (lambda m: m.chat([{"role": "robot", "content": "x"}]), cactus.InvalidRequestError, "robot"),
        (lambda m: m.chat("x", temperature=-1), cactus.InvalidRequestError, "temperature"),
        (lambda m: m.chat("x", temprature=1), TypeError, "temperature"),
        (lambda m: m.chat("x " * 50_000), cactus.ContextFullError, "context"),
        (lambda m: m.chat("x", schema={"type": "nonsense"}), cactus.InvalidRequestError, "response_format"),
        (lambda m: m.generate([10**6]), cactus.InvalidRequestError, "vocabulary"),
        (lambda m: m.generate([-1]), cactus.InvalidRequestError, r"`prompt\[0\]`: found -1, expected a token id, a whole number"),
        (lambda m: m.chat(None), cactus.InvalidRequestError, "messages.*None"),
        (lambda m: m.chat(b"x"), cactus.InvalidRequestError, "messages.*bytes"),
        (lambda m: m.chat("a\ud800"), cactus.InvalidRequestError, r"`messages\[0\].content`.*U\+D800, at 1"),
        (lambda m: m.chat([{"role": "user", "\ud800": 1}]), cactus.InvalidRequestError, r"`messages\[0\]`.*U\+D800"),
        (lambda m: m.tokenize("\udcff"), cactus.InvalidRequestError, "`text`: expected a text, found half a character"),
        (lambda m: m.score(["x", "\ud800"]), cactus.InvalidRequestError, r"`text\[1\]`.*U\+D800"),
        (lambda m: m.generate("\ud800"), cactus.InvalidRequestError, "`prompt`.*U\\+D800"),
        (lambda m: m.session().save("\ud800"), cactus.InvalidRequestError, "`path`.*U\\+D800"),
        (lambda m: m.session(["\ud800"]).save("x"), cactus.InvalidRequestError, r"`messages\[0\]`.*U\+D800"),
        (lambda m: Model.load("x\ud800"), cactus.InvalidRequestError, "`model`.*U\\+D800, at 1"),
        (lambda m: Model.load("x\0"), cactus.InvalidRequestError, "`model`.*zero byte"),
        (lambda m: Model.load(b"no\xff"), cactus.InvalidRequestError, "`model`.*UTF-8"),
        (lambda m: Model.load(3), cactus.InvalidRequestError, "`model`: expected a name or a path, found 3"),
        (lambda m: Model.load("x", token="\ud800"), cactus.InvalidRequestError, "`token`"),
        (
            lambda m: m.chat("x", temperature=float("nan")),
            cactus.InvalidRequestError,
            "`temperature`: expected a finite number, found nan",
        ),
        (lambda m: m.chat("x", logit_bias={3: float("inf")}), cactus.InvalidRequestError, "`logit_bias.3`.*inf"),
        (lambda m: m.chat("x", stop=object()), cactus.InvalidRequestError, "`stop`.*object"),
        (lambda m: m.chat("x", template_variables={"a": [{1}]}), cactus.InvalidRequestError, r"`chat_template_kwargs.a\[0\]`.*set"),
        (lambda m: m.chat("x", max_tokens=10**30), cactus.InvalidRequestError, "max_tokens"),
        (lambda m: m.chat("x", logit_bias=[1]), cactus.InvalidRequestError, "logit_bias.*list"),
        (lambda m: m.chat("x", schema="city"), cactus.InvalidRequestError, "schema.*city"),
        (lambda m: m.chat("x", tools=print), TypeError, "list of functions"),
        (lambda m: m.chat("x", tool_choice="required"), cactus.InvalidRequestError, "no tools"),
        (lambda m: m.generate(None), cactus.InvalidRequestError, "prompt.*None"),
        (lambda m: m.generate(b"x"), cactus.InvalidRequestError, "prompt.*bytes"),
        (lambda m: m.chat_batch("x"), cactus.InvalidRequestError, "conversations.*list of texts.*'x'"),
        (lambda m: m.chat_batch(["a", 3]), cactus.InvalidRequestError, r"`conversations\[1\]`: `messages`.*found 3"),
        (
            lambda m: m.chat_batch(["a", [{"role": "robot"}]]),
            cactus.InvalidRequestError,
            r"`conversations\[1\]`: `messages\[0\].role`",
        ),
        (lambda m: m.generate_batch(["a", [10**6]]), cactus.InvalidRequestError, r"`prompts\[1\]`.*vocabulary"),
        (lambda m: m.generate_batch("x"), cactus.InvalidRequestError, "prompts.*list of texts.*'x'"),
        (lambda m: m.score(None), cactus.InvalidRequestError, "text.*None"),
        (lambda m: m.score(["x", None]), cactus.InvalidRequestError, r"`text\[1\]`.*None"),
        (lambda m: m.tokenize(None), cactus.InvalidRequestError, "`text`.*None"),
        (lambda m: m.detokenize([-1]), cactus.InvalidRequestError, r"`ids\[0\]`: expected a whole number from 0 to \d+, found -1"),
        (lambda m: m.detokenize([1, 10**6]), cactus.InvalidRequestError, r"`ids\[1\]`"),
        (lambda m: m.detokenize(["a"]), cactus.InvalidRequestError, r"`ids\[0\]`.*'a'"),
        (lambda m: Model("smollm2"), TypeError, "Model.load"),
        (lambda m: Model.load("x", progress=5), TypeError, "progress"),
        (
            lambda m: Model.load("x", context=-1),
            cactus.InvalidRequestError,
            "`context`: expected a whole number from 1 to 16777216, found -1",
        ),
        (lambda m: Model.load("x", context=None), cactus.InvalidRequestError, "context.*None"),
        (
            lambda m: Model.load("x", threads=0),
            cactus.InvalidRequestError,
            "`threads`: expected a whole number from 1 to 1024, found 0",
        ),
        (lambda m: Model.load("x", batch=0), cactus.InvalidRequestError, "`batch`.*from 1 to 65536, found 0"),
        (lambda m: Model.load("x", kv="f8"), cactus.InvalidRequestError, "`kv`: expected 'int8' or 'f16', found 'f8'"),
        (lambda m: Model.load("x", pin=1), cactus.InvalidRequestError, "`pin`: expected True or False, found 1"),
        (lambda m: Model.load("x", bits="4"), cactus.InvalidRequestError, "bits.*'4'"),
        (lambda m: Model.load("x", threads=1.5), cactus.InvalidRequestError, "threads.*1.5"),
        (lambda m: Model.load("x", context=10**30), cactus.InvalidRequestError, "context"),
        (lambda m: m.embed("x"), cactus.UnsupportedError, "embeddings"),
        (lambda m: m.encode(["x"]), cactus.UnsupportedError, "embeddings"),
        (lambda m: m.score(""), cactus.InvalidRequestError, "two tokens"),
    ],
)
def test_wrong_requests_say_what_is_wrong(model, ask, error, says):
    with pytest.raises(error, match=says):
        ask(model)


@pytest.mark.skipif(sys.platform != "linux", reason="paths of other systems are texts")
def test_paths_that_are_no_text_work_as_bytes_and_as_python_has_them(bundle, tmp_path):
    path = os.fsencode(tmp_path) + b"/m\xff"
    shutil.copytree(bundle, os.fsdecode(path))
    for form in (path, os.fsdecode(path), Path(os.fsdecode(path))):
        with Model.load(form, threads=1) as model:
            assert model.chat("Hello", max_tokens=2).token_ids
            saved = os.fsencode(tmp_path) + b"/s\xfe"
            session = model.session()
            session.chat("Hello", max_tokens=2)
            session.save(saved)
            model.session().restore(os.fsdecode(saved))
            again = pickle.loads(pickle.dumps(model))
            again.close()


def test_memory_that_the_system_refuses_is_an_error_of_its_own(bundle):
    code = """
        import resource, cactus
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        try:
            cactus.Model.load(PATH, threads=1, context=1 << 24, kv="f16", kv_tokens=1 << 32)
        except MemoryError as error:
            print(type(error).__name__, error)
    """
    done = run(code, bundle)
    assert done.stdout.startswith("OutOfMemoryError"), done.stdout + done.stderr


def test_models_that_are_not_there(tmp_path):
    with pytest.raises(cactus.ModelNotFoundError) as error:
        Model.load("smollm2-135m-instuct", offline=True)
    assert error.value.suggestions
    with pytest.raises(cactus.CactusError):
        Model.load(tmp_path)
    with pytest.raises(cactus.InvalidRequestError, match="bits"):
        Model.load("x", bits=7)


def test_conversion_tells_its_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("CACTUS_CACHE", str(tmp_path))
    steps = []
    with Model.load(ROOT / "golden/models/llama", progress=steps.append, threads=1):
        pass
    assert {step.stage for step in steps} >= {"converting"}
    assert steps[-1].done <= steps[-1].total
    # The second time it is there.
    steps.clear()
    with Model.load(ROOT / "golden/models/llama", progress=steps.append, threads=1):
        assert steps == []


def test_an_error_in_the_progress_callback_comes_through(tmp_path, monkeypatch):
    monkeypatch.setenv("CACTUS_CACHE", str(tmp_path))

    def stop(_):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        Model.load(ROOT / "golden/models/llama", progress=stop)


# ---- how it ends


def until(holds, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "not within the time"
        time.sleep(0.005)


def test_a_stream_that_is_dropped_ends_its_answer(model):
    for leave in (lambda s: s.close(), lambda s: None):
        stream = model.chat("Hello", stream=True, **LONG)
        next(stream)
        leave(stream)
        del stream
        gc.collect()
        until(lambda: model.stats["running"] == 0)
    chunks = model.create_chat_completion([{"role": "user", "content": "x"}], stream=True, **LONG)
    next(chunks)
    del chunks
    until(lambda: model.stats["running"] == 0)


def test_a_task_that_is_cancelled_ends_its_answer(model):
    async def main():
        task = asyncio.create_task(model.achat("Hello", **LONG))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with await model.achat("Hello", stream=True, **LONG) as stream:
            async for _ in stream:
                break
        pieces = [piece async for piece in await model.achat("Hello", stream=True, max_tokens=5, ignore_eos=True)]
        assert pieces

    asyncio.run(main())
    until(lambda: model.stats["running"] == 0)


def test_closing_under_answers_ends_them_with_an_error(bundle):
    model = Model.load(bundle, threads=1, context=CONTEXT)
    session = model.session()
    errors = []

    def ask():
        try:
            model.chat("Hello", **LONG)
        except cactus.CactusError as error:
            errors.append(error)

    workers = [threading.Thread(target=ask) for _ in range(4)]
    [worker.start() for worker in workers]
    until(lambda: model.stats["running"] > 0)
    model.close()
    [worker.join(20) for worker in workers]
    assert [type(error) for error in errors] == [cactus.ClosedError] * 4
    assert model.closed
    with pytest.raises(cactus.ClosedError):
        model.chat("Hello")
    with pytest.raises(cactus.ClosedError):
        session.chat("Hello")
    model.close()


def test_an_answer_that_is_asked_for_while_the_model_closes_ends(bundle):
    for i in range(20):
        model = Model.load(bundle, threads=1, context=CONTEXT)
        ends = []

        def ask(model=model, ends=ends):
            try:
                ends.append(model.chat("Hello", **LONG))
            except cactus.ClosedError as error:
                ends.append(error)

        workers = [threading.Thread(target=ask) for _ in range(4)]
        [worker.start() for worker in workers]
        time.sleep(0.002 * (i % 4))
        model.close()
        [worker.join(20) for worker in workers]
        assert [type(end) for end in ends] == [cactus.ClosedError] * 4


def test_pickling_hands_over_the_path(model):
    other = pickle.loads(pickle.dumps(model))
    with other:
        asked = {"max_tokens": 4, "ignore_eos": True, "temperature": 0}
        assert other.chat("Hi", **asked).token_ids == model.chat("Hi", **asked).token_ids


def test_cycles_from_many_threads_leave_nothing(bundle):
    """Load, ask, leave halfway in every way there is, and close: no memory, thread or file is left over. `CACTUS_TEST_CYCLES` makes
    it a long test (1000)."""
    done = run(
        """
        import asyncio, gc, json, os, threading
        import cactus
        from cactus import compat
        CYCLES, THREADS = int(os.environ.get("CACTUS_TEST_CYCLES", "200")), 8
        ASKED = {"max_tokens": 200, "ignore_eos": True}
        MESSAGES = [{"role": "user", "content": "Hello"}]
        failures = []

        class Enough(Exception):
            pass

        def dropped(model):
            next(model.chat("Hello", stream=True, **ASKED))

        def closed(model):
            with model.chat("Hello", stream=True, **ASKED) as stream:
                next(stream)

        def chunks(model):
            next(model.create_chat_completion(MESSAGES, stream=True, **ASKED))

        def session(model):
            next(model.session().chat("Hello", stream=True, **ASKED))

        def awaited(model):
            async def main():
                task = asyncio.create_task(model.achat("Hello", **ASKED))
                await asyncio.sleep(0)
                task.cancel()
                async for _ in await model.achat("Hello", stream=True, **ASKED):
                    break
            asyncio.run(main())

        def called(model):
            def stop(text, token):
                raise Enough
            number = compat.cactus_init(PATH)
            try:
                compat.cactus_complete(number, MESSAGES, ASKED, None, stop)
            except Enough:
                compat.cactus_destroy(number)
                return
            failures.append("the callback's error did not come through")

        def destroyed(model):
            stream = model.chat("Hello", stream=True, **ASKED)
            next(stream)
            model.close()
            try:
                for _ in stream:
                    pass
            except cactus.CactusError:
                pass

        def whole(model):
            model.chat("Hello", max_tokens=4)

        WAYS = [dropped, closed, chunks, session, awaited, called, destroyed, whole]

        def cycles(thread, count):
            try:
                for i in range(count):
                    with cactus.Model.load(PATH, threads=1, context=512, kv_tokens=2048) as model:
                        WAYS[(thread + i) % len(WAYS)](model)
            except BaseException as error:
                failures.append(repr(error))

        def all_threads(count):
            workers = [threading.Thread(target=cycles, args=(n, count)) for n in range(THREADS)]
            [worker.start() for worker in workers]
            [worker.join() for worker in workers]
            gc.collect()

        def held():
            pages = int(open("/proc/self/statm").read().split()[1]) if os.path.exists("/proc/self/statm") else 0
            tasks = len(os.listdir("/proc/self/task")) if pages else threading.active_count()
            files = len(os.listdir("/proc/self/fd")) if pages else 0
            return pages * 4096, tasks, files

        all_threads(max(len(WAYS), CYCLES // THREADS // 4))
        before = held()
        all_threads(CYCLES // THREADS)
        after = held()
        print(json.dumps({"failures": failures, "before": before, "after": after}))
        """,
        bundle,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    assert found["failures"] == []
    (before, tasks, files), (after, *others) = found["before"], found["after"]
    # A thread that has just ended may still be counted.
    assert others[0] <= tasks + 2 and others[1] <= files + 2, found
    assert after - before < 24 << 20, found


def test_a_session_that_is_left_half_way_answers_again(model):
    session = model.session()
    next(session.chat("Hello", stream=True, **LONG))
    gc.collect()
    assert len(session.chat("More", max_tokens=4, ignore_eos=True).token_ids) == 4


def test_an_async_stream_that_is_dropped_ends_its_answer(model):
    async def main():
        stream = await model.achat("Hello", stream=True, **LONG)
        async for _ in stream:
            break
        del stream
        gc.collect()

    asyncio.run(main())
    until(lambda: model.stats["running"] == 0)


def test_callbacks_may_raise_and_call_back(bundle):
    from cactus import compat

    number = compat.cactus_init(bundle)
    messages = [{"role": "user", "content": "Hi"}]
    options = {"max_tokens": 1000, "ignore_eos": True}

    def raising(*_):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        compat.cactus_complete(number, messages, options, None, raising)
    told = []

    def calling(text, _):
        told.append(compat.cactus_tokenize(number, "one two"))
        with pytest.raises(RuntimeError, match="callback of an answer of the same model"):
            compat.cactus_complete(number, messages)
        with pytest.raises(RuntimeError, match="callback of an answer of the same model"):
            compat.cactus_reset(number)
        compat.cactus_stop(number)

    stopped = compat.cactus_complete(number, messages, options, None, calling)
    assert told and stopped["decode_tokens"] < 1000

    cut = compat.cactus_complete(number, messages, options, None, lambda *_: compat.cactus_destroy(number))
    assert cut["decode_tokens"] < 1000
    with pytest.raises(RuntimeError, match="cactus_tokenize: there is no model"):
        compat.cactus_tokenize(number, "x")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_says_that_it_cannot(bundle):
    done = run(
        """
        import os, warnings
        warnings.simplefilter("ignore")
        import cactus
        model = cactus.Model.load(PATH, threads=1)
        model.chat("x", max_tokens=2)
        child = os.fork()
        if child == 0:
            try:
                model.chat("x")
            except cactus.ForkedError as error:
                assert "spawn" in str(error)
                model.close()
                del model
                os._exit(7)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), model.chat("x", max_tokens=2).finish_reason)
        """,
        bundle,
    )
    assert done.stdout.split()[:1] == ["7"], done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise")
@pytest.mark.parametrize("ask", ["model.chat('x', **LONG)", "list(model.chat('x', stream=True, **LONG))", "asyncio.run(main())"])
def test_ctrl_c_ends_an_answer_at_once(bundle, ask):
    done = run(
        f"""
        import asyncio, os, signal, threading, time
        import cactus
        # Whoever runs the tests in the background may ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        LONG = {{"max_tokens": 60_000, "ignore_eos": True}}
        model = cactus.Model.load(PATH, threads=1, context=65536)
        async def main():
            await model.achat("x", **LONG)
        def interrupt():
            while model.stats["running"] == 0:
                time.sleep(0.001)
            global sent
            sent = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            {ask}
        except KeyboardInterrupt:
            took = time.monotonic() - sent
            while model.stats["running"]:
                time.sleep(0.001)
            print("interrupted", took < 2)
        """,
        bundle,
    )
    assert done.stdout.split() == ["interrupted", "True"], done.stderr + done.stdout


@pytest.mark.parametrize(
    "how",
    [
        "stream = model.chat('x', stream=True, **LONG); next(stream)",
        "threading.Thread(target=lambda: model.chat('x', **LONG), daemon=True).start(); wait()",
        "[threading.Thread(target=lambda: list(model.chat('x', stream=True, **LONG)), daemon=True).start() for _ in range(8)]; wait()",
        "asyncio.run(leave())",
    ],
)
def test_the_interpreter_ends_cleanly_under_an_answer(bundle, how):
    done = run(
        f"""
        import asyncio, threading, time
        import cactus
        threading.excepthook = lambda args: None
        LONG = {{"max_tokens": 60_000, "ignore_eos": True}}
        model = cactus.Model.load(PATH, threads=1, context=65536)
        def wait():
            while model.stats["running"] == 0:
                time.sleep(0.001)
        async def leave():
            asyncio.get_running_loop().create_task(model.achat("x", **LONG))
            await asyncio.sleep(0.1)
        {how}
        print("end")
        """,
        bundle,
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    assert done.stderr == ""


def test_importing_is_quick_and_brings_neither_numpy_nor_torch():
    done = run(
        """
        import sys
        import cactus
        cactus.Model
        print(sorted({"numpy", "torch", "transformers", "pydantic", "asyncio", "concurrent.futures"} & set(sys.modules)))
        """,
        "",
    )
    assert done.stdout == "[]\n", done.stdout + done.stderr


# ---- the names of the public package


def test_the_public_functions_work(bundle):
    from cactus import compat

    model = compat.cactus_init(bundle)
    pieces = []
    options = {"max_tokens": 6, "stop_sequences": ["zzz"], "auto_handoff": False}
    messages = json.dumps([{"role": "user", "content": "Hi"}])
    result = compat.cactus_complete(model, messages, json.dumps(options), None, lambda text, _: pieces.append(text))
    assert result["success"] and result["response"] == "".join(pieces)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    called = compat.cactus_complete(model, messages, {"force_tools": True, "max_tokens": 200}, tools)
    assert called["function_calls"][0] == {"name": "f", "arguments": {}}
    assert compat.cactus_prefill(model, messages)["prefill_tokens"] > 0
    ids = compat.cactus_tokenize(model, "one two three four")
    window = compat.cactus_score_window(model, ids, 1, len(ids), 512)
    assert window["tokens"] == len(ids) - 1 and window["logprob"] < 0
    assert "Hi" in compat.cactus_render_prompt(model, messages)
    compat.cactus_reset(model)
    compat.cactus_stop(model)
    with pytest.raises(RuntimeError, match="embeddings"):
        compat.cactus_embed(model, "x")
    assert "embeddings" in compat.cactus_get_last_error()
    with pytest.raises(RuntimeError, match="cactus.Transcriber"):
        compat.cactus_transcribe(model, "x.wav")
    compat.cactus_destroy(model)
    with pytest.raises(RuntimeError, match="no model"):
        compat.cactus_tokenize(model, "x")
