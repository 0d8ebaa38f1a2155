"""Rows of GPUs, the cluster's ledgers and the agents' state → a row for each node."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from vgpuscope.logic.console.allocations import PodAllocation, cores_of, memory_of
from vgpuscope.logic.console.gpus import Ledgers
from vgpuscope.logic.console.moments import iso_or_none, short, total
from vgpuscope.logic.console.overview import by_gpu, gpu_class, mean_use, power
from vgpuscope.logic.console.scheduling import counted_capacity
from vgpuscope.model.analysis import Analysis, Target
from vgpuscope.model.cluster import DeviceLedger, NodeLedger, memory_of_all
from vgpuscope.model.console.facts import Facts, NodeFacts
from vgpuscope.model.console.gpus import GpuRow
from vgpuscope.model.console.nodes import AgentRow, NodeRow, SourceRow
from vgpuscope.model.pod import SourceState
from vgpuscope.model.quantity import UnixTime


def node_rows(
    rows: Iterable[GpuRow],
    *,
    cluster: Ledgers | None,
    agents: Mapping[str, AgentRow],
    facts: Facts | None = None,
    listed: bool = True,
    allocations: Iterable[PodAllocation] = (),
) -> tuple[NodeRow, ...]:
    """A row for each node with GPUs, in order of name. `listed`: also nodes of which no GPU is among the rows.

    `allocations`: those of some namespaces, if only these are meant.
    """
    groups = by_node(rows, cluster if listed else None)
    allocated: dict[str, list[PodAllocation]] = {name: [] for name in groups}
    for one in allocations:
        groups.setdefault(one.node, [])
        allocated.setdefault(one.node, []).append(one)
    ledgers = cluster.nodes if cluster else {}
    return tuple(
        node_row(
            name,
            groups[name],
            ledger=ledgers.get(name),
            agent=agents.get(name),
            facts=facts,
            allocations=None if listed else allocated[name],
        )
        for name in sorted(groups)
    )


def by_node(rows: Iterable[GpuRow], cluster: Ledgers | None) -> dict[str, list[GpuRow]]:
    """The rows of each node, and the nodes of the cluster of which no GPU is among the rows."""
    groups: dict[str, list[GpuRow]] = {}
    for row in rows:
        groups.setdefault(row.node or "", []).append(row)
    for name in nodes_with_gpus(cluster) if cluster else ():
        groups.setdefault(name, [])
    return groups


def unlisted_gpus(rows: Iterable[GpuRow], ledger: NodeLedger | None) -> int | None:
    """How many GPUs a node has besides these rows, by its registration or its kubelet.

    A kubelet that offers MIG instances does not say on how many GPUs they are: None if no row and no label says it.
    """
    listed = len({row.gpu_id for row in rows})
    if ledger is None:
        return 0
    if ledger.gpus.exact:
        return max(0, ledger.gpus.number - listed)
    whole = [one.gpus or 0 for one in ledger.offers if one.offer.mode != "mig"]
    if not whole and not listed:
        return None
    return max(0, max(len(ledger.devices), sum(whole)) - listed)


def node_row(
    name: str,
    rows: Sequence[GpuRow],
    *,
    ledger: NodeLedger | None,
    agent: AgentRow | None,
    facts: Facts | None = None,
    allocations: Sequence[PodAllocation] | None = None,
) -> NodeRow:
    """One node. `allocations`: those of some namespaces, if only these are meant; None: all its GPUs are meant."""
    whole = allocations is None
    gpus = by_gpu(rows)
    unlisted = unlisted_gpus(rows, ledger) if whole else 0
    capacity = ledger.capacity if ledger and ledger.devices else None
    devices, offers = (ledger.devices, ledger.offers) if ledger else ((), ())
    tenants = [tenant for row in rows for tenant in row.tenants]
    memory = [_memory(found, facts) for found in gpus]
    allocated = _allocated(devices if capacity else (), allocations)
    return NodeRow(
        name=name,
        known=ledger.known if ledger else None,
        ready=ledger.ready if ledger else None,
        schedulable=ledger.schedulable if ledger else None,
        agent=agent or AgentRow(up=None),
        gpus=None if unlisted is None else len(gpus) + unlisted,
        gpus_unlisted=unlisted or 0,
        mig_instances=sum(bool(row.mig) for row in rows),
        gpus_or_instances=len(rows),
        models=tuple(sorted({row.model for row in rows if row.model})),
        memory_total=total([one.total for one in memory]),
        memory_capacity=capacity.total.memory if capacity else None,
        memory_allocated=allocated.memory,
        memory_used=total([one.used for one in memory] if whole else [one.memory_used for one in tenants]),
        cores_capacity=capacity.total.cores if capacity else None,
        cores_allocated=allocated.cores,
        slots_capacity=capacity.total.slots if capacity else None,
        slots_allocated=allocated.slots,
        slots_free=capacity.free.slots if capacity else None,
        largest_memory=ledger.largest_memory if ledger else None,
        largest_cores=capacity.largest_cores if capacity else None,
        whole_gpus=ledger.whole_gpus if ledger else None,
        counted=counted_capacity([ledger]) if ledger else (),
        counted_memory=memory_of_all([one.memory_total for one in offers]),
        counted_memory_requested=memory_of_all([one.memory_requested for one in offers]) if whole else None,
        fragmentation=capacity.fragmentation if capacity else None,
        use=mean_use(gpus),
        power=power(rows),
        by_class=dict(Counter(map(gpu_class, rows))),
        tenants=len(tenants),
        pods=len({(one.namespace, one.pod) for one in tenants}),
        findings=sum(one.count for one in ledger.finding_counts) if ledger else None,
    )


def nodes_with_gpus(cluster: Ledgers) -> list[str]:
    """The nodes that have GPUs by the scheduler or the kubelet, or of which pods hold some."""
    return [name for name, one in cluster.nodes.items() if one.devices or one.offers or one.holders]


class _AllocatedSums(NamedTuple):
    memory: int | None
    cores: int | None  # percent
    slots: int | None


def _allocated(devices: Sequence[DeviceLedger], allocations: Sequence[PodAllocation] | None) -> _AllocatedSums:
    """What the scheduler has allocated on a node: of all its GPUs, or to the pods of some namespaces."""
    if allocations is not None:
        return _AllocatedSums(memory_of(allocations), cores_of(allocations), sum(one.slots for one in allocations))
    if not devices:
        return _AllocatedSums(None, None, None)
    return _AllocatedSums(
        sum(one.memory_allocated for one in devices),
        sum(one.cores_allocated for one in devices),
        sum(one.shared for one in devices),
    )


class _Memory(NamedTuple):
    used: int | None  # mean of the window, as in the rows
    total: int | None


def _memory(rows: Sequence[GpuRow], facts: Facts | None) -> _Memory:
    """Of one GPU. Compute instances of one GPU instance share its memory, which counts once.

    MIG can leave a part of the memory without an instance, so the total is that of the agent's ledger if there is one.
    """
    if not rows[0].mig or facts is None:
        return _Memory(total([row.memory_used for row in rows]), total([row.memory_total for row in rows]))
    pools: dict[str | None, GpuRow] = {}
    for row in rows:
        known = facts.gpus.get((row.gpu_id, row.mig or ""))
        pools.setdefault(known.info.get("gpu_instance", row.mig) if known else row.mig, row)
    gpu = facts.gpus.get((rows[0].gpu_id, ""))
    ledger = sum(gpu.ledger.values()) if gpu and "free" in gpu.ledger else None
    return _Memory(
        total([row.memory_used for row in pools.values()]),
        total([row.memory_total for row in pools.values()]) if ledger is None else round(ledger),
    )


def agents_of(analysis: Analysis | None, facts: Facts | None, *, now: UnixTime) -> dict[str, AgentRow]:
    """The agent of each node: from the scrape targets of its GPUs, and what the agents say of themselves."""
    targets = {target.name: target for target in analysis.targets} if analysis else {}
    by_node: dict[str, set[str]] = {}
    for gpu in analysis.gpus if analysis else ():
        if gpu.hostname and gpu.target:
            by_node.setdefault(gpu.hostname, set()).add(gpu.target)
    nodes = facts.nodes if facts else {}
    return {
        name: _agent(
            [targets.get(one) or Target(name=one, up=True) for one in sorted(by_node.get(name, ()))],
            nodes.get(name),
            now,
        )
        for name in by_node.keys() | nodes.keys()
    }


def _agent(targets: Sequence[Target], facts: NodeFacts | None, now: UnixTime) -> AgentRow:
    """An agent is down if one of the node's targets is: its GPUs are not seen."""
    down = next((target for target in targets if not target.up), None)
    shown = down or next(iter(targets), None)
    return AgentRow(
        up=down is None if shown or facts else None,
        target=shown.name if shown else None,
        version=facts.version if facts else None,
        age_seconds=None if facts is None or facts.sampled is None else round(max(0.0, now - facts.sampled), 1),
        last_seen=iso_or_none(down.since) if down else None,
        reason=down.reason or None if down else None,
        sources=_sources(facts) if facts else (),
    )


def _sources(facts: NodeFacts) -> tuple[SourceRow, ...]:
    return tuple(
        SourceRow(source=name, up=up, absent=facts.absent.get(name), age_seconds=short(facts.ages.get(name), 1))
        for name, up in sorted(facts.up.items())
    )


def with_codes(agent: AgentRow, sources: Iterable[SourceState]) -> AgentRow:
    """The agent with its sources as it reports them itself: why a source is down is not in its metrics."""
    rows = tuple(
        SourceRow(
            source=one.source,
            up=one.up,
            absent=one.absent,
            age_seconds=short(one.age_seconds, 1),
            code=one.code,
            message=one.message,
        )
        for one in sources
    )
    return replace(agent, sources=rows)
