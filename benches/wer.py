#!/usr/bin/env python3
"""Word error rates here beside faster-whisper's, of the same weights and recordings, and which language is found.

    pip install faster-whisper G722 jiwer whisper-normalizer numpy
    benches/wer.py fetch sets                                            # needs apt-get and pip; 70 MB
    cactus convert whisper-base base8 && cactus convert whisper-base base32 --bits 32      # whisper-base has model.bin
    benches/wer.py measure sets --cactus target/release/cactus --here base8 base32 --ct2 whisper-base --types int8 float32

The sets: `librivox`, five sentences of Sense and Sensibility read by a volunteer (package pocketsphinx); `en`, `es`, `fr`, `it` and `ru`, prompts
of a telephone exchange by one speaker each, 16 kHz (Debian's asterisk-core-sounds-*-g722), of which every clip with at least
`--words` words and at most `--most` are taken, in the order of their names. Texts are those of the packages; accents are often missing in
them, and some prompts say something else, so rates of one set compare programs and are no measure of a model.

With `--cloud TARGET`, each bundle is measured again with a target that hears what is doubtful, or with `--handoff always` everything, and a line on
standard error says how much was sent:

    cactus serve base8 --port 8081 &
    benches/wer.py measure sets --cactus target/release/cactus --here tiny8 --sets librivox en --cloud http://127.0.0.1:8081/v1#base8 \\
        --handoff auto always

With `--onnx FOLDER`, the programs of a Moonshine folder (`encoder_model.ort`) are run by ONNX Runtime, too.

With `--live PROGRAM VAD`, the example `live` of the crate `speech` and a bundle that finds speech, each bundle also hears the clips as live speech, once
for each set of options of `--live-with` (`sentence_ms=200,margin_ms=1000`), and the final texts are joined.

All decode greedily, without the text before; the language is found out, but for models of English. Words are compared after
Whisper's normalization, for other languages its basic one without accents.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
import wave
from pathlib import Path

LANGUAGES = ("en", "es", "fr", "it", "ru")


def write_wav(path: Path, samples: bytes) -> None:
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16_000)
        out.writeframes(samples)


def fetch(folder: Path) -> None:
    import G722

    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "pocketsphinx", "pocketsphinx==5.1.1", "-d", name]
        subprocess.run(pip, check=True)
        out = folder / "librivox"
        out.mkdir(parents=True, exist_ok=True)
        texts = {}
        with tarfile.open(next(work.glob("pocketsphinx*.tar.gz"))) as archive:
            for member in archive:
                path = Path(member.name)
                if path.parent.name != "librivox" or path.suffix not in (".wav", ".txt"):
                    continue
                data = archive.extractfile(member).read()
                if path.suffix == ".wav":
                    (out / path.name).write_bytes(data)
                else:
                    texts[path.stem] = data.decode().strip()
        (out / "texts.json").write_text(json.dumps(texts, indent=1))
        for language in LANGUAGES:
            package = f"asterisk-core-sounds-{language}"
            subprocess.run(["apt-get", "download", "-q", package, f"{package}-g722"], check=True, cwd=work, capture_output=True)
            for archive in work.glob(f"{package}*.deb"):
                subprocess.run(["dpkg", "-x", archive, work / language], check=True)
            told = next((work / language).rglob(f"core-sounds-{language}.txt.gz"))
            out = folder / language
            out.mkdir(parents=True, exist_ok=True)
            texts = {}
            for line in gzip.open(told, "rt", encoding="utf-8-sig"):
                name, _, text = line.strip().partition(":")
                clips = [] if line.startswith(";") or "/" in name else list((work / language).rglob(f"{name}.g722"))
                # What is no sentence describes a sound.
                if not clips or not text.strip() or any(c in text for c in "[]()<>*"):
                    continue
                data = clips[0].read_bytes()
                decoded = G722.G722(16_000, 64_000).decode(data)
                write_wav(out / f"{name}.wav", decoded.tobytes() if hasattr(decoded, "tobytes") else bytes(decoded))
                texts[name] = text.strip()
            (out / "texts.json").write_text(json.dumps(texts, indent=1, ensure_ascii=False))
            print(f"{language}: {len(texts)} clips", file=sys.stderr)


def normalizer(language: str):
    from whisper_normalizer.basic import BasicTextNormalizer
    from whisper_normalizer.english import EnglishTextNormalizer

    if language in ("en", "librivox"):
        return EnglishTextNormalizer()
    basic = BasicTextNormalizer(remove_diacritics=True)
    return lambda text: basic(unicodedata.normalize("NFKD", text))


def here(program: str, bundle: str, clips: list[Path], more: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """Text and language of each clip."""
    command = [program, "transcribe", *map(str, clips), "--model", bundle, "--format", "json", *more]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    decoder, found, at = json.JSONDecoder(), [], 0
    sums = {"segments": 0, "wanted": 0, "revised": 0, "sent_s": 0.0, "duration_s": 0.0}
    while at < len(told.rstrip()):
        one, at = decoder.raw_decode(told, at)
        at += len(told[at:]) - len(told[at:].lstrip())
        found.append((one["text"], one["language"] or "en"))
        again = one.get("heard_again", {})
        counted = {**again, "segments": len(one["segments"]), "duration_s": one["duration_s"]}
        sums = {name: value + counted.get(name, 0) for name, value in sums.items()}
    if more:
        told = ", ".join(f"{name} {value:.0f}" for name, value in sums.items())
        print(f"{bundle} {' '.join(more)}: {told}", file=sys.stderr)
    return found


def live(programs: list[str], bundle: str, clips: list[Path], options: str) -> list[tuple[str, str]]:
    """The final texts of each clip, heard live."""
    program, vad = programs
    command = [program, bundle, vad, *map(str, clips), *options.split(",")]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found, texts, language = [], [], "en"
    for event in map(json.loads, told.splitlines()):
        if event["event"] == "final":
            texts.append(event["segment"]["text"].strip())
            language = event.get("language", "en")
        elif event["event"] == "end":
            found.append((" ".join(texts), language))
            texts, language = [], "en"
    return found


def there(folder: str, kind: str, clips: list[Path]) -> list[tuple[str, str]]:
    from faster_whisper import WhisperModel

    model = WhisperModel(folder, device="cpu", compute_type=kind)
    found = []
    for clip in clips:
        segments, about = model.transcribe(str(clip), beam_size=1, condition_on_previous_text=False)
        found.append(("".join(s.text for s in segments).strip(), about.language))
    return found


def by_onnx(folder: Path, clips: list[Path]) -> list[tuple[str, str]]:
    """Moonshine by ONNX Runtime, greedily and with the published limit of 6.5 tokens a second; a clip is heard as a whole."""
    import numpy as np
    import onnxruntime

    data, tokens, at = (folder / "tokenizer.bin").read_bytes(), [], 0
    while at < len(data):
        length, at = data[at], at + 1
        if length >= 128:
            length, at = data[at] * 128 + length - 128, at + 1
        tokens.append(data[at : at + length])
        at += length
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    names = ("encoder_model.ort", "decoder_model_merged.ort")
    encoder, decoder = (onnxruntime.InferenceSession(str(folder / name), options) for name in names)
    pasts = [(i.name, i.shape) for i in decoder.get_inputs() if i.name.startswith("past_key_values")]
    found = []
    for clip in clips:
        with wave.open(str(clip)) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2), clip
            sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32)[None] / 32768
        known = {i.name for program in (encoder, decoder) for i in program.get_inputs()}
        masks = {name: np.ones(sound.shape, np.int64) for name in ("attention_mask", "encoder_attention_mask") if name in known}
        mask = {name: value for name, value in masks.items() if name == "attention_mask"}
        [states] = encoder.run(None, {"input_values": sound, **mask})
        past = {name: np.zeros((1, shape[1], 0, shape[3]), np.float32) for name, shape in pasts}
        text, last = [], 1
        for step in range(-(-sound.shape[1] * 13 // 32_000)):
            inputs = {"input_ids": np.array([[last]]), "encoder_hidden_states": states, "use_cache_branch": np.array([step > 0])}
            mask = {name: value for name, value in masks.items() if name == "encoder_attention_mask"}
            logits, *present = decoder.run(None, {**inputs, **mask, **past})
            for name, value in zip(past, present, strict=True):
                # What was heard is given back by the first step alone.
                if step == 0 or ".decoder." in name:
                    past[name] = value
            last = int(logits[0, -1].argmax())
            if last == 2:
                break
            text.append(last)
        raw = b"".join(bytes([i - 3]) if i < 259 else tokens[i] for i in text)
        found.append((raw.decode(errors="replace").replace("\u2581", " ").strip(), "en"))
    return found


def measure(args: argparse.Namespace) -> None:
    import jiwer

    ways = [("--cloud", args.cloud, "--consent", "audio", "--handoff", way) for way in args.handoff if args.cloud]
    ways = [(), *ways]
    names = [f"{bundle} {way[-1] if way else ''}".strip() for bundle in args.here for way in ways]
    lives = args.live_with if args.live else []
    names += [f"{bundle} live {options}" for bundle in args.here for options in lives]
    names += (f"faster-whisper {kind}" for kind in args.types)
    names += ["ONNX Runtime"] if args.onnx else []
    print(f"| set | clips | words | {' | '.join(names)} | right language |\n|{'---|' * (len(names) + 4)}")
    for name in args.sets:
        folder = args.folder / name
        texts = json.loads((folder / "texts.json").read_text())
        chosen = [n for n, text in sorted(texts.items()) if len(text.split()) >= args.words and (folder / f"{n}.wav").is_file()]
        chosen = chosen[: args.most]
        clips = [folder / f"{n}.wav" for n in chosen]
        normal = normalizer(name)
        wanted = [normal(texts[n]) for n in chosen]
        all_found = [here(args.cactus, bundle, clips, way) for bundle in args.here for way in ways]
        all_found += [live(args.live, bundle, clips, options) for bundle in args.here for options in lives]
        all_found += [there(args.ct2, kind, clips) for kind in args.types]
        all_found += [by_onnx(args.onnx, clips)] if args.onnx else []
        rates = []
        for found in all_found:
            assert len(found) == len(clips), (len(found), len(clips))
            rates.append(f"{100 * jiwer.wer(wanted, [normal(text) for text, _ in found]):.2f}")
        language = "en" if name == "librivox" else name
        right = [sum(code == language for _, code in found) for found in all_found]
        words = sum(len(text.split()) for text in wanted)
        languages = " / ".join(map(str, right))
        print(f"| {name} | {len(clips)} | {words} | {' | '.join(rates)} | {languages} |", flush=True)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("fetch")
    command.add_argument("folder", type=Path)
    command.set_defaults(run=lambda args: fetch(args.folder))
    command = commands.add_parser("measure")
    command.add_argument("folder", type=Path)
    command.add_argument("--cactus", required=True, metavar="PROGRAM")
    command.add_argument("--here", nargs="+", default=[], metavar="BUNDLE")
    command.add_argument("--ct2", metavar="FOLDER", help="what faster-whisper reads")
    command.add_argument("--types", nargs="*", default=[], metavar="TYPE", help="compute types of faster-whisper")
    command.add_argument("--onnx", type=Path, metavar="FOLDER", help="Moonshine as its package carries it")
    command.add_argument("--cloud", metavar="TARGET", help="who hears again what is doubtful, an address with a model")
    command.add_argument("--handoff", nargs="+", default=["auto"], choices=["auto", "always"])
    command.add_argument("--live", nargs=2, metavar=("PROGRAM", "VAD"), help="the example `live`, and a bundle that finds speech")
    command.add_argument("--live-with", nargs="+", default=["step_ms=1000"], metavar="OPTIONS", help="OPTION=VALUE, with commas between")
    command.add_argument("--sets", nargs="+", default=["librivox", *LANGUAGES])
    command.add_argument("--words", type=int, default=5, help="least words of a clip")
    command.add_argument("--most", type=int, default=1000, help="most clips of a set")
    command.set_defaults(run=measure)
    args = parser.parse_args(arguments)
    args.run(args)


if __name__ == "__main__":
    main(sys.argv[1:])
