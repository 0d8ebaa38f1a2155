"""Messages that list low GPUs, as gpu-oour's handbook has them: on change, as a digest, or at times of the day.

They have nothing to do with reclaim and need no store. What was listed is kept in memory: after a restart, or by a new
leader, a change or a digest is sent once more. A list that does not fit into one message says how many are missing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct

from vgpuscope.config import Config
from vgpuscope.config.notify import LowGpus
from vgpuscope.logic.fleet.low_reports import LowReports, LowState, reports
from vgpuscope.logic.notices.daily import next_time
from vgpuscope.logic.notices.routing import low_uses_for
from vgpuscope.logic.reclaim import retries
from vgpuscope.model.notices import LowUse
from vgpuscope.model.opinion import NoOpinion, Opinion, PartId
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.services.analyzer.cycle import Board
from vgpuscope.services.analyzer.notices.notices import Notices
from vgpuscope.views.fleet.low_parts import low_parts, plain_name
from vgpuscope.views.fleet.results.results import ResultRow

_LOOK_EVERY: Seconds = 1.0
_FOR_OPINIONS: Seconds = 60.0  # that a change waits, so that the language model's reason is in the message
_LEADS_WITHIN: Seconds = 30.0
_NEVER: Seconds = 366 * 86400.0  # a change is told once


class _Letter(Struct):
    """What waits for one channel."""

    uses: dict[PartId, LowUse]
    first_at: UnixTime


class LowGpuNotices:
    """What is to be listed, and the messages that wait for their channels."""

    def __init__(
        self,
        config: Callable[[], Config],
        notices: Notices,
        *,
        leads: Callable[[], bool],
        board: Callable[[], Awaitable[Board]],
        clock: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`leads`: whether this replica sends; `board` returns the results that are shown, with opinions."""
        self._config, self._notices, self._leads, self._board, self._clock = config, notices, leads, board, clock
        self._begin("none")

    def _begin(self, mode: LowGpus) -> None:
        self._mode: LowGpus = mode
        self._reported: LowReports = {}
        self._changed: dict[PartId, UnixTime] = {}
        self._next_list: UnixTime | None = None  # None: not known yet
        self._followed_at: UnixTime = 0.0
        self._letters: dict[str, _Letter] = {}

    async def follow(self, board: Board) -> None:
        """Remember which tenants became low."""
        mode, now = self._config().notify.low_gpus, self._clock()
        if mode != self._mode:
            self._begin(mode)
        self._followed_at = now
        if mode != "change":
            return
        parts = await asyncio.to_thread(low_parts, board.rows, threshold=board.threshold)
        states = {part: LowState(row.status, row.verdict) for part, row in parts.low.items()}
        self._reported, due = reports(self._reported, states, parts.in_use, now=now, repeat=_NEVER)
        self._changed = {part: at for part, at in self._changed.items() if part not in parts.in_use}
        for part in due:
            self._changed.setdefault(part, now)

    async def forever(self) -> None:
        while True:
            await self.round()
            await asyncio.sleep(_LOOK_EVERY)

    async def round(self) -> None:
        """List what is due, and send to each channel that is ready."""
        now = self._clock()
        if self._mode == "none" or self._config().notify.low_gpus != self._mode or not self._followed_at:
            return
        if not self._leads():  # another replica sends; at a start, an analysis can end before this one leads
            if now - self._followed_at > _LEADS_WITHIN:
                self._begin(self._mode)
            return
        if self._due(now):
            await self._write(now)
        await asyncio.gather(*[self._send(name, letter) for name, letter in tuple(self._letters.items())])

    def _due(self, now: UnixTime) -> bool:
        """Whether something is to be listed now; sets the time of the next list."""
        config = self._config()
        if self._mode == "change":
            wait = _FOR_OPINIONS if config.ai.enabled else 0.0
            return any(now - at >= wait for at in self._changed.values())
        due = now >= self._next_list if self._next_list is not None else self._mode == "digest"
        if due and self._mode == "digest":
            self._next_list = now + config.notify.low_gpus_every
        elif self._mode == "schedule" and (due or self._next_list is None):
            self._next_list = next_time(now, config.notify.low_gpus_at, config.notify.timezone)
        return due

    async def _write(self, now: UnixTime) -> None:
        """A letter for each channel, with the numbers of now."""
        board = await self._board()
        if board.stale:
            return
        low = (await asyncio.to_thread(low_parts, board.rows, threshold=board.threshold)).low
        chosen = {part: row for part, row in low.items() if self._mode != "change" or part in self._changed}
        self._changed = {}
        uses = {part: _use(row, board.opinions.parts.get(part)) for part, row in chosen.items()}
        for route in self._notices.routes():
            mine = low_uses_for(route, list(uses.values()))
            listed = {part: use for part, use in uses.items() if use in mine}
            if listed:
                before = self._letters.get(route.name)
                waiting = before.uses if before is not None and self._mode == "change" else {}
                self._letters[route.name] = _Letter(waiting | listed, before.first_at if before is not None else now)

    async def _send(self, name: str, letter: _Letter) -> None:
        if not self._notices.may_send(name):
            return
        sent = await self._notices.send_low(name, tuple(letter.uses.values()))
        given_up = retries.exhausted(letter.first_at, self._clock())
        if (sent or given_up) and self._letters.get(name) is letter:
            del self._letters[name]

    @property
    def waiting(self) -> Mapping[str, Sequence[LowUse]]:
        """By channel: what its next message lists."""
        return {name: tuple(letter.uses.values()) for name, letter in self._letters.items()}


def _use(row: ResultRow, opinion: Opinion | NoOpinion | None) -> LowUse:
    given = opinion if isinstance(opinion, Opinion) else None
    return LowUse(
        namespace=plain_name(row.namespace),
        pod=plain_name(row.pod),
        gpu_id=plain_name(row.gpu_id),
        model=plain_name(row.model_name),
        score=row.score,
        idle_since=row.idle_since or "",
        opinion=given.reason if given else "",
        opinion_zh=given.reason_zh if given else "",
    )
