"""The node beside its GPUs: read on a thread of its own, every few seconds, with a deadline."""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.logic.node.host_accounts import HostAccounts, together
from vgpuscope.logic.node.snapshot import NodeSample
from vgpuscope.model.container_key import ContainerKey
from vgpuscope.model.errors import CgroupsHung, SourceDown
from vgpuscope.model.host import CgroupCounts, HostSide, NodeHost, SoughtContainer
from vgpuscope.model.pod import ProcessOwner
from vgpuscope.model.quantity import Pid, Seconds
from vgpuscope.runtime.probe import Probe
from vgpuscope.services.agent.waits import WAITS, SampleWaits
from vgpuscope.sources.node.cgroups import Cgroups
from vgpuscope.sources.node.host_files import HostFiles


class _Reading(Struct, frozen=True, kw_only=True):
    """What was read at one moment. `absent`: why there are no containers."""

    node: NodeHost
    containers: dict[ContainerKey, CgroupCounts]
    absent: SourceDown | None = None


class HostReader:
    """CPU, memory, I/O and network of containers that hold a GPU, and of the node."""

    def __init__(self, *, cgroup_root: str | None, proc_root: str, window: Seconds, waits: SampleWaits = WAITS) -> None:
        self._cgroups = Cgroups(cgroup_root, proc_root=proc_root) if cgroup_root else None
        self._files = HostFiles(proc_root)
        self._accounts = HostAccounts(max(window, 2 * waits.host_every))
        self._every, self._deadline = waits.host_every, waits.host
        self._probe = Probe("cgroup", self._read, doing=lambda: "reading cgroups", error=CgroupsHung)
        self._wanted: tuple[SoughtContainer, ...] = ()
        self._latest = HostSide()
        self._due = 0.0
        self.error: SourceDown | None = None  # of the last reading

    def side(
        self, sample: NodeSample, owners: Mapping[Pid, ProcessOwner] | None, *, tick: float, clock: Callable[[], float]
    ) -> HostSide:
        """The last reading, of containers that are still there; read again when it is due. CgroupsHung when late."""
        if tick >= self._due or self._probe.stuck_seconds is not None:
            self._due = tick + self._every - 0.5  # samples come a little early or late
            self._latest = HostSide(faults=self._latest.faults)  # a failed reading leaves no old values
            self._wanted = sample.sought(owners)
            self._latest = self._concluded(self._probe.read(self._deadline), clock())
            return self._latest
        return _still_there(self._latest, sample)

    def _read(self) -> _Reading:
        node = self._files.read()
        if self._cgroups is None:
            return _Reading(node=node, containers={})
        try:
            return _Reading(node=node, containers=self._cgroups.read(self._wanted))
        except SourceDown as error:
            return _Reading(node=node, containers={}, absent=error)

    def _concluded(self, reading: _Reading, at: float) -> HostSide:
        self.error = reading.absent
        uses = self._accounts.settle(reading.containers, at)
        missed = {"malformed": self._files.malformed, "backwards": self._accounts.backwards}
        faults = together(missed, self._cgroups.faults if self._cgroups else {})
        node = self._accounts.node(reading.node, at)
        return HostSide(node=node, containers=uses, faults={why: n for why, n in faults.items() if n})


def _still_there(side: HostSide, sample: NodeSample) -> HostSide:
    keys = {usage.key for usage in sample.outline.containers}
    if all(use.key in keys for use in side.containers):
        return side
    return replace(side, containers=tuple(use for use in side.containers if use.key in keys))
