"""The files of `deploy/` say what the server can do: probes, flags and names are those of the program."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def serve_help() -> str:
    program = os.environ.get("CACTUS_PROGRAM")
    if not program:
        pytest.skip("CACTUS_PROGRAM does not say where the `cactus` command is")
    return subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout


def test_every_flag_exists() -> None:
    known = set(re.findall(r"--[a-z][a-z-]+", serve_help()))
    for name in ("Dockerfile", "kubernetes.yaml"):
        text = (DEPLOY / name).read_text()
        arguments = re.findall(r"^\s+- (--[a-z-]+)", text, re.M) if name.endswith("yaml") else re.findall(r'"(--[a-z-]+)"', text)
        assert arguments, name
        assert set(arguments) <= known, (name, set(arguments) - known)


def test_the_manifests_probe_what_the_server_has_and_outlast_its_draining() -> None:
    text = (DEPLOY / "kubernetes.yaml").read_text()
    assert set(re.findall(r"path: (/[a-z]+), port: http", text)) == {"/health", "/ready"}
    grace = int(re.search(r"terminationGracePeriodSeconds: (\d+)", text)[1])
    drain = int(re.search(r"--drain .*?\[default: (\d+)\]", serve_help(), re.S)[1])
    assert grace > drain
