"""Plans of the kinds of nodes in the demo: their GPUs, the jobs on them, and their faults."""

from typing import NamedTuple

from vgpuscope.sim.hardware import A30, A100_40, A100_80, H100, L4, T4, Spec
from vgpuscope.sim.jobs import HOUR, Before, Hami, Job, Timeline
from vgpuscope.sim.workloads import Quiet, inference, leak, notebook, training, transcoding


class KindWindow(NamedTuple):
    """A period of time that repeats, in seconds after the start of the demo."""

    start: float
    length: float
    period: float

    def holds(self, elapsed: float) -> bool:
        """Whether this moment is inside the period."""
        return elapsed >= self.start and (elapsed - self.start) % self.period < self.length


class Slice(NamedTuple):
    """A MIG instance as planned: its place, its size, and when it exists (None: always)."""

    gpu: int
    number: int  # among the GPU's MIG devices
    gpu_instance: int
    profile: str
    memory: int  # MiB
    slices: int
    compute_instance: int = 0
    exists: KindWindow | None = None


class FaultKind(NamedTuple):
    """The faults of a GPU."""

    gpu: int
    lost: KindWindow | None = None
    hung: KindWindow | None = None
    garbage: KindWindow | None = None  # when utilisation samples exceed 100 %
    xids: tuple[tuple[float, int], ...] = ()  # seconds into the period of the lost window, and the XID


class KindPlan(NamedTuple):
    """The plan of a node."""

    name: str
    kind: str
    gpus: tuple[Spec, ...]
    jobs: tuple[Job, ...]
    runtime: str = "containerd"  # decides the format of its cgroup paths
    driver: str = "580.95.05"
    cuda: int = 13000  # in the driver's format: 1000 × major + 10 × minor
    slices: tuple[Slice, ...] = ()
    faults: tuple[FaultKind, ...] = ()
    ratio: int | None = None  # of its gpu_allocation.txt; None: it has no such file
    past: tuple[Job, ...] = ()  # pods that existed on the day before the demo, and are gone


WHOLE = "nvidia.com/gpu"

HAMI = KindPlan(
    name="hami-a",
    kind="HAMi, 4 × A100-80G",
    gpus=(A100_80,) * 4,
    jobs=(
        Job(
            name="train-bert-0",
            namespace="ml-team",
            container="train",
            shape=training(sm=0.42, memory=14000),
            hami=Hami(memory=40960, cores=50),
            workers=2,
            killed_every=60,
            sidecar="logs",
        ),
        Job(
            name="serve-llama-7d9f8b6c5-x2x9k",
            namespace="serving",
            container="server",
            shape=inference(sm=0.3, memory=17000),
            hami=Hami(memory=20480, cores=30),
        ),
        Job(
            name="notebook-alice",
            namespace="research",
            container="jupyter",
            shape=notebook(memory=9000),
            hami=Hami(memory=16384, layout="v1s"),
            before=Before(ended=4 * HOUR, shape=training(sm=0.2, memory=9000)),
        ),
        Job(
            name="etl-leaky-0",
            namespace="research",
            container="etl",
            gpus=(1,),
            shape=leak(start=3000, limit=49152, seconds=150),
            hami=Hami(memory=49152, cores=20),
            timeline=Timeline(first=-20, life=220, period=240, ends="Failed"),
            pinned=True,  # elsewhere the GPU would be full before the container reaches its limit
        ),
        Job(
            name="embed-api-0",
            namespace="serving",
            container="server",
            gpus=(1,),
            shape=inference(sm=0.55, memory=12000, every=11, length=5),
            hami=Hami(memory=40960, cores=60, layout="v1.1"),
        ),
        Job(
            name="rerank-api-0",
            namespace="serving",
            container="server",
            gpus=(1,),
            shape=inference(sm=0.35, memory=8000, every=23, length=7, quiet=Quiet(start=160, length=140, period=240)),
            hami=Hami(memory=40960, layout="v0"),
        ),
        Job(
            name="finetune",
            namespace="batch",
            container="job",
            gpus=(2,),
            shape=training(sm=0.6, memory=22000),
            hami=Hami(memory=30720, cores=60),
            timeline=Timeline(first=-12, life=35, period=52),
        ),
        Job(
            name="sweep-unlimited",
            namespace="batch",
            container="sweep",
            gpus=(2,),
            shape=training(sm=0.6, memory=11000),
            hami=Hami(memory=0),
        ),
        Job(
            name="warming-up",
            namespace="serving",
            container="server",
            gpus=(2,),
            shape=None,
            hami=Hami(memory=8192, cores=10),
        ),
        Job(
            name="train-pair-0",
            namespace="ml-team",
            container="train",
            gpus=(2, 3),
            shape=training(sm=0.28, memory=19000),
            hami=Hami(memory=24576, cores=40),
        ),
        Job(
            name="nightly-low",
            namespace="batch",
            container="job",
            gpus=(3,),
            shape=training(sm=0.5, memory=9000),
            hami=Hami(memory=16384, cores=60, priority=1),
        ),
        Job(
            name="urgent",
            namespace="serving",
            container="server",
            gpus=(3,),
            shape=inference(sm=0.6, memory=6000, every=8, length=7),
            hami=Hami(memory=12288, cores=70, priority=0),
            timeline=Timeline(first=15, life=25, period=70),
            pinned=True,  # to the GPU of the pod that it blocks
        ),
        Job(
            name="prepare-data-0",
            namespace="research",
            container="loader",
            gpus=(3,),
            shape=notebook(memory=2600),
            hami=Hami(memory=8192, cores=10),
            cpu=6.5,
        ),
        Job(
            name="node-debugger",
            namespace="kube-system",
            container="shell",
            gpus=(3,),
            shape=inference(sm=0.12, memory=1500, every=29, length=9),
            qos="BestEffort",
        ),
        Job(name="nv-hostengine", shape=notebook(memory=312), gpus=(3,), host=True, command="nv-hostengine"),
    ),
)

WHOLE_GPUS = KindPlan(
    name="whole-b",
    kind="5 × H100, one cut by MIG",
    gpus=(H100,) * 5,
    slices=(
        Slice(4, 0, 1, "3g.40gb", 40320, 3),
        Slice(4, 1, 5, "2g.20gb", 20096, 2),
        Slice(4, 2, 13, "1g.10gb", 9984, 1),
    ),
    runtime="crio",
    jobs=(
        Job(
            name="pretrain-0",
            namespace="ml-team",
            container="train",
            shape=training(sm=0.98, memory=71000),
            resource=WHOLE,
            qos="Guaranteed",
        ),
        Job(
            name="notebook-carol",
            namespace="research",
            container="jupyter",
            gpus=(1,),
            shape=notebook(memory=21000),
            resource=WHOLE,
            before=Before(ended=9 * HOUR, shape=training(sm=0.7, memory=21000)),
        ),
        Job(
            name="eval-claim",
            namespace="ml-team",
            container="eval",
            gpus=(2,),
            shape=training(sm=0.8, memory=30000),
            claim="eval-h100",
            warmup=15,
            timeline=Timeline(first=-5, life=70, period=95),
        ),
        Job(
            name="gpu-health-whole-b",
            namespace="kube-system",
            container="check",
            gpus=(0,),
            shape=inference(sm=0.15, memory=420, every=29, length=9),
            static=True,
            command="gpu-health",
        ),
        Job(
            name="embed-mig-0",
            namespace="serving",
            container="server",
            gpus=(4,),
            shape=training(sm=0.7, memory=18000),
            resource="nvidia.com/mig-3g.40gb",
            instances=(0,),
        ),
        Job(
            name="dev-judy",
            namespace="research",
            container="jupyter",
            gpus=(4,),
            shape=notebook(memory=7400),
            resource="nvidia.com/mig-2g.20gb",
            instances=(1,),
            before=Before(ended=5 * HOUR, shape=training(sm=0.4, memory=7400)),
        ),
    ),
    past=(
        Job(
            name="ablation-7",
            namespace="ml-team",
            container="train",
            gpus=(3,),
            shape=training(sm=0.85, memory=52000),
            resource=WHOLE,
            timeline=Timeline(first=-20 * HOUR, life=17 * HOUR, linger=0),
        ),
    ),
)

MIG = KindPlan(
    name="mig-c",
    kind="MIG, 3 × A100-80G",
    gpus=(A100_80,) * 3,
    slices=(
        Slice(0, 0, 2, "3g.40gb", 40192, 3),
        Slice(0, 2, 3, "2g.20gb", 19968, 2),
        Slice(0, 5, 9, "1g.10gb", 9728, 1),
        Slice(0, 6, 13, "1g.10gb", 9728, 1),
        Slice(1, 0, 1, "2c.4g.40gb", 40192, 2),
        Slice(1, 1, 1, "2c.4g.40gb", 40192, 2, compute_instance=1),
        Slice(1, 4, 6, "2g.20gb", 19968, 2, exists=KindWindow(10, 60, 90)),
    ),
    jobs=(
        Job(
            name="train-small-0",
            namespace="ml-team",
            container="train",
            shape=training(sm=0.9, memory=31000),
            resource="nvidia.com/mig-3g.40gb",
            instances=(0,),
            qos="Guaranteed",
        ),
        Job(
            name="serve-asr-0",
            namespace="serving",
            container="server",
            shape=inference(sm=0.7, memory=12000),
            resource="nvidia.com/mig-2g.20gb",
            instances=(2,),
        ),
        Job(
            name="hami-mig-0",
            namespace="research",
            container="job",
            shape=notebook(memory=6000),
            hami=Hami(memory=9728, cores=15),
            before=Before(ended=6 * HOUR, shape=training(sm=0.5, memory=6000)),
            instances=(6,),
        ),
        Job(
            name="dev-dave",
            namespace="research",
            container="jupyter",
            gpus=(1,),
            shape=notebook(memory=5200),
            resource="nvidia.com/mig-2c.4g.40gb",
            instances=(0,),
        ),
        Job(
            name="dev-erin",
            namespace="research",
            container="jupyter",
            gpus=(1,),
            shape=training(sm=0.6, memory=14000),
            resource="nvidia.com/mig-2c.4g.40gb",
            instances=(1,),
        ),
        Job(
            name="ci-gpu",
            namespace="batch",
            container="test",
            gpus=(1,),
            shape=training(sm=0.8, memory=9000),
            resource="nvidia.com/mig-2g.20gb",
            instances=(4,),
            timeline=Timeline(first=14, life=40, period=90, linger=8),
        ),
        Job(
            name="train-large-0",
            namespace="ml-team",
            container="train",
            gpus=(2,),
            shape=training(sm=0.95, memory=62000),
            resource=WHOLE,
        ),
    ),
)

SLICED = KindPlan(
    name="slice-d",
    kind="T4 time-sliced, L4 MPS, A30 MIG",
    gpus=(T4, L4, A30),
    slices=(Slice(2, 0, 1, "2g.12gb", 11968, 2), Slice(2, 1, 2, "2g.12gb", 11968, 2)),
    ratio=4,
    runtime="docker-cgroupfs",
    driver="570.172.08",
    cuda=12080,
    jobs=(
        Job(name="web-a-0", namespace="serving", shape=inference(sm=0.5, memory=2300), resource=WHOLE, replicas=(0,)),
        Job(
            name="web-b-0",
            namespace="serving",
            shape=inference(sm=0.6, memory=3100, every=13),
            resource=WHOLE,
            replicas=(1,),
        ),
        Job(name="transcode-0", namespace="media", shape=transcoding(memory=900), resource=WHOLE, replicas=(2,)),
        Job(
            name="lab",
            namespace="research",
            shape=notebook(memory=1700),
            resource=WHOLE,
            replicas=(3,),
            timeline=Timeline(first=-25, life=60, period=80),
        ),
        Job(
            name="nvidia-cuda-mps-server",
            shape=notebook(memory=30),
            gpus=(1,),
            host=True,
            command="nvidia-cuda-mps",
        ),
        Job(
            name="mps-rank-0",
            namespace="serving",
            shape=training(sm=0.35, memory=4200),
            gpus=(1,),
            resource=WHOLE,
            replicas=(0,),
            kind="M",
        ),
        Job(
            name="mps-rank-1",
            namespace="serving",
            shape=inference(sm=0.5, memory=5100),
            gpus=(1,),
            resource=WHOLE,
            replicas=(1,),
            kind="M",
        ),
        Job(
            name="mps-idle",
            namespace="research",
            shape=notebook(memory=1900),
            gpus=(1,),
            resource=WHOLE,
            replicas=(2,),
            kind="M",
            before=Before(ended=17 * HOUR, shape=inference(sm=0.3, memory=1900)),
        ),
        Job(
            name="dev-gina",
            namespace="research",
            container="jupyter",
            gpus=(2,),
            shape=notebook(memory=3800),
            resource="nvidia.com/mig-2g.12gb",
            instances=(0,),
        ),
    ),
)

_OUTAGE = KindWindow(45, 45, 150)

SICK = KindPlan(
    name="sick-e",
    kind="failing GPUs, 3 × A100-40G",
    gpus=(A100_40,) * 3,
    faults=(
        FaultKind(gpu=0, garbage=KindWindow(10, 1, 9)),
        FaultKind(gpu=1, lost=_OUTAGE, xids=((30, 48), (45, 79))),
        FaultKind(gpu=2, hung=KindWindow(25, 8, 70)),
    ),
    jobs=(
        Job(
            name="train-vision-0",
            namespace="ml-team",
            container="train",
            shape=training(sm=0.8, memory=21000),
            resource=WHOLE,
        ),
        Job(
            name="train-unlucky",
            namespace="ml-team",
            container="train",
            gpus=(1,),
            shape=training(sm=0.9, memory=30000),
            resource=WHOLE,
            timeline=Timeline(first=-55, life=100, period=150, ends="Failed", linger=20),
        ),
        Job(
            name="serve-ocr-0",
            namespace="serving",
            container="server",
            gpus=(2,),
            shape=inference(sm=0.6, memory=9000),
            resource=WHOLE,
        ),
    ),
)

PLANS: tuple[KindPlan, ...] = (HAMI, WHOLE_GPUS, MIG, SLICED, SICK)
