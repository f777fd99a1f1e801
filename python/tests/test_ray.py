"""The Ray files of `deploy/on_ray`, on a local cluster of several nodes: answers are those of one server, conversations stay with
one replica, and nothing is lost when a replica dies in the middle of an answer.

Needs Ray (`pip install "ray[serve,data]" httpx`) and takes a minute; skipped with a message where it is not installed. Run it with
`scripts/test_ray.sh`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed; scripts/test_ray.sh installs it")
from ray import serve  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PORT = 18431
NODES = 3

sys.path.insert(0, str(ROOT))
from deploy.on_ray import bulk, serve_app  # noqa: E402


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model with a chat template."""
    path = tmp_path_factory.mktemp("ray") / "smollm3"
    program = os.environ["CACTUS_PROGRAM"]
    subprocess.run([program, "convert", str(ROOT / "golden/models/smollm3"), str(path)], check=True)
    return str(path)


@pytest.fixture(scope="module")
def cluster():
    environment = {"PYTHONPATH": str(ROOT), "CACTUS_PROGRAM": os.environ["CACTUS_PROGRAM"]}
    os.environ.update(environment)
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for _ in range(NODES - 1):
        nodes.add_node(num_cpus=2)
    ray.init(address=nodes.address, runtime_env={"env_vars": environment}, log_to_driver=False)
    yield nodes
    serve.shutdown()
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture(scope="module")
def url(cluster, bundle: str) -> str:
    serve.start(http_options={"port": PORT, "host": "127.0.0.1"})
    replicas = serve_app.Replica.options(num_replicas=2, ray_actor_options={"num_cpus": 1})
    serve.run(serve_app.Router.bind(replicas.bind(bundle, 1)))
    return f"http://127.0.0.1:{PORT}"


def post(url: str, path: str, fields: dict, timeout: float = 120):
    body = json.dumps(fields).encode()
    return urllib.request.urlopen(
        urllib.request.Request(url + path, body, {"content-type": "application/json"}), timeout=timeout
    )


def question(text: str, **more) -> dict:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 24, "ignore_eos": True, "seed": 1, **more}


def content(stream) -> tuple[str, set[str], str | None, bool]:
    """Text, ids, finish reason, and whether the stream came to its end."""
    text, ids, finish, done = "", set(), None, False
    for line in stream:
        if line.startswith(b"data: [DONE]"):
            done = True
        elif line.startswith(b"data: "):
            chunk = json.loads(line[6:])
            ids.add(chunk["id"])
            for choice in chunk["choices"]:
                text += choice["delta"].get("content") or ""
                finish = choice["finish_reason"] or finish
    return text, ids, finish, done


def servers() -> list[int]:
    """Process ids of the servers of all replicas."""
    found = subprocess.run(["pgrep", "-f", "cactus serve .*smollm3"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def test_answers_are_those_of_one_server_whole_and_streamed(url: str) -> None:
    asked = question("Tell me about rivers " * 20)
    texts = {
        json.load(post(url, "/v1/chat/completions", asked))["choices"][0]["message"]["content"] for _ in range(4)
    }
    assert len(texts) == 1
    streamed, ids, finish, done = content(post(url, "/v1/chat/completions", {**asked, "stream": True}))
    assert (streamed, finish, done, len(ids)) == (texts.pop(), "length", True, 1)


def test_a_conversation_stays_with_its_replica(url: str) -> None:
    def known(conversation: int) -> int:
        asked = question(f"Conversation {conversation} is about rivers " * 12, max_tokens=2)
        answer = json.load(post(url, "/v1/chat/completions", asked))
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    for conversation in range(8):
        known(conversation)
    # Replicas tell the router what they know every few seconds.
    time.sleep(6)
    again = [known(conversation) for conversation in range(8) for _ in range(4)]
    # By chance seven of the eight would meet the other replica in four questions.
    assert sum(n == 0 for n in again) <= 2, again


def test_errors_come_through(url: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as error:
        post(url, "/v1/chat/completions", {"messages": "no"})
    assert error.value.code == 400
    assert json.load(error.value)["error"]["param"] == "messages"


def test_killing_a_replica_in_the_middle_loses_no_request(url: str) -> None:
    asked = [question(f"Question {i} about mountains", max_tokens=150, temperature=0.7, seed=i) for i in range(8)]
    expected = [json.load(post(url, "/v1/chat/completions", q))["choices"][0]["message"]["content"] for q in asked]
    answers: list = [None] * len(asked)

    def ask(i: int) -> None:
        answers[i] = content(post(url, "/v1/chat/completions", {**asked[i], "stream": True}))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(asked))]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    os.kill(servers()[0], signal.SIGKILL)
    for thread in threads:
        thread.join()
    for i, (answer, text) in enumerate(zip(answers, expected)):
        assert answer is not None, f"request {i} was lost"
        assert answer[0] == text, f"request {i}"
        assert answer[2:] == ("length", True), f"request {i}"
        assert len(answer[1]) == 1, f"request {i} has the ids {answer[1]}"
    # The replica comes back.
    deadline = time.monotonic() + 60
    while len(servers()) < 2 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert len(servers()) == 2


def test_bulk_work_survives_the_death_of_a_server(cluster, bundle: str) -> None:
    serve.shutdown()
    rows = ray.data.from_items([{"id": i, "question": f"Question {i}?"} for i in range(60)]).repartition(12)
    killer = threading.Timer(6, lambda: [os.kill(pid, signal.SIGKILL) for pid in servers()[:1]])
    killer.start()
    options = {"max_tokens": 60, "temperature": 0, "ignore_eos": True}
    answered = bulk.run(rows, bundle, "question", actors=2, threads=1, batch=5, options=options).take_all()
    killer.cancel()
    assert sorted(row["id"] for row in answered) == list(range(60))
    assert all(row["completion_tokens"] == 60 for row in answered)


def test_texts_are_scored_in_bulk(cluster, bundle: str) -> None:
    rows = ray.data.from_items([{"text": "The river runs to the sea."}, {"text": "Sea the to runs river."}])
    scored = bulk.run(rows, bundle, "text", task="score", threads=1, batch=2).take_all()
    assert all(row["logprob"] < 0 and row["tokens"] > 3 for row in scored)
