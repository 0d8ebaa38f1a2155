"""The cluster's ledger → samples, shard by shard: a node, a namespace, the cluster as a whole."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from msgspec import structs

from vgpuscope.catalog import cluster as m
from vgpuscope.catalog.cluster import CapacityMetrics
from vgpuscope.catalog.label_sets import (
    ClusterLabels,
    ClusterNodeLabels,
    DeviceLabels,
    FindingLabels,
    GpuTypeLabels,
    HeldInstanceLabels,
    HolderLabels,
    OfferedResourceLabels,
    QuotaLabels,
    WatchedKindLabels,
)
from vgpuscope.catalog.limits import CLUSTER_OMISSIONS, CLUSTER_TYPES, NODE_FINDINGS, ClusterOmission
from vgpuscope.model.cluster import (
    Capacity,
    DeviceLedger,
    Finding,
    Holder,
    InstanceHolder,
    NamespaceLedger,
    NodeLedger,
    QuotaUse,
)
from vgpuscope.model.quantity import MIB, Bytes, DeviceUUID, PodUID
from vgpuscope.model.watch import WatchState
from vgpuscope.views.build import Build
from vgpuscope.views.cluster.series_limits import InstanceMemory, registered_devices, shown
from vgpuscope.views.exposition.page import Sample


class NodeSamples:
    """Caches the samples of each device and holder, and reuses them until the device or holder changes."""

    def __init__(self) -> None:
        self._known: dict[str, dict[object, _Told]] = {}
        self._instances = InstanceMemory()
        self.omitted: dict[str, Counter[ClusterOmission]] = {}  # by node: how many things have no series

    def of(self, whole: NodeLedger) -> dict[tuple[str, ...], list[Sample]]:
        """The samples of `node_samples`, by row."""
        node, omitted = shown(whole)
        before, after = self._known.get(node.name, {}), dict[object, _Told]()
        for device in node.devices:
            known = before.get(device.device.id)
            if known is None or known.of != device:
                known = _Told(device, list(_device(node.name, device)))
            after[device.device.id] = known
        single = len({(one.pod_uid, one.container_index, one.device) for one in node.holders}) == len(node.holders)
        shared, memory = _shared(node), _device_memory(node)
        for held in node.holders if single else ():
            as_pod = (held.pod_uid, held.device) not in shared
            key = (held.pod_uid, held.container_index, held.device, as_pod)
            known = before.get(key)
            total = memory.get(held.device, 0)
            if known is None or known.of != (held, total):
                row = _holder_row(node.name, held, as_pod=as_pod)
                known = _Told((held, total), list(_holder(row, held.memory, held.cores, total)))
            after[key] = known
        self._known[node.name] = after
        rows = {told.row: told.samples for told in after.values()}
        for sample in (
            *_instances(node, self._instances, omitted),
            *(() if single else _holders(node)),
            *_shares(node),
            *_offers(node),
            *_place(node),
        ):
            rows.setdefault(sample.row, []).append(sample)
        self._note(node.name, omitted)
        return rows

    def forget(self, name: str) -> None:
        """Remove the samples of a deleted node."""
        self._known.pop(name, None)
        self.omitted.pop(name, None)

    def leave_out(self, node: NodeLedger, reason: ClusterOmission) -> None:
        """The node has no series at all."""
        self.forget(node.name)
        self._note(node.name, Counter({reason: len(node.devices) + len(node.holders)}))

    def _note(self, name: str, omitted: Counter[ClusterOmission]) -> None:
        self.omitted.pop(name, None)
        if omitted.total():
            self.omitted[name] = omitted


class _Told:
    """The cached samples of a device or holder, and the state they were made from."""

    __slots__ = ("of", "row", "samples")

    def __init__(self, of: object, samples: list[Sample]) -> None:
        self.of, self.samples, self.row = of, samples, samples[0].row


def node_samples(node: NodeLedger) -> Iterator[Sample]:
    """All samples of one node. The samples of one row come together."""
    node, omitted = shown(node)
    for device in node.devices:
        yield from _device(node.name, device)
    yield from _instances(node, InstanceMemory(), omitted)
    yield from _holders(node)
    yield from _shares(node)
    yield from _offers(node)
    yield from _place(node)


def _instances(node: NodeLedger, memory: InstanceMemory, omitted: Counter[ClusterOmission]) -> Iterator[Sample]:
    """MIG instances that exist: HAMi shows an instance once the plugin has created it."""
    for device in node.devices:
        names: set[str] = set()
        for row, pods in _instance_rows(node.name, device).items():
            if any(memory.admits(pod, row) for pod in pods):
                # the older name of the metric has no UUID; two instances with one name are one series there
                yield Sample(m.MIG_INSTANCE, row._replace(mig_name="") if row.mig_name in names else row, 1)
                names.add(row.mig_name)
            else:
                omitted["mig-limit"] += 1


def _instance_rows(node: str, device: DeviceLedger) -> dict[HeldInstanceLabels, list[PodUID]]:
    """Each instance once: a copied pod manifest has copied annotations, which claim the same instance again."""
    rows: dict[HeldInstanceLabels, list[PodUID]] = {}
    for held in device.instances:
        if held.instance.mig:
            rows.setdefault(_instance_row(node, device, held), []).append(held.pod_uid)
    return rows


def _holders(node: NodeLedger) -> Iterator[Sample]:
    totals = _device_memory(node)
    for row, (memory, cores) in _held(node).items():
        yield from _holder(row, memory, cores, totals.get(row.gpu_uuid, 0))


def _shares(node: NodeLedger) -> Iterator[Sample]:
    """Samples under HAMi's names for pods that hold a device more than once."""
    totals = _device_memory(node)
    for share in node.shares:
        row = HolderLabels(
            node=node.name,
            namespace=share.namespace,
            pod=share.pod,
            pod_uid=share.pod_uid,
            container="",
            container_index="",
            gpu_uuid=share.device,
            as_container="",
        )
        yield from _holder(row, share.memory, share.cores, totals.get(share.device, 0))


def _offers(node: NodeLedger) -> Iterator[Sample]:
    """Counted GPUs; never under HAMi's names, because those metrics need a UUID."""
    for one in node.offers:
        offer = one.offer
        row = OfferedResourceLabels(
            node=node.name, resource=offer.resource, type=offer.type, mode=offer.mode, profile=offer.profile
        )
        yield Sample(m.OFFERED, row, offer.capacity)
        yield Sample(m.OFFER_ALLOCATABLE, row, offer.allocatable)
        yield Sample(m.OFFER_REQUESTED, row, one.requested)
        yield Sample(m.OFFER_FREE, row, one.free)
        yield Sample(m.OFFER_MEMORY, row, offer.memory)


def _device_memory(node: NodeLedger) -> dict[DeviceUUID, Bytes]:
    return {one.device.id: one.device.memory for one in node.devices}


def _shared(node: NodeLedger) -> set[tuple[PodUID, DeviceUUID]]:
    return {(share.pod_uid, share.device) for share in node.shares}


def _holder(row: HolderLabels, memory: Bytes, cores: int, total: Bytes) -> Iterator[Sample]:
    """`total`: the memory of the device that can be allocated, 0 if it is not known."""
    yield Sample(m.HOLDER_MEMORY, row, memory)
    yield Sample(m.HOLDER_CORES, row, cores / 100)
    yield Sample(m.LEGACY_HOLDER_MEMORY, row, memory, (str(cores),))
    yield Sample(m.LEGACY_HOLDER_SHARE, row, memory / total if total else None)


def namespace_samples(namespace: NamespaceLedger) -> Iterator[Sample]:
    """All samples of one namespace."""
    for quota in namespace.quotas:
        yield from _quota(namespace.name, quota)


def cluster_samples(
    *,
    build: Build,
    cluster: Capacity,
    types: Sequence[Capacity],
    unplaced: int | None,
    omitted: Mapping[ClusterOmission, int],
    watches: Iterable[WatchState],
    errors: dict[str, int],
    loop_restarts: dict[str, int],
) -> Iterator[Sample]:
    """Samples of the cluster as a whole, and of the exporter itself."""
    row = ClusterLabels(**structs.asdict(build))
    yield Sample(m.BUILD_INFO, row, 1)
    yield from _capacity(m.CLUSTER_CAPACITY, row, cluster)
    yield Sample(m.UNPLACED, row, unplaced)
    shown_types = types[: CLUSTER_TYPES.most]
    missing = Counter(omitted) + Counter({"cluster-limit": len(types) - len(shown_types)})
    for reason in CLUSTER_OMISSIONS:
        yield Sample(m.WITHOUT_SERIES, row, missing[reason], (reason,))
    for code, count in errors.items():
        yield Sample(m.ERRORS, row, count, (code,))
    for loop, count in loop_restarts.items():
        yield Sample(m.LOOP_RESTARTS, row, count, (loop,))
    for capacity in shown_types:
        yield from _capacity(m.TYPE_CAPACITY, GpuTypeLabels(vendor=capacity.vendor, type=capacity.type), capacity)
    for watch in watches:
        yield from _watch(watch)


def _held(node: NodeLedger) -> dict[HolderLabels, tuple[Bytes, int]]:
    """Memory and cores of each container on each device; summed up if it got the same device several times."""
    held: dict[HolderLabels, tuple[Bytes, int]] = {}
    shared = _shared(node)
    for holder in node.holders:
        row = _holder_row(node.name, holder, as_pod=(holder.pod_uid, holder.device) not in shared)
        memory, cores = held.get(row, (0, 0))
        held[row] = (memory + holder.memory, cores + holder.cores)
    return held


def _holder_row(node: str, holder: Holder, *, as_pod: bool) -> HolderLabels:
    return HolderLabels(
        node=node,
        namespace=holder.namespace,
        pod=holder.pod,
        pod_uid=holder.pod_uid,
        container=holder.container,
        container_index=str(holder.container_index),
        gpu_uuid=holder.device,
        as_pod="1" if as_pod else "",
    )


def _device(node: str, ledger: DeviceLedger) -> Iterator[Sample]:
    device = ledger.device
    row = DeviceLabels(
        node=node,
        gpu_uuid=device.id,
        gpu_index=str(device.index),
        vendor=device.vendor,
        type=device.type,
        mode=device.mode,
        numa=str(device.numa),
    )
    cores, memory = str(device.cores), str(device.memory // MIB)
    yield Sample(m.DEVICE_INFO, row, 1)
    yield Sample(m.DEVICE_HEALTHY, row, int(device.healthy))
    yield Sample(m.DEVICE_CORDONED, row, int(device.cordoned))
    yield Sample(m.DEVICE_MEMORY, row, device.memory)
    yield Sample(m.DEVICE_MEMORY_ALLOCATED, row, ledger.memory_allocated)
    yield Sample(m.DEVICE_CORES, row, device.cores / 100)
    yield Sample(m.DEVICE_CORES_ALLOCATED, row, ledger.cores_allocated / 100)
    yield Sample(m.DEVICE_SLOTS, row, device.slots)
    yield Sample(m.DEVICE_SLOTS_USED, row, ledger.shared)
    yield Sample(m.DEVICE_CONTAINERS, row, ledger.containers)
    yield Sample(m.HAMI_MEMORY_ALLOCATED, row, ledger.memory_allocated, (cores,))
    yield Sample(m.LEGACY_MEMORY_ALLOCATED, row, ledger.memory_allocated, (cores,))
    yield Sample(m.HAMI_OVERVIEW, row, ledger.memory_allocated, (cores, memory))
    yield Sample(m.LEGACY_OVERVIEW, row, ledger.memory_allocated, (cores, str(ledger.shared), memory))
    yield Sample(m.DEVICE_MEMORY_SHARE, row, ledger.memory_allocated / device.memory if device.memory else None)


def _instance_row(node: str, ledger: DeviceLedger, held: InstanceHolder) -> HeldInstanceLabels:
    instance = held.instance
    return HeldInstanceLabels(
        node=node,
        gpu_uuid=ledger.device.id,
        gpu_index=str(ledger.device.index),
        mig_uuid=instance.mig or "",
        profile=instance.profile,
        gpu_instance=_text(instance.gpu_instance),
        compute_instance=_text(instance.compute_instance),
        start=str(instance.start),
        size=str(instance.size),
        mig_name="-".join(filter(None, (instance.profile, _text(instance.gpu_instance)))),
    )


def _text(number: int | None) -> str:
    """A number as a label; "" if unknown, as for MIG instances under DRA."""
    return "" if number is None else str(number)


def _place(node: NodeLedger) -> Iterator[Sample]:
    row = ClusterNodeLabels(node=node.name)
    if node.known:
        yield Sample(m.NODE_READY, row, int(node.ready))
        yield Sample(m.NODE_SCHEDULABLE, row, int(node.schedulable))
        yield from _capacity(m.NODE_CAPACITY, row, node.capacity)
    for count in node.finding_counts:
        yield Sample(m.FINDINGS, row, count.count, (count.kind, count.reason))
    registered = registered_devices(node)
    for about in dict.fromkeys(_finding_row(finding, registered) for finding in node.findings):
        yield Sample(m.FINDING, about, 1)
    for finding in node.findings:
        yield from _claimed(finding, _finding_row(finding, registered))


def _claimed(finding: Finding, about: FindingLabels) -> Iterator[Sample]:
    """What annotations claim and nobody holds; each pod has one such finding."""
    if finding.claimed_gpus is not None:
        yield Sample(m.CLAIMED_GPUS, about, finding.claimed_gpus)
        yield Sample(m.CLAIMED_MEMORY, about, finding.claimed_memory)


def _finding_row(finding: Finding, registered: Container[DeviceUUID], *, named: bool = True) -> FindingLabels:
    """The labels of a finding. A device that is not registered is no label, for a pod's author can write any."""
    return FindingLabels(
        node=finding.node if named else "",
        kind=finding.kind,
        reason=finding.reason,
        gpu_uuid=finding.device if finding.device in registered else "",
        namespace=finding.namespace,
        pod=finding.pod,
        pod_uid=finding.pod_uid,
        resource=finding.resource,
    )


def assumed_node_samples(nodes: Iterable[NodeLedger]) -> Iterator[Sample]:
    """Findings on nodes that only annotations or claims name: counted together, without the names of the nodes."""
    counts = Counter[tuple[str, str]]()
    findings: dict[FindingLabels, Finding] = {}
    for node in nodes:
        counts.update({(one.kind, one.reason): one.count for one in node.finding_counts})
        findings.update({_finding_row(one, (), named=False): one for one in node.findings})
    for extra, count in sorted(counts.items()):
        yield Sample(m.FINDINGS, ClusterNodeLabels(node=""), count, extra)
    for about in sorted(findings)[: NODE_FINDINGS.most]:
        yield Sample(m.FINDING, about, 1)
        yield from _claimed(findings[about], about)


def _capacity(of: CapacityMetrics, row: tuple[str, ...], capacity: Capacity) -> Iterator[Sample]:
    yield Sample(of.cards, row, capacity.total.cards)
    for reason, lost in capacity.lost.items():
        yield Sample(of.lost_cards, row, lost.cards, (reason,))
        yield Sample(of.lost_memory, row, lost.memory, (reason,))
    yield Sample(of.memory, row, capacity.usable.memory)
    yield Sample(of.memory_allocated, row, capacity.allocated.memory)
    yield Sample(of.free_slots, row, capacity.free.slots)
    yield Sample(of.free_memory, row, capacity.free.memory)
    yield Sample(of.stranded_memory, row, capacity.stranded.memory)
    yield Sample(of.largest_memory, row, capacity.largest_memory)
    yield Sample(of.largest_cores, row, capacity.largest_cores / 100)
    yield Sample(of.whole_cards, row, capacity.whole_cards)
    yield Sample(of.fragmentation, row, capacity.fragmentation)


def _quota(namespace: str, quota: QuotaUse) -> Iterator[Sample]:
    row = QuotaLabels(namespace=namespace, resource=quota.resource)
    limit = str(quota.limit or 0)
    yield Sample(m.QUOTA_USED, row, quota.used)
    yield Sample(m.QUOTA_LIMIT, row, quota.limit)
    yield Sample(m.HAMI_QUOTA_USED, row, quota.used, (limit,))
    yield Sample(m.LEGACY_QUOTA_USED, row, quota.used, (limit,))


def _watch(watch: WatchState) -> Iterator[Sample]:
    row = WatchedKindLabels(kind=watch.kind)
    yield Sample(m.WATCH_UP, row, int(watch.up))
    yield Sample(m.WATCH_OBJECTS, row, watch.objects)
    yield Sample(m.WATCH_EVENTS, row, watch.events)
    yield Sample(m.WATCH_FAULTS, row, watch.faults)
    yield Sample(m.WATCH_AGE, row, watch.age_seconds)
