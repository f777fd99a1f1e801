#!/usr/bin/env python3
"""Draw docs/speech*.svg from the tables of docs/speech.md, so that pictures and page say the same.

    benches/speech_chart.py docs/speech.md docs
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import chart

Table = list[dict[str, str]]


def tables(text: str) -> list[Table]:
    """Each table of a page as its rows: cells by the heads of their columns."""
    found: list[Table] = []
    heads: list[str] | None = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            heads = None
        elif heads is None:
            heads = cells
            found.append([])
        elif not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            found[-1].append(dict(zip(heads, cells, strict=True)))
    return found


def the(all_tables: list[Table], *heads: str) -> Table:
    """The first table that has these columns."""
    return next(table for table in all_tables if table and all(head in table[0] for head in heads))


def number(cell: str) -> float:
    """What a cell begins with; none where it was not run."""
    begins = re.match(r"-?[0-9.,]+", cell)
    return float(begins[0].replace(",", "")) if begins else math.nan


def main(page: Path, out: Path) -> None:
    found = tables(page.read_text())
    series = ["here, F32", "here, 8 bits", "here, 4 bits", "faster-whisper, F32", "faster-whisper, INT8"]
    table = the(found, "model", "set", "words", *series)
    panels = []
    for title, wanted in [("English: words that differ, %", ("librivox", "en")), ("Others, base: words that differ, %", ("es", "fr", "it", "ru"))]:
        rows = [row for row in table if row["set"].split(",")[0] in wanted]
        names = [f"{row['model']}, {row['set'].split(',')[0]}" if len({r["model"] for r in rows}) > 1 else row["set"].split(",")[0] for row in rows]
        groups = [(name, [number(row[head]) for head in series]) for name, row in zip(names, rows, strict=True)]
        panels.append(chart.Panel(title, groups, digits=1 if len(groups) < 4 else 0))
    (out / "speech-words.svg").write_text(chart.grouped_bars(panels, series, columns=2))

    table = the(found, "model, INT8", "clip", "threads", "here", "faster-whisper")
    engines = [head for head in ("here", "faster-whisper", "whisper.cpp", "sherpa-onnx", "onnx-asr") if head in table[0]]
    panels = []
    # What takes minutes would leave nothing to see of the rest.
    table = [row for row in table if "minutes" not in row["clip"]]
    for model in dict.fromkeys(row["model, INT8"] for row in table):
        rows = [row for row in table if row["model, INT8"] == model]
        groups = [(f"{row['clip'].split(',')[0]}, {row['threads']} t", [number(row[head]) for head in engines]) for row in rows]
        panels.append(chart.Panel(f"{model}: INT8, seconds for a clip (t: threads)", groups, digits=1))
    (out / "speech-time.svg").write_text(chart.grouped_bars(panels, engines, columns=2))

    table = the(found, "commit by", "step, ms", "lag, median s")
    lags = ["lag, median s", "lag, nine of ten, s"]
    panels = []
    for model in dict.fromkeys(row["model"] for row in table):
        rows = [row for row in table if row["model"] == model]
        groups = [(f"{row['commit by']}, {number(row['step, ms']) / 1000:g} s", [number(row[lag]) for lag in lags]) for row in rows]
        panels.append(chart.Panel(f"{model}: seconds of sound behind a word, by step", groups, digits=2))
    (out / "speech-live.svg").write_text(chart.grouped_bars(panels, ["median", "nine of ten"], columns=2))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
