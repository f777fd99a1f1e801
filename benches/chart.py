"""Grouped bar charts as plain SVG text: readable in light and dark pages, no library."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

COLORS = ("#9aa5b1", "#6b7785", "#c9a227", "#1b998b", "#7a5195", "#ef5675")
PANEL_WIDTH = 430
PANEL_HEIGHT = 250
MARGIN = 34
BAR_GAP = 2


@dataclasses.dataclass(frozen=True)
class Panel:
    """`groups`: a label and one value per series, in the order of the legend; NaN where there is none."""

    title: str
    groups: Sequence[tuple[str, Sequence[float]]]
    digits: int = 0


def _text(x: float, y: float, content: str, size: int = 11, anchor: str = "middle", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="#1f2933">{escape(content)}</text>'
    )


def _panel(panel: Panel, left: float, top: float) -> list[str]:
    out = [_text(left + MARGIN, top + 18, panel.title, 13, "start", "bold")]
    values = [value for _, group in panel.groups for value in group if not math.isnan(value)]
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
            if math.isnan(value):
                continue
            x, tall = start + series * bar, value * scale
            out.append(
                f'<rect x="{x:.1f}" y="{base - tall:.1f}" width="{bar - BAR_GAP:.1f}" height="{tall:.1f}" '
                f'fill="{COLORS[series % len(COLORS)]}"/>'
            )
            out.append(_text(x + (bar - BAR_GAP) / 2, base - tall - 4, f"{value:.{panel.digits}f}", 9))
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


@dataclasses.dataclass(frozen=True)
class Plot:
    """`lines`: a label and its points; `dots`: points that stand alone; `bands`: x with the lowest and highest y."""

    title: str
    x: str
    y: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    lines: Sequence[tuple[str, Sequence[tuple[float, float]]]]
    dots: Sequence[tuple[float, float]] = ()
    bands: Sequence[tuple[float, float, float]] = ()
    ticks: Sequence[tuple[float, str]] = ()


def _plot(plot: Plot, left: float, top: float) -> list[str]:
    wide, tall = PANEL_WIDTH - 2 * MARGIN - 16, PANEL_HEIGHT - 84
    start, base = left + MARGIN + 16, top + 34 + tall
    (x0, x1), (y0, y1) = plot.x_range, plot.y_range

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return start + wide * (point[0] - x0) / (x1 - x0), base - tall * (point[1] - y0) / (y1 - y0)

    out = [_text(left + MARGIN, top + 18, plot.title, 13, "start", "bold")]
    for step in range(5):
        value = y0 + (y1 - y0) * step / 4
        y = at((x0, value))[1]
        out.append(f'<line x1="{start}" y1="{y:.1f}" x2="{start + wide}" y2="{y:.1f}" stroke="#e4e7eb"/>')
        out.append(_text(start - 5, y + 4, f"{value:.2f}", 10, "end"))
    ticks = plot.ticks or [(x0 + (x1 - x0) * step / 4, f"{x0 + (x1 - x0) * step / 4:.2f}") for step in range(5)]
    out += [_text(at((x, y0))[0], base + 14, label, 10) for x, label in ticks]
    out.append(_text(start + wide / 2, base + 29, plot.x))
    out.append(_text(start + wide, top + 18, plot.y, 11, "end"))
    for x, low, high in plot.bands:
        (px, py), (_, pz) = at((x, low)), at((x, high))
        out.append(f'<line x1="{px:.1f}" y1="{py:.1f}" x2="{px:.1f}" y2="{pz:.1f}" stroke="#cbd2d9" stroke-width="9"/>')
    for index, (label, points) in enumerate(plot.lines):
        color = COLORS[(index + 3) % len(COLORS)]
        path = " ".join("{:.1f},{:.1f}".format(*at(point)) for point in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        out.append(_text(start + wide - 4, base - 8 - 14 * (len(plot.lines) - 1 - index), label, 11, "end"))
        out[-1] = out[-1].replace('fill="#1f2933"', f'fill="{color}"')
    for point in plot.dots:
        x, y = at(point)
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{COLORS[3]}"/>')
    return out


def plots(panels: Sequence[Plot], columns: int) -> str:
    """An SVG document with the plots in `columns` columns."""
    rows = -(-len(panels) // columns)
    width, height = columns * PANEL_WIDTH, rows * PANEL_HEIGHT
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for index, panel in enumerate(panels):
        out += _plot(panel, (index % columns) * PANEL_WIDTH, (index // columns) * PANEL_HEIGHT)
    return "\n".join([*out, "</svg>"]) + "\n"
