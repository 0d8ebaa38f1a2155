"""Record the demo in a real terminal: docs/img/demo.cast (asciinema v2) and docs/img/demo.svg (an animated picture)."""

import codecs
import contextlib
import fcntl
import html
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyte
from pyte.screens import Char

from vgpuscope.model.service import AGENT_PORT, ANALYZER_PORT, CLUSTER_PORT, default_url

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "img"
WIDTH, HEIGHT = 118, 34
LONGEST_REST = 2.5  # seconds; a longer wait is shortened to this
LAST_REST = 5.0  # seconds that the last picture stays
FRAME = 0.12  # seconds; changes that follow faster are drawn together
_KEY = 0.045  # seconds between two keys
_WAITING = 0.15  # pace while a program works

Event = tuple[float, str]  # seconds since the start, output


class Recorder:
    """What terminals print, with the time at which they did."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.on = True
        self.pace = 1.0  # seconds of the recording in one second of waiting
        self._shown, self._last = 0.0, time.monotonic()

    def add(self, data: str) -> None:
        now = time.monotonic()
        if not self.on:
            return
        self._shown += min(now - self._last, LONGEST_REST) * self.pace
        self._last = now
        self.events.append((round(self._shown, 3), data))


class Terminal:
    """A shell in a pseudo-terminal; what it prints goes to the recorder."""

    def __init__(self, recorder: Recorder, **environ: str) -> None:
        self._recorder, self.printed = recorder, ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a read can end inside a character
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {"PATH": path, "HOME": "/tmp", "LANG": "C.UTF-8", "TERM": "xterm-256color", "PS1": "$ ", **environ}
        self._shell = subprocess.Popen(
            ["/bin/bash", "--norc", "--noprofile", "-i"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - there are no threads here
        )
        os.close(slave)
        recorder.add("\x1b[2J\x1b[H")  # another terminal comes to the front

    def type(self, text: str, *, enter: bool = True) -> None:
        for key in text + ("\r" if enter else ""):
            os.write(self._master, key.encode())
            self.rest(_KEY)

    def rest(self, seconds: float) -> None:
        """Record for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self._master], [], [], left)[0]:
                self._read()

    def wait(self, pattern: str, *, within: float = 120.0) -> None:
        """Record until this was printed. It is the machine's time, so it passes quickly in the recording."""
        until = time.monotonic() + within
        self._recorder.pace = _WAITING
        while not re.search(pattern, self.printed):
            if time.monotonic() > until:
                raise TimeoutError(f"{pattern!r} was not printed in {within:g} s:\n{self.printed[-2000:]}")
            self.rest(0.05)
        self._recorder.pace = 1.0
        self.printed = ""

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(os.tcgetpgrp(self._master), signal.SIGTERM)
        self.rest(0.2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        os.close(self._master)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the shell has ended
            data = self._decoder.decode(os.read(self._master, 65536))
            self.printed += data
            self._recorder.add(data)


# ── the picture ──────────────────────────────────────────────────────────────────────────────────────────────────


class Frame(NamedTuple):
    """What the screen shows from a moment on."""

    at: float
    rows: tuple[str, ...]  # as SVG


CELL_X, CELL_Y, FONT = 8.4, 18, 14
MARGIN, BAR = 12, 34
_BACK, _TEXT = "#16181d", "#d6dae0"
_COLOURS = {
    "black": "#2b2f36",
    "red": "#ef6b73",
    "green": "#8ccf7e",
    "brown": "#e5c76b",
    "yellow": "#e5c76b",
    "blue": "#67b0e8",
    "magenta": "#c47fd5",
    "cyan": "#6cbfbf",
    "white": "#d6dae0",
    "brightblack": "#7d8590",
    "brightred": "#ff8b92",
    "brightgreen": "#a5e398",
    "brightbrown": "#f4d67a",
    "brightyellow": "#f4d67a",
    "brightblue": "#85c5f5",
    "brightmagenta": "#d89ee5",
    "brightcyan": "#8ad9d9",
    "brightwhite": "#ffffff",
}


def frames(events: Iterable[Event], *, width: int = WIDTH, height: int = HEIGHT) -> list[Frame]:
    """The screens that an observer sees, without those that were gone after a moment."""
    screen = pyte.Screen(width, height)
    stream = pyte.Stream(screen)
    found: list[Frame] = []
    shown: tuple[str, ...] = ()
    pending: float | None = None
    for at, data in [*events, (float("inf"), "")]:
        if pending is not None and at - pending >= FRAME:
            rows = tuple(_row(screen, y) for y in range(height))
            if rows != shown:
                found.append(Frame(pending, rows))
                shown = rows
            pending = None
        stream.feed(data)
        pending = at if pending is None else pending
    return found


def _row(screen: pyte.Screen, y: int) -> str:
    """One line of the screen as SVG: runs of characters that look the same."""
    cells = [screen.buffer[y][x] for x in range(screen.columns)]
    parts, x = [], 0
    for look, run in groupby(cells, key=_look):
        text = "".join(cell.data for cell in run)
        length = len(text) if text.isascii() else sum(1 for _ in text)
        parts.append(_run(look, text, x))
        x += length
    return "".join(parts)


def _look(cell: Char) -> tuple[str, str, bool]:
    front, back = _colour(cell.fg, _TEXT), _colour(cell.bg, "")
    if cell.reverse:
        front, back = back or _BACK, front
    return front, back, cell.bold


def _colour(name: str, usual: str) -> str:
    if name == "default":
        return usual
    return _COLOURS.get(name, f"#{name}")


def _run(look: tuple[str, str, bool], text: str, x: int) -> str:
    front, back, bold = look
    left, wide = x * CELL_X, len(text) * CELL_X
    out = f'<rect x="{left:.1f}" width="{wide:.1f}" height="{CELL_Y}" fill="{back}"/>' if back else ""
    if not text.strip():
        return out
    start = len(text) - len(text.lstrip())
    text = text.strip()
    style = f' fill="{front}"' if front != _TEXT else ""
    style += ' font-weight="bold"' if bold else ""
    length = f' textLength="{len(text) * CELL_X:.1f}"' if len(text) > 1 else ""
    return f'{out}<text x="{(x + start) * CELL_X:.1f}" y="13"{length}{style}>{html.escape(text)}</text>'


def picture(shown: list[Frame], *, title: str, width: int = WIDTH, height: int = HEIGHT) -> str:
    """All frames side by side, like a film, moved past the window by one CSS animation. A row that repeats is drawn
    once. Without motion (as the reader's system may ask), the last frame is shown."""
    rows = {row: f"r{number}" for number, row in enumerate(sorted({r for frame in shown for r in frame.rows if r}))}
    wide, high = width * CELL_X, height * CELL_Y
    step = wide + 4 * CELL_X  # a gap, so that no neighbour shows at the edge
    total = shown[-1].at - shown[0].at + LAST_REST
    film = "".join(
        f'<g transform="translate({number * step:.1f})">{"".join(_uses(frame, rows))}</g>'
        for number, frame in enumerate(shown)
    )
    steps = "".join(
        f"{(frame.at - shown[0].at) / total:.3%}{{transform:translateX({-number * step:.1f}px)}}"
        for number, frame in enumerate(shown)
    )
    last = f"transform:translateX({-(len(shown) - 1) * step:.1f}px)"
    defined = "".join(f'<g id="{name}">{row}</g>' for row, name in rows.items())
    dots = "".join(
        f'<circle cx="{18 + 18 * n}" cy="17" r="6" fill="{fill}"/>'
        for n, fill in enumerate(("#ef6b73", "#e5c76b", "#8ccf7e"))
    )
    full, tall = wide + 2 * MARGIN, high + BAR + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full:.0f} {tall:.0f}" role="img">'
        f"<title>{html.escape(title)}</title><style>"
        f"text{{font:{FONT}px ui-monospace,'DejaVu Sans Mono','Liberation Mono',Menlo,Consolas,monospace;"
        "white-space:pre}"
        f"@keyframes film{{{steps}100%{{{last}}}}}"
        f".film{{animation:film {total:.2f}s step-end infinite}}"
        f"@media (prefers-reduced-motion:reduce){{.film{{animation:none;{last}}}}}"
        f"</style><defs>{defined}</defs>"
        f'<rect width="{full:.0f}" height="{tall:.0f}" rx="8" fill="{_BACK}"/>{dots}'
        f'<text x="{full / 2:.0f}" y="22" text-anchor="middle" fill="#7d8590">{html.escape(title)}</text>'
        f'<svg x="{MARGIN}" y="{BAR}" width="{wide:.1f}" height="{high}" viewBox="0 0 {wide:.1f} {high}">'
        f'<g class="film" fill="{_TEXT}">{film}</g></svg></svg>\n'
    )


def _uses(frame: Frame, rows: dict[str, str]) -> Iterator[str]:
    for y, row in enumerate(frame.rows):
        if row:
            yield f'<use href="#{rows[row]}" y="{y * CELL_Y}"/>'


def cast(events: Iterable[Event], *, title: str, width: int = WIDTH, height: int = HEIGHT) -> str:
    """The recording in asciinema's format, version 2."""
    head = {"version": 2, "width": width, "height": height, "title": title, "env": {"TERM": "xterm-256color"}}
    return "".join(
        json.dumps(line, ensure_ascii=False) + "\n" for line in (head, *([at, "o", data] for at, data in events))
    )


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────────

_ENDED = r"\$ $"  # the prompt is back


def record(recorder: Recorder) -> None:
    """The demo starts; then, in another terminal, questions and answers."""
    first = Terminal(recorder)
    try:
        first.wait(_ENDED)
        first.type("vgpuscope demo")
        first.wait("Ctrl-C ends everything")
        page = re.sub(r"\x1b\[[\d;]*m", "", "".join(data for _, data in recorder.events))
        first.rest(5)
        _ask(recorder, dict(re.findall(r"([\w-]+) +(http://127\.0\.0\.1:\d+)", page)))
    finally:
        first.close()


def _ask(recorder: Recorder, places: dict[str, str]) -> None:
    second = Terminal(recorder)
    try:
        second.wait(_ENDED)
        for command, place, port in (
            ("results --low", "analyzer", ANALYZER_PORT),
            ("pending", "cluster", CLUSTER_PORT),
        ):
            second.type(_line(command, places[place], port))
            second.wait(_ENDED)
            second.rest(4)
            second.type("clear")
            second.wait(_ENDED)
        second.type(_line("top", places["hami-a"], AGENT_PORT))
        second.wait("quit")
        second.rest(6)
        recorder.on = False  # `top` is the last picture
    finally:
        second.close()


def _line(command: str, url: str, port: int) -> str:
    """The command, with the address if it is not the default."""
    return f"vgpuscope {command}" if url == default_url(port) else f"vgpuscope {command} {url}"


def main() -> None:
    """Write both files."""
    recorder, title = Recorder(), "vgpuscope demo"
    record(recorder)
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / "demo.cast").write_text(cast(recorder.events, title=title))
    shown = frames(recorder.events)
    (IMAGES / "demo.svg").write_text(picture(shown, title=title))
    for name in ("demo.cast", "demo.svg"):
        print(f"docs/img/{name}: {(IMAGES / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
