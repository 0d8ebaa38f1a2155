"""What back-tests replay: who held what, and the verdicts, of every analysis of the last weeks.

Results of single analyses are kept for a day only, and without the UIDs of pods. This table keeps less of each analysis
for longer. Most GPUs are the same from one analysis to the next, so a frame has only the GPUs that changed. A whole
frame begins a chain, once a day and after each restart. A frame whose chain is broken is not used: its time is unknown.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Callable
from functools import partial
from math import floor
from typing import NamedTuple
from uuid import uuid4

import msgspec
from msgspec import Struct

from vgpuscope.model.analysis import (
    Analysis,
    Evidence,
    GpuUse,
    Stat,
    Tenant,
    TenantUse,
    Window,
)
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.store.encoding import CLASS_CODES, TIME, VERDICT_CODES, Millis, millis
from vgpuscope.store.engine.database import Transaction, Values
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.engine.migrations import Migration, TableSet

KEEP: Seconds = 14 * 86400.0
MOST_BYTES = 512 * 2**20  # of all frames; the oldest chain is dropped first
_CHAIN = 300  # frames: a day at the default interval
_PAGE = 50  # frames that are read at once
_LEVEL = 1

TABLES = TableSet(
    "past",
    (
        Migration(
            1,
            (
                """
CREATE TABLE past_frames (
    number {id},
    time bigint NOT NULL,
    begin bigint NOT NULL,
    chain text NOT NULL,
    place integer NOT NULL,
    size integer NOT NULL,
    body {bytes} NOT NULL
)
""",
                "CREATE INDEX past_frames_time ON past_frames (time, number)",
                "CREATE INDEX past_frames_chains ON past_frames (time) WHERE place = 0",
            ),
        ),
    ),
)
_COLUMNS = ("time", "begin", "chain", "place", "size", "body")
_START = "SELECT max(time) FROM past_frames WHERE place = 0 AND time <= :begin"
_FRAMES = (
    "SELECT time, number, begin, chain, place, body FROM past_frames "
    "WHERE (time > :time OR (time = :time AND number > :number)) AND time < :end ORDER BY time, number LIMIT :most"
)
# Whole chains only: without its first frame, the rest of a chain is of no use.
_EXPIRED = (
    "DELETE FROM past_frames WHERE chain IN (SELECT chain FROM past_frames GROUP BY chain HAVING max(time) < :before)"
)
_SIZE = "SELECT coalesce(sum(size), 0) FROM past_frames"
_OLDEST_CHAIN = "SELECT chain FROM past_frames ORDER BY time, number LIMIT 1"
_DROP_CHAIN = "DELETE FROM past_frames WHERE chain = :chain"


class _Tenant(Struct, frozen=True, array_like=True, gc=False):
    namespace: str
    pod: str
    uid: str
    owner: str
    verdict: int  # its code
    use_class: int  # its code
    coverage: int | None  # percent, rounded down: a policy never sees more than was measured
    idle_since: int | None
    limit: int | None
    partly_seen: bool = False


class _Gpu(Struct, frozen=True, array_like=True, gc=False):
    gpu_id: str
    mig: str
    hostname: str
    model: str
    reports: bool  # it is there to show its tenants
    memory: int | None
    tenants: tuple[_Tenant, ...]


class _Frame(Struct, frozen=True, array_like=True):
    gpus: tuple[_Gpu, ...]
    gone: tuple[tuple[str, str], ...]


class _Row(NamedTuple):
    """One stored frame."""

    time: Millis
    number: int
    begin: Millis
    chain: str
    place: int
    body: bytes


class _Written(NamedTuple):
    """What the writer knows once its transaction is committed."""

    chain: str
    place: int
    known: dict[tuple[str, str], int]


_NOTHING = _Written("", 0, {})
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Frame)


class PastStore:
    """The frames of the store. Reading may raise HistoryDown."""

    def __init__(self, engine: Engine, *, keep: Seconds = KEEP, most: int = MOST_BYTES) -> None:
        engine.register(TABLES)
        self._engine, self._keep, self._most = engine, keep, most
        self._last = _NOTHING  # of this process; hashes only: the GPUs themselves would take memory

    # ── on the thread of the store ───────────────────────────────────────────────────────────────────────────────

    def add(self, tx: Transaction, analysis: Analysis) -> Callable[[], None]:
        """Store a frame in the transaction that stores the analysis; call what is returned once it is committed."""
        gpus = {(gpu.gpu_id, gpu.mig): gpu for gpu in map(_slim, analysis.gpus)}
        hashes = {key: hash(_ENCODER.encode(gpu)) for key, gpu in gpus.items()}
        last = self._last
        if not last.chain or last.place + 1 >= _CHAIN:
            last = _Written(uuid4().hex, -1, {})
        changed = tuple(gpu for key, gpu in gpus.items() if last.known.get(key) != hashes[key])
        gone = tuple(key for key in last.known if key not in hashes)
        body = zlib.compress(_ENCODER.encode(_Frame(changed, gone)), _LEVEL)
        window, place = analysis.window, last.place + 1
        row = (millis(window.end), millis(window.begin), last.chain, place, len(body), body)
        tx.insert("past_frames", _COLUMNS, [row])
        return partial(self._added, _Written(last.chain, place, hashes))

    def forget(self) -> None:
        """The next frame is a whole one."""
        self._last = _NOTHING

    def _added(self, written: _Written) -> None:
        self._last = written

    # ── for everybody ────────────────────────────────────────────────────────────────────────────────────────────

    async def read(self, *, begin: UnixTime, end: UnixTime) -> AsyncGenerator[Analysis, None]:
        """The analyses that ended in this span, oldest first, with all that a replay needs."""
        chain = _Chain()
        [(start,)] = await self._engine.read(lambda tx: tx.all(_START, begin=millis(begin)))
        after = (millis(begin) if start is None else start) - 1, 0
        while True:
            rows = [_Row(*row) for row in await self._engine.read(partial(_page, after=after, end=millis(end)))]
            for row in rows:
                gpus = await asyncio.to_thread(chain.follow, row)
                if gpus is not None and row.time >= millis(begin):
                    yield _analysis(row, gpus)
            if len(rows) < _PAGE:
                return
            after = rows[-1][:2]

    async def prune(self, now: UnixTime) -> None:
        """Drop what is too old, and the oldest chains while all frames together are too large."""
        await self._engine.write(lambda tx: self._prune(tx, millis(now - self._keep)))

    def _prune(self, tx: Transaction, before: int) -> None:
        tx.all(_EXPIRED, before=before)
        while tx.all(_SIZE)[0][0] > self._most:
            [(chain,)] = tx.all(_OLDEST_CHAIN)
            tx.all(_DROP_CHAIN, chain=chain)
            if chain == self._last.chain:
                self.forget()


class _Chain:
    """The GPUs as the frames read so far leave them; those that did not change are the same objects."""

    def __init__(self) -> None:
        self._chain, self._place = "", 0
        self._gpus: dict[tuple[str, str], GpuUse] = {}

    def follow(self, row: _Row) -> tuple[GpuUse, ...] | None:
        """The GPUs of this frame; None: an earlier frame of its chain is missing."""
        if row.place == 0:
            self._chain, self._gpus = row.chain, {}
        elif row.chain != self._chain or row.place != self._place + 1:
            return None
        self._place = row.place
        frame = _DECODER.decode(zlib.decompress(row.body))
        for key in frame.gone:
            self._gpus.pop(key, None)
        self._gpus.update({(gpu.gpu_id, gpu.mig): _whole(gpu) for gpu in frame.gpus})
        return tuple(self._gpus.values())


def _page(tx: Transaction, *, after: tuple[int, int], end: int) -> list[Values]:
    return tx.all(_FRAMES, time=after[0], number=after[1], end=end, most=_PAGE)


def _analysis(row: _Row, gpus: tuple[GpuUse, ...]) -> Analysis:
    begin, end = row.begin / TIME, row.time / TIME
    return Analysis(
        number=row.number, started=end, seconds=0.0, window=Window(begin=begin, end=end, interval=1.0), gpus=gpus
    )


def _slim(gpu: GpuUse) -> _Gpu:
    memory = gpu.terms.get("mem_total")
    return _Gpu(
        gpu_id=gpu.gpu_id,
        mig=gpu.mig,
        hostname=gpu.hostname,
        model=gpu.model,
        reports=gpu.last_seen is None and gpu.absent_since is None and not gpu.unreported,
        memory=None if memory is None or memory.mean is None else round(memory.mean),
        tenants=tuple(map(_slim_tenant, gpu.tenants)),
    )


def _slim_tenant(use: TenantUse) -> _Tenant:
    coverage = use.evidence.coverage
    return _Tenant(
        namespace=use.tenant.namespace,
        pod=use.tenant.pod,
        uid=use.tenant.pod_uid,
        owner=use.owner,
        verdict=VERDICT_CODES.index(use.verdict),
        use_class=CLASS_CODES.index(use.use_class),
        coverage=None if coverage is None else floor(coverage * 100 + 1e-9),
        idle_since=None if use.idle_since is None else round(use.idle_since),
        limit=use.memory_limit,
        partly_seen=use.partly_seen,
    )


def _whole(gpu: _Gpu) -> GpuUse:
    return GpuUse(
        gpu_id=gpu.gpu_id,
        mig=gpu.mig,
        hostname=gpu.hostname,
        model=gpu.model,
        terms={} if gpu.memory is None else {"mem_total": Stat(mean=float(gpu.memory))},
        last_seen=None if gpu.reports else 0.0,
        tenants=tuple(map(_whole_tenant, gpu.tenants)),
    )


def _whole_tenant(tenant: _Tenant) -> TenantUse:
    return TenantUse(
        tenant=Tenant(namespace=tenant.namespace, pod=tenant.pod, pod_uid=tenant.uid),
        verdict=VERDICT_CODES[tenant.verdict],
        use_class=CLASS_CODES[tenant.use_class],
        evidence=Evidence(coverage=None if tenant.coverage is None else tenant.coverage / 100),
        idle_since=tenant.idle_since,
        memory_limit=tenant.limit,
        owner=tenant.owner,
        partly_seen=tenant.partly_seen,
    )
