"""The terminal in full-screen mode: single keys are read, the whole screen is painted, and its state is restored."""

import asyncio
import codecs
import contextlib
import os
import re
import shutil
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from typing import Any
from unicodedata import east_asian_width

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"  # the alternate screen, no cursor, cleared
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_ESCAPE_WAIT = 0.05  # seconds in which the rest of a key's sequence follows its first byte, even over a slow line

_WHOLE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO[@-~]|\x1b[^\x1b\[O]|[^\x1b]", re.DOTALL)
_BEGUN = re.compile(r"\x1b(\[[0-?]*[ -/]*|O)?\Z")
_NAMES = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x15": "clear",
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "pgup",
    "\x1b[6~": "pgdn",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1bOH": "home",
    "\x1bOF": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
}


def keys(text: str) -> tuple[list[str], str]:
    """The keys that were pressed, and the start of an incomplete sequence; unknown keys are ignored."""
    found: list[str] = []
    at = 0
    while at < len(text):
        whole = _WHOLE.match(text, at)
        if whole is None:
            if _BEGUN.match(text, at):
                return found, text[at:]
            at += 1  # an incomplete sequence
            continue
        key = _NAMES.get(whole[0], whole[0])
        if key.isprintable():
            found.append(key)
        at = whole.end()
    return found, ""


class Terminal:
    """The terminal of this process, if both its input and its output are one."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._was: Any = None
        self._size: tuple[int, int] | None = None
        self._picture = ""

    def size(self) -> tuple[int, int]:
        """Columns and lines, now."""
        with contextlib.suppress(OSError):
            columns, lines = os.get_terminal_size(self._out)
            if columns and lines:
                return columns, lines
        return 80, 24  # a pseudo terminal without a size

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Full-screen mode: no echo, single keys, the alternate screen."""
        try:
            self._take()
            yield
        finally:
            self._give_back()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Leave the full-screen mode for a while, as for Ctrl-Z."""
        self._give_back()
        try:
            yield
        finally:
            self._take()

    @contextlib.contextmanager
    def listening(self, on_key: Callable[[str], None], on_end: Callable[[], None]) -> Iterator[None]:
        """Call back for each key, and when the terminal is closed."""
        if not os.isatty(self._in):
            yield  # no keyboard; signals still end the program
            return
        loop, keyboard = asyncio.get_running_loop(), _Keyboard(on_key)

        def readable() -> None:
            try:
                data = os.read(self._in, 4096)
            except OSError:
                data = b""
            if data:
                keyboard.feed(data)
            else:
                loop.remove_reader(self._in)
                on_end()

        loop.add_reader(self._in, readable)
        try:
            yield
        finally:
            loop.remove_reader(self._in)

    def paint(self, picture: str) -> None:
        """Paint a whole screen of text; an unchanged screen is not sent again."""
        size = self.size()
        if (picture, size) != (self._picture, self._size):
            clear = "" if size == self._size else "\x1b[2J"
            self._picture, self._size = picture, size
            self._write(f"{clear}\x1b[H{picture}")

    def _take(self) -> None:
        if os.isatty(self._in):
            self._was = termios.tcgetattr(self._in)
            tty.setcbreak(self._in)
        self._size = None
        self._write(_ENTER)

    def _give_back(self) -> None:
        with contextlib.suppress(OSError):  # the terminal may be closed already
            self._write(_LEAVE)
        if self._was is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._in, termios.TCSAFLUSH, self._was)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


class _Keyboard:
    def __init__(self, on_key: Callable[[str], None]) -> None:
        self._on_key = on_key
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        if self._timer:
            self._timer.cancel()
        found, self._begun = keys(self._begun + self._decoder.decode(data))
        for key in found:
            self._on_key(key)
        if self._begun:
            self._timer = asyncio.get_running_loop().call_later(_ESCAPE_WAIT, self._nothing_follows)

    def _nothing_follows(self) -> None:
        if self._begun == "\x1b":
            self._on_key("esc")
        self._begun = ""


def paper_width() -> int | None:
    """Width of standard output in cells; a file has none, unless COLUMNS is set."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return None


_DRAWN = "━╾─╌█├└│●○◌✓✗–…·↑↓°“”▏×"
_TYPED = '#+-.#|`|*o.+x-..^v\'""|x'


def _plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(str.maketrans(_DRAWN, _TYPED))
    return "".join(c if c.isascii() else "??" if east_asian_width(c) in "WF" else "?" for c in text), error.end


def speak_plainly() -> None:
    """Replace characters that the encoding of standard output lacks by ASCII, instead of failing."""
    codecs.register_error("vgpuscope-plain", _plainly)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="vgpuscope-plain")
