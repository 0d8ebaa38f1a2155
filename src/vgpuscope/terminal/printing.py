"""Output of commands with one request: a progress line while they wait, then JSON, CSV or a table."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, TypeVar

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from vgpuscope.model.errors import SourceDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.terminal.screen import paper_width

_AGAIN = 0.25  # seconds between two checks whether the exporter is ready
_PATIENCE = 300.0  # seconds to wait for its first list; 100,000 pods take a while
_PLAIN_WIDTH = 10_000  # a file has no width

T = TypeVar("T")
Missing = Callable[[], Awaitable[tuple[str, ...]]]


async def until_listed(missing: Missing, *, url: str) -> None:
    """Wait for the cluster exporter's first list, with a line on standard error; SourceDown after the time limit."""
    deadline = time.monotonic() + _PATIENCE
    with _progress() as waiting:
        while kinds := await missing():
            if time.monotonic() > deadline:
                raise SourceDown(
                    f"the cluster exporter at {url} is not ready after {_PATIENCE:g} s: it has not yet listed "
                    f"{', '.join(kinds)}",
                    hint="See the log of the exporter. It needs permission to list nodes, pods and resourcequotas.",
                )
            waiting(kinds)
            await asyncio.sleep(_AGAIN)


@contextmanager
def _progress() -> Iterator[Callable[[tuple[str, ...]], None]]:
    """One line on standard error with what is missing: overwritten in a terminal, otherwise printed on change."""
    shown = ""
    live = sys.stderr.isatty()

    def waiting(missing: tuple[str, ...]) -> None:
        nonlocal shown
        line = f"waiting for the exporter's first list: {', '.join(missing)}"
        if line != shown:
            print(f"\r\x1b[K{line} …" if live else line, end="" if live else "\n", file=sys.stderr, flush=True)
        shown = line

    try:
        yield waiting
    finally:
        if shown and live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def print_line(text: str, file: TextIO | None = None) -> None:
    """Print a line with words of a service: names in them are written by strangers."""
    print(_printable(text), file=file)


def print_csv(content: bytes) -> None:
    """Print CSV on standard output, with its line ends unchanged; on a terminal, only what is printable."""
    if sys.stdout.isatty():
        content = _printable(content.decode(errors="replace")).encode()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def print_json(content: Any) -> None:
    """Print indented JSON as UTF-8, whatever the terminal's encoding."""
    sys.stdout.buffer.write(json_bytes(content, indent=2))
    sys.stdout.buffer.flush()


def json_bytes(content: Any, *, indent: int = -1) -> bytes:
    """JSON with a line end. Characters that could control a terminal are escaped; a program reads the same values."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=indent).decode()
    if not text.replace("\n", "").isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    return f"{text}\n".encode()


def print_drawn(draw: Callable[[int | None], RenderableType], *, wide: bool = False) -> None:
    """Print what is drawn for the width of the output, or for any: in colour on a terminal, plain elsewhere."""
    width = None if wide else paper_width()
    no_color = bool(os.environ.get("NO_COLOR"))
    console = Console(file=sys.stdout, width=width or _PLAIN_WIDTH, no_color=no_color, highlight=False)
    with console.capture() as text:
        console.print(Printable(draw(width)))
    sys.stdout.write("\n".join(line.rstrip() for line in text.get().split("\n")))
    sys.stdout.flush()


def repeated(ask: Callable[[], T], show: Callable[[T], None], *, every: Seconds | None) -> None:
    """Ask and show once; or every so many seconds on a cleared screen, until Ctrl-C.

    An error ends the first round only. Later ones are printed, and the next round asks again.
    """
    answer = ask()
    if every is None:
        show(answer)
        return
    with suppress(KeyboardInterrupt):
        while True:
            if sys.stdout.isatty():
                sys.stdout.write("\x1b[H\x1b[2J\x1b[3J")
            show(answer)
            sys.stdout.flush()
            time.sleep(every)
            try:
                answer = ask()
            except SourceDown as e:
                print_line(e.lines, sys.stderr)


class Printable:
    """What is drawn, without characters that control the terminal: names and texts in it are written by strangers."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._content, options):
            yield segment if segment.control else Segment(_printable(segment.text), segment.style)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\r\n" else "\ufffd" for c in text)
