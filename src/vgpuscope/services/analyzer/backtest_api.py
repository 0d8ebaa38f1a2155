"""The operations of back-tests."""

import time
from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta, Struct

from vgpuscope.http.operations import Call, Operation
from vgpuscope.http.parameters import NoQuery
from vgpuscope.model.backtest import Backtest, BacktestProgress
from vgpuscope.model.errors import BodyInvalid
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.duration import long_seconds
from vgpuscope.services.analyzer.backtest import Backtests, Span

PATH = "/api/v1/reclaim/backtest"
_HOUR: Seconds = 3600.0
_DAY: Seconds = 86400.0
_SPAN = (60.0, 31 * _DAY)
_SOON = (60.0, 7 * _DAY)


class BacktestRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to replay. Times are seconds, or texts such as 7d and 30m."""

    policy: Annotated[
        dict[str, Any], Meta(description="Keys of the section reclaim that differ from the policy in effect.")
    ] = {}
    since: Annotated[float | str, Meta(description="How long before `until` the span begins; 1m to 31d.")] = 7 * _DAY
    until: Annotated[
        Annotated[float, Meta(ge=0, le=1e11)] | None,
        Meta(description="End of the span, in Unix seconds; now by default."),
    ] = None
    busy_within: Annotated[
        float | str,
        Meta(description="An action is a false alarm if the workload is busy again within this time; 1m to 7d."),
    ] = _HOUR

    def span(self, now: UnixTime) -> Span:
        """The span; BodyInvalid if a time is none."""
        end = now if self.until is None else min(now, self.until)
        since = _seconds("since", self.since, _SPAN)
        return Span(begin=end - since, end=end, busy_within=_seconds("busy_within", self.busy_within, _SOON))


class BacktestApi:
    """The operations, as a table."""

    def __init__(self, backtests: Callable[[], Backtests], *, data: Callable[..., Operation]) -> None:
        self._find, self._data = backtests, data

    def operations(self) -> tuple[Operation, ...]:
        return (
            self._data(PATH, "how far the running back-test is", self._progress, BacktestProgress),
            Operation(
                method="POST",
                path=PATH,
                summary="what a policy would have done in the past; nothing is changed",
                handler=self._run,
                answer=Backtest,
                role="operate",
                scoped=True,
                statuses=(409, 503),
            ),
        )

    async def _progress(self, call: Call[NoQuery, None]) -> BacktestProgress:  # noqa: ARG002 - the same for everybody
        return self._find().progress

    async def _run(self, call: Call[NoQuery, BacktestRequest]) -> Backtest:
        names = call.caller.namespaces
        span = call.body.span(time.time())
        sees = None if names is None else frozenset(names)
        return await self._find().run(span, call.body.policy, by=call.caller.name, sees=sees)


def _seconds(name: str, value: float | str, allowed: tuple[Seconds, Seconds]) -> Seconds:
    try:
        found = long_seconds(value) if isinstance(value, str) else float(value)
    except ValueError as e:
        raise BodyInvalid(f"{name}: {e}") from e
    least, most = allowed
    if not least <= found <= most:  # false for NaN, too
        raise BodyInvalid(f"{name}: {found:g} s is not from {least:g} to {most:g} s")
    return found
