"""The agent's API: the last sample of its node."""

from collections.abc import Awaitable, Callable
from functools import cache

from vgpuscope.http.openapi import described, document
from vgpuscope.http.operations import HttpCall, Operation
from vgpuscope.http.parameters import NoQuery
from vgpuscope.model.usage import NodeSnapshot
from vgpuscope.services.field_notes import field_notes

TITLE = "vgpuscope agent"
_ABOUT = "The GPUs of one node, their processes, containers and pods, as of the last sample."


def operations(
    node: Callable[[HttpCall[NoQuery, None]], Awaitable[NodeSnapshot]], *, guarded: Callable[[], bool] = lambda: False
) -> tuple[Operation, ...]:
    """The table of operations; `node` returns the last sample.

    `guarded`: whether the web configuration has users or tokens now.
    """
    own = Operation(
        method="GET",
        path="/api/v1/node",
        summary="the last sample as JSON; `vgpuscope top` shows it",
        handler=node,
        answer=NodeSnapshot,
        statuses=(503,),
    )

    made = cache(lambda guarded: document(table, title=TITLE, description=_ABOUT, guarded=guarded, notes=field_notes))
    table = (own, described(lambda: made(guarded())))
    return table
