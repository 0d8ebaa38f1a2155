"""What needs attention: rules over rows of GPUs, waiting pods, findings and scrape targets, the gravest first."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from vgpuscope.knowledge.xid import advice
from vgpuscope.logic.console.moments import iso_or_none
from vgpuscope.logic.console.scheduling import waited
from vgpuscope.logic.fleet.allocated import UNREPORTED
from vgpuscope.model.analysis import Target
from vgpuscope.model.cluster import Finding
from vgpuscope.model.console.gpus import GpuRow, TenantRow
from vgpuscope.model.console.overview import ATTENTION_KINDS, AttentionKind, AttentionRow
from vgpuscope.model.errors import SourceDown
from vgpuscope.model.pending import PendingPod
from vgpuscope.model.quantity import MIB, Seconds, UnixTime

MOST = 50  # rows that are shown
IDLE_LONG: Seconds = 3600.0  # a GPU that is held and idle for as long
IDLE_TENANT_LONG: Seconds = 1800.0  # an idle tenant on a GPU that others use
PENDING_LONG: Seconds = 300.0
NEAR_LIMIT = 0.95  # of the memory limit
UNATTRIBUTED = 512 * MIB  # memory in use that belongs to no known container
_GRAVITY = {kind: place for place, kind in enumerate(ATTENTION_KINDS)}


def attention(
    rows: Sequence[GpuRow],
    *,
    now: UnixTime,
    targets: Iterable[tuple[Target, str | None]] = (),
    findings: Iterable[Finding] = (),
    pending: Iterable[PendingPod] = (),
) -> list[AttentionRow]:
    """Everything that needs attention, the gravest kind first, then the largest number. `targets` have their node."""
    away = [(target, node) for target, node in targets if not target.up]
    down = {node for _, node in away}
    found = [
        *(_target(target, node, now) for target, node in away),
        *(one for row in rows for one in _gpu(row, now=now, down=down)),
        *(one for row in rows for tenant in row.tenants for one in _tenant(row, tenant, now=now)),
        *(one for pod in pending for one in _pending(pod, now)),
        *map(_finding, findings),
    ]
    return sorted(found, key=lambda one: (_GRAVITY[one.kind], -(one.number or 0.0), one.node or "", one.gpu_id or ""))


def _target(target: Target, node: str | None, now: UnixTime) -> AttentionRow:
    return AttentionRow(
        kind="no-data",
        code=SourceDown.code,
        node=node,
        since=iso_or_none(target.since),
        number=None if target.since is None else _seconds(now - target.since),
        unit=None if target.since is None else "seconds",
        message=f"{target.name}: {target.reason}" if target.reason else target.name,
    )


def _gpu(row: GpuRow, *, now: UnixTime, down: set[str | None]) -> Iterator[AttentionRow]:
    if row.health not in (None, "ok"):
        yield _of(row, kind="unhealthy", code=row.health)
    for xid in row.xids:
        if advice(xid).fatal:
            yield _of(row, kind="xid", code=f"XID_{xid}", number=float(xid), unit="xid")
    if row.node not in down and (row.last_seen or UNREPORTED in row.reasons):
        yield _lasting(row, None, now, kind="no-data", code=row.reasons[0], since=row.last_seen)
    if row.use_class == "stalled":
        yield _of(row, kind="stalled", code=next(iter(row.reasons), None))
    if row.held and row.verdict == "idle" and _lasts(row.idle_since, now) >= IDLE_LONG:
        yield _lasting(row, None, now, kind="idle-long", code=next(iter(row.reasons), None), since=row.idle_since)
    if (row.memory_unattributed or 0) >= UNATTRIBUTED:
        yield _of(row, kind="unattributed", code=None, number=float(row.memory_unattributed or 0), unit="bytes")


def _tenant(row: GpuRow, tenant: TenantRow, *, now: UnixTime) -> Iterator[AttentionRow]:
    used, limit = tenant.memory_max, tenant.memory_limit
    whole = row.memory_total is not None and limit is not None and limit >= row.memory_total  # it may use all there is
    if tenant.own_numbers and used is not None and limit and not whole and used >= NEAR_LIMIT * limit:
        kind: AttentionKind = "over-limit" if used > limit else "near-limit"
        yield _of(row, tenant, kind=kind, code=None, number=round(used / limit, 4), unit="ratio")
    if tenant.verdict == "idle" and row.verdict == "in_use" and _lasts(tenant.idle_since, now) >= IDLE_TENANT_LONG:
        yield _lasting(row, tenant, now, kind="idle-tenant", code=tenant.use_class, since=tenant.idle_since)


def _pending(pod: PendingPod, now: UnixTime) -> Iterator[AttentionRow]:
    seconds = waited(pod, now)
    if pod.outcome == "waiting" and seconds is not None and seconds >= PENDING_LONG:
        yield AttentionRow(
            kind="pending-long",
            code=pod.code,
            namespace=pod.namespace,
            pod=pod.pod,
            since=iso_or_none(pod.created),
            number=seconds,
            unit="seconds",
            message=pod.fact or None,
            message_zh=pod.fact_zh or None,
        )


def _finding(one: Finding) -> AttentionRow:
    return AttentionRow(
        kind="finding",
        code=one.kind,
        node=one.node or None,
        gpu_id=one.device or None,
        namespace=one.namespace or None,
        pod=one.pod or None,
        message=one.reason or None,
    )


def _lasting(
    row: GpuRow, tenant: TenantRow | None, now: UnixTime, *, kind: AttentionKind, code: str | None, since: str | None
) -> AttentionRow:
    number = None if since is None else _seconds(_lasts(since, now))
    return _of(row, tenant, kind=kind, code=code, since=since, number=number, unit=None if since is None else "seconds")


def _of(
    row: GpuRow, tenant: TenantRow | None = None, *, kind: AttentionKind, code: str | None, **more: object
) -> AttentionRow:
    """About a GPU, and its tenant: the given one, or the only one."""
    who = tenant or (row.tenants[0] if len(row.tenants) == 1 and row.others is None else None)
    return AttentionRow(
        kind=kind,
        code=code,
        node=row.node,
        gpu_id=row.gpu_id,
        mig=row.mig,
        namespace=who.namespace if who else None,
        pod=who.pod if who else None,
        container=who.container if who else None,
        **more,  # type: ignore[arg-type]
    )


def _lasts(since: str | None, now: UnixTime) -> Seconds:
    """Seconds since a moment; -1 if there is none."""
    return -1.0 if since is None else now - datetime.fromisoformat(since).timestamp()


def _seconds(value: Seconds) -> Seconds:
    return round(max(0.0, value), 1)
