"""HAMi's checks of a pod on one node, GPU after GPU and container after container, without any shortcut.

It shares the formula of scores and the choice of MIG instances and linked GPUs with vgpuscope. tests/hami has a model
that shares nothing, and this one is quick enough for thousands of clusters.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from vgpuscope.logic.device_use import device_uses_of
from vgpuscope.logic.scheduler.node_fit import linked, mig_instance, wanted_memory
from vgpuscope.logic.scheduler.node_info import GpuInfo, out_of_service
from vgpuscope.model.allocation import Assignment
from vgpuscope.model.placement import ContainerAsk

MIB = 1024**2


@dataclass
class Refusal:
    """The fields of a NodeRefusal."""

    ask: ContainerAsk
    total: int
    counts: Counter = field(default_factory=Counter)
    memory: tuple | None = None
    cores: int | None = None
    quota: tuple | None = None
    fitting: int = 0

    def failed(self, reason, row, ask):
        self.counts[reason] += 1
        if reason == "CardInsufficientMemory":
            short = (row.free, wanted_memory(ask, row.gpu.memory))
            self.memory = max(self.memory or short, short, key=lambda each: (each[0], -each[1]))
        if reason == "CardInsufficientCore":
            self.cores = max(row.free_cores, row.free_cores if self.cores is None else self.cores)


@dataclass(frozen=True)
class Gpu:
    """A GPU and what is left of it."""

    gpu: GpuInfo
    used: int
    free: int
    free_cores: int
    placed: tuple

    def plus(self, memory, cores, placement=None):
        placed = self.placed if placement is None else (*self.placed, placement)
        return replace(
            self, used=self.used + 1, free=self.free - memory, free_cores=self.free_cores - cores, placed=placed
        )

    def row(self):
        gpu = self.gpu
        kind = (gpu.type, gpu.mode)
        amounts = (self.used, gpu.slots, gpu.memory, self.free, gpu.cores, self.free_cores, gpu.numa, gpu.index)
        return (out_of_service(gpu), kind, gpu.id, *amounts, self.placed)


def refusal(node_info, request, rules, room):
    """Why the first container that does not fit does not; None: all fit."""
    gpus = [
        Gpu(gpu, gpu.used, gpu.memory - gpu.used_memory, gpu.cores - gpu.used_cores, gpu.placed)
        for gpu in node_info.gpus
    ]
    init = {ask.index for ask in request.asks if ask.init}
    held: list[tuple[int, str, int, int]] = []
    for ask in request.asks:
        order = rules.ordered([gpu.row() for gpu in gpus])
        picks = picked(gpus, ask, rules, order, held=held, init=init, room=room)
        if isinstance(picks, Refusal):
            return picks
        if rules.topology:
            picks = linked(picks, ask.count, [gpu.row() for gpu in gpus], node_info.links)
        left = list(gpus)
        for at, memory, cores in picks:
            gpu = left[at]
            amounts, placement = (memory, cores), None
            if gpu.gpu.mode == "mig":
                profile, placement = mig_instance(gpu.row(), gpu.gpu.profiles, memory)
                amounts = (profile.memory // MIB, profile.cores)
            left[at] = gpu.plus(*amounts, placement)
            held.append((ask.index, gpu.gpu.id, *amounts))
        gpus = gpus if ask.init else left
    return None


def picked(gpus, ask, rules, order, *, held, init, room):
    found = Refusal(ask, len(gpus))
    mig = rules.allows_mode("mig") and any(gpu.gpu.mode == "mig" for gpu in gpus)
    if ask.count > len(gpus) and not mig:
        found.counts["NodeInsufficientDevice"] += 1
        return found
    picks: list[tuple[int, int, int]] = []
    tentative: dict[int, Gpu] = {}
    enough, numa = None, None
    for at in order:
        gpu = gpus[at]
        usable = not out_of_service(gpu.gpu) and rules.allows_kind((gpu.gpu.type, gpu.gpu.mode))
        if usable and rules.numa_bind and gpu.gpu.numa != numa:
            if picks and not rules.topology:
                found.counts["NumaNotFit"] += len(picks)
            found.fitting = max(found.fitting, len(picks))
            enough = picks if len(picks) >= ask.count else enough
            picks, numa, tentative = [], gpu.gpu.numa, {}
        while True:
            pick = (at, wanted_memory(ask, gpu.gpu.memory), min(ask.cores, 100))
            shares = [(ask.index, gpus[each].gpu.id, memory, cores) for each, memory, cores in [*picks, pick]]
            over = over_quota([*held, *shares], init, room)
            reason, instance = failed_check(gpu, pick, rules, over), None
            if reason == "ResourceQuotaNotFit":
                found.quota = min(found.quota or over, over)
            if not reason and gpu.gpu.mode == "mig":
                instance = mig_instance(tentative.get(at, gpu).row(), gpu.gpu.profiles, pick[1])
                reason = "" if instance else "CardMigTopologyInfeasible"
            if reason:
                found.failed(reason, gpu, ask)
                break
            picks.append(pick)
            if len(picks) == ask.count and not rules.topology:
                return picks
            if instance is None:
                break
            profile, placement = instance
            tentative[at] = tentative.get(at, gpu).plus(profile.memory // MIB, profile.cores, placement)
    picks = picks if len(picks) >= ask.count or enough is None else enough
    if rules.topology and len(picks) >= ask.count:
        return picks
    if picks:
        found.counts["AllocatedCardsInsufficientRequest"] += len(picks)
    found.fitting = max(found.fitting, len(picks))
    return found


def over_quota(shares, init, room):
    """What the pod would hold, if its quota does not allow it."""
    held = device_uses_of([assignment(*share, init=share[0] in init) for share in shares])
    sums = sum(one.memory for one in held), sum(one.cores for one in held)
    return None if room.fits(*sums) else sums


def assignment(container, uuid, memory, cores, *, init):
    return Assignment(
        container_index=container, container="", init=init, vendor="NVIDIA", device=uuid, memory=memory, cores=cores
    )


def failed_check(gpu, pick, rules, over):
    _, memory, cores = pick
    checks = (
        (bool(out_of_service(gpu.gpu)), out_of_service(gpu.gpu)),
        (not rules.allows_kind((gpu.gpu.type, gpu.gpu.mode)), "CardTypeMismatch"),
        (not rules.allows_uuid(gpu.gpu.id), "CardUuidMismatch"),
        (gpu.used >= gpu.gpu.slots, "CardTimeSlicingExhausted"),
        (rules.mutex and gpu.used > 0, "ExclusiveDeviceAllocateConflict"),
        (over is not None, "ResourceQuotaNotFit"),
        (gpu.free < memory, "CardInsufficientMemory"),
        (gpu.free_cores < cores, "CardInsufficientCore"),
        (gpu.gpu.cores == 100 and cores == 100 and gpu.used > 0, "ExclusiveDeviceAllocateConflict"),
        (gpu.gpu.cores > 0 and gpu.free_cores == 0 and cores == 0, "CardComputeUnitsExhausted"),
    )
    return next((reason for failed, reason in checks if failed), "")
