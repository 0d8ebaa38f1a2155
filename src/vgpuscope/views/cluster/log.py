"""Log lines of the cluster exporter about a node: one for the node, and one for each of its devices."""

from collections.abc import Iterator

from vgpuscope.model.cluster import DeviceLedger, NodeLedger
from vgpuscope.model.quantity import MIB

_HOLDERS = 8  # named in a line


def node_fields(node: NodeLedger) -> dict[str, object]:
    """The node in one line."""
    devices = node.devices
    held = sum(one.memory_allocated for one in devices)
    findings = sorted({finding.kind for finding in node.findings})
    return {
        "node": node.name,
        "ready": node.ready and node.schedulable and node.known,
        "devices": len(devices),
        "lost": sum(one.lost is not None for one in devices) or None,
        "slots": f"{sum(one.shared for one in devices)} of {sum(one.device.slots for one in devices)}",
        "allocated": f"{held // MIB} of {sum(one.device.memory for one in devices) // MIB} MiB",
        "largest_free": f"{node.capacity.largest_memory // MIB} MiB",
        "pods": len({holder.pod_uid for holder in node.holders}),
        "findings": ",".join(findings) or None,
    }


def device_fields(node: NodeLedger) -> Iterator[dict[str, object]]:
    """Each device of the node, with its holders."""
    names: dict[str, list[str]] = {}
    for holder in node.holders:
        names.setdefault(holder.device, []).append(f"{holder.namespace}/{holder.pod}")
    for one in node.devices:
        yield _device(node.name, one, list(dict.fromkeys(names.get(one.device.id, ()))))


def _device(node: str, one: DeviceLedger, holders: list[str]) -> dict[str, object]:
    device = one.device
    more = len(holders) - _HOLDERS
    return {
        "node": node,
        "device": device.id,
        "type": device.type,
        "lost": one.lost,
        "slots": f"{one.shared} of {device.slots}",
        "memory": f"{one.memory_allocated // MIB} of {device.memory // MIB} MiB",
        "cores": f"{one.cores_allocated} of {device.cores} %",
        "holders": ",".join(holders[:_HOLDERS]) + (f" and {more} more" if more > 0 else "") or None,
    }
