"""The node beside its GPUs → samples."""

from collections.abc import Iterator

from vgpuscope.catalog import agent as m
from vgpuscope.catalog.label_sets import HostLabels, NodeLabels
from vgpuscope.model.host import HostSide, HostUse
from vgpuscope.views.exposition.page import Sample

_MINUTES = ("1", "5", "15")


def host_samples(node: str, use: HostUse) -> Iterator[Sample]:
    """What one container that holds a GPU uses of its node."""
    key = use.key
    row = HostLabels(node=node, namespace=key.namespace, pod=key.pod, pod_uid=key.pod_uid, container=key.container)
    values = (
        (m.HOST_CPU, use.cpu_seconds),
        (m.HOST_CPU_LIMIT, use.cpu_limit),
        (m.HOST_PERIODS, use.periods),
        (m.HOST_THROTTLED_PERIODS, use.throttled_periods),
        (m.HOST_THROTTLED, use.throttled_seconds),
        (m.HOST_MEMORY, use.memory),
        (m.HOST_WORKING_SET, use.memory_working_set),
        (m.HOST_MEMORY_LIMIT, use.memory_limit),
        (m.HOST_READ, use.read_bytes),
        (m.HOST_WRITTEN, use.written_bytes),
        (m.HOST_RECEIVED, use.received_bytes),
        (m.HOST_SENT, use.sent_bytes),
    )
    for metric, value in values:
        if value is not None:
            yield Sample(metric, row, value)


def node_host_samples(row: NodeLabels, side: HostSide) -> Iterator[Sample]:
    """CPU, memory and load of the node, and what could not be read of its containers."""
    node = side.node
    yield Sample(m.NODE_CPUS, row, node.cpus)
    if node.cpu is not None:
        for mode in ("user", "system", "iowait", "steal", "idle"):
            yield Sample(m.NODE_CPU, row, getattr(node.cpu, mode), (mode,))
    yield Sample(m.NODE_MEMORY_TOTAL, row, node.memory_total)
    yield Sample(m.NODE_MEMORY_AVAILABLE, row, node.memory_available)
    for minutes, load in zip(_MINUTES, node.load or (), strict=False):
        yield Sample(m.NODE_LOAD, row, load, (minutes,))
    for reason, count in side.faults.items():
        yield Sample(m.HOST_FAULTS, row, count, (reason,))
