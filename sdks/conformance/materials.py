"""What cases need: bundles of tiny models, damaged ones, sounds, a full disk, and a target that says what was recorded.

    python3 sdks/conformance/materials.py CACTUS

makes the bundles with the program CACTUS where they are not there yet, and prints their folder, for tests of SDKs: `chat`, `embeds`,
`pictures`, `sees`, `hears`, `moonshine`, `vad` and `sounds`, among others.
"""

from __future__ import annotations

import array
import base64
import hashlib
import http.server
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

#: Bundles, and the folders in `golden/` that they are made of.
BUNDLES = {
    "embeds": "embedding/bert",
    "pictures": "embedding/clip_pictures",
    "sees": "seeing/smolvlm",
    "hears": "speech/whisper",
    "moonshine": "speech/moonshine",
}

#: What writes text. Its context is made longer, so that an answer can be cancelled before its end by whoever is slow.
CHAT, CHAT_TOKENS = "models/qwen2_tied", 65_536

#: Samples a second.
RATE = 16_000


class Cloud:
    """A target on this machine with the protocol of OpenAI, and a host of bundles. Its paths begin with the SDK and the case that ask."""

    ANSWER = ["from ", "afar"]

    def __init__(self, bundles: dict[str, Path]) -> None:
        self._sent: dict[tuple[str, str], list[Any]] = {}
        #: Files that were broken off: each once for each SDK and case.
        self._broken: set[str] = set()
        cloud = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:  # noqa: N802
                length = int(self.headers.get("content-length", 0))
                body = json.loads(self.rfile.read(length) or b"{}")
                _, sdk, case, how, *_ = self.path.split("/")
                cloud._sent.setdefault((sdk, case), []).append(body.get("messages"))
                if how != "answers":
                    self._say(400, "application/json", b'{"error": {"message": "recorded to fail"}}')
                elif body.get("stream"):
                    self._say(200, "text/event-stream", cloud.events())
                else:
                    self._say(200, "application/json", cloud.whole())

            def do_GET(self) -> None:  # noqa: N802
                """A file of a bundle; the first time weights are asked for, the connection ends in their middle."""
                _, _, _, _, name, path = self.path.split("/", 5)
                file = bundles.get(name, Path("missing")) / path
                if ".." in path or not file.is_file():
                    self._say(404, "text/plain", b"")
                    return
                body = file.read_bytes()
                tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
                asked = re.fullmatch(r"bytes=([0-9]+)-([0-9]*)", self.headers.get("range", ""))
                if asked is None or self.headers.get("if-range", tag) != tag:
                    first, last = 0, len(body) - 1
                    self.send_response(200)
                else:
                    first, last = int(asked[1]), min(int(asked[2] or len(body)), len(body) - 1)
                    self.send_response(206)
                    self.send_header("content-range", f"bytes {first}-{last}/{len(body)}")
                self.send_header("etag", tag)
                self.send_header("content-length", str(last + 1 - first))
                self.send_header("connection", "close")
                self.end_headers()
                if path.endswith(".weights") and last > first and self.path not in cloud._broken:
                    cloud._broken.add(self.path)
                    last = (first + last) // 2
                self.wfile.write(body[first : last + 1])

            def _say(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.send_header("connection", "close")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def sent(self, sdk: str, case: str) -> list[Any]:
        """The messages of each request, in the order in which they came."""
        return self._sent.get((sdk, case), [])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @classmethod
    def events(cls) -> bytes:
        def chunk(choices: list, usage: Any) -> str:
            head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            return f"data: {json.dumps({**head, 'choices': choices, 'usage': usage})}\n\n"

        text = "".join(chunk([{"index": 0, "delta": {"content": piece}, "finish_reason": None}], None) for piece in cls.ANSWER)
        text += chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}], None)
        text += chunk([], {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29})
        return f"{text}data: [DONE]\n\n".encode()

    @classmethod
    def whole(cls) -> bytes:
        message = {"role": "assistant", "content": "".join(cls.ANSWER)}
        usage = {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return json.dumps({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}).encode()


class Materials:
    """Everything that a plan names, and how a name becomes a path and back."""

    def __init__(self, root: Path, cactus: Path, bundles: Path, work: Path):
        self.golden = root / "golden"
        self.work = work
        self.missing: dict[str, str] = {}
        self._mounts: list[Path] = []
        if not cactus.is_file():
            raise SystemExit(f"{cactus}: there is no such program; build it (cargo build -p cactus-cli), or name one with --cactus")
        self._bundles = self._made(self.golden, cactus, bundles)
        self.cloud = Cloud(self._bundles)

    def __enter__(self) -> Materials:
        try:
            folder = self.work / "full-probe"
            self._mount(folder)
            self._unmount(folder)
        except OSError as error:
            self.missing["full"] = f"no disk can be made that is full: {error}"
        return self

    def __exit__(self, *_: object) -> None:
        self.cloud.close()
        for folder in list(self._mounts):
            self._unmount(folder)

    def work_of(self, sdk: str) -> Path:
        """A folder of an SDK alone."""
        folder = self.work / sdk
        if not folder.exists():
            folder.mkdir()
            if "full" not in self.missing:
                self._mount(folder / "full")
        return folder

    def _mount(self, folder: Path) -> None:
        folder.mkdir()
        if sys.platform != "linux" or os.geteuid() != 0:
            raise OSError("it takes Linux, and its superuser")
        command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(done.stderr.strip())
        self._mounts.append(folder)

    def _unmount(self, folder: Path) -> None:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)
        self._mounts.remove(folder)

    # ---- names

    def _names(self, sdk: str, case: str) -> dict[str, str]:
        own = self.work_of(sdk)
        work = own / case
        work.mkdir(exist_ok=True)
        named = {name: str(path) for name, path in self._bundles.items()}
        cloud = f"http://127.0.0.1:{self.cloud.port}/{sdk}/{case}"
        places = {"work": work, "full": own / "full", "cache": own / "cache", "golden": self.golden}
        return {**named, **{name: str(path) for name, path in places.items()}, "cloud": cloud}

    def fill(self, sdk: str, case: dict) -> dict:
        """A case with paths for names, as runners get it."""
        names = self._names(sdk, case["name"])

        def text(value: str) -> str:
            value = re.sub(r"\$\{([a-z_]+)\}", lambda found: names[found[1]], value)
            value = re.sub(r"\$\{base64:([^}]+)\}", lambda found: base64.b64encode(Path(found[1]).read_bytes()).decode(), value)
            return re.sub(r"\$\{repeated:([^}]*):([0-9]+)\}", lambda found: found[1] * int(found[2]), value)

        def every(value: Any) -> Any:
            if isinstance(value, str):
                return text(value) if "${" in value else value
            if isinstance(value, list):
                return [every(each) for each in value]
            if isinstance(value, dict):
                return {name: every(each) for name, each in value.items()}
            return value

        return {"name": case["name"], "what": case["what"], "steps": every(case["steps"])}

    def unfill(self, sdk: str, case: str, value: Any) -> Any:
        """Results with names for what is of this machine."""
        names = self._names(sdk, case)
        places = sorted(((path, f"${{{name}}}") for name, path in names.items()), key=lambda place: -len(place[0]))
        places.append((f"127.0.0.1:{self.cloud.port}", "${cloud_host}"))

        def every(value: Any) -> Any:
            if isinstance(value, str):
                for path, name in places:
                    value = value.replace(path, name)
                return value
            if isinstance(value, list):
                return [every(each) for each in value]
            if isinstance(value, dict):
                return {name: every(each) for name, each in value.items()}
            return value

        return every(value)

    # ---- bundles and sounds

    @staticmethod
    def _made(golden: Path, cactus: Path, folder: Path) -> dict[str, Path]:
        """Makes what is not there yet."""
        place = place_of(golden, cactus, folder)
        # Made beside, so that what is there is whole, however many make it at once.
        folder = place.with_name(f"{place.name}.{os.getpid()}")
        names = [*BUNDLES, "chat", "bytes", "vad", "truncated", "garbled", "flipped", "newer", "sounds"]
        made = {name: place / name for name in [*names, "missing"]}
        if place.is_dir():
            return made
        print(f"making bundles in {place}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

        def convert(source: Path, name: str) -> None:
            command = [str(cactus), "convert", str(source), str(folder / name)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(command)}:\n{done.stderr}")

        for name, source in BUNDLES.items():
            convert(golden / source, name)
        convert(_long_model(golden / CHAT, folder / "chat-source"), "chat")
        convert(_byte_model(golden / CHAT, folder / "bytes-source"), "bytes")
        convert(_detector(folder), "vad")
        _damaged(folder)
        _sounds(folder / "sounds")
        try:
            folder.rename(place)
        except OSError:
            # Another was faster.
            shutil.rmtree(folder)
        return made


def place_of(golden: Path, cactus: Path, folder: Path) -> Path:
    """Where bundles are. The program, this file and the models name the folder, so that others make their own."""
    key = hashlib.sha256(f"{cactus.stat().st_size} {cactus.stat().st_mtime_ns} ".encode() + Path(__file__).read_bytes())
    for source in (*BUNDLES.values(), CHAT):
        for file in sorted((golden / source).rglob("*")):
            if file.is_file():
                data = file.read_bytes()
                key.update(f" {file.relative_to(golden).as_posix()} {len(data)} ".encode() + data)
    return folder / key.hexdigest()[:16]


def _long_model(source: Path, folder: Path) -> Path:
    """The tiny model with a longer context."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = CHAT_TOKENS
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _byte_model(source: Path, folder: Path) -> Path:
    """The tiny model with another vocabulary, in which every byte from 0x80 to 0xff is a token."""
    shutil.copytree(source, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    # The byte-level alphabet: what is printable stands for itself, other bytes for what comes behind 0x100.
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    spelled = {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}
    vocab = tokenizer["model"]["vocab"]
    by_id = {number: token for token, number in vocab.items()}
    for byte in range(0x80, 0x100):
        by_id[byte] = spelled[byte]
    tokenizer["model"]["vocab"] = {token: number for number, token in sorted(by_id.items())}
    known = set(by_id.values())

    def kept(merge: Any) -> bool:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        return {left, right, left + right} <= known

    tokenizer["model"]["merges"] = [merge for merge in tokenizer["model"]["merges"] if kept(merge)]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    return folder


def _detector(folder: Path) -> Path:
    """A detector of speech that hears one tone, 250 Hz, in the form of Silero VAD's package."""
    fft, bin_ = 256, 4
    bins = fft // 2 + 1
    basis = [0.0] * (2 * bins * fft)
    for i in range(fft):
        wave = struct.unpack("f", struct.pack("f", math.tau * (bin_ * i) / fft))[0]
        basis[bin_ * fft + i] = math.cos(wave)
        basis[(bins + bin_) * fft + i] = math.sin(wave)
    first = [0.0] * (bins * 3)
    first[bin_ * 3 : bin_ * 3 + 3] = [1.0] * 3
    tensors = {
        "stft_conv.weight": ([2 * bins, 1, fft], basis),
        "conv1.weight": ([1, bins, 3], first),
        "conv1.bias": ([1], [0.0]),
        **{f"conv{n}.weight": ([1, 1, 3], [1.0] * 3) for n in (2, 3, 4)},
        **{f"conv{n}.bias": ([1], [0.0]) for n in (2, 3, 4)},
        "lstm_cell.weight_ih": ([4, 1], [0.0, 0.0, 0.1, 0.0]),
        "lstm_cell.weight_hh": ([4, 1], [0.0] * 4),
        "lstm_cell.bias_ih": ([4], [10.0, -10.0, 0.0, 10.0]),
        "lstm_cell.bias_hh": ([4], [0.0] * 4),
        "final_conv.weight": ([1, 1, 1], [20.0]),
        "final_conv.bias": ([1], [-10.0]),
    }
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path = folder / "silero_vad_16k.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def _damaged(folder: Path) -> None:
    """Bundles that are cut, or of which a byte is another, or that are of a later version."""
    for name in ("truncated", "garbled", "flipped", "newer"):
        shutil.copytree(folder / "chat", folder / name)
    weights = folder / "truncated" / "model.weights"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    manifest = folder / "garbled" / "components" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-40])
    weights = folder / "flipped" / "model.weights"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 0x10
    weights.write_bytes(data)
    manifest = folder / "newer" / "components" / "manifest.json"
    text = manifest.read_text()
    newer, count = re.subn(r'("version":\s*)[0-9]+', r"\g<1>999", text, count=1)
    if count != 1:
        raise SystemExit(f"{manifest}: it names no version")
    manifest.write_text(newer)


def _sounds(folder: Path) -> None:
    """Recordings: a tone that rises, its beginning, and phrases of the tone that the detector hears."""
    folder.mkdir()
    rising = [int(16_000.0 * math.sin(i * i * 1e-5)) for i in range(4 * RATE)]
    phrases: list[int] = []
    for silence, tone in ((0.5, 0.3), (0.6, 2.2), (0.6, 0.05), (0.6, 0.5)):
        phrases += [0] * int(silence * RATE)
        phrases += [int(0.3 * math.sin(math.tau * (i * 4) / 256) * 32_768.0) for i in range(int(tone * RATE))]
    for name, samples in (("rising", rising), ("short", rising[:RATE]), ("phrases", phrases)):
        values = array.array("h", samples)
        if sys.byteorder == "big":
            values.byteswap()
        data = values.tobytes()
        (folder / f"{name}.pcm").write_bytes(data)
        head = b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16)
        (folder / f"{name}.wav").write_bytes(head + b"data" + struct.pack("<I", len(data)) + data)


def kept() -> Path:
    """Where bundles and built runners stay for the next time."""
    return Path(tempfile.gettempdir()) / f"cactus-conformance-{os.getuid() if hasattr(os, 'getuid') else 0}"


if __name__ == "__main__":
    made = Materials._made(Path(__file__).resolve().parents[2] / "golden", Path(sys.argv[1]).resolve(), kept() / "bundles")
    print(made["chat"].parent)
