"""Closing, checking and what a program says of its machine, as other SDKs have it, too."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from pathlib import Path

import pytest

pytest.importorskip("cactus._native", reason="the extension module is not built: cargo xtask ci wheel, or pip install ./python")

import cactus  # noqa: E402


def test_closed_conversations_say_so_and_what_was_under_way_ends(model):
    with model.session() as session:
        pieces = session.chat("Hello", stream=True, max_tokens=60_000, ignore_eos=True)
        next(pieces)
    assert session.closed and model.session().closed is False
    assert len(list(pieces)) < 60_000
    session.close()
    with pytest.raises(cactus.ClosedError):
        session.chat("Hello")
    with pytest.raises(cactus.ClosedError):
        session.tokens


def test_bundles_are_checked_without_being_loaded(bundle, tmp_path):
    report = cactus.check_bundle(bundle, verify=True)
    assert (report["usable"], report["error"], report["family"]) == (True, None, "smollm3")
    damaged = tmp_path / "damaged"
    shutil.copytree(bundle, damaged)
    weights = damaged / "model.weights"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    assert cactus.check_bundle(damaged)["usable"]
    report = cactus.check_bundle(damaged, verify=True)
    assert not report["usable"] and report["name"] and "checksum" in str(report["error"])
    assert isinstance(cactus.check_bundle(tmp_path)["error"], cactus.BundleError)


def test_threads_and_memory_pressure_change_no_answer(model):
    asked = {"max_tokens": 12, "ignore_eos": True, "temperature": 0}
    # Long enough that a beginning is kept.
    said = "Hello, and again hello. " * 10
    whole = model.chat(said, **asked)
    assert model.chat(said, **asked).cached_tokens > 0
    model.set_threads(1, 1)
    cactus.memory_pressure()
    again = model.chat(said, **asked)
    assert (again.token_ids, again.cached_tokens) == (whole.token_ids, 0)
    with pytest.raises(cactus.InvalidRequestError, match="threads"):
        model.set_threads(0)


def test_bundle_at_an_address_is_downloaded_once_and_answers_the_same(bundle, model, tmp_path, monkeypatch):
    monkeypatch.setenv("CACTUS_CACHE", str(tmp_path))
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *what) -> None:
            asked.append(str(what))

    handler = functools.partial(Handler, directory=str(Path(bundle).parent))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}/{Path(bundle).name}"
        with pytest.raises(cactus.DownloadError, match="turned off"):
            cactus.Model.load(address, offline=True)
        assert not asked
        stages: set[str] = set()
        with cactus.Model.load(address, threads=1, progress=lambda step: stages.add(step.stage)) as loaded:
            answers = [each.chat("Hello", max_tokens=8, temperature=0).token_ids for each in (loaded, model)]
        assert answers[0] == answers[1] and stages
        count = len(asked)
        cactus.Model.load(address, offline=True, threads=1).close()
        assert len(asked) == count
        with pytest.raises(cactus.ModelNotFoundError, match="a bundle at"):
            cactus.Model.load(f"{address}-absent")
    finally:
        server.shutdown()
        server.server_close()
