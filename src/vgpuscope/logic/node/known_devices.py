"""The devices of the node: only these get series, whatever annotations and regions name."""

from collections.abc import Collection, Iterable

from vgpuscope.catalog.limits import UNSEEN_DEVICES
from vgpuscope.model.device import Gpu, MigInstance
from vgpuscope.model.quantity import DeviceUUID


class KnownDevices:
    """The GPUs and MIG instances that the driver lists, or has listed for a GPU that does not answer now.

    While no driver has ever answered, names in annotations and regions are all there is. Their number is limited for
    the life of the agent, because their authors can change them at any time.
    """

    def __init__(self) -> None:
        self._instances: dict[DeviceUUID, tuple[MigInstance, ...]] = {}  # by GPU
        self._named: dict[DeviceUUID, None] = {}
        self.instances: dict[DeviceUUID, tuple[DeviceUUID, MigInstance]] = {}  # with their GPUs, of the last sample

    def of(self, gpus: Collection[Gpu], named: Iterable[DeviceUUID]) -> frozenset[DeviceUUID]:
        """The devices of this sample; `named` are those in annotations and regions, in the order of trust."""
        if not gpus:
            return self._from_names(named)
        self._instances = {gpu.uuid: self._instances_of(gpu) for gpu in gpus}
        self.instances = {one.uuid: (gpu, one) for gpu, instances in self._instances.items() for one in instances}
        return frozenset((*self._instances, *self.instances))

    def _instances_of(self, gpu: Gpu) -> tuple[MigInstance, ...]:
        silent = gpu.health != "ok" and not gpu.instances
        return self._instances.get(gpu.uuid, ()) if silent else gpu.instances

    def _from_names(self, named: Iterable[DeviceUUID]) -> frozenset[DeviceUUID]:
        for uuid in named:
            if len(self._named) >= UNSEEN_DEVICES.most:
                break
            self._named.setdefault(uuid)
        return frozenset(self._named)
