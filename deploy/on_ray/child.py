"""A `cactus serve` process of one's own: what a Ray replica or actor runs its requests through.

The process ends with its owner, however that ends. Needs nothing but the standard library."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

PR_SET_PDEATHSIG = 1


def program() -> str:
    """The `cactus` command: CACTUS_PROGRAM, else the one on the PATH."""
    found = os.environ.get("CACTUS_PROGRAM") or shutil.which("cactus")
    if not found:
        raise RuntimeError("there is no `cactus` on the PATH; install it, or set CACTUS_PROGRAM to the program")
    return found


def _die_with_owner() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Child:
    """A server on a free port of this machine, ready for requests at `url`."""

    def __init__(self, model: str, threads: int, arguments: list[str] | None = None, start_seconds: float = 300):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [program(), "serve", model, "--port", str(port), "--threads", str(max(1, threads))]
        self.stopping = False
        self.process = subprocess.Popen([*command, *(arguments or [])], preexec_fn=_die_with_owner)
        deadline = time.monotonic() + start_seconds
        while not self.is_ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"`{' '.join(command)}` ended with exit code {self.process.returncode}")
            if time.monotonic() > deadline:
                self.stop(0)
                raise RuntimeError(f"`{' '.join(command)}` was not ready after {start_seconds:.0f} s")
            time.sleep(0.05)

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"{self.url}/ready", timeout=5) as answer:
                return answer.status == 200
        return False

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def stop(self, drain_seconds: float = 30) -> None:
        """Lets answers under way come to their end."""
        self.stopping = True
        if self.is_alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(drain_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
