"""Small fleets whose answers agree with each other, written down by plain arithmetic and by none of our views."""

from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st

from tools.writers.operations import service_operations
from vgpuscope.http.openapi import document as described
from vgpuscope.model.consistency import Answer, Surfaces
from vgpuscope.sources.audit.numbers import Document, document, page_readings, readings_of
from vgpuscope.views.definitions import field_notes

GIB = 2**30
AT = "2026-11-18T12:00:00Z"
CLASSES = ("busy", "low", "idle-held", "unknown")
VERDICTS = {"busy": "in_use", "low": "in_use", "idle-held": "idle", "unknown": "unknown"}
STATUSES = {"busy": "high", "low": "low", "idle-held": "idle", "unknown": "unknown"}


class TenantOf(NamedTuple):
    namespace: str
    pod: str
    use_class: str
    memory: int


class GpuOf(NamedTuple):
    gpu_id: str
    mig: str
    node: str
    use_class: str
    score: float
    tenants: tuple[TenantOf, ...]


@st.composite
def fleets(draw: st.DrawFn) -> tuple[GpuOf, ...]:
    """Whole GPUs, shared GPUs and GPUs cut by MIG, on one to three nodes."""
    rows: list[GpuOf] = []
    for number in range(draw(st.integers(1, 5))):
        instances = draw(st.sampled_from((0, 0, 2, 3)))
        node = f"node-{draw(st.integers(0, 2))}"
        for instance in range(instances or 1):
            count = draw(st.integers(0, 1 if instances else 3))
            tenants = tuple(
                TenantOf(
                    draw(st.sampled_from(("ml", "batch"))),
                    f"pod-{number}-{instance}-{one}",
                    draw(st.sampled_from(CLASSES)),
                    draw(st.integers(0, 20)) * GIB,
                )
                for one in range(count)
            )
            mig = f"MIG-{number}-{instance}" if instances else ""
            score = draw(st.integers(0, 1000)) / 10
            rows.append(GpuOf(f"GPU-{number}", mig, node, draw(st.sampled_from(CLASSES)), score, tenants))
    return tuple(rows)


def bodies(fleet: tuple[GpuOf, ...]) -> dict[str, Any]:
    """The answers about a fleet, by their path."""
    tenants = [(row, tenant) for row in fleet for tenant in row.tenants]
    spaces = sorted({tenant.namespace for _, tenant in tenants})
    nodes = sorted({row.node for row in fleet})
    pods = [tenant for _, tenant in tenants]
    by_class = Counter(_console_class(row) for row in fleet)
    overview = {
        "at": AT,
        "stale": False,
        "nodes": len(nodes),
        "namespaces": len(spaces),
        "tenants": len(tenants),
        "now": {
            "gpus": len({row.gpu_id for row in fleet}),
            "gpus_unlisted": 0,
            "gpus_held": len({row.gpu_id for row in fleet if row.tenants}),
            "mig_instances": sum(bool(row.mig) for row in fleet),
            "gpus_or_instances": len(fleet),
            "idle_held": sum(bool(row.tenants) and VERDICTS[row.use_class] == "idle" for row in fleet),
            "unknown": sum(row.use_class == "unknown" for row in fleet),
            "tenants_idle": sum(tenant.use_class == "idle-held" for tenant in pods),
        },
        "before": None,
        "by_class": dict(by_class),
        "tenants_by_class": dict(Counter(tenant.use_class for tenant in pods)),
        "attention": [],
        "attention_total": 0,
        "waste": None,
        "parts": [],
    }
    return {
        "/api/v1/overview": overview,
        "/api/v1/gpus": _list([_gpu(row) for row in fleet]),
        "/api/v1/nodes": _list([_node(name, [row for row in fleet if row.node == name]) for name in nodes]),
        "/api/v1/namespaces": _list([_namespace(name, tenants) for name in spaces]),
        "/api/v1/workloads": _list([_pod(tenant) for tenant in pods]) | {"group_by": "pod"},
        "/results": [_result(row) for row in fleet],
        "/results/stats": _stats(fleet),
    }


def page(fleet: tuple[GpuOf, ...]) -> bytes:
    """The page of metrics about a fleet."""
    lines = [
        f'vgpuscope_analyzer_gpu_score{{gpu_id="{row.gpu_id}",{_mig(row)}hostname="{row.node}"}} {row.score}'
        for row in fleet
    ]
    counted = Counter(VERDICTS[row.use_class] for row in fleet)
    lines += [f'vgpuscope_analyzer_gpus{{verdict="{name}"}} {number}' for name, number in counted.items()]
    return "".join(f"{line}\n" for line in (*lines, f"gpu_total_count {len(fleet)}")).encode()


def surfaces(answers: dict[str, Any], metrics: bytes = b"") -> Surfaces:
    """What the auditor reads of these answers."""
    shapes = described_answers()
    made = [
        Answer(service="analyzer", surface=f"GET {path}", kind=shapes.kind(path), body=body, moment=AT)
        for path, body in answers.items()
    ]
    numbers = [reading for answer in made for reading in readings_of(answer, shapes)]
    numbers += page_readings(metrics, surface="GET /metrics", service="analyzer", moment=AT)
    return Surfaces(answers=tuple(made), readings=tuple(numbers), defined=shapes.defined)


@cache
def described_answers() -> Document:
    """The OpenAPI document that an analyzer serves."""
    operations = service_operations()["analyzer"]
    return document(msgspec.json.decode(described(operations, title="analyzer", description="", notes=field_notes)))


def _console_class(row: GpuOf) -> str:
    return "unallocated" if VERDICTS[row.use_class] == "idle" and not row.tenants else row.use_class


def _mig(row: GpuOf) -> str:
    return f'mig="{row.mig}",' if row.mig else ""


def _list(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"at": AT, "stale": False, "total": len(rows), "rows": rows, "parts": []}


def _gpu(row: GpuOf) -> dict[str, Any]:
    return {
        "gpu_id": row.gpu_id,
        "mig": row.mig or None,
        "node": row.node,
        "held": bool(row.tenants),
        "score": row.score,
        "verdict": VERDICTS[row.use_class],
        "use_class": row.use_class,
        "status": STATUSES[row.use_class],
        "memory_total": 80 * GIB,
        "memory_used": sum(tenant.memory for tenant in row.tenants),
        "tenants": [
            {
                "namespace": tenant.namespace,
                "pod": tenant.pod,
                "container": "main",
                "verdict": VERDICTS[tenant.use_class],
                "use_class": tenant.use_class,
                "memory_used": tenant.memory,
                "memory_limit": 40 * GIB,
            }
            for tenant in row.tenants
        ],
    }


def _node(name: str, rows: list[GpuOf]) -> dict[str, Any]:
    return {
        "name": name,
        "gpus": len({row.gpu_id for row in rows}),
        "gpus_unlisted": 0,
        "mig_instances": sum(bool(row.mig) for row in rows),
        "gpus_or_instances": len(rows),
        "by_class": dict(Counter(_console_class(row) for row in rows)),
        "tenants": sum(len(row.tenants) for row in rows),
    }


def _namespace(name: str, tenants: list[tuple[GpuOf, TenantOf]]) -> dict[str, Any]:
    mine = [(row, tenant) for row, tenant in tenants if tenant.namespace == name]
    return {
        "name": name,
        "gpus": len({row.gpu_id for row, _ in mine}),
        "gpus_or_instances": len({(row.gpu_id, row.mig) for row, _ in mine}),
        "pods": len({tenant.pod for _, tenant in mine}),
        "tenants": len(mine),
        "by_class": dict(Counter(tenant.use_class for _, tenant in mine)),
        "by_verdict": dict(Counter(VERDICTS[tenant.use_class] for _, tenant in mine)),
        "memory_used": sum(tenant.memory for _, tenant in mine),
        "memory_limit": 40 * GIB * len(mine),
        "quotas": [],
    }


def _pod(tenant: TenantOf) -> dict[str, Any]:
    return {
        "namespace": tenant.namespace,
        "pod": tenant.pod,
        "state": "running",
        "tenants": 1,
        "by_class": {tenant.use_class: 1},
        "memory_used": tenant.memory,
        "memory_limit": 40 * GIB,
        "verdict": VERDICTS[tenant.use_class],
    }


def _result(row: GpuOf) -> dict[str, Any]:
    return {
        "gpu_id": row.gpu_id,
        "mig": row.mig,
        "hostname": row.node,
        "score": row.score,
        "status": STATUSES[row.use_class],
        "verdict": VERDICTS[row.use_class],
        "use_class": row.use_class,
        "mem_used_mb": sum(tenant.memory for tenant in row.tenants) / 2**20,
        "mem_total_mb": 80 * 1024.0,
        "shared": len(row.tenants) > 1,
        "tenants": [],
    }


def _stats(fleet: tuple[GpuOf, ...]) -> dict[str, Any]:
    tenants = [tenant for row in fleet for tenant in row.tenants]
    return {
        "total_gpus": len(fleet),
        "scored": len(fleet),
        "unknown_count": sum(row.use_class == "unknown" for row in fleet),
        "by_status": dict(Counter(STATUSES[row.use_class] for row in fleet)),
        "by_verdict": dict(Counter(VERDICTS[row.use_class] for row in fleet)),
        "tenants_total": len(tenants),
        "tenants_by_class": dict(Counter(tenant.use_class for tenant in tenants)),
        "timestamp": AT,
    }
