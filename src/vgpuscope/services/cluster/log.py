"""The cluster exporter's log: changed nodes at --v 4, their devices at --v 5, at most once a minute."""

import logging
from collections.abc import Callable, Iterable

from vgpuscope.model.cluster import Capacity, NodeLedger
from vgpuscope.model.quantity import MIB, Seconds
from vgpuscope.runtime.log import DETAIL, SUMMARY, fields
from vgpuscope.views.cluster.log import device_fields, node_fields

log = logging.getLogger(__name__)

_EVERY: Seconds = 60.0
_MOST = 100  # nodes a minute; after the first list, all nodes are new


class ClusterNews:
    """The nodes that changed since they were last logged; does nothing if the log level is not enabled."""

    def __init__(self, node: Callable[[str], NodeLedger | None], cluster: Callable[[], Capacity]) -> None:
        self._node, self._cluster = node, cluster
        self._changed: set[str] = set()
        self._due = 0.0

    @property
    def waiting(self) -> int:
        """The number of changed nodes that were not logged yet."""
        return len(self._changed)

    def changed(self, nodes: Iterable[str]) -> None:
        """These nodes have changed."""
        if log.isEnabledFor(SUMMARY):
            self._changed.update(nodes)

    def tell(self, now: Seconds) -> None:
        """Log the changed nodes if the interval has passed; `now` is of a monotonic clock."""
        if not self._changed or now < self._due or not log.isEnabledFor(SUMMARY):
            return
        names, self._changed, self._due = sorted(self._changed), set(), now + _EVERY
        total = self._cluster()
        values = {"devices": total.total.cards, "allocated": _of(total), "changed_nodes": len(names)}
        log.log(SUMMARY, "cluster", extra=fields(**values))
        for name in names[:_MOST]:
            self._tell_node(name)
        if len(names) > _MOST:
            log.log(SUMMARY, "nodes", extra=fields(more=len(names) - _MOST))

    def _tell_node(self, name: str) -> None:
        node = self._node(name)
        if node is None:
            log.log(SUMMARY, "node is gone", extra=fields(node=name))
            return
        if not node.devices and not node.holders:
            return  # nodes without devices are not logged
        log.log(SUMMARY, "node", extra=fields(**node_fields(node)))
        if log.isEnabledFor(DETAIL):
            for values in device_fields(node):
                log.log(DETAIL, "device", extra=fields(**values))


def _of(total: Capacity) -> str:
    return f"{total.allocated.memory // MIB} of {total.total.memory // MIB} MiB"
