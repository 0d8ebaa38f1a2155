"""`vgpuscope nodes` and `vgpuscope gpus`: ask the cluster exporter once, wait for its first list, print a table."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import msgspec
from rich.console import Console
from rich.table import Table

from vgpuscope.model.cluster import NodeLedger
from vgpuscope.model.errors import SourceDown
from vgpuscope.runtime.terminal import paper_width, speak_plainly
from vgpuscope.sources.cluster_api import ClusterApi
from vgpuscope.views.inventory import device_rows, gpus_table, nodes_table

T = TypeVar("T")
What = Literal["nodes", "gpus"]
Waiting = Callable[[tuple[str, ...]], None]

_AGAIN = 0.25  # seconds between two looks whether the exporter is ready
_PATIENCE = 300.0  # seconds for its first list; 100,000 pods take some
_PLAIN_WIDTH = 10_000  # a file has no edge


def main(what: What, *, url: str, as_json: bool) -> int:
    """Print the cluster's nodes or devices; the exit code. ScopeError when there is nothing to print."""
    speak_plainly()
    nodes = sorted(asyncio.run(_ask(url)), key=lambda node: node.name)
    if what == "nodes":
        _show(nodes, nodes_table, as_json=as_json)
    else:
        _show(device_rows(nodes), gpus_table, as_json=as_json)
    return 0


def _show(rows: Sequence[T], table: Callable[[Sequence[T], int | None], Table], *, as_json: bool) -> None:
    if as_json:
        _print_json(rows)
    elif rows:
        width = paper_width()
        _print_table(table(rows, width), width or _PLAIN_WIDTH)
    else:
        print("nothing is there: the cluster has none")


async def _ask(url: str) -> list[NodeLedger]:
    async with ClusterApi(url, token=os.environ.get("VGPUSCOPE_TOKEN") or None) as api:
        with _progress() as waiting:
            await _until_ready(api, waiting)
        return await api.nodes()


async def _until_ready(api: ClusterApi, waiting: Waiting) -> None:
    deadline = time.monotonic() + _PATIENCE
    while missing := await api.missing():
        if time.monotonic() > deadline:
            raise SourceDown(
                f"the cluster exporter at {api.url} is not ready after {_PATIENCE:g} s: it waits for "
                f"{', '.join(missing)}",
                hint="Its log says why; it needs to list nodes, pods and resourcequotas.",
            )
        waiting(missing)
        await asyncio.sleep(_AGAIN)


@contextmanager
def _progress() -> Iterator[Waiting]:
    """One line on standard error that says what is waited for: written over in a terminal, else told on change."""
    said = ""
    live = sys.stderr.isatty()

    def waiting(missing: tuple[str, ...]) -> None:
        nonlocal said
        line = f"waiting for the exporter's first list: {', '.join(missing)}"
        if line != said:
            print(f"\r\x1b[K{line} …" if live else line, end="" if live else "\n", file=sys.stderr, flush=True)
        said = line

    try:
        yield waiting
    finally:
        if said and live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _print_json(content: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
    sys.stdout.buffer.flush()


def _print_table(table: Table, width: int) -> None:
    """In colour on a terminal, plain elsewhere."""
    console = Console(file=sys.stdout, width=width, no_color=bool(os.environ.get("NO_COLOR")), highlight=False)
    with console.capture() as text:
        console.print(table)
    sys.stdout.write("\n".join(line.rstrip() for line in text.get().split("\n")))
    sys.stdout.flush()
