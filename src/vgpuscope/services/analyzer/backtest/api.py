"""The operations of back-tests."""

import time
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from vgpuscope.config import SETTINGS
from vgpuscope.http.operations import HttpCall, Operation
from vgpuscope.http.parameters import NoQuery
from vgpuscope.model.backtest import Backtest, BacktestProgress
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.duration import long_seconds
from vgpuscope.services.analyzer.backtest.backtests import BacktestPeriod, Backtests
from vgpuscope.services.analyzer.settings.settings import Section

PATH = "/api/v1/reclaim/backtest"
_HOUR: Seconds = 3600.0
_DAY: Seconds = 86400.0
_MINUTE: Seconds = 60.0
# The texts that are within the bounds of the numbers beside them.
_Since: TypeAlias = (
    Annotated[float, Meta(ge=_MINUTE, le=42 * _DAY)]
    | Annotated[str, Meta(pattern="^([1-9][0-9]{0,3}m|[1-9][0-9]{0,2}h|([1-9]|[123][0-9]|4[0-2])d|[1-6]w)$")]
)
_Soon: TypeAlias = (
    Annotated[float, Meta(ge=_MINUTE, le=7 * _DAY)]
    | Annotated[str, Meta(pattern="^([1-9][0-9]{0,3}m|[1-9][0-9]?h|[1-7]d|1w)$")]
)


class BacktestRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to replay. Times are seconds, or texts such as 7d and 30m."""

    policy: Annotated[
        Section, Meta(description="Keys of the section reclaim that differ from the policy in effect.")
    ] = {}
    since: Annotated[_Since, Meta(description="How long before `until` the span begins; 1m to 42d.")] = 7 * _DAY
    until: Annotated[
        Annotated[float, Meta(ge=0, le=1e11)] | None,
        Meta(description="End of the span, in Unix seconds; now by default."),
    ] = None
    busy_within: Annotated[
        _Soon,
        Meta(description="An action is a false alarm if the workload is busy again within this time; 1m to 7d."),
    ] = _HOUR

    def span(self, now: UnixTime) -> BacktestPeriod:
        end = now if self.until is None else min(now, self.until)
        return BacktestPeriod(begin=end - _seconds(self.since), end=end, busy_within=_seconds(self.busy_within))


def _shown() -> Any:
    """The body as the OpenAPI document shows it: with the keys of a policy.

    `working_hours` is accepted, too. It is not shown, because no schema can say which names are time zones.
    """
    own = [one for one in SETTINGS if one.section == "reclaim" and one.path != "reclaim.working_hours"]
    fields = [(one.path.partition(".")[2], one.type | UnsetType, UNSET) for one in own]
    policy = msgspec.defstruct("ReclaimPolicy", fields, kw_only=True, forbid_unknown_fields=True)
    return msgspec.defstruct(
        "BacktestBody",
        [("policy", policy | UnsetType, UNSET)],
        bases=(BacktestRequest,),
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


class BacktestApi:
    """The operations, as a table."""

    def __init__(
        self,
        backtests: Callable[[], Backtests],
        *,
        data: Callable[..., Operation],
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        self._find, self._data, self._wall = backtests, data, wall

    def operations(self) -> tuple[Operation, ...]:
        return (
            self._data(PATH, "how far the running back-test is", self._progress, BacktestProgress, scoped=True),
            Operation(
                method="POST",
                path=PATH,
                summary="what a policy would have done in the past; nothing is changed",
                handler=self._run,
                body_shown=_shown(),
                answer=Backtest,
                role="operate",
                scoped=True,
                statuses=(409, 503),
            ),
        )

    async def _progress(self, call: HttpCall[NoQuery, None]) -> BacktestProgress:  # noqa: ARG002 - the same for everybody
        return self._find().progress

    async def _run(self, call: HttpCall[NoQuery, BacktestRequest]) -> Backtest:
        names = call.caller.namespaces
        span = call.body.span(self._wall())
        sees = None if names is None else frozenset(names)
        return await self._find().run(span, call.body.policy, by=call.caller.name, sees=sees)


def _seconds(value: float | str) -> Seconds:
    return long_seconds(value) if isinstance(value, str) else value
