#!/usr/bin/env python3
"""Record a terminal session as an animated SVG: docs/first-minute.svg, which the README shows.

The session is real. This script starts a shell in a pseudo-terminal with an empty model cache, types the commands below
as a person would, and keeps what the terminal shows and when. Nothing is edited afterwards, but one thing: stretches
in which the screen stays the same for longer than a second (mostly the person reading) are cut to one second.

    pip install pyte                                        # the terminal emulator that reads the session
    cargo build --release
    scripts/record_session.py target/release docs/first-minute.svg

The SVG has no script. Each line of the screen is drawn once, and CSS animations show it while it was there; where
animations are off, it shows the last screen.
"""

import argparse
import html
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pyte

COLUMNS, ROWS = 96, 19
CELL_W, CELL_H, MARGIN, BAR = 8.0, 18, 14, 30
STEP_S = 0.1  # screens closer together than this are one
LONGEST_STILL_S = 1.0
LAST_S = 6.0
SHELL_PROMPT, CHAT_PROMPT = "$ ", "> "

# What is typed, and the prompt that is waited for before the next.
SESSION = [
    ("# Ask a question. The first time, this downloads a small model and converts it.", SHELL_PROMPT),
    ('cactus run --small --prompt "Explain in one sentence what a computer is."', SHELL_PROMPT),
    ("# Now it is there. Chat with it.", SHELL_PROMPT),
    ("cactus run --small", CHAT_PROMPT),
    ("Why is the sky blue? One sentence.", CHAT_PROMPT),
    ("Name three planets.", CHAT_PROMPT),
    ("/exit", SHELL_PROMPT),
]

COLORS = {
    "default": "#d8dee9",
    "black": "#3b4252",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#5c7fb0",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": "#e5e9f0",
    "brightblack": "#8a93a5",
}
BACKGROUND = "#1e222a"


class Recorder:
    """A shell in a pseudo-terminal, and the screens that it showed."""

    def __init__(self, programs: Path, cache: str):
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self.stream = pyte.ByteStream(self.screen)
        self.started = time.monotonic()
        self.screens: list[tuple[float, list]] = []
        environment = {
            **os.environ,
            "PATH": f"{programs.resolve()}:{os.environ['PATH']}",
            "CACTUS_CACHE": cache,
            "PS1": SHELL_PROMPT,
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "HISTFILE": "",
        }
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.chdir(cache)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment)
        ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def watch(self, seconds: float) -> None:
        """Reads what comes within `seconds`."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self.terminal], [], [], left)
            if not ready:
                return
            try:
                data = os.read(self.terminal, 65536)
            except OSError:
                return
            # The emulator does not know faint text.
            data = data.replace(b"\x1b[2m", b"\x1b[90m")
            self.stream.feed(data)
            self.screens.append((time.monotonic() - self.started, self.snapshot()))

    def snapshot(self) -> list:
        """The lines of the screen as runs of equal style: column, text, color, bold."""
        lines = []
        for y in range(ROWS):
            runs: list[list] = []
            for x in range(COLUMNS):
                cell = self.screen.buffer[y][x]
                style = (cell.fg, cell.bold)
                if runs and runs[-1][2] == style:
                    runs[-1][1] += cell.data
                else:
                    runs.append([x, cell.data, style])
            while runs and not runs[-1][1].strip():
                runs.pop()
            lines.append(
                tuple(
                    (x, text.rstrip() if i == len(runs) - 1 else text, style) for i, (x, text, style) in enumerate(runs)
                )
            )
        return lines

    def waits_for(self, prompt: str, timeout: float = 600.0) -> None:
        """Watches until the cursor stands behind `prompt`."""
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            self.watch(0.05)
            line = self.screen.display[self.screen.cursor.y]
            if line.rstrip() == prompt.rstrip() and self.screen.cursor.x == len(prompt):
                return
        sys.exit(f"the prompt `{prompt}` did not come; the screen is\n" + "\n".join(self.screen.display))

    def types(self, text: str) -> None:
        for character in text:
            os.write(self.terminal, character.encode())
            self.watch(0.035)
        self.watch(0.4)
        os.write(self.terminal, b"\r")
        self.watch(0.2)


def record(programs: Path) -> list[tuple[float, list]]:
    with tempfile.TemporaryDirectory() as cache:
        recorder = Recorder(programs, cache)
        recorder.waits_for(SHELL_PROMPT)
        recorder.screens.clear()
        recorder.started = time.monotonic()
        for text, prompt in SESSION:
            recorder.types(text)
            recorder.waits_for(prompt)
            recorder.watch(0.8)
        os.close(recorder.terminal)
        os.kill(recorder.child, signal.SIGKILL)
        os.waitpid(recorder.child, 0)
        return recorder.screens


def thinned(screens: list[tuple[float, list]]) -> list[tuple[float, list]]:
    """One screen for each step, without those that repeat, and still stretches cut."""
    out: list[tuple[float, list]] = []
    clock, last = 0.0, 0.0
    for at, lines in screens:
        clock += min(at - last, LONGEST_STILL_S)
        last = at
        if out and lines == out[-1][1]:
            continue
        if out and clock - out[-1][0] < STEP_S:
            out[-1] = (out[-1][0], lines)
        else:
            out.append((clock, lines))
    return out


def drawn(line: tuple, y: int) -> str:
    """A line as SVG text, each run at its column and stretched to its width."""
    parts = []
    for x, text, (color, bold) in line:
        # Spaces at the ends are left to the positions.
        start = x + len(text) - len(text.lstrip())
        text = text.strip()
        if not text:
            continue
        fill = "" if color == "default" else f' fill="{COLORS.get(color, COLORS["default"])}"'
        weight = ' font-weight="bold"' if bold else ""
        left = MARGIN + start * CELL_W
        width = len(text) * CELL_W
        parts.append(
            f'<text x="{left:g}" y="{y}" textLength="{width:g}"{fill}{weight}>{html.escape(text, quote=False)}</text>'
        )
    return "".join(parts)


def svg(screens: list[tuple[float, list]]) -> str:
    length = screens[-1][0] + LAST_S
    # Each line of each row, with the times at which it came and went.
    shown: dict[tuple[int, tuple], list[tuple[float, float]]] = {}
    for i, (at, lines) in enumerate(screens):
        until = screens[i + 1][0] if i + 1 < len(screens) else length
        for row, line in enumerate(lines):
            if not line:
                continue
            times = shown.setdefault((row, line), [])
            if times and times[-1][1] == at:
                times[-1] = (times[-1][0], until)
            else:
                times.append((at, until))
    styles, body, names = [], [], {}
    for (row, line), times in sorted(shown.items(), key=lambda item: (item[0][0], item[1])):
        name = names.setdefault(tuple(times), f"a{len(names)}")
        last = times[-1][1] >= length
        y = BAR + MARGIN + row * CELL_H + 13
        opacity = "" if last else ' opacity="0"'
        body.append(f'<g class="{name}"{opacity}>{drawn(line, y)}</g>')
    for times, name in names.items():
        stops = {0.0: 0}
        for begin, end in times:
            stops[100 * begin / length] = 1
            if end < length:
                stops[100 * end / length] = 0
        frames = "".join(f"{percent:.2f}%{{opacity:{on}}}" for percent, on in sorted(stops.items()))
        end = 1 if times[-1][1] >= length else 0
        styles.append(f"@keyframes {name}{{{frames}100%{{opacity:{end}}}}}.{name}{{animation-name:{name}}}")
    width, height = round(2 * MARGIN + COLUMNS * CELL_W), BAR + 2 * MARGIN + ROWS * CELL_H
    dots = "".join(
        f'<circle cx="{20 + 18 * i}" cy="16" r="5.5" fill="{c}"/>'
        for i, c in enumerate(["#e06c75", "#e5c07b", "#98c379"])
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="A recorded terminal session: the first minute with cactus">\n'
        f"<style>text{{white-space:pre}}g[class]{{animation-duration:{length:.1f}s;animation-iteration-count:infinite;"
        f"animation-timing-function:step-end}}\n{''.join(styles)}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>{dots}\n'
        f'<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="13.3" '
        f'fill="{COLORS["default"]}">\n' + "\n".join(body) + "\n</g>\n</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("programs", type=Path, help="folder with the `cactus` program")
    parser.add_argument("svg", type=Path, help="file to write")
    arguments = parser.parse_args()
    screens = thinned(record(arguments.programs))
    text = svg(screens)
    # The folder of the cache is temporary and of no interest.
    text = re.sub(re.escape(tempfile.gettempdir()) + r"/\w+", "~", text)
    arguments.svg.write_text(text)
    print(f"{arguments.svg}: {len(screens)} screens, {screens[-1][0]:.0f} s, {len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
