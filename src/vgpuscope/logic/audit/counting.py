"""Rows of a list → the counts and amounts that other places must show about them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from vgpuscope.model.consistency import FigureReading, PublicAnswer

Row = dict[str, Any]
Rows = list[Row]


def counted(answers: Iterable[PublicAnswer]) -> Iterator[FigureReading]:
    """What can be counted in answers that are lists, as readings of the figures that show the same."""
    for answer in answers:
        count = _KINDS.get(answer.kind.removesuffix("[]").removeprefix("SomeOf"))
        if count is not None:
            yield from count(answer)


def _reading(
    answer: PublicAnswer, figure: str, path: str, value: float, *subject: str, parts: int = 0, margin: float = 0.0
) -> FigureReading:
    return FigureReading(
        surface=answer.surface,
        path=path,
        figure=figure,
        subject=subject,
        value=value,
        margin=margin * max(1, parts),
        scope=answer.scope,
        moment=answer.moment,
        counted=True,
    )


def _gpus(answer: PublicAnswer) -> Iterator[FigureReading]:
    rows: Rows = answer.body["rows"]
    tenants = [(row, tenant) for row in rows for tenant in row.get("tenants") or ()]
    if not answer.scope:
        yield _reading(answer, "fleet.gpus_or_instances", "count(rows)", len(rows))
        yield _reading(answer, "fleet.mig_instances", "count(rows[mig])", sum(bool(row.get("mig")) for row in rows))
        held = {row["gpu_id"] for row in rows if row.get("held")}
        yield _reading(answer, "fleet.gpus", "count(rows.gpu_id)", len({row["gpu_id"] for row in rows}))
        yield _reading(answer, "fleet.gpus_held", "count(rows[held].gpu_id)", len(held))
        for name, number in Counter(map(_class, rows)).items():
            yield _reading(answer, "fleet.by_class", f"count(rows[class={name}])", number, name)
        yield from _of_gpus(answer, "fleet", "rows", rows)
        held_rows = [row for row in rows if row["gpu_id"] in held]
        yield from _mean_use(answer, "fleet.use_held", "mean(rows[held].use.mean)", held_rows)
        yield from _by_node(answer, rows)
    idle = [row for row in rows if row.get("held") and row["verdict"] == "idle"]
    yield _reading(answer, "fleet.idle_held", "count(rows[held][verdict=idle])", len(idle))
    unknown = [row for row in rows if row["verdict"] == "unknown"]
    yield _reading(answer, "fleet.unknown", "count(rows[verdict=unknown])", len(unknown))
    yield _reading(answer, "fleet.tenants", "count(rows.tenants)", len(tenants))
    idle_tenants = sum(tenant["verdict"] == "idle" for _, tenant in tenants)
    yield _reading(answer, "fleet.tenants_idle", "count(rows.tenants[verdict=idle])", idle_tenants)
    for name, number in Counter(tenant["use_class"] for _, tenant in tenants).items():
        yield _reading(answer, "fleet.tenants_by_class", f"count(rows.tenants[use_class={name}])", number, name)
    if not answer.scope:
        yield from _by_namespace(answer, tenants)
        yield from _by_pod(answer, tenants)


def _by_node(answer: PublicAnswer, rows: Rows) -> Iterator[FigureReading]:
    for node in sorted({row["node"] for row in rows if row.get("node")}):
        mine = [row for row in rows if row["node"] == node]
        where = f"rows[node={node}]"
        yield _reading(answer, "node.gpus_or_instances", f"count({where})", len(mine), node)
        gpus = {row["gpu_id"] for row in mine}
        yield _reading(answer, "node.gpus", f"count({where}.gpu_id)", len(gpus), node)
        instances = sum(bool(row.get("mig")) for row in mine)
        yield _reading(answer, "node.mig_instances", f"count({where}[mig])", instances, node)
        tenants = sum(len(row.get("tenants") or ()) for row in mine)
        yield _reading(answer, "node.tenants", f"count({where}.tenants)", tenants, node)
        for name, number in Counter(map(_class, mine)).items():
            yield _reading(answer, "node.by_class", f"count({where}[class={name}])", number, node, name)
        yield from _of_gpus(answer, "node", where, mine, node)


def _class(row: Row) -> str:
    """An idle GPU that no pod holds is unallocated: free, not wasted."""
    return "unallocated" if row["verdict"] == "idle" and not row.get("held") else str(row["use_class"])


def _of_gpus(answer: PublicAnswer, kind: str, where: str, rows: Rows, *subject: str) -> Iterator[FigureReading]:
    """Use and power of GPUs: the instances of a GPU count as one GPU, and each shows the power of all of it."""
    yield from _mean_use(answer, f"{kind}.use", f"mean({where}.use.mean)", rows, *subject)
    power = {row["gpu_id"]: row["power"] for row in rows if row.get("power") is not None}
    if power:
        total, parts = sum(power.values()), len(power)
        yield _reading(answer, f"{kind}.power", f"sum({where}.power)", total, *subject, parts=parts, margin=0.06)


def _mean_use(answer: PublicAnswer, figure: str, path: str, rows: Rows, *subject: str) -> Iterator[FigureReading]:
    uses: dict[str, list[float]] = {}
    for row in rows:
        mean = (row.get("use") or {}).get("mean")
        if mean is not None:
            uses.setdefault(row["gpu_id"], []).append(mean)
    if uses:
        mean = sum(sum(found) / len(found) for found in uses.values()) / len(uses)
        yield _reading(answer, figure, path, mean, *subject, margin=0.0002)


def _by_namespace(answer: PublicAnswer, tenants: list[tuple[Row, Row]]) -> Iterator[FigureReading]:
    for space in sorted({tenant["namespace"] for _, tenant in tenants}):
        mine = [(row, tenant) for row, tenant in tenants if tenant["namespace"] == space]
        where = f"rows.tenants[namespace={space}]"
        gpus = {row["gpu_id"] for row, _ in mine}
        yield _reading(answer, "namespace.gpus", f"count({where}.gpu_id)", len(gpus), space)
        instances = {(row["gpu_id"], row.get("mig")) for row, _ in mine}
        yield _reading(answer, "namespace.gpus_or_instances", f"count({where}.mig)", len(instances), space)
        yield _reading(answer, "namespace.tenants", f"count({where})", len(mine), space)
        for name, number in Counter(tenant["use_class"] for _, tenant in mine).items():
            yield _reading(answer, "namespace.by_class", f"count({where}[use_class={name}])", number, space, name)
        for name, number in Counter(tenant["verdict"] for _, tenant in mine).items():
            yield _reading(answer, "namespace.by_verdict", f"count({where}[verdict={name}])", number, space, name)
        for field in ("memory_used", "memory_limit", "power"):
            yield from _amount(answer, f"namespace.{field}", f"sum({where}.{field})", mine, field, space)


def _by_pod(answer: PublicAnswer, tenants: list[tuple[Row, Row]]) -> Iterator[FigureReading]:
    pods: dict[tuple[str, str], list[tuple[Row, Row]]] = {}
    for row, tenant in tenants:
        pods.setdefault((tenant["namespace"], tenant["pod"]), []).append((row, tenant))
    for (space, pod), mine in sorted(pods.items()):
        where = f"rows.tenants[pod={space}/{pod}]"
        subject = ("pod", space, pod)
        yield _reading(answer, "workload.tenants", f"count({where})", len(mine), *subject)
        for field in ("memory_used", "memory_limit", "memory_max", "power"):
            yield from _amount(answer, f"workload.{field}", f"sum({where}.{field})", mine, field, *subject)


def _amount(
    answer: PublicAnswer, figure: str, path: str, rows: list[tuple[Row, Row]], field: str, *subject: str
) -> Iterator[FigureReading]:
    """A sum over rows that all have the amount; if one does not, the sum is not known.

    Power weighs by the part of the window in which a tenant had its GPU, as its definition says.
    """
    values = [tenant.get(field) for _, tenant in rows]
    if field == "power":
        values = [value and value * tenant["window_share"] for value, (_, tenant) in zip(values, rows, strict=True)]
    known = [value for value in values if value is not None]
    if known and len(known) == len(values):
        margin = 0.06 if field == "power" else 0.06 * 2**20
        yield _reading(answer, figure, path, sum(known), *subject, parts=len(known), margin=margin)


def _results(answer: PublicAnswer) -> Iterator[FigureReading]:
    rows: Rows = answer.body
    yield _reading(answer, "fleet.gpus_or_instances", "count(rows)", len(rows))
    figures = {"verdict": "fleet.by_verdict", "status": "fleet.by_status", "use_class": "fleet.by_use_class"}
    for field, figure in figures.items():
        for name, number in Counter(row[field] for row in rows).items():
            yield _reading(answer, figure, f"count(rows[{field}={name}])", number, name)
    scored = [row["score"] for row in rows if row["score"] is not None]
    yield _reading(answer, "fleet.scored", "count(rows[score])", len(scored))


def _low(answer: PublicAnswer) -> Iterator[FigureReading]:
    yield _reading(answer, "fleet.low_or_idle", "count(gpus)", len(answer.body["gpus"]))


def _nodes(answer: PublicAnswer) -> Iterator[FigureReading]:
    if not answer.scope:
        yield _reading(answer, "fleet.nodes", "count(rows)", len(answer.body["rows"]))


def _namespaces(answer: PublicAnswer) -> Iterator[FigureReading]:
    if not answer.scope:
        yield _reading(answer, "fleet.namespaces", "count(rows)", len(answer.body["rows"]))


def _workloads(answer: PublicAnswer) -> Iterator[FigureReading]:
    rows: Rows = answer.body["rows"]
    if answer.body["group_by"] != "pod" or answer.scope:
        return
    yield _reading(answer, "fleet.workloads", "count(rows)", len(rows), "pod", "24h")
    for space in sorted({row["namespace"] for row in rows if row["namespace"]}):  # a pod whose name is unknown has none
        running = [row for row in rows if row["namespace"] == space and row["state"] == "running"]
        yield _reading(answer, "namespace.pods", f"count(rows[namespace={space}][state=running])", len(running), space)


def _scheduling(answer: PublicAnswer) -> Iterator[FigureReading]:
    pending: Rows = answer.body["pending"]
    if answer.body.get("pending_count") is None:
        return
    yield _reading(answer, "fleet.pending_pods", "count(pending)", len(pending))
    for code, number in Counter(row["code"] for row in pending).items():
        yield _reading(answer, "fleet.pending_by_reason", f"count(pending[code={code}])", number, code)


def _reclaim(answer: PublicAnswer) -> Iterator[FigureReading]:
    cases: Rows = answer.body["cases"]
    yield _reading(answer, "fleet.cases", "count(cases)", len(cases))
    for state, number in Counter(case["state"] for case in cases).items():
        yield _reading(answer, "fleet.cases_by_state", f"count(cases[state={state}])", number, state)


_KINDS: dict[str, Callable[[PublicAnswer], Iterator[FigureReading]]] = {
    "GpuList": _gpus,
    "ResultRow": _results,
    "LowBody": _low,
    "NodeList": _nodes,
    "NamespaceList": _namespaces,
    "WorkloadList": _workloads,
    "Scheduling": _scheduling,
    "ReclaimList": _reclaim,
}
