"""Views of the fleet → the answers of the console, narrowed to the namespaces that the caller sees."""

from collections.abc import Iterable, Sequence
from typing import Any

from vgpuscope.logic.console import details, overview, scheduling
from vgpuscope.logic.console.allocations import memory_of, pod_allocations
from vgpuscope.logic.console.attention import MOST, attention
from vgpuscope.logic.console.gpus import gpu_row
from vgpuscope.logic.console.namespaces import namespace_names, namespace_rows
from vgpuscope.logic.console.nodes import agents_of, by_node, node_row, node_rows, nodes_with_gpus, unlisted_gpus
from vgpuscope.logic.console.opinions import opinion_on
from vgpuscope.logic.console.scope import Namespaces, findings_in, gpus_in, pods_in
from vgpuscope.logic.console.workloads import workload_rows
from vgpuscope.model.analysis import Evidence, GpuUse, Target
from vgpuscope.model.cluster import Finding
from vgpuscope.model.console.facts import Facts
from vgpuscope.model.console.gpus import GpuDetail, GpuRow, TenantDetail
from vgpuscope.model.console.namespaces import NamespaceRow, QuotaRow
from vgpuscope.model.console.nodes import NodeRow
from vgpuscope.model.console.opinion import OpinionRow
from vgpuscope.model.console.overview import Overview, WasteBy
from vgpuscope.model.console.scheduling import PendingRow, ReasonRow, Scheduling
from vgpuscope.model.console.workloads import WorkloadOnGpu, WorkloadRow
from vgpuscope.model.opinion import PartId
from vgpuscope.model.pending import PendingPod
from vgpuscope.model.words import Language
from vgpuscope.services.analyzer.console.console import JOINED, ConsoleView
from vgpuscope.services.analyzer.console.parameters import PodQuery, WorkloadsQuery
from vgpuscope.views.console.words import scheduling_words
from vgpuscope.views.fleet import evidence

_ENDED = 100  # pods that waited, in the list of scheduling


def overview_of(view: ConsoleView, scope: Namespaces) -> Overview:
    """The fleet at a glance, or the part of it that some namespaces have."""
    rows, past = gpus_in(view.rows, scope), view.past.value
    allocated = list(pod_allocations(view.ledgers, scope))
    pending = None if view.pending is None else pods_in(view.pending, scope)
    waste = None if past is None else tuple(row for row in past.waste if scope is None or row.namespace in scope)
    idle = None if past is None else past.wasted_gpu_hours if scope is None else _hours(waste)
    nodes = by_node(rows, view.ledgers if scope is None else None)
    for one in allocated:
        nodes.setdefault(one.node, [])
    ledgers = view.ledgers.nodes if view.ledgers and scope is None else {}
    unlisted = sum(unlisted_gpus(found, ledgers.get(name)) or 0 for name, found in nodes.items())
    tenants = [tenant for row in rows for tenant in row.tenants]
    needs = attention(
        rows,
        now=view.now,
        targets=_targets(view, rows, whole=scope is None),
        findings=_findings(view, scope),
        pending=pending or (),
    )
    return Overview(
        at=view.at,
        stale=view.board.stale,
        nodes=len(nodes),
        namespaces=len(
            namespace_names(
                {one.namespace for one in tenants} | {one.namespace for one in allocated},
                quotas=_quotas(view, scope),
                pending=pending,
                waste={row.namespace: row for row in waste or ()},
            )
        ),
        tenants=len(tenants),
        now=overview.figures(
            rows,
            cluster=view.ledgers,
            whole=scope is None,
            pending=pending,
            wasted=idle,
            allocated=memory_of(allocated),
            unlisted=unlisted,
        ),
        before=past.before if past and scope is None else None,
        by_class=overview.classes(rows),
        tenants_by_class=overview.tenant_classes(rows),
        attention=tuple(needs[:MOST]),
        attention_total=len(needs),
        waste=waste[:MOST] if waste is not None else None,
        parts=view.parts,
    )


def _hours(waste: Iterable[WasteBy] | None) -> float:
    return round(sum(row.idle_gpu_hours for row in waste or ()), 4)


def _targets(view: ConsoleView, rows: Iterable[GpuRow], *, whole: bool) -> list[tuple[Target, str | None]]:
    """The scrape targets, with the node of each; of some GPUs only those of their nodes."""
    if view.analysis is None:
        return []
    nodes = {gpu.target: gpu.hostname for gpu in view.analysis.gpus if gpu.target}
    shown = {row.node for row in rows}
    found = [(target, nodes.get(target.name)) for target in view.analysis.targets]
    return found if whole else [(target, node) for target, node in found if node in shown]


def _findings(view: ConsoleView, scope: Namespaces) -> list[Finding]:
    nodes = view.ledgers.nodes.values() if view.ledgers else ()
    return findings_in((one for node in nodes for one in node.findings), scope)


def node_rows_of(view: ConsoleView, scope: Namespaces) -> tuple[NodeRow, ...]:
    """Every node, or those on which some namespaces have GPUs."""
    agents = agents_of(view.analysis, view.agents.value, now=view.now)
    return node_rows(
        gpus_in(view.rows, scope),
        cluster=view.ledgers,
        agents=agents,
        facts=view.agents.value,
        listed=scope is None,
        allocations=() if scope is None else pod_allocations(view.ledgers, scope),
    )


def node_row_of(view: ConsoleView, scope: Namespaces, name: str) -> NodeRow | None:
    """One node; None if it is not among those that are shown."""
    gpus = [row for row in gpus_in(view.rows, scope) if row.node == name]
    ledger = view.ledgers.nodes.get(name) if view.ledgers else None
    listed = view.ledgers is not None and scope is None and name in nodes_with_gpus(view.ledgers)
    own = None if scope is None else [one for one in pod_allocations(view.ledgers, scope) if one.node == name]
    if not gpus and not own and not listed:
        return None
    agent = agents_of(view.analysis, view.agents.value, now=view.now).get(name)
    return node_row(name, gpus, ledger=ledger, agent=agent, facts=view.agents.value, allocations=own)


def workload_rows_of(view: ConsoleView, scope: Namespaces, asked: WorkloadsQuery) -> tuple[WorkloadRow, ...]:
    """Every workload."""
    waiting = [pod for pod in pods_in(view.pending or (), scope) if pod.outcome == "waiting"]
    return workload_rows(
        gpus_in(view.rows, scope),
        group_by=asked.group_by,
        pending=waiting,
        allocations=pod_allocations(view.ledgers, scope),
        now=view.now,
    )


def workload_rows_on(view: ConsoleView, scope: Namespaces, node: str) -> tuple[WorkloadRow, ...]:
    """The pods on a node, and those that are assigned to it and not bound: what they hold is allocated there."""
    allocated = [one for one in pod_allocations(view.ledgers, scope) if one.node == node]
    assigned = {(one.namespace, one.pod) for one in allocated}
    pending = [pod for pod in pods_in(view.pending or (), scope) if (pod.namespace, pod.pod) in assigned]
    return workload_rows(
        [row for row in gpus_in(view.rows, scope) if row.node == node],
        group_by="pod",
        pending=[pod for pod in pending if pod.outcome == "waiting"],
        allocations=allocated,
        now=view.now,
    )


def namespace_rows_of(view: ConsoleView, scope: Namespaces) -> tuple[NamespaceRow, ...]:
    """Every namespace."""
    return namespace_rows(
        gpus_in(view.rows, scope),
        quotas=_quotas(view, scope),
        pending=None if view.pending is None else pods_in(view.pending, scope),
        waste={row.namespace: row for row in view.past.value.waste if scope is None or row.namespace in scope}
        if view.past.value
        else None,
        allocations=pod_allocations(view.ledgers, scope),
    )


def _quotas(view: ConsoleView, scope: Namespaces) -> dict[str, tuple[QuotaRow, ...]]:
    page = view.cluster.value.page if view.cluster.value else None
    found = scheduling.quotas(page) if page is not None else None
    return {name: rows for name, rows in (found or {}).items() if scope is None or name in scope}


def pending_rows_of(view: ConsoleView, pods: Iterable[PendingPod]) -> tuple[PendingRow, ...]:
    """Pods that wait or waited, with the meaning of their codes."""
    codes = view.cluster.value.pending.codes if view.cluster.value else {}
    return tuple(scheduling.pending_row(pod, now=view.now, codes=codes, say=scheduling_words) for pod in pods)


def reasons_of(view: ConsoleView, pod: PendingPod) -> tuple[ReasonRow, ...]:
    """What schedulers reported about a pod."""
    codes = view.cluster.value.pending.codes if view.cluster.value else {}
    return tuple(scheduling.reason_row(one, pod, codes=codes, facts={}, say=scheduling_words) for one in pod.said)


def scheduling_of(view: ConsoleView, scope: Namespaces) -> Scheduling:
    """The state of scheduling."""
    known, pods = view.cluster.value, pods_in(view.pending or (), scope)
    waiting = sorted((pod for pod in pods if pod.outcome == "waiting"), key=lambda pod: pod.created or view.now)
    ended = sorted((pod for pod in pods if pod.outcome != "waiting"), key=lambda pod: -(pod.ended or 0.0))
    page = known.page if known and known.page is not None else None
    oldest = [seconds for pod in waiting if (seconds := scheduling.waited(pod, view.now)) is not None]
    return Scheduling(
        pending=pending_rows_of(view, waiting),
        ended=pending_rows_of(view, ended[:_ENDED]),
        pending_count=None if known is None else len(waiting),
        oldest_seconds=max(oldest, default=None),
        by_code=scheduling.by_code(waiting),
        stages=scheduling.stage_times(page or ()),
        bound=None if page is None else scheduling.binds(page, "success"),
        failed=None if page is None else scheduling.binds(page, "failure"),
        failures=scheduling.failures(page or ()),
        capacity=scheduling.fleet_capacity(known.nodes) if known else None,
        types=tuple(map(scheduling.free_capacity, scheduling.capacity_by_type(known.nodes))) if known else (),
        counted=scheduling.counted_capacity(known.nodes) if known else (),
        parts=view.part("cluster"),
    )


# ── details ──────────────────────────────────────────────────────────────────────────────────────────────────────


def gpu_detail(
    view: ConsoleView,
    row: GpuRow,
    *,
    rows: Sequence[GpuRow],
    gpu: GpuUse | None,
    facts: Facts | None,
    scope: Namespaces,
    say: details.Sentences,
) -> GpuDetail:
    """One GPU. `rows`: all rows of it, one for each MIG instance. `facts`: what its agent says of it in detail."""
    now = facts or view.agents.value
    if gpu is not None and facts is not None:  # fresher than the row of the list
        fresh = gpu_row(gpu, stale=view.board.stale, cluster=view.ledgers, facts=facts)
        row = gpus_in([fresh], scope)[0] if scope is None or row.tenants else fresh
    shared: dict[str, Any] = {"stale": view.board.stale, "cluster": view.ledgers, "facts": now, "say": say}
    shared["opinions"] = view.board.opinions
    tenants, former = (gpu.tenants, gpu.former) if gpu else ((), ())
    seen = [use for use in tenants if scope is None or use.tenant.namespace in scope]
    past = [use for use in former if scope is None or use.tenant.namespace in scope]
    found = details.holders(view.ledgers, row.gpu_id)
    own = tuple(details.tenant_detail(use, gpu, **shared) for use in seen) if gpu else ()
    return GpuDetail(
        at=view.at,
        stale=view.board.stale,
        gpu=row,
        terms=gpu.terms if gpu else {},
        score_terms=gpu.score.terms if gpu else (),
        evidence=gpu.evidence if gpu else None,
        why=say(gpu.evidence) if gpu else (),
        tenants=own,
        former=tuple(details.tenant_detail(use, gpu, **shared) for use in past) if gpu else (),
        instances=details.instances(rows, view.ledgers, now, row.gpu_id),
        holders=tuple(one for one in found if scope is None or one.namespace in scope),
        ledger=details.scoped_ledger(details.memory_ledger(now, row.gpu_id, row.mig or ""), scope),
        hardware=details.hardware(now, row.gpu_id),
        xids=details.xids(now, row.gpu_id, row.xids),
        target=gpu.target or None if gpu else None,
        queries=details.queries(row.gpu_id, row.mig or ""),
        parts=view.part(*JOINED),
        opinion=_own_opinion(view, row, own, alone=len(tenants) == 1),
    )


def _own_opinion(view: ConsoleView, row: GpuRow, seen: Sequence[TenantDetail], *, alone: bool) -> OpinionRow | None:
    """The opinion on a GPU: that on its only tenant, if the caller sees it; a shared GPU has none of its own."""
    if alone:
        return seen[0].opinion if seen else None
    return opinion_on(view.board.opinions, PartId(row.gpu_id, row.mig or "", "", "", ""))


def on_gpus(view: ConsoleView, gpus: Sequence[GpuRow], asked: PodQuery) -> tuple[WorkloadOnGpu, ...]:
    """The pod's containers on each of its GPUs, as far as the analysis knows them."""
    shown = {(row.gpu_id, row.mig or ""): row for row in gpus}
    shared: dict[str, Any] = {"stale": view.board.stale, "cluster": view.ledgers, "facts": view.agents.value}
    shared["opinions"] = view.board.opinions
    return tuple(
        WorkloadOnGpu(
            gpu_id=row.gpu_id,
            mig=row.mig,
            node=row.node,
            index=row.index,
            model=row.model,
            gpu_class=row.use_class,
            detail=details.tenant_detail(use, gpu, say=saying(asked.lang), **shared),
        )
        for gpu in (view.analysis.gpus if view.analysis else ())
        if (row := shown.get((gpu.gpu_id, gpu.mig))) is not None
        for use in gpu.tenants
        if (use.tenant.namespace, use.tenant.pod) == (asked.namespace, asked.pod)
    )


def saying(lang: Language) -> details.Sentences:
    """What turns evidence into sentences."""

    def say(found: Evidence) -> tuple[str, ...]:
        return evidence.sentences(found, lang)

    return say
