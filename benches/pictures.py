"""How long a model takes that sees, beside llama.cpp: until the first token about a new picture, and about the same one again.

    python benches/picture_models.py WORK --llama-cpp LLAMA_CPP_FOLDER lfm2_vl_450m
    cactus convert WORK/lfm2_vl_450m WORK/lfm2_vl_450m.8
    python benches/pictures.py WORK/lfm2_vl_450m --cactus target/release/cactus --llama-server llama-build/bin/llama-server

Both servers are asked the same over HTTP, one after the other in every round, with pictures that are new each time, and compute one answer of
one token. Medians, and how many times as long the other takes. Needs pillow and numpy.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy
from PIL import Image


def picture(width: int, height: int, seed: int) -> str:
    """A smooth picture, as a photo compresses."""
    small = numpy.random.default_rng(seed).integers(0, 256, (height // 16, width // 16, 3), dtype=numpy.uint8)
    out = io.BytesIO()
    Image.fromarray(small).resize((width, height), Image.BICUBIC).save(out, "JPEG", quality=92)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


class Server:
    def __init__(self, command: list[str], url: str | None):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.url = url
        for _ in range(600):
            time.sleep(0.1)
            if self.url is None:
                self.log.seek(0)
                found = re.search(r"http://[\d.]+:\d+", self.log.read())
                self.url = found and found[0]
                continue
            try:
                urllib.request.urlopen(self.url + "/health")
                return
            except OSError:
                pass
        raise SystemExit(f"{command[0]} did not start")

    def ask(self, url: str, text: str) -> tuple[float, int]:
        parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
        body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 1, "temperature": 0}
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
        begun = time.perf_counter()
        with urllib.request.urlopen(request, timeout=600) as reply:
            answer = json.load(reply)
        return (time.perf_counter() - begun) * 1e3, answer["usage"]["prompt_tokens"]

    def peak_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--cactus", type=Path, default=Path("target/release/cactus"))
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", nargs="+", default=["512x512", "1024x768"])
    args = parser.parse_args()
    print("| picture | threads | | first token, new picture, ms | same picture again, ms | tokens | peak MB |\n|---|---:|---|---:|---:|---:|---:|")
    seed = 0
    for size in args.sizes:
        width, height = map(int, size.split("x"))
        for threads in args.threads:
            t = str(threads)
            commands = {"cactus": ([args.cactus, "serve", f"{args.model}.8", "--port", "0", "--offline", "--threads", t, "--context", "8192"], None)}
            if args.llama_server:
                files = ["-m", f"{args.model}.gguf", "--mmproj", f"{args.model}-mmproj.gguf"]
                more = ["-t", t, "-tb", t, "--port", "8099", "-c", "8192", "--chat-template", "chatml", "-np", "1"]
                commands["llama.cpp"] = ([args.llama_server, *files, *more], "http://127.0.0.1:8099")
            servers = {name: Server([str(part) for part in command], url) for name, (command, url) in commands.items()}
            times = {name: ([], []) for name in servers}
            tokens = {}
            for round in range(args.rounds + 1):
                seed += 1
                url = picture(width, height, seed)
                for name, server in servers.items():
                    new, tokens[name] = server.ask(url, "What is this?")
                    again, _ = server.ask(url, "And which colors has it?")
                    # The first round warms up.
                    if round:
                        times[name][0].append(new)
                        times[name][1].append(again)
            own = [statistics.median(kind) for kind in times["cactus"]]
            for name, server in servers.items():
                here = [statistics.median(kind) for kind in times[name]]
                cells = [f"{x:.0f}" if name == "cactus" else f"{x:.0f} ({x / o:.2f}×)" for x, o in zip(here, own)]
                print(f"| {size} | {threads} | {name} | {cells[0]} | {cells[1]} | {tokens[name]} | {server.peak_mb():.0f} |", flush=True)
                server.process.terminate()
                server.process.wait()


if __name__ == "__main__":
    main()
