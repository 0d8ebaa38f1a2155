"""The simulation of a node without its files: pods start and end, processes use GPUs, GPUs heat up and fail."""

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random

from vgpuscope.sim.hardware import MIB, Instance, Load, SimGpu
from vgpuscope.sim.jobs import Job, Life, Process
from vgpuscope.sim.kinds import FaultKind, KindPlan, Slice
from vgpuscope.sim.state import XidState
from vgpuscope.sim.workloads import Demand

_FIRST_PID = 4100
_PAGE = 2 * MIB
DRIVER_EXTRA = 6 * MIB  # per process; the driver counts it, HAMi's library does not see it
_XIDS_KEPT = 64


class World:
    """One node at one moment; the same seed and the same moments give the same node."""

    def __init__(self, plan: KindPlan, *, seed: int, now: float, began: float | None = None) -> None:
        """`began`: when the demo begins, if not now."""
        self.plan, self.seed, self.now = plan, seed, now
        self.began = now if began is None else began
        self._random = Random(f"{seed}/{plan.name}")
        self.gpus = [self._gpu(index) for index in range(len(plan.gpus))]
        self._instances = {slice_: self._instance(slice_) for slice_ in plan.slices}
        self.stopped: frozenset[str] = frozenset()  # NAMESPACE/NAME of jobs that somebody has deleted
        self.scheduled = False  # whether a scheduler chooses the GPUs of HAMi's pods that are created from now on
        self._started: dict[Job, float] = {}  # when a deleted job was created again
        self.lives: dict[Job, Life] = {}
        self.gone: list[Life] = []  # deleted since the last look; the reader that cleans up empties the list
        self.xids: list[XidState] = []
        self._pid = _FIRST_PID
        self._turn()
        for gpu in self.gpus:
            gpu.settle(gpu.load)

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began; negative before that."""
        return self.now - self.began

    def advance(self, now: float) -> None:
        """Advances the node until now."""
        seconds, self.now = max(0.0, now - self.now), max(now, self.now)
        self._turn(seconds)
        for gpu in self.gpus:
            if not gpu.lost:
                gpu.step(seconds)

    def waiting(self) -> list[Life]:
        """The pods of this node's plan that no scheduler has placed yet."""
        return [life for life in self.lives.values() if life.waits]

    def place(self, life: Life, uuids: Sequence[str], notes: Mapping[str, str]) -> None:
        """A scheduler and the device plugin have allocated these GPUs to a pod that waited."""
        index = {gpu.uuid: gpu.index for gpu in self.gpus}
        life.job = life.job._replace(gpus=tuple(index[one] for one in uuids))
        life.waits, life.notes = False, dict(notes)

    def on_gpu(self, gpu: SimGpu) -> list[tuple[Life, Process]]:
        """The processes on a GPU now, with their lives."""
        here = [life for life in self.lives.values() if gpu.index in life.job.gpus and not life.waits]
        return [(life, process) for life in here for process in life.running()]

    def instance_of(self, life: Life) -> Instance | None:
        """The MIG instance in which a life runs."""
        if not life.job.instances:
            return None
        found = self.gpus[life.job.gpus[0]].instances
        return next((i for i in found if i.index == life.job.instances[0]), None)

    def garbage(self, gpu: SimGpu) -> bool:
        """Whether the driver returns invalid values for a process of this GPU now."""
        return any(f.gpu == gpu.index and f.garbage and f.garbage.holds(self.elapsed) for f in self.plan.faults)

    def driver_memory(self, life: Life, process: Process, gpu: SimGpu) -> int:
        """The memory of a process as the driver counts it, in bytes."""
        return process.memory.get(gpu.index, 0) + (DRIVER_EXTRA if life.job.hami else 0)

    def _turn(self, seconds: float = 0.0) -> None:
        self._break_and_mend(seconds)
        self._cut()
        for job in self.plan.jobs:
            self._live(job)
        self._block()
        for gpu in self.gpus:
            self._share_memory(gpu)
            self._share_time(gpu)

    # GPUs

    def _gpu(self, index: int) -> SimGpu:
        spec = self.plan.gpus[index]
        return SimGpu(
            spec=spec,
            index=index,
            uuid=f"GPU-{self._uuid()}",
            serial=str(self._random.randrange(1_320_000_000_000, 1_659_999_999_999)),
            bus_id=f"00000000:{0x07 + 0x20 * index:02X}:00.0",
            random=Random(f"{self.seed}/{self.plan.name}/card{index}"),
            mig=any(s.gpu == index for s in self.plan.slices),
        )

    def _instance(self, slice_: Slice) -> Instance:
        return Instance(
            index=slice_.number,
            uuid=f"MIG-{self._uuid()}",
            gpu_instance=slice_.gpu_instance,
            compute_instance=slice_.compute_instance,
            profile=slice_.profile,
            memory=slice_.memory,
            slices=slice_.slices,
        )

    def _cut(self) -> None:
        for gpu in self.gpus:
            here = (s for s in self.plan.slices if s.gpu == gpu.index)
            gpu.instances = [self._instances[s] for s in here if s.exists is None or s.exists.holds(self.elapsed)]

    def _break_and_mend(self, seconds: float) -> None:
        for fault in self.plan.faults:
            gpu = self.gpus[fault.gpu]
            self._report_xids(fault, gpu, seconds)
            gpu.hung = fault.hung is not None and fault.hung.holds(self.elapsed)
            lost = fault.lost is not None and fault.lost.holds(self.elapsed)
            if gpu.lost and not lost:
                gpu.reset()
            gpu.lost = lost

    def _report_xids(self, fault: FaultKind, gpu: SimGpu, seconds: float) -> None:
        if fault.lost is None or seconds <= 0:
            return
        for at, xid in fault.xids:
            if (self.elapsed - at) // fault.lost.period > (self.elapsed - seconds - at) // fault.lost.period:
                number = self.xids[-1].number + 1 if self.xids else 1
                self.xids = [*self.xids, XidState(number=number, uuid=gpu.uuid, xid=xid)][-_XIDS_KEPT:]
                gpu.ecc_uncorrected += xid == 48
                gpu.remap_pending |= xid == 48

    # Pods and processes

    def _live(self, job: Job) -> None:
        born, life = self._born(job), self.lives.get(job)
        if life and life.born != born:
            self._end(life)
            self.gone.append(self.lives.pop(job))
            life = None
        if born is not None and life is None:
            life = self.lives[job] = self._birth(job, born)
        if life:
            self._staff(life)

    def _born(self, job: Job) -> float | None:
        """When the current life began, as planned, or since somebody created the job again."""
        if f"{job.namespace}/{job.name}" in self.stopped:
            self._started[job] = self.elapsed
            return None
        born = job.timeline.born(self.elapsed)
        return born if born is None else max(born, self._started.get(job, born))

    def _birth(self, job: Job, born: float) -> Life:
        random = Random(f"{self.seed}/{self.plan.name}/{job.name}/{born}")
        return Life(
            job=job,
            born=born,
            uid=_uuid(random),
            name=f"{job.name}-{random.getrandbits(20):05x}" if job.restarts else job.name,
            container_id=f"{random.getrandbits(256):064x}",
            sidecar_id=f"{random.getrandbits(256):064x}",
            config_hash=f"{random.getrandbits(128):032x}",
            region_name=f"{_uuid(random)}.cache",
            random=random,
            waits=self.scheduled and job.hami is not None and not job.instances,
        )

    def _staff(self, life: Life) -> None:
        """Starts and ends processes until their number is right."""
        lost = any(self.gpus[c].lost for c in life.job.gpus)
        wanted = 0 if lost else life.wanted_workers(self.elapsed)
        running = life.running()
        for process in running[wanted:]:
            process.ended = "kill" if wanted or lost else "exit"
        taken = {p.worker for p in running[:wanted]}
        missing = [w for w in range(wanted) if w not in taken]
        if missing:
            life.processes = [*running[:wanted], *(self._spawn(life, worker) for worker in missing)]

    def _spawn(self, life: Life, worker: int) -> Process:
        self._pid += life.random.randrange(1, 40)
        life.spawned += 1
        # A pod that runs when the demo begins has already run for a while.
        began = self.elapsed if self.elapsed > 0 else min(0.0, life.born + life.job.warmup)
        return Process(
            pid=self._pid, inner_pid=1 + 7 * life.spawned, began=began, worker=worker, command=life.job.command
        )

    def _end(self, life: Life) -> None:
        for process in life.running():
            process.ended = "exit"

    def _block(self) -> None:
        """Applies HAMi's priorities: while a container of higher priority works on a GPU, lower ones are blocked."""
        shared = [life for life in self.lives.values() if life.job.hami and life.running()]
        urgent = {c for life in shared if life.job.hami and life.job.hami.priority == 0 for c in life.job.gpus}
        for life in shared:
            life.blocked = bool(life.job.hami and life.job.hami.priority > 0 and urgent.intersection(life.job.gpus))

    # Memory and time

    def _share_memory(self, gpu: SimGpu) -> None:
        rooms: dict[int | None, int] = {None: gpu.room}
        for instance in gpu.instances:
            rooms[instance.gpu_instance] = instance.total - instance.reserved
        total, by_life = 0, defaultdict[str, int](int)
        for life, process in self.on_gpu(gpu):
            process.demand = self._demand(life, process)
            place = self.instance_of(life)
            pool = place.gpu_instance if place else None
            extra = DRIVER_EXTRA if life.job.hami else 0
            wanted = min(int(process.demand.memory * MIB), rooms[pool] - extra, _limit(life) - by_life[life.uid])
            granted = max(0, wanted // _PAGE * _PAGE)
            process.memory[gpu.index] = granted
            rooms[pool] -= granted + extra
            by_life[life.uid] += granted
            total += granted + extra
        gpu.load = Load(memory=total)

    def _demand(self, life: Life, process: Process) -> Demand:
        before = life.job.before
        shape = before.shape if before and self.elapsed < -before.ended else life.job.shape
        assert shape
        demand = shape(self.elapsed - process.began, life.random)
        if life.blocked:
            return demand._replace(sm=0.0)
        cores = life.job.hami.cores if life.job.hami else 0
        ceiling = cores / 100 / life.job.workers if cores and not life.job.instances else 1.0
        return demand._replace(sm=min(demand.sm, ceiling))

    def _share_time(self, gpu: SimGpu) -> None:
        """Divides SM time: if the demand exceeds the GPU's time, every process gives up the same share."""
        asked: dict[Instance | None, float] = defaultdict(float)
        for life, process in self.on_gpu(gpu):
            asked[self.instance_of(life)] += process.demand.sm
        for life, process in self.on_gpu(gpu):
            place = self.instance_of(life)
            process.sm[gpu.index] = process.demand.sm / max(1.0, asked[place])
            part = place.slices / 7 if place else 1.0
            gpu.load.sm += process.sm[gpu.index] * part
            gpu.load.encoder = min(1.0, gpu.load.encoder + process.demand.encoder)
            gpu.load.decoder = min(1.0, gpu.load.decoder + process.demand.decoder)

    def _uuid(self) -> str:
        return _uuid(self._random)


def engine_time(world: World, gpu: SimGpu, gpu_instance: int) -> float:
    """Share of time in which a GPU instance computes."""
    places = [(world.instance_of(life), process) for life, process in world.on_gpu(gpu)]
    return min(
        1.0, sum(p.sm.get(gpu.index, 0.0) for place, p in places if place and place.gpu_instance == gpu_instance)
    )


def _uuid(random: Random) -> str:
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


def _limit(life: Life) -> int:
    limit = life.job.hami.memory if life.job.hami else 0
    return limit * MIB if limit else 1 << 62
