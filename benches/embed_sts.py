"""How near `cactus embed` comes to people on STS-B, and how near bundles of fewer bits come to the first one.

    python benches/embed_sts.py sts-test.csv CACTUS BUNDLE [BUNDLE ...]

`sts-test.csv` is that of STS-B (1,379 pairs; Cer et al. 2017): lines with tabs, the score of people in column 5, the sentences in 6 and 7.
For each bundle it prints Spearman's correlation of the cosines with the scores, and the cosines of its vectors to those of the first
bundle. It needs numpy.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def ranks(x: np.ndarray) -> np.ndarray:
    """Ranks, equal numbers having the mean of theirs."""
    order = np.argsort(x, kind="stable")
    plain = np.empty(len(x))
    plain[order] = np.arange(len(x))
    _, group = np.unique(x, return_inverse=True)
    return (np.bincount(group, plain) / np.bincount(group))[group]


def vectors(cactus: str, bundle: str, texts: Path, folder: Path) -> np.ndarray:
    out = folder / "vectors.npy"
    subprocess.run([cactus, "embed", bundle, "--file", texts, "--npy", out], check=True)
    found = np.load(out).astype(np.float64)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def main(arguments: list[str]) -> None:
    pairs, cactus, *bundles = arguments
    rows = [line.split("\t") for line in Path(pairs).read_text(encoding="utf-8").splitlines()]
    people = ranks(np.array([float(row[4]) for row in rows]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = folder / "texts.txt"
        texts.write_text("\n".join([row[5] for row in rows] + [row[6] for row in rows]) + "\n", encoding="utf-8")
        first = None
        for bundle in bundles:
            found = vectors(cactus, bundle, texts, folder)
            first = found if first is None else first
            near = (found * first).sum(axis=1)
            half = len(rows)
            spearman = np.corrcoef(ranks((found[:half] * found[half:]).sum(axis=1)), people)[0, 1]
            print(f"{bundle}: Spearman {spearman:.4f}, cosine mean {near.mean():.5f}, least {near.min():.5f}")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(sys.argv[1:])
