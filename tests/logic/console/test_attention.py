"""What needs attention, and what does not."""

from typing import Any

import pytest

from tests.store import fleets
from vgpuscope.logic.console.attention import attention
from vgpuscope.logic.console.moments import iso
from vgpuscope.logic.console.timeline import between, digest, waits
from vgpuscope.model.analysis import Target
from vgpuscope.model.cluster import Finding
from vgpuscope.model.console.gpus import GpuRow, TenantRow
from vgpuscope.model.pending import PendingPod

NOW = fleets.NOON
GIB = 1024**3


def ago(seconds: float) -> str:
    return iso(NOW - seconds)


def gpu(*tenants: TenantRow, **more) -> GpuRow:
    fields: dict[str, Any] = {"gpu_id": "GPU-1", "node": "n", "held": bool(tenants), "shared": len(tenants) > 1}
    return GpuRow(**(fields | more), tenants=tenants)


def tenant(pod: str = "p", **more) -> TenantRow:
    return TenantRow(namespace="ml", pod=pod, own_numbers=True, **more)


IDLE: dict[str, Any] = {"verdict": "idle", "use_class": "idle-held"}
BUSY: dict[str, Any] = {"verdict": "in_use", "use_class": "busy"}


@pytest.mark.parametrize(
    ("row", "kinds"),
    [
        (gpu(health="lost"), ["unhealthy"]),
        (gpu(health="ok"), []),
        (gpu(xids=(79,)), ["xid"]),
        (gpu(xids=(31,)), []),  # only the application is affected
        (gpu(last_seen=ago(60), reasons=("VERDICT_NOT_SEEN",)), ["no-data"]),
        (gpu(reasons=("VERDICT_UNREPORTED",)), ["no-data"]),
        (gpu(use_class="stalled"), ["stalled"]),
        (gpu(tenant(**IDLE), **IDLE, idle_since=ago(7200)), ["idle-long"]),
        (gpu(tenant(**IDLE), **IDLE, idle_since=ago(60)), []),
        (gpu(**IDLE, idle_since=ago(7200)), []),  # no pod has it: it is free
        (gpu(tenant(**BUSY), tenant("q", **IDLE, idle_since=ago(3600)), **BUSY), ["idle-tenant"]),
        (gpu(tenant(**BUSY), tenant("q", **IDLE), **BUSY), []),  # since when is not known
        (gpu(tenant(memory_max=11, memory_limit=10)), ["over-limit"]),
        (gpu(tenant(memory_max=10, memory_limit=10)), ["near-limit"]),
        (gpu(tenant(memory_max=9, memory_limit=10)), []),
        (gpu(tenant(memory_max=9, memory_limit=None)), []),
        (gpu(tenant(memory_max=10, memory_limit=10), memory_total=10), []),  # it has the whole GPU
        (gpu(tenant(memory_max=10, memory_limit=10), memory_total=11), ["near-limit"]),
        (gpu(memory_unattributed=GIB), ["unattributed"]),
        (gpu(memory_unattributed=1), []),
        (gpu(memory_unattributed=None), []),
    ],
)
def test_a_gpu_needs_attention_for_a_reason(row, kinds):
    assert [one.kind for one in attention([row], now=NOW)] == kinds


def test_a_row_names_its_objects_the_number_and_since_when():
    (found,) = attention([gpu(tenant("nb", **IDLE), **IDLE, idle_since=ago(7200))], now=NOW)
    assert (found.node, found.gpu_id, found.namespace, found.pod) == ("n", "GPU-1", "ml", "nb")
    assert (found.number, found.unit, found.since) == (7200.0, "seconds", ago(7200))


def test_a_target_that_is_down_stands_for_all_of_its_gpus():
    down = Target(name="http://n", up=False, since=NOW - 90, reason="refused")
    rows = [gpu(gpu_id=f"GPU-{n}", last_seen=ago(90)) for n in range(8)]
    (found,) = attention(rows, now=NOW, targets=[(down, "n"), (Target(name="http://m", up=True), "m")])
    assert (found.kind, found.node, found.number, found.message) == ("no-data", "n", 90.0, "http://n: refused")


def test_pods_that_wait_for_long_and_findings_need_attention_and_the_gravest_come_first():
    pods = [
        PendingPod(namespace="ml", pod="new", pod_uid="1", created=NOW - 10),
        PendingPod(namespace="ml", pod="old", pod_uid="2", created=NOW - 900, code="SCHED_TAINT"),
        PendingPod(namespace="ml", pod="older", pod_uid="3", created=NOW - 9000),
        PendingPod(namespace="ml", pod="done", pod_uid="4", created=NOW - 9000, outcome="scheduled"),
    ]
    ghost = Finding(kind="ghost", node="n", reason="ended", namespace="ml", pod="gone", device="GPU-2")
    found = attention([gpu(health="lost")], now=NOW, pending=pods, findings=[ghost])
    assert [(one.kind, one.pod) for one in found] == [
        ("unhealthy", None),
        ("pending-long", "older"),
        ("pending-long", "old"),
        ("finding", "gone"),
    ]
    assert (found[3].code, found[3].message, found[2].code) == ("ghost", "ended", "SCHED_TAINT")


# ── what happened ────────────────────────────────────────────────────────────────────────────────────────────────


def happened(before, after):
    old, new = (digest(fleets.analysis(NOW, *gpus, number=number)) for number, gpus in ((1, before), (2, after)))
    return [(event.kind, event.before, event.after, event.pod, event.number) for event in between(old, new, at=NOW)]


def test_changed_verdicts_health_and_new_xids_are_events():
    lone = (fleets.tenant("train"),)
    before = [fleets.gpu(0, tenants=lone, health="ok", xids=(13,), **BUSY)]
    after = [fleets.gpu(0, tenants=lone, health="lost", xids=(13, 79), **IDLE)]
    assert happened(before, after) == [
        ("verdict", "busy", "idle-held", "train", None),
        ("health", "ok", "lost", "train", None),
        ("xid", None, None, "train", 79.0),
    ]
    assert happened(before, before) == []
    unreported = [fleets.gpu(0, tenants=lone, xids=(13,), **BUSY)]
    assert happened(unreported, before) == []  # that it is healthy is no news


def test_each_tenant_of_a_shared_gpu_has_its_own_events():
    quiet = (fleets.tenant("a", **BUSY), fleets.tenant("b", **IDLE))
    loud = (fleets.tenant("a", **BUSY), fleets.tenant("b", **BUSY))
    found = happened([fleets.gpu(0, tenants=quiet, **BUSY)], [fleets.gpu(0, tenants=loud, **BUSY)])
    assert found == [("verdict", "idle-held", "busy", "b", None)]


def test_gpus_that_appear_or_go_away_are_events():
    assert happened([fleets.gpu(0)], [fleets.gpu(1)]) == [
        ("gpu", None, "seen", None, None),
        ("gpu", "seen", None, None, None),
    ]


def test_a_pod_that_waited_is_an_event_when_the_wait_has_ended():
    pods = [
        PendingPod(namespace="ml", pod="p", pod_uid="u", created=NOW - 90, ended=NOW, outcome="scheduled", node="n"),
        PendingPod(namespace="ml", pod="q", pod_uid="v", created=NOW - 90),
    ]
    (event,) = waits(pods)
    assert (event.kind, event.pod, event.after, event.number, event.node) == ("scheduling", "p", "scheduled", 90.0, "n")
