"""Memory over a long time: one answer whose context rolls, and one conversation after another.

    python benches/soak.py MODEL [--tokens 200000] [--sessions 5000] [--cactus PROGRAM] [--json FILE]

The first part is `cactus run --rolling` that never ends its answer, the second `cactus serve` that answers conversations which have nothing in
common, four at a time. What a process has allocated (`RssAnon`, without the mapped weights) is read ten times a second, and shown at tenths of the
way. It is flat where the last tenth is no larger than the second by more than 2 % and 4 MB; else the script fails. Linux only.
"""

import argparse
import concurrent.futures
import http.client
import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

WORDS = "river stone lamp bread winter letter garden engine cloud mirror market violin harbor candle forest paper".split()
PARTS = 10


class Watch:
    """What a process has allocated, beside how far it is."""

    def __init__(self, pid, progress):
        self.pid, self.progress, self.read, self.done = pid, progress, [], threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.done.wait(0.1):
            try:
                lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
            except OSError:
                return
            kib = [int(line.split()[1]) for line in lines if line.startswith("RssAnon:")]
            if kib:
                self.read.append((self.progress(), kib[0] / 1024))

    def tenths(self):
        """The largest of each tenth of the way, in MB."""
        self.done.set()
        self.thread.join()
        found = [[mb for at, mb in self.read if int(at * PARTS) == part] for part in range(PARTS)]
        return [max(part, default=float("nan")) for part in found]


def is_flat(tenths):
    return tenths[-1] <= 1.02 * tenths[1] + 4


def one_answer(args):
    """Tokens that were generated, and memory at each tenth."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        words = ["run", args.model, "--raw", "-p", "Once upon a time", "--rolling", "--ignore-eos", "--context", str(args.context)]
        words += ["--max-new-tokens", str(args.tokens), "--temperature", "0.9", "--seed", "1", "--result-json", str(result)]
        process = subprocess.Popen([args.cactus, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        watch = Watch(process.pid, time.monotonic)
        while process.stdout.read1(1 << 16):
            pass
        watch.done.set()
        if process.wait() != 0:
            sys.exit(f"`cactus {' '.join(words)}` failed")
        # Of its fields those that are numbers: the text is long.
        usage = {name: value for name, value in json.loads(result.read_text()).items() if isinstance(value, (int, float))}
        first, last = watch.read[0][0], watch.read[-1][0]
        watch.read = [((at - first) / (last - first + 1e-9), mb) for at, mb in watch.read]
        return usage, watch.tenths()


def sessions(args):
    """Conversations that were answered, and memory at each tenth."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [args.cactus, "serve", args.model, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    done, answered, name = [0], 0, ""

    def converse(number):
        rng = random.Random(number)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        messages, tokens = [], 0
        for _ in range(rng.randint(1, 3)):
            messages.append({"role": "user", "content": " ".join(rng.choices(WORDS, k=rng.randint(3, 60)))})
            body = {"model": name, "messages": messages, "max_tokens": rng.randint(1, 12), "seed": number}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = json.loads(answer.read())
            if answer.status != 200:
                raise RuntimeError(f"{answer.status}: {said}")
            messages.append({"role": "assistant", "content": said["choices"][0]["message"]["content"] or ""})
            tokens += said["usage"]["completion_tokens"]
        connection.close()
        done[0] += 1
        return tokens

    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None:
                sys.exit("`cactus serve` ended")
            time.sleep(0.1)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        connection.request("GET", "/v1/models")
        name = json.loads(connection.getresponse().read())["data"][0]["id"]
        watch = Watch(process.pid, lambda: min(done[0] / args.sessions, 1 - 1e-9))
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            answered = sum(threads.map(converse, range(args.sessions)))
        return {"sessions": done[0], "completion_tokens": answered}, watch.tenths()
    finally:
        process.terminate()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a bundle, a GGUF file or a name")
    parser.add_argument("--tokens", type=int, default=200_000)
    parser.add_argument("--sessions", type=int, default=5_000)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--cactus", default="target/release/cactus")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = {}
    for name, wanted, part in (("one answer", args.tokens, one_answer), ("conversations", args.sessions, sessions)):
        if not wanted:
            continue
        start = time.monotonic()
        told, tenths = part(args)
        rows[name] = {"told": told, "seconds": time.monotonic() - start, "mb": tenths, "flat": is_flat(tenths)}
        print(f"{name}: {json.dumps(told)[:300]}, {rows[name]['seconds']:.0f} s", flush=True)
        print("  MB at each tenth: " + " ".join(f"{mb:.1f}" for mb in tenths), "flat" if rows[name]["flat"] else "NOT FLAT", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    sys.exit(not all(row["flat"] for row in rows.values()))


if __name__ == "__main__":
    main()
