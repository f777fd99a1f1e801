"""Runs unmodified clients against `cactus serve`: openai, anthropic and ollama in Python, openai and the AI SDK in Node, in the
versions that Node 20 gets and in those that want Node 22, which npm brings along. Before that, the packages of OpenAI, Anthropic
and Google are compared with `cactus-cloud`: their types with what it sends and reads, their clients with what it makes of a stream.

    python clients/run.py [--cactus target/debug/cactus] [--model FILE] [--only types|page|python|node|node22]

`cargo build --workspace --example codec` builds what this comparison asks. The clients are installed into target/clients
once, and again when the lists of versions change. Each suite gets the address of a server in CACTUS_URL; Python and Node also that of
an encrypted one in CACTUS_TLS_URL, with its authority in CACTUS_TLS_CA, and the page that of one with a policy in CACTUS_ROUTED_URL.
The servers hear, too, with a tiny model of random weights and, where CACTUS_TEST_MODELS has them, with Whisper tiny.en and Silero VAD. The first one
keeps files and vector stores, with a tiny embedder of random weights. Exit code 77 says that what is needed cannot be had here.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TARGET = ROOT / "target" / "clients"
SKIPPED = 77
# What the vendors' packages say of `cactus-cloud`.
CLOUD = [HERE / "test_cloud_types.py", HERE / "test_cloud_speech.py"]


def stamped(folder: Path, *sources: Path) -> bool:
    """Whether `folder` was made from `sources` as they are; remembers that it is, once the caller has made it."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    stamp = folder / "stamp"
    if stamp.is_file() and stamp.read_text() == digest:
        return True
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamped.pending = (stamp, digest)
    return False


def done() -> None:
    stamp, digest = stamped.pending
    stamp.write_text(digest)


def python_clients() -> Path:
    folder = TARGET / "venv"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not stamped(folder, HERE / "requirements.txt") or not python.exists():
        venv.create(folder, with_pip=True, clear=True)
        stamped(folder, HERE / "requirements.txt")
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", HERE / "requirements.txt"], check=True)
        done()
    return python


def node_clients(name: str) -> Path | None:
    """A folder with the tests and the packages of `clients/node/NAME.json`."""
    if not shutil.which("node") or not shutil.which("npm"):
        return None
    folder = TARGET / name
    packages = HERE / "node" / f"{name}.json"
    if not stamped(folder, packages):
        shutil.copy(packages, folder / "package.json")
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder, check=True)
        done()
    for test in (HERE / "node").glob("*.mjs"):
        shutil.copy(test, folder / test.name)
    return folder


def default_model() -> Path:
    named = os.environ.get("CACTUS_TEST_MODELS")
    folder = Path(named) if named else Path.home() / ".cache" / "cactus" / "test-models"
    return folder / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"


def hearing() -> list[Path]:
    """Models that hear, by whose folders the server calls them."""
    real = [default_model().parent / name for name in ("whisper-tiny.en", "silero-vad")]
    return [ROOT / "golden" / "speech" / "whisper", *(folder for folder in real if folder.is_dir())]


# Makes vectors, with random weights: words alone tell documents apart.
EMBEDDER = ROOT / "golden" / "embedding" / "bert"
# Sees pictures, with random weights.
SEEING = ROOT / "golden" / "seeing" / "smolvlm"
# Sees and hears, with random weights.
SENSING = ROOT / "golden" / "seeing" / "gemma4_unified"
# Makes vectors of texts and pictures, with random weights.
PICTURE_EMBEDDER = ROOT / "golden" / "embedding" / "clip_pictures"


class Server:
    """`cactus serve` on a free port."""

    def __init__(self, cactus: Path, model: Path, *more: object, **variables: str):
        command = [cactus, "serve", model, "--port", "0", "--offline", "--threads", "2", "--max-body", "200kB", *more]
        environment = {**os.environ, **variables}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8", env=environment)
        self.said = []
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(r"https?://[\d.]+:\d+", line):
                self.url = found[0]
                break
        else:
            raise SystemExit("the server did not start:\n" + "".join(self.said))
        threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True).start()

    def stop(self) -> None:
        self.process.terminate()
        code = self.process.wait(timeout=60)
        if code != 0:
            raise SystemExit(f"the server stopped with exit code {code}:\n" + "".join(self.said[-30:]))
        # What people write is nobody else's business.
        if leaked := [line for line in self.said if "capital" in line.lower()]:
            raise SystemExit(f"a prompt is in the log: {leaked}")


# Hands everything to the server at URL, whose model is MODEL, with a person's yes.
POLICY = """
version = 1
handoff = "always"
[targets.house]
protocol = "openai_chat"
base_url = "URL/v1"
model = "MODEL"
input_usd_per_million = 1
output_usd_per_million = 1
[consent]
text = "ask"
"""


def routed(cactus: Path, model: Path, to: Server, folder: Path) -> Server:
    """A server that hands its requests to another, and keeps budget and record in `folder`."""
    with urllib.request.urlopen(f"{to.url}/v1/models") as answer:
        there = json.load(answer)["data"][0]["id"]
    policy = folder / "policy.toml"
    policy.write_text(POLICY.replace("URL", to.url).replace("MODEL", there))
    return Server(cactus, model, "--lazy", "--policy", policy, CACTUS_STATE=str(folder))


# Makes the certificates of an encrypted server: an authority of its own, and what it signed for this machine.
CERTIFICATES = """
import sys, trustme
authority = trustme.CA()
authority.cert_pem.write_to_path("authority.pem")
server = authority.issue_cert("localhost", "127.0.0.1")
server.private_key_pem.write_to_path("key.pem")
for i, blob in enumerate(server.cert_chain_pems):
    blob.write_to_path("chain.pem", append=i > 0)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cactus", type=Path, default=ROOT / "target" / "debug" / "cactus")
    parser.add_argument("--model", type=Path, default=default_model())
    parser.add_argument("--codec", type=Path, default=ROOT / "target" / "debug" / "examples" / "codec")
    everything = ["types", "page", "python", "node", "node22"]
    parser.add_argument("--only", choices=everything)
    args = parser.parse_args()
    wanted = [args.only] if args.only else everything
    suites, missing = [], []
    python = python_clients()
    pytest = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    if "types" in wanted:
        environment = {**os.environ, "CACTUS_CODEC": str(args.codec)}
        compared = subprocess.run([*pytest, *CLOUD], cwd=ROOT, env=environment).returncode
        if compared or args.only:
            return 1 if compared else 0
    if not args.model.exists():
        print(f"there is no model at {args.model}; scripts/fetch_models.py gets it", file=sys.stderr)
        return SKIPPED
    # Before the others, which load models that it has not seen loaded yet.
    if "page" in wanted:
        if shutil.which("chromium"):
            suites.append(([python, HERE / "page.py"], ROOT))
        else:
            missing.append("chromium")
    if "python" in wanted:
        suites.append(([*pytest, HERE / "test_clients.py"], ROOT))
    for name in ("node", "node22"):
        if name not in wanted:
            continue
        if folder := node_clients(name):
            own = folder / "node_modules" / ".bin" / "node"
            tests = sorted(test.name for test in folder.glob("*.test.mjs"))
            suites.append(([own if own.exists() else "node", "--test", "--test-concurrency=1", *tests], folder))
        else:
            missing.append("node and npm")
    state, kept = tempfile.TemporaryDirectory(), tempfile.TemporaryDirectory()
    kitchen = Path(kept.name) / "kitchen"
    kitchen.mkdir()
    shutil.copy(ROOT / "golden" / "pdf" / "columns.pdf", kitchen / "bread.pdf")
    more = "--data", Path(kept.name) / "data", "--documents", kitchen
    server = Server(args.cactus, args.model, *hearing(), EMBEDDER, SEEING, SENSING, PICTURE_EMBEDDER, *more)
    encrypted = policed = None
    try:
        environment = {**os.environ, "CACTUS_URL": server.url}
        if {"python", "node", "node22"} & set(wanted):
            subprocess.run([python, "-c", CERTIFICATES], cwd=TARGET, check=True)
            files = "--tls-cert", TARGET / "chain.pem", "--tls-key", TARGET / "key.pem"
            encrypted = Server(args.cactus, args.model, "--lazy", "--api-key", "a-key", *hearing(), *files)
            authority = str(TARGET / "authority.pem")
            environment |= {"CACTUS_TLS_URL": encrypted.url, "CACTUS_TLS_CA": authority, "NODE_EXTRA_CA_CERTS": authority}
        if "page" in wanted:
            policed = routed(args.cactus, args.model, server, Path(state.name))
            environment |= {"CACTUS_ROUTED_URL": policed.url}
        failed = [suite for suite, folder in suites if subprocess.run(suite, cwd=folder, env=environment).returncode]
    finally:
        # Who asks another stops before it.
        for one in filter(None, [policed, encrypted, server]):
            one.stop()
        state.cleanup()
        kept.cleanup()
    for what in missing:
        print(f"left out, because it is not installed: {what}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
