"""Writes golden/gguf_blocks: random blocks of every GGUF type and their values by the `gguf` package.

Usage: pip install gguf numpy && python golden/gguf_blocks.py

Per type, `<name>.bin` holds whole blocks and `<name>.f32` the decoded little-endian binary32 values. Every byte is
random except the binary16 scales, which are random finite numbers (of either sign, also subnormal), so that values
compare bit for bit.
"""

from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# Byte offsets of the binary16 fields of a block.
HALF_FIELDS = {
    "F32": [],
    "F16": [0],
    "BF16": [],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "MXFP4": [],
}


def finite_halves(rng: np.random.Generator, count: int) -> np.ndarray:
    bits = rng.integers(0, 1 << 16, count, dtype=np.uint16)
    infinite = (bits >> 10) & 31 == 31
    return np.where(infinite, bits ^ (1 << 10), bits).astype(np.uint16)


def main() -> None:
    folder = Path(__file__).parent / "gguf_blocks"
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(20240607)
    for name, fields in HALF_FIELDS.items():
        ty = GGMLQuantizationType[name]
        block_elems, block_bytes = GGML_QUANT_SIZES[ty]
        blocks = {1: 64, 32: 8, 256: 4}[block_elems]
        data = rng.integers(0, 256, (blocks, block_bytes), dtype=np.uint8)
        for at in fields:
            data[:, at : at + 2] = finite_halves(rng, blocks).view(np.uint8).reshape(blocks, 2)
        if name in ("F32", "BF16"):
            # Clear one exponent bit: no infinities and no NaNs, whose payloads need not survive.
            data[:, -1] &= 0xBF
        if name == "MXFP4":
            # The exponent: no number that is too large.
            data[:, 0] &= 0x7F
        values = dequantize(data, ty).astype("<f4")
        assert np.isfinite(values).all(), name
        (folder / f"{name.lower()}.bin").write_bytes(data.tobytes())
        (folder / f"{name.lower()}.f32").write_bytes(values.tobytes())


if __name__ == "__main__":
    main()
