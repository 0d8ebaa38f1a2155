"""Reports low GPUs to the control service of the settings, as gpu-oour does; nothing is taken by it.

analysis ─► rows of /results/low ─► what changed, or is due again ─► one waiting call for each part ─► POST, retried

What was reported is kept in memory: after a restart, or by a new leader, each low GPU is reported once more. A part has
one waiting call at most, which ends when the part is in use again. If the service fails, all calls wait.
"""

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from vgpuscope.config import Config
from vgpuscope.config.reclaim import CallbackWhen, callback_when
from vgpuscope.logic.fleet.low_reports import LowReports, LowState, reports
from vgpuscope.logic.reclaim import retries
from vgpuscope.model.callback import Callback, CallbackOutcome
from vgpuscope.model.errors import CallFailed, ScopeError
from vgpuscope.model.opinion import PartId
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.log import OnChange, error_fields, fields
from vgpuscope.services.analyzer.cycle import Board
from vgpuscope.sinks.webhook import Webhook
from vgpuscope.version import __version__
from vgpuscope.views.fleet.low_parts import control_body, low_parts
from vgpuscope.views.fleet.results.results import ResultRow

log = logging.getLogger(__name__)

_LOOK_EVERY: Seconds = 1.0
_LEADS_WITHIN: Seconds = 30.0
_AT_ONCE = 4


class Callbacks:
    """The calls that wait, and what was reported."""

    def __init__(
        self,
        config: Callable[[], Config],
        *,
        leads: Callable[[], bool],
        failed: Callable[[ScopeError], None],
        clock: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`leads`: whether this replica calls, and not another; `failed` counts an error."""
        self._config, self._leads, self._count_error, self._clock = config, leads, failed, clock
        self._reported: LowReports = {}
        self._made_for: tuple[str, CallbackWhen | None] = ("", None)
        self._waiting: dict[PartId, Callback] = {}
        self._not_before: UnixTime = 0.0
        self._followed_at: UnixTime = 0.0
        self._failures = 0  # in a row
        self._log = OnChange(log)
        self.counts: Counter[CallbackOutcome] = Counter()
        self.changes = 0  # grows with everything that is shown
        self.last_error: str | None = None  # code of the last failure; None: a call was accepted since

    @property
    def when(self) -> CallbackWhen | None:
        """Which GPUs are reported; None: none."""
        config = self._config()
        return callback_when(config.control, config.reclaim)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def follow(self, board: Board) -> None:
        """Find the calls that follow from an analysis; `forever` makes them."""
        control, when = self._config().control, self._begin()
        if when is None:
            return
        parts = await asyncio.to_thread(low_parts, board.rows, threshold=board.threshold, only_idle=when == "idle")
        now = self._followed_at = self._clock()
        states = {part: LowState(row.status, row.verdict) for part, row in parts.low.items()}
        self._reported, due = reports(self._reported, states, parts.in_use, now=now, repeat=control.repeat)
        self._waiting = {part: call for part, call in self._waiting.items() if part in self._reported}
        for part in due:
            self._waiting[part] = _callback(part, parts.low[part], now)
        self.changes += 1

    def _begin(self) -> CallbackWhen | None:
        """What is reported now. Another service, or another choice of GPUs, begins with nothing reported."""
        when = self.when
        made_for = (self._config().control.api_url, when)
        if made_for != self._made_for:
            self._made_for = made_for
            self._forget()
        return when

    def _forget(self) -> None:
        self._reported = {}
        self._waiting.clear()
        self._failures, self._not_before, self.last_error = 0, 0.0, None
        self.changes += 1

    async def forever(self) -> None:
        """Make the calls that wait."""
        while True:
            await self.round()
            await asyncio.sleep(_LOOK_EVERY)

    async def round(self) -> None:
        """Call until nothing waits or a call fails; then all wait, longer after each failure in a row."""
        if self._begin() is None or not self._reported:
            return
        if not self._leads():  # another replica reports; at a start, an analysis can end before this one leads
            if self._clock() - self._followed_at > _LEADS_WITHIN:
                self._forget()
            return
        if self._waiting and self._clock() >= self._not_before:
            await self._call_all()

    async def _call_all(self) -> None:
        control, accepted = self._config().control, 0
        agent = f"vgpuscope/{__version__}"
        async with Webhook(control.api_url, secret=control.secret, timeout=control.timeout, agent=agent) as webhook:
            while self._waiting and self._leads():
                calls = list(self._waiting.values())[:_AT_ONCE]
                errors = await asyncio.gather(*[self._call(webhook, call) for call in calls])
                accepted += errors.count(None)
                failed = [error for error in errors if error is not None]
                self._failures = self._failures + 1 if len(failed) == len(calls) else int(bool(failed))
                if failed:
                    self._failed(failed[-1])
                    break
        if accepted:
            log.info("low GPUs reported to the control service", extra=fields(reported=accepted))
        if not self._failures:
            self._log.tell("service", "up", level=logging.INFO, message="the control service accepts calls")

    async def _call(self, webhook: Webhook, call: Callback) -> CallFailed | None:
        """Make one call; it leaves the queue if it was accepted, and else goes to its end, or is given up."""
        now, error = self._clock(), None
        try:
            await webhook.send(call.body, key=call.key, now=now)
            outcome: CallbackOutcome = "success"
            self.last_error = None
        except CallFailed as e:
            outcome, error = "failure", e
        self.counts[outcome] += 1
        self.changes += 1
        if self._waiting.get(call.part) is call:  # no newer call about this part has taken its place
            del self._waiting[call.part]
            if error is not None and retries.exhausted(call.first_at, now):
                self.counts["given_up"] += 1
            elif error is not None:
                self._waiting[call.part] = call
        return error

    def _failed(self, error: CallFailed) -> None:
        self.last_error = error.code
        self._not_before = self._clock() + retries.pause(self._failures)
        self._count_error(error)
        self._log.tell(
            "service",
            str(error),
            level=logging.WARNING,
            message="a low GPU was not reported to the control service",
            waiting=len(self._waiting),
            **error_fields(error),
        )


def _callback(part: PartId, row: ResultRow, now: UnixTime) -> Callback:
    body = control_body(
        gpu_id=row.gpu_id,
        pod=row.pod,
        namespace=row.namespace,
        hostname=row.hostname,
        score=row.score,
        status=row.status,
        at=now,
    )
    key = hashlib.sha256("\0".join((*part, row.status, row.verdict, f"{now:.3f}")).encode()).hexdigest()[:32]
    return Callback(part=part, key=key, body=msgspec.json.encode(body), first_at=now)
