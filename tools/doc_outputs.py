"""Outputs of commands in the documentation: each is what the demo prints, so that a renamed column is seen.

A block is marked by a comment above it, <!-- demo: COMMAND --> or <!-- demo: COMMAND | REGEX -->; with REGEX only the
lines in which it is found are shown. The command is one of vgpuscope, without the address; `start` is the demo's own
page.
`python -m tools.doc_outputs` starts a demo and writes the blocks anew. The test compares what does not depend on the
moment: numbers, ids, bars and widths are ignored.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tools.pictures import demo

ROOT = Path(__file__).resolve().parents[1]
PAGES = tuple(ROOT / "docs" / name for name in ("tutorial.md", "tutorial.zh-CN.md", "demo.md"))
WIDTH = 120  # columns
_BLOCK = re.compile(r"<!-- demo: (?P<command>.+?)(?: \| (?P<only>.+?))? -->\n\n?```\n(?P<text>.*?)```", re.S)
_URL = re.compile(r"http://\S+")
_AT = {"results": "analyzer", "waste": "analyzer", "reclaim": "analyzer", "pending": "cluster", "nodes": "cluster"}
_VARIES = (
    (re.compile(r"https?://\S+"), "URL"),
    (re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}\S*"), "ID"),
    (re.compile(r"[━╾─╺╸·]+"), ""),  # bars, as long as the number beside them
    (re.compile(r"\d+ (?:d|h|min|s)\b(?: \d+ (?:h|min|s)\b)?"), "TIME"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "N"),
    (re.compile(r"\b(?:in[_ ]use|unknown)\b"), "VERDICT"),  # on a busy machine samples are missing; idle is proven
    (re.compile(r"(?:(?<=\s)|^)[–-](?=\s|$)"), "N"),  # not measured at the moment
)

Run = Callable[[str], str]  # a command, without its address, to what it prints


class Block(NamedTuple):
    """One output in a page."""

    page: str
    command: str
    only: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    for found in _BLOCK.finditer(page.read_text()):
        yield Block(page.name, found["command"], found["only"] or "", found["text"])


def shown(printed: str, only: str) -> str:
    """The lines of an output that a page shows."""
    lines = [line.rstrip() for line in printed.splitlines() if re.search(only, line)]
    return "\n".join(lines) + "\n"


def normal(text: str) -> list[str]:
    """The lines of an output without what changes from run to run."""
    for pattern, word in _VARIES:
        text = pattern.sub(word, text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def runner(page: str) -> Run:
    """Runs commands against the demo that has printed this page."""
    places = {"start": page, **dict(re.findall(r"^ *(?:agent )?([\w-]+) +(http://127\.0\.0\.1:\d+)", page, re.M))}

    def run(command: str) -> str:
        if command == "start":
            return page
        words = command.split()
        place = places[_AT.get(words[0], "whole-b")]
        flag = ["--url", place] if words[0] == "reclaim" else [place]
        done = subprocess.run(
            [sys.executable, "-m", "vgpuscope", *words, *flag],
            capture_output=True,
            text=True,
            env=os.environ | {"COLUMNS": str(WIDTH), "LANG": "C.UTF-8"},
            check=False,
        )
        return done.stdout

    return run


def written(page: Path, run: Run) -> str:
    """The page with outputs of this run."""

    def block(found: re.Match[str]) -> str:
        text = shown(run(found["command"]), found["only"] or "")
        if found["command"] == "start":  # a reader's demo has the usual ports
            usual = iter(_URL.findall(found["text"]))
            text = re.sub(rf"{_URL.pattern} *", lambda _: f"{next(usual):31} ", text)
        return found[0].replace(f"```\n{found['text']}```", f"```\n{text}```")

    return _BLOCK.sub(block, page.read_text())


def main() -> None:
    """Write all outputs of all pages."""
    with demo() as running:
        run = runner(running.page)
        for page in PAGES:
            page.write_text(written(page, run))
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
