"""Grouped bar charts as plain SVG text: readable in light and dark pages, no library."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from xml.sax.saxutils import escape

COLORS = ("#9aa5b1", "#6b7785", "#c9a227", "#1b998b", "#7a5195", "#ef5675")
PANEL_WIDTH = 430
PANEL_HEIGHT = 250
MARGIN = 34
BAR_GAP = 2


@dataclasses.dataclass(frozen=True)
class Panel:
    """`groups`: a label and one value per series, in the order of the legend."""

    title: str
    groups: Sequence[tuple[str, Sequence[float]]]


def _text(x: float, y: float, content: str, size: int = 11, anchor: str = "middle", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="#1f2933">{escape(content)}</text>'
    )


def _panel(panel: Panel, left: float, top: float) -> list[str]:
    out = [_text(left + MARGIN, top + 18, panel.title, 13, "start", "bold")]
    values = [value for _, group in panel.groups for value in group]
    if not values:
        return out
    base = top + PANEL_HEIGHT - 26
    height = PANEL_HEIGHT - 74
    scale = height / (max(values) or 1.0)
    slot = (PANEL_WIDTH - 2 * MARGIN) / len(panel.groups)
    out.append(
        f'<line x1="{left + MARGIN}" y1="{base}" x2="{left + PANEL_WIDTH - MARGIN}" y2="{base}" stroke="#52606d"/>'
    )
    for index, (label, group) in enumerate(panel.groups):
        bar = min(34.0, (slot - 14) / len(group))
        start = left + MARGIN + index * slot + (slot - bar * len(group)) / 2
        for series, value in enumerate(group):
            x, tall = start + series * bar, value * scale
            out.append(
                f'<rect x="{x:.1f}" y="{base - tall:.1f}" width="{bar - BAR_GAP:.1f}" height="{tall:.1f}" '
                f'fill="{COLORS[series % len(COLORS)]}"/>'
            )
            out.append(_text(x + (bar - BAR_GAP) / 2, base - tall - 4, f"{value:.0f}", 9))
        out.append(_text(left + MARGIN + (index + 0.5) * slot, base + 15, label))
    return out


def grouped_bars(panels: Sequence[Panel], legend: Sequence[str], columns: int) -> str:
    """An SVG document with the panels in `columns` columns and one legend below them."""
    columns = max(1, columns)
    rows = -(-len(panels) // columns)
    width, height = columns * PANEL_WIDTH, rows * PANEL_HEIGHT + 20 * len(legend) + 24
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for index, panel in enumerate(panels):
        out += _panel(panel, (index % columns) * PANEL_WIDTH, (index // columns) * PANEL_HEIGHT)
    for index, name in enumerate(legend):
        y = rows * PANEL_HEIGHT + 20 + 20 * index
        out.append(f'<rect x="{MARGIN}" y="{y - 11}" width="14" height="14" fill="{COLORS[index % len(COLORS)]}"/>')
        out.append(_text(MARGIN + 22, y + 1, name, 12, "start"))
    return "\n".join([*out, "</svg>"]) + "\n"
