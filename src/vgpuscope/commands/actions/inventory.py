"""`vgpuscope nodes` and `vgpuscope gpus`: one request to the cluster exporter, after its first list is complete."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from rich.console import RenderableType

from vgpuscope.commands.actions.access import token
from vgpuscope.model.cluster import NodeLedger
from vgpuscope.sources.clients.cluster import NodesApi
from vgpuscope.terminal.printing import print_drawn, print_json, until_listed
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.cluster.inventory import device_rows, gpus_table, nodes_table

T = TypeVar("T")
What = Literal["nodes", "gpus"]


def main(what: What, *, url: str, as_json: bool) -> int:
    """Print the cluster's nodes or devices; the exit code. ScopeError if the exporter does not answer."""
    speak_plainly()
    nodes = sorted(asyncio.run(_ask(url)), key=lambda node: node.name)
    if what == "nodes":
        _show(nodes, nodes_table, as_json=as_json, empty="No nodes: the cluster exporter has found none.")
    else:
        _show(device_rows(nodes), gpus_table, as_json=as_json, empty=_no_gpus(len(nodes)))
    return 0


def _no_gpus(nodes: int) -> str:
    looked = "1 node" if nodes == 1 else f"{nodes} nodes"
    return (
        f"No GPUs on {looked}: none registers a GPU with HAMi, offers nvidia.com/gpu or nvidia.com/mig-*, or has a "
        "ResourceSlice with GPUs."
    )


def _show(
    rows: Sequence[T], table: Callable[[Sequence[T], int | None], RenderableType], *, as_json: bool, empty: str
) -> None:
    if as_json:
        print_json(rows)
    elif rows:
        print_drawn(lambda width: table(rows, width))
    else:
        print(empty)


async def _ask(url: str) -> list[NodeLedger]:
    async with NodesApi(url, token=token()) as api:
        await until_listed(api.missing, url=api.url)
        return await api.nodes()
