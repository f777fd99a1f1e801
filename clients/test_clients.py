"""The official Python clients, unmodified. Run by `clients/run.py`, which starts a server and sets CACTUS_URL."""

import asyncio
import base64
import json
import math
import os
import ssl
import struct
import time
import urllib.request
from pathlib import Path
from typing import Literal

import anthropic
import httpx
import ollama
import openai
import pydantic
import pytest

URL = os.environ["CACTUS_URL"]
client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
claude = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
llama = ollama.Client(host=URL)
MODEL = client.models.list().data[0].id
ASK = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": SCHEMA}}


class City(pydantic.BaseModel):
    name: Literal["Paris", "Rome"]
    capital: bool


def metric(name: str) -> float:
    with urllib.request.urlopen(f"{URL}/metrics") as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"cactus_{name}{{"))


def test_openai_chat():
    answer = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0, max_completion_tokens=20)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    short = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=1)
    assert short.choices[0].finish_reason == "length"


def test_openai_chat_stream_helper():
    whole = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0, max_completion_tokens=20)
    with client.chat.completions.stream(
        model=MODEL, messages=ASK, temperature=0, max_completion_tokens=20, stream_options={"include_usage": True}
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.delta" in kinds and kinds[-1] != "error"
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.usage.completion_tokens == whole.usage.completion_tokens


def test_openai_logprobs():
    answer = client.chat.completions.create(
        model=MODEL, messages=ASK, temperature=0, max_completion_tokens=5, logprobs=True, top_logprobs=3
    )
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for token in content:
        assert len(token.top_logprobs) == 3 and math.isfinite(token.logprob)
        assert token.logprob <= token.top_logprobs[0].logprob
    assert b"".join(bytes(token.bytes) for token in content).decode().startswith(answer.choices[0].message.content)


def test_openai_several_answers():
    answer = client.chat.completions.create(model=MODEL, messages=ASK, n=3, temperature=1.5, seed=1, max_completion_tokens=12)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]


def test_openai_parse():
    answer = client.chat.completions.parse(
        model=MODEL, messages=[{"role": "user", "content": "Tell me about Paris."}], response_format=City, max_completion_tokens=60
    )
    assert isinstance(answer.choices[0].message.parsed, City)
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model=MODEL, messages=ASK, response_format=City, max_completion_tokens=2)


def test_openai_tools_and_their_answers():
    options = {"model": MODEL, "tools": [TOOL], "tool_choice": "required", "temperature": 0, "parallel_tool_calls": False}
    answer = client.chat.completions.create(messages=ASK, **options)
    assert answer.choices[0].finish_reason == "tool_calls"
    calls = answer.choices[0].message.tool_calls
    assert json.loads(calls[0].function.arguments)["city"] in ("Paris", "Rome")
    with client.chat.completions.stream(messages=ASK, **options) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_completion().choices[0].message.tool_calls
    assert [call.function.arguments for call in streamed] == [call.function.arguments for call in calls]
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in calls]
    history = [*ASK, answer.choices[0].message, *results]
    after = client.chat.completions.create(messages=history, model=MODEL, tools=[TOOL], tool_choice="none", max_completion_tokens=10)
    assert after.choices[0].message.content is not None


def test_openai_parallel_tools():
    ask = [{"role": "user", "content": "Get the weather of Paris, and get the weather of Rome. Call the tool twice."}]
    seen = set()
    for seed in range(3):
        answer = client.chat.completions.create(
            model=MODEL, messages=ask, tools=[TOOL], tool_choice="required", temperature=0.8, seed=seed, max_completion_tokens=60
        )
        calls = answer.choices[0].message.tool_calls or []
        assert len({call.id for call in calls}) == len(calls)
        seen.add(len(calls))
    one = client.chat.completions.create(
        model=MODEL, messages=ask, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_completion_tokens=150
    )
    assert len(one.choices[0].message.tool_calls) == 1
    print("calls at once:", sorted(seen))


RECORDING = Path(__file__).resolve().parent.parent / "crates" / "speech" / "tests" / "files" / "jfk.opus"


def test_openai_transcriptions():
    def heard(**options):
        with RECORDING.open("rb") as file:
            return client.audio.transcriptions.create(model="whisper", file=file, **options)

    plain = heard()
    assert plain.text and plain.usage.type == "duration" and 10 < plain.usage.seconds < 12
    assert heard(response_format="text").strip() == plain.text
    verbose = heard(response_format="verbose_json", timestamp_granularities=["segment"])
    assert verbose.text == plain.text and verbose.language and 10 < verbose.duration < 12
    times = [time for segment in verbose.segments for time in (segment.start, segment.end)]
    assert times == sorted(times) and times[-1] <= verbose.duration
    for segment in verbose.segments:
        assert set(type(segment).model_fields) <= set(segment.model_dump(exclude_none=True))
    timed = heard(response_format="verbose_json", timestamp_granularities=["word"])
    assert timed.segments is None and timed.words and all(word.start <= word.end for word in timed.words)
    assert heard(prompt="Cactus.", keywords=["Ada", "Grace"]).text
    assert " --> " in heard(response_format="srt") and heard(response_format="vtt").startswith("WEBVTT\n")
    events = list(heard(stream=True))
    assert [event.type for event in events[:-1]] == ["transcript.text.delta"] * (len(events) - 1)
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == plain.text
    with RECORDING.open("rb") as file:
        translated = client.audio.translations.create(model="whisper", file=file, response_format="verbose_json")
    assert translated.language == "english" and translated.segments
    asyncio.run(cancelled())


async def cancelled():
    """A client that leaves in the middle of a stream frees the model."""
    patient = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
    stream = await patient.audio.transcriptions.create(model="whisper", file=RECORDING, stream=True)
    async for _ in stream:
        break
    await stream.response.aclose()
    for _ in range(100):
        if metric("requests_running") == 0:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the model is still busy")


def test_openai_transcription_errors():
    def refused(error=openai.BadRequestError, model="whisper", file=("speech.wav", b"Dear Sir or Madam"), **options):
        with pytest.raises(error) as caught:
            client.audio.transcriptions.create(model=model, file=file, **options)
        return caught.value

    assert refused().param == "file" and "text" in refused().message
    assert refused(file=("a.wav", b"")).param == "file"
    assert refused(file=RECORDING, include=["logprobs"]).param == "include"
    assert "/v1/chat/completions" in refused(file=RECORDING, model=MODEL).message
    assert refused(openai.NotFoundError, file=RECORDING, model="whisper-1").code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="/v1/audio/transcriptions"):
        client.chat.completions.create(model="whisper", messages=ASK)


def test_openai_transcription_of_speech():
    names = [model.id for model in client.models.list().data]
    if "whisper-tiny.en" not in names:
        pytest.skip("CACTUS_TEST_MODELS has no whisper-tiny.en; scripts/fetch_models.py fetches it")
    text = client.audio.transcriptions.create(model="whisper-tiny.en", file=RECORDING, response_format="text")
    assert "ask not what your country can do for you" in text
    if "silero-vad" in names:
        options = {"type": "server_vad", "threshold": 0.4, "silence_duration_ms": 500}
        for strategy in ("auto", options):
            cut = client.audio.transcriptions.create(model="whisper-tiny.en", file=RECORDING, chunking_strategy=strategy)
            assert "what you can do for your country" in cut.text


def test_openai_realtime_transcription():
    asyncio.run(realtime())


async def realtime():
    """A rising tone, of which the tiny model makes something that never changes."""
    count = 72_000
    pcm = b"".join(struct.pack("<h", int(16_000 * math.sin(i * i * 4e-6))) for i in range(count))
    patient = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
    settings = {"transcription": {"model": "whisper", "language": "de", "keywords": ["Ada"]}, "turn_detection": None}
    async with patient.realtime.connect(extra_query={"intent": "transcription"}) as connection:
        created = await connection.recv()
        assert created.type == "session.created" and created.session.type == "transcription"
        await connection.session.update(session={"type": "transcription", "audio": {"input": settings}})
        updated = await connection.recv()
        assert updated.type == "session.updated" and updated.session.audio.input.transcription.language == "de"
        said = []
        for _ in range(2):
            for at in range(0, len(pcm), 9_600):
                await connection.input_audio_buffer.append(audio=base64.b64encode(pcm[at : at + 9_600]).decode())
            await connection.input_audio_buffer.commit()
            committed = await connection.recv()
            assert committed.type == "input_audio_buffer.committed"
            deltas = []
            while (event := await connection.recv()).type == "conversation.item.input_audio_transcription.delta":
                assert event.item_id == committed.item_id
                deltas.append(event.delta)
            assert event.type == "conversation.item.input_audio_transcription.completed"
            assert event.item_id == committed.item_id and event.transcript == "".join(deltas)
            assert abs(event.usage.seconds - count / 24_000) < 0.01
            said.append(event.transcript)
        assert said[0] and said[0] == said[1]
        await connection.input_audio_buffer.commit()
        empty = await connection.recv()
        assert empty.type == "error" and empty.error.code == "input_audio_buffer_commit_empty"
        await connection.input_audio_buffer.clear()
        assert (await connection.recv()).type == "input_audio_buffer.cleared"


def test_openai_decisions():
    asked = {
        "model": MODEL,
        "input": "The package arrived with a broken screen. I want my money back today.",
        "questions": [
            {"type": "predicate", "name": "damaged", "instructions": "Does the customer report a damaged item?"},
            {"type": "predicate", "instructions": "Does the customer write about the weather?"},
            {
                "type": "choice",
                "instructions": "Which language is the text written in?",
                "choices": [{"value": "German"}, {"value": "English"}, {"value": "Japanese", "description": "日本語"}],
            },
            {
                "type": "score",
                "instructions": "How angry is the customer?",
                "levels": [{"label": "calm"}, {"label": "annoyed"}, {"label": "furious"}],
            },
        ],
    }
    decision = client.decisions.create(**asked)
    damaged, weather, language, anger = decision.answers
    assert (damaged.type, damaged.name, weather.name) == ("predicate", "damaged", None)
    assert damaged.probability > weather.probability
    assert language.type == "choice" and language.choice == "English"
    assert [one.value for one in language.probabilities] == ["German", "English", "Japanese"]
    assert math.isclose(sum(one.probability for one in language.probabilities), 1, rel_tol=1e-9)
    assert 0 <= language.confidence <= 1
    levels = anger.probabilities
    assert [(one.value, one.label) for one in levels] == [(0, "calm"), (1, "annoyed"), (2, "furious")]
    assert math.isclose(anger.score, sum(one.value * one.probability for one in levels), rel_tol=1e-9)
    assert decision.usage.total_tokens == decision.usage.input_tokens > 0 == decision.usage.output_tokens
    assert client.decisions.create(**asked).answers == decision.answers, "the same bits"
    with pytest.raises(openai.BadRequestError) as error:
        client.decisions.create(model=MODEL, input="x", questions=[{"type": "predicate", "instructions": ""}])
    assert error.value.param == "questions[0].instructions"


def test_openai_errors():
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model="gpt-none", messages=ASK)
    assert error.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model=MODEL, messages=ASK, temperature=1000)
    assert error.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as error:
        part = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [part]}])
    assert error.value.code == "unsupported_content"
    with pytest.raises(openai.APIStatusError) as error:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x" * 300_000}])
    assert error.value.status_code == 413
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model=MODEL, input="Hello")


def test_openai_abort_frees_the_row():
    stream = client.chat.completions.create(
        model=MODEL, messages=ASK, stream=True, max_completion_tokens=600, extra_body={"ignore_eos": True}
    )
    next(chunk for chunk in stream if chunk.choices[0].delta.content)
    assert metric("requests_running") == 1
    stream.close()
    deadline = time.monotonic() + 20
    while metric("requests_running"):
        assert time.monotonic() < deadline, "still running"
        time.sleep(0.1)


def test_openai_completions():
    answer = client.completions.create(model=MODEL, prompt=["The capital of France is"] * 2, max_tokens=4, temperature=0, logprobs=2)
    assert answer.choices[0].text == answer.choices[1].text
    assert len(answer.choices[0].logprobs.tokens) == 4
    pieces = client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=4, temperature=0, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == answer.choices[0].text


def test_openai_responses():
    options = {"model": MODEL, "temperature": 0, "max_output_tokens": 20}
    answer = client.responses.create(input="What is the capital of France? Answer in one word.", **options)
    assert "Paris" in answer.output_text
    with client.responses.stream(input="What is the capital of France? Answer in one word.", **options) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete")
    assert final.output_text == answer.output_text
    again = client.responses.create(input="And of Italy?", previous_response_id=answer.id, **options)
    assert again.usage.input_tokens > answer.usage.input_tokens
    with pytest.raises(openai.NotFoundError):
        client.responses.create(input="x", previous_response_id="resp_none", **options)
    assert client.responses.retrieve(answer.id).output_text == answer.output_text


def test_openai_responses_tools_and_parse():
    flat = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True}
    answer = client.responses.create(model=MODEL, input="Weather of Paris?", tools=[flat], tool_choice="required", temperature=0, parallel_tool_calls=False)
    call = next(item for item in answer.output if item.type == "function_call")
    assert json.loads(call.arguments)["city"] in ("Paris", "Rome")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    after = client.responses.create(model=MODEL, input=[result], previous_response_id=answer.id, max_output_tokens=10)
    assert after.status in ("completed", "incomplete")
    parsed = client.responses.parse(model=MODEL, input="Tell me about Paris.", text_format=City, max_output_tokens=60)
    assert isinstance(parsed.output_parsed, City)


BREAD = b"# Bread\n\nFlour, water and salt.\n\n## Baking\n\nBake it for forty minutes.\n"
TEA = b"Tea is made with hot water.\n"


@pytest.fixture
def store():
    made = client.vector_stores.create(name="Recipes", metadata={"of": "tests"})
    assert made.status == "completed" and made.file_counts.total == 0 and made.metadata == {"of": "tests"}
    files = client.vector_stores.files
    bread = files.upload_and_poll(vector_store_id=made.id, file=("bread.md", BREAD), attributes={"year": 2019, "kind": "food"})
    sent = client.files.create(file=("tea.txt", TEA), purpose="assistants")
    tea = files.create_and_poll(sent.id, vector_store_id=made.id, attributes={"year": 2024, "kind": "drink"})
    assert (bread.status, tea.status) == ("completed", "completed") and bread.last_error is None
    yield made.id, bread.id, tea.id
    for file in (bread.id, tea.id):
        assert client.files.delete(file).deleted
    assert client.vector_stores.retrieve(made.id).file_counts.total == 0, "they are out of their stores, too"
    assert client.vector_stores.delete(made.id).deleted


def test_openai_files():
    sent = client.files.create(file=("../a b.md", BREAD), purpose="user_data")
    assert (sent.filename, sent.bytes, sent.status) == ("a b.md", len(BREAD), "processed")
    assert client.files.wait_for_processing(sent.id).id == sent.id
    assert client.files.content(sent.id).read() == BREAD
    assert sent.id in [file.id for file in client.files.list(purpose="user_data")]
    assert client.files.delete(sent.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(sent.id)
    with pytest.raises(openai.BadRequestError) as error:
        client.files.create(file=("a.md", BREAD), purpose="fun")
    assert error.value.param == "purpose"


def test_openai_vector_stores(store):
    store, bread, tea = store
    found = client.vector_stores.search(store, query="forty minutes", max_num_results=2)
    assert found.data[0].file_id == bread and found.data[0].filename == "bread.md"
    assert found.data[0].content[0].text.startswith("Bake it for forty") and found.data[0].attributes["year"] == 2019
    assert len(found.data) == 2 and all(0 <= one.score <= 1 for one in found.data)
    drink = {"type": "eq", "key": "kind", "value": "drink"}
    recent = {"type": "and", "filters": [drink, {"type": "gte", "key": "year", "value": 2020}]}
    for filters in (drink, recent):
        assert {one.file_id for one in client.vector_stores.search(store, query="water", filters=filters)} == {tea}
    client.vector_stores.files.update(bread, vector_store_id=store, attributes={"kind": "drink"})
    assert {one.file_id for one in client.vector_stores.search(store, query="water", filters=drink)} == {bread, tea}
    assert [file.id for file in client.vector_stores.files.list(store, order="asc")] == [bread, tea]
    assert "forty minutes" in " ".join(part.text for part in client.vector_stores.files.content(bread, vector_store_id=store))
    assert client.vector_stores.update(store, name="Old").name == "Old"
    assert "Old" in [one.name for one in client.vector_stores.list()]
    with pytest.raises(openai.BadRequestError) as error:
        overlap = {"type": "static", "static": {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 400}}
        client.vector_stores.files.create(store, file_id=bread, chunking_strategy=overlap)
    assert error.value.param == "chunking_strategy.static.chunk_overlap_tokens"


def test_openai_vector_store_batches(store):
    store, bread, tea = store
    long = b"\n\n".join(b"Sentence %d says this and that of it." % number for number in range(4000))
    batch = client.vector_stores.file_batches.upload_and_poll(store, files=[("long.md", long), ("a.bin", b"\0\xff")], file_ids=[tea])
    assert (batch.file_counts.completed, batch.file_counts.failed, batch.file_counts.total) == (2, 1, 3)
    files = {file.id: file for file in client.vector_stores.file_batches.list_files(batch.id, vector_store_id=store)}
    assert [file.last_error.code for file in files.values() if file.last_error] == ["unsupported_file"]
    assert client.vector_stores.search(store, query="sentence 3999", max_num_results=1).data[0].filename == "long.md"
    for file in files.keys() - {tea}:
        assert client.files.delete(file).deleted


def test_openai_file_search(store):
    store, bread, tea = store
    tool = {"type": "file_search", "vector_store_ids": [store], "max_num_results": 2}
    format = {"type": "json_schema", "name": "x", "schema": {"const": "Bake it for forty minutes [2]. Gold and butter [1]."}}
    options = {"model": MODEL, "input": "How long does the bread bake?", "tools": [tool], "temperature": 0, "text": {"format": format}}
    filtered = {**tool, "filters": {"type": "eq", "key": "kind", "value": "food"}}
    answer = client.responses.create(**{**options, "tools": [filtered]}, include=["file_search_call.results"])
    search, message = answer.output
    assert (search.type, search.status, search.queries) == ("file_search_call", "completed", ["How long does the bread bake?"])
    assert {one.file_id for one in search.results} == {bread} and any("forty" in one.text for one in search.results)
    (cited,) = message.content[0].annotations
    assert (cited.type, cited.file_id, cited.filename) == ("file_citation", bread, "bread.md")
    assert answer.output_text[cited.index :].startswith("[2]")
    with client.responses.stream(**{**options, "tools": [filtered]}) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    named = ["in_progress", "searching", "completed"]
    assert [kind for kind in kinds if "file_search" in kind] == [f"response.file_search_call.{name}" for name in named]
    assert kinds.count("response.output_text.annotation.added") == 1
    assert final.output[0].results is None and final.output[1].content[0].annotations == message.content[0].annotations
    again = client.responses.create(model=MODEL, input=[*answer.output, {"role": "user", "content": "And tea?"}], tools=[tool], max_output_tokens=20)
    assert again.output[0].queries == ["And tea?"]
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model=MODEL, input="x", tools=[{**tool, "vector_store_ids": ["vs_none"]}])


def test_anthropic_messages():
    # This client has left the field out; the API still has it.
    options = {"model": MODEL, "messages": ASK, "max_tokens": 20, "extra_body": {"temperature": 0}}
    answer = claude.messages.create(**options)
    assert "Paris" in answer.content[0].text and answer.stop_reason in ("end_turn", "max_tokens")
    with claude.messages.stream(**options) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == answer.content[0].text == final.content[0].text
    assert final.usage.output_tokens == answer.usage.output_tokens
    counted = claude.messages.count_tokens(model=MODEL, messages=ASK)
    assert counted.input_tokens == answer.usage.input_tokens + answer.usage.cache_read_input_tokens
    stopped = claude.messages.create(**{**options, "stop_sequences": ["Paris"]})
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "Paris")


def test_anthropic_tools_and_errors():
    tool = {"name": "get_weather", "description": "Weather of a city", "input_schema": SCHEMA}
    options = {"model": MODEL, "max_tokens": 300, "tools": [tool], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    with claude.messages.stream(messages=ASK, **options) as stream:
        final = stream.get_final_message()
    assert final.stop_reason == "tool_use"
    calls = [block for block in final.content if block.type == "tool_use"]
    assert calls[0].input["city"] in ("Paris", "Rome")
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"} for call in calls]
    history = [*ASK, {"role": "assistant", "content": final.content}, {"role": "user", "content": results}]
    after = claude.messages.create(messages=history, model=MODEL, max_tokens=5, tools=[tool], tool_choice={"type": "none"})
    assert after.content
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="none", messages=ASK, max_tokens=5)
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.create(model=MODEL, messages=ASK, max_tokens=0)


def test_ollama_chat_generate_and_tools():
    options = {"temperature": 0, "num_predict": 20}
    answer = llama.chat(MODEL, ASK, options=options)
    assert "Paris" in answer.message.content and answer.eval_count > 0
    pieces = list(llama.chat(MODEL, ASK, options=options, stream=True))
    assert "".join(piece.message.content for piece in pieces) == answer.message.content and pieces[-1].done
    assert llama.generate(MODEL, ASK[0]["content"], options=options).response
    assert MODEL in [model.model for model in llama.list().models]
    assert llama.show(MODEL).capabilities
    city = llama.chat(MODEL, ASK, format=City.model_json_schema(), options={"num_predict": 60})
    City.model_validate_json(city.message.content)
    llama.chat(MODEL, ASK, tools=[TOOL], options=options)
    with pytest.raises(ollama.ResponseError) as error:
        llama.chat("none", ASK)
    assert error.value.status_code == 404


PICTURE = Path(__file__).resolve().parent.parent / "golden" / "pictures" / "files" / "wide.png"


def test_pictures():
    data = base64.b64encode(PICTURE.read_bytes()).decode()
    parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}, {"type": "text", "text": "What is this?"}]
    plain = client.chat.completions.create(model="smolvlm", messages=[{"role": "user", "content": "What is this?"}], max_tokens=2)
    seen = client.chat.completions.create(model="smolvlm", messages=[{"role": "user", "content": parts}], max_tokens=2)
    tokens = seen.usage.prompt_tokens
    assert tokens > plain.usage.prompt_tokens + 20
    parts = [{"type": "input_image", "image_url": f"data:image/png;base64,{data}"}, {"type": "input_text", "text": "What is this?"}]
    response = client.responses.create(model="smolvlm", input=[{"role": "user", "content": parts}], max_output_tokens=2)
    assert response.usage.input_tokens == tokens
    source = {"type": "base64", "media_type": "image/png", "data": data}
    blocks = [{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]
    message = claude.messages.create(model="smolvlm", max_tokens=2, messages=[{"role": "user", "content": blocks}])
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) == tokens
    # Ollama's client takes files.
    said = {"role": "user", "content": "What is this?", "images": [str(PICTURE)]}
    assert llama.chat(model="smolvlm", messages=[said], options={"num_predict": 2}).prompt_eval_count == tokens
    with pytest.raises(openai.BadRequestError, match="address"):
        far = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
        client.chat.completions.create(model="smolvlm", messages=[{"role": "user", "content": far}])
    with pytest.raises(openai.BadRequestError, match="sees no pictures"):
        parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}]
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": parts}])


def test_encrypted_connections():
    url = os.environ["CACTUS_TLS_URL"]
    trusted = ssl.create_default_context(cafile=os.environ["CACTUS_TLS_CA"])
    options = {"base_url": f"{url}/v1", "api_key": "a-key", "max_retries": 0}
    secure = openai.OpenAI(**options, http_client=httpx.Client(verify=trusted))
    answer = secure.chat.completions.create(model=MODEL, messages=ASK, temperature=0, max_completion_tokens=20)
    pieces = secure.chat.completions.create(model=MODEL, messages=ASK, temperature=0, max_completion_tokens=20, stream=True)
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert "Paris" in text and text == answer.choices[0].message.content
    # Neither a certificate of an unknown authority nor a wrong key gets through, and the server goes on.
    with pytest.raises(openai.APIConnectionError):
        openai.OpenAI(**options).models.list()
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(**{**options, "api_key": "b-key"}, http_client=httpx.Client(verify=trusted)).models.list()
    with pytest.raises(httpx.HTTPError):
        httpx.get(url.replace("https", "http"))
    assert secure.models.list().data[0].id == MODEL


def test_vectors_of_pictures():
    data = base64.b64encode(PICTURE.read_bytes()).decode()
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    made = client.embeddings.create(model="clip_pictures", input=["a word", picture, {"image": data}])
    text, one, other = (item.embedding for item in made.data)
    assert len(text) == len(one) and one == other != text
    assert math.isclose(sum(x * x for x in one), 1, rel_tol=1e-5)
    assert made.usage.total_tokens > client.embeddings.create(model="clip_pictures", input="a word").usage.total_tokens
    listed = client.embeddings.create(model="clip_pictures", input=[picture], encoding_format="float")
    assert listed.data[0].embedding == pytest.approx(one, abs=1e-7)
    with pytest.raises(openai.BadRequestError) as error:
        client.embeddings.create(model="clip_pictures", input=[{"image": "https://example.com/a.png"}])
    assert error.value.code == "unsupported_content" and error.value.param == "input[0].image"
    with pytest.raises(openai.BadRequestError) as error:
        client.embeddings.create(model="bert", input=[picture])
    assert error.value.code == "no_pictures"
