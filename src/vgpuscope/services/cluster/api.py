"""The cluster exporter's API: nodes, pods waiting for devices, owners."""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct

from vgpuscope.http import docs
from vgpuscope.http.answers import HttpAnswer
from vgpuscope.http.openapi import document
from vgpuscope.http.operations import HttpCall, Operation
from vgpuscope.http.parameters import NoQuery
from vgpuscope.model.cluster import NodeLedger
from vgpuscope.model.pending import PendingList
from vgpuscope.services.field_notes import field_notes

TITLE = "vgpuscope cluster"
_ABOUT = "What the cluster's GPUs are allocated to, what is free, and why pods wait for them."


class PendingQuery(Struct, frozen=True, kw_only=True):
    """Selects pods."""

    namespace: Annotated[str | None, Meta(description="Only pods of this namespace.")] = None
    pod: Annotated[str | None, Meta(description="Only pods of this name.")] = None
    all: Annotated[bool, Meta(description="true: also pods that no longer wait.")] = False


class Handlers(Protocol):
    """The handlers of the operations."""

    async def nodes(self, call: HttpCall[NoQuery, None]) -> HttpAnswer: ...
    async def pending(self, call: HttpCall[PendingQuery, None]) -> PendingList: ...
    async def owners(self, call: HttpCall[NoQuery, None]) -> dict[str, str]: ...


def operations(of: Handlers, *, guarded: Callable[[], bool] = lambda: False) -> tuple[Operation, ...]:
    """The table of operations. `guarded`: whether the web configuration has users or tokens now."""
    own = (
        _get("/api/v1/nodes", "the ledger of every node as JSON", of.nodes, list[NodeLedger]),
        _get("/api/v1/pending", "pods that wait for devices, with the reasons, as JSON", of.pending, PendingList),
        _get(
            "/api/v1/owners",
            "the topmost owner of each pod with devices, as JSON",
            of.owners,
            dict[str, str],
            statuses=(503,),
            scoped=True,
        ),
    )
    made = cache(lambda guarded: document(table, title=TITLE, description=_ABOUT, guarded=guarded, notes=field_notes))
    table = (*own, *docs.operations(title=TITLE, document=lambda: made(guarded())))
    return table


def _get(path: str, summary: str, handler: Any, answer: Any, **more: Any) -> Operation:
    return Operation(method="GET", path=path, summary=summary, handler=handler, answer=answer, **more)
