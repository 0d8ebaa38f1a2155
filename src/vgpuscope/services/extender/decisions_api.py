"""The operations of the extender about its decisions."""

import time
from collections.abc import Callable
from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct

from vgpuscope.formats.times import from_rfc3339
from vgpuscope.http.operations import HttpCall, Operation
from vgpuscope.logic.scheduler.decision_log import DecisionLog
from vgpuscope.model.decision_answers import DecisionBody
from vgpuscope.model.errors import QueryInvalid
from vgpuscope.model.quantity import UnixTime
from vgpuscope.runtime.duration import LONG, long_seconds
from vgpuscope.views.scheduler.decisions import decision_bodies

DECISIONS = "/api/v1/decisions"
MOST = 1000
_MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,20}(Z|[+ -][0-9]{2}:?[0-9]{2})"  # a plus in a URL is a space
_SINCE = rf"{LONG}|[0-9]{{1,11}}(\.[0-9]{{1,9}})?|{_MOMENT}"


class DecisionLogQuery(Struct, frozen=True, kw_only=True):
    """Selects decisions."""

    namespace: Annotated[str | None, Meta(description="Only pods of this namespace.")] = None
    pod: Annotated[str | None, Meta(description="Only pods of this name.")] = None
    since: Annotated[
        Annotated[str, Meta(pattern=f"^({_SINCE})$")] | None,
        Meta(description="Only decisions since then: how long ago (90m, 24h), Unix seconds, or 2026-11-17T08:00:00Z."),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=MOST, description="Most decisions to send.")] = 100
    nodes: Annotated[bool, Meta(description="false: without the verdicts on the nodes.")] = True


class DecisionsApi:
    """Answers from the log of decisions."""

    def __init__(self, log: DecisionLog, *, wall: Callable[[], UnixTime] = time.time) -> None:
        self._log, self._wall = log, wall

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path=DECISIONS,
                summary="decisions about pods with GPUs, newest first, with the verdict on each node",
                handler=self._decisions,
                answer=list[DecisionBody],
                scoped=True,
            ),
        )

    async def _decisions(self, call: HttpCall[DecisionLogQuery, None]) -> list[DecisionBody]:
        asked = call.asked
        since = None if asked.since is None else moment(asked.since, self._wall())
        every = self._log.each(asked.namespace or "", asked.pod or "", since)
        seen = (entry for entry in every if call.caller.sees(entry.namespace))
        return decision_bodies(islice(seen, asked.limit), nodes=asked.nodes)


def moment(text: str, now: UnixTime) -> UnixTime:
    """A moment given as time ago, Unix seconds or RFC 3339; QueryInvalid for anything else."""
    if text[-1:] in "mhdw":
        return now - long_seconds(text)
    if text.replace(".", "", 1).isdigit():
        return float(text)
    found = from_rfc3339(text.replace(" ", "+"))
    if found is None:
        raise QueryInvalid(f"`since` is not a time: {text[:40]!r}", hint="Use 24h, Unix seconds or RFC 3339.")
    return found
