"""Sounds in messages: files, bytes and arrays of samples become what a request holds."""

from __future__ import annotations

import base64
import os
import struct
from typing import Any

from .options import refused
from .pictures import file_bytes

#: A file that is longer is not taken.
MOST_BYTES = 64 << 20
#: Samples a second of an array.
RATE_HZ = 16_000


def sound_bytes(name: str, sound: Any) -> bytes:
    """The file of a sound: WAV, MP3, FLAC, Ogg or M4A as they are, arrays `[samples]` of floats from -1 to 1, mono, 16,000 a second, as WAV."""
    if isinstance(sound, (bytes, bytearray, memoryview)):
        return bytes(sound)
    if isinstance(sound, (str, os.PathLike)):
        return file_bytes(name, sound, MOST_BYTES)
    if hasattr(sound, "shape") and hasattr(sound, "astype"):
        if len(sound.shape) != 1 or not str(sound.dtype).startswith("float"):
            raise refused(name, "an array [samples] of floats", sound, said=f"{tuple(sound.shape)} of {sound.dtype}")
        return _wav(sound.astype("<f4").tobytes(), kind=3, width=4)
    raise refused(name, "a file, its bytes, or an array [samples] of floats", sound)


def wav_of_pcm(pcm: bytes) -> bytes:
    """Samples (mono, 16 bits, little-endian, 16,000 a second) as WAV."""
    return _wav(pcm, kind=1, width=2)


def _wav(data: bytes, *, kind: int, width: int) -> bytes:
    form = struct.pack("<HHIIHH", kind, 1, RATE_HZ, RATE_HZ * width, width, 8 * width)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def part_of(name: str, sound: Any) -> dict[str, Any]:
    """A sound as a part of a message."""
    return {"type": "audio", "data": base64.b64encode(sound_bytes(name, sound)).decode("ascii")}
