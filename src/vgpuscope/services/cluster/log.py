"""The cluster exporter's log: changed nodes at --v 4, their devices at --v 5, at most once a minute."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from vgpuscope.model.cluster import Capacity, NodeLedger
from vgpuscope.model.quantity import MIB, Seconds
from vgpuscope.runtime.log import DETAIL, SUMMARY, fields
from vgpuscope.views.cluster.log import device_fields, node_fields

log = logging.getLogger(__name__)

_Fields: TypeAlias = Mapping[str, object]
_News: TypeAlias = tuple[_Fields | None, tuple[_Fields, ...]]  # of a node, None: it is gone; of its devices
_EVERY: Seconds = 60.0
_MOST = 100  # nodes a minute; after the first list, all nodes are new


class ClusterNews:
    """The nodes that changed since they were last logged; does nothing if the log level is not enabled."""

    def __init__(self, node: Callable[[str], NodeLedger | None], cluster: Callable[[], Capacity]) -> None:
        self._node, self._cluster = node, cluster
        self._changed: set[str] = set()
        self._logged: dict[
            str, object
        ] = {}  # the fields of each node's last line, and of its devices if they are logged
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
        news = [(name, found) for name in names if (found := self._news(name)) is not None]
        if not news:
            return
        total = self._cluster()
        values = {"devices": total.total.cards, "allocated": _of(total), "changed_nodes": len(news)}
        log.log(SUMMARY, "cluster", extra=fields(**values))
        for name, (node, devices) in news[:_MOST]:
            if node is None:
                log.log(SUMMARY, "node is gone", extra=fields(node=name))
                continue
            log.log(SUMMARY, "node", extra=fields(**node))
            for device in devices:
                log.log(DETAIL, "device", extra=fields(**device))
        if len(news) > _MOST:
            log.log(SUMMARY, "nodes", extra=fields(more=len(news) - _MOST))

    def _news(self, name: str) -> _News | None:
        """The fields of the node and of its devices; None if they were logged before, or if it has no devices."""
        node = self._node(name)
        if node is None:
            return (None, ()) if self._logged.pop(name, None) is not None else None
        if not node.devices and not node.holders:
            self._logged.pop(name, None)
            return None
        devices = tuple(device_fields(node)) if log.isEnabledFor(DETAIL) else ()
        found = (node_fields(node), devices)
        known, self._logged[name] = self._logged.get(name), hash(repr(found))
        return None if known == self._logged[name] else found


def _of(total: Capacity) -> str:
    return f"{total.allocated.memory // MIB} of {total.total.memory // MIB} MiB"
