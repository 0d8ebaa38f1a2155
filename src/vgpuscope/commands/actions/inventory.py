"""`vgpuscope nodes` and `vgpuscope gpus`: one request to the cluster exporter, after its first list is complete."""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, TypeVar

from msgspec import Struct
from rich.console import RenderableType

from vgpuscope.commands.actions.access import TOKEN_SOURCE, token
from vgpuscope.commands.actions.language import language_of
from vgpuscope.commands.arguments import Form
from vgpuscope.model.cluster import NodeLedger
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.words import Language
from vgpuscope.sources.clients.cluster import NodesApi
from vgpuscope.terminal.printing import print_csv, print_drawn, print_json, repeated, until_listed
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.cluster.inventory import InventoryDevice, device_rows, gpus_table, held_in, nodes_table
from vgpuscope.views.cluster.inventory_words import word
from vgpuscope.views.fleet.selection import as_csv

T = TypeVar("T", bound=Struct)
What = Literal["nodes", "gpus"]


def main(
    what: What,
    *,
    url: str,
    namespace: str | None,
    form: Form,
    language: str | None,
    wide: bool,
    every: Seconds | None,
) -> int:
    """Print the cluster's nodes or devices; the exit code. ScopeError if the exporter does not answer."""
    speak_plainly()
    spoken = language_of(language, os.environ)

    def show(nodes: Sequence[NodeLedger]) -> None:
        if what == "nodes":
            empty = word("no_nodes", spoken)
            drawn = partial(nodes_table, nodes, language=spoken)
            _show(nodes, NodeLedger, drawn, form=form, empty=empty, wide=wide)
            return
        rows = device_rows(nodes)
        empty = _no_gpus(len(nodes), spoken)
        if namespace:
            rows, empty = held_in(rows, namespace), word("no_gpus_in", spoken, namespace=namespace)
        drawn = partial(gpus_table, rows, language=spoken)
        _show(rows, InventoryDevice, drawn, form=form, empty=empty, wide=wide)

    repeated(lambda: asyncio.run(_ask(url)), show, every=every)
    return 0


def _no_gpus(nodes: int, language: Language) -> str:
    return word("no_gpus", language, nodes=word("one_node" if nodes == 1 else "some_nodes", language, n=nodes))


def _show(
    rows: Sequence[T],
    kind: type[T],
    draw: Callable[[int | None], RenderableType],
    *,
    form: Form,
    empty: str,
    wide: bool,
) -> None:
    if form == "json":
        print_json(rows)
    elif form == "csv":
        print_csv(as_csv(rows, kind.__struct_fields__))
    elif rows:
        print_drawn(draw, wide=wide)
    else:
        print(empty)


async def _ask(url: str) -> list[NodeLedger]:
    async with NodesApi(url, token=token(), source=TOKEN_SOURCE) as api:
        await until_listed(api.missing, url=api.url)
        return sorted(await api.nodes(), key=lambda node: node.name)
