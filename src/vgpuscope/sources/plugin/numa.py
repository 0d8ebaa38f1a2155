"""The NUMA node of each GPU, from sysfs."""

import os

from vgpuscope.model.device import Gpu
from vgpuscope.model.quantity import DeviceUUID

SYSFS = "/sys/bus/pci/devices"


def numa_nodes(gpus: tuple[Gpu, ...], root: str = SYSFS) -> dict[DeviceUUID, int]:
    """The NUMA nodes of those GPUs that sysfs knows one of; -1 in sysfs means none."""
    found = {gpu.uuid: _node(root, gpu.pci_bus_id) for gpu in gpus if gpu.pci_bus_id}
    return {uuid: node for uuid, node in found.items() if node is not None and node >= 0}


def _node(root: str, bus_id: str) -> int | None:
    """NVML writes eight digits of the domain and capitals, sysfs four digits and small letters."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        with open(os.path.join(root, f"{domain[-4:]}:{rest}", "numa_node")) as file:
            return int(file.read(16))
    except (OSError, ValueError):
        return None
