"""Pictures and films in messages: files, bytes, Pillow's images and arrays become what a request holds."""

from __future__ import annotations

import base64
import io
import os
import struct
import zlib
from typing import Any

from .options import path_of, refused

#: A file that is longer is no picture that would be read.
MOST_BYTES = 32 << 20


def file_bytes(name: str, path: Any, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file that may be a picture, or of another that may have more."""
    path = path_of(name, path)
    if os.path.getsize(path) > most:
        raise refused(name, f"files of at most {most} bytes", path)
    with open(path, "rb") as file:
        return file.read()


def picture_bytes(name: str, picture: Any) -> bytes:
    """The file of a picture: PNG, JPEG or WebP as they are, Pillow's images and arrays `[height, width, 3]` of bytes as PNG."""
    if isinstance(picture, (bytes, bytearray, memoryview)):
        return bytes(picture)
    if isinstance(picture, (str, os.PathLike)):
        return file_bytes(name, picture)
    if hasattr(picture, "save") and hasattr(picture, "convert"):
        out = io.BytesIO()
        from PIL import ImageOps

        upright = ImageOps.exif_transpose(picture)
        if upright.mode == "F":
            raise refused(name, "an image of Pillow with bytes or whole numbers", picture, said="one of the mode F")
        if upright.mode.startswith("I"):
            # With 16 bits, of which the upper 8 count.
            upright.save(out, "PNG", compress_level=1)
            return out.getvalue()
        clear = upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info
        mode = "RGBA" if clear else "L" if upright.mode in ("1", "L") else "RGB"
        upright.convert(mode).save(out, "PNG", compress_level=1)
        return out.getvalue()
    if hasattr(picture, "shape") and hasattr(picture, "tobytes"):
        return _png(name, picture)
    raise refused(name, "a file, its bytes, an image of Pillow, or an array [height, width, 3] of bytes", picture)


def _png(name: str, array: Any) -> bytes:
    shape = tuple(int(side) for side in array.shape)
    if len(shape) != 3 or shape[2] != 3 or 0 in shape or str(array.dtype) != "uint8":
        raise refused(name, "an array [height, width, 3] of uint8", array, said=f"{shape} of {array.dtype}")
    height, width, _ = shape
    data, stride = array.tobytes(), width * 3
    rows = b"".join(b"\0" + data[y * stride : (y + 1) * stride] for y in range(height))

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def part_of(name: str, picture: Any) -> dict[str, Any]:
    """A picture as a part of a message."""
    return {"type": "image", "data": base64.b64encode(picture_bytes(name, picture)).decode("ascii")}


def film_part_of(name: str, film: Any) -> dict[str, Any]:
    """A film as a part of a message: its frames in order, each a picture in any form, or an array `[frames, height, width, 3]` of bytes."""
    if isinstance(film, (str, bytes, bytearray, memoryview, os.PathLike)) or not hasattr(film, "__iter__"):
        raise refused(name, "the frames of a film: a list of pictures, or an array [frames, height, width, 3] of bytes", film)
    frames = [picture_bytes(f"{name}[{i}]", frame) for i, frame in enumerate(film)]
    return {"type": "video", "frames": [base64.b64encode(frame).decode("ascii") for frame in frames]}
