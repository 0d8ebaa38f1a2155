"""Every kind of device that HAMi v2.10 shares: its resources, and the annotations of its nodes and pods.

Amounts in HAMi's own annotations are MiB for every vendor. The unit of the memory *resource*, in which requests and
quotas are written, differs. Resource names are HAMi's defaults.
"""

from typing import Literal

from msgspec import Struct

from vgpuscope.model.quantity import MIB, Bytes

# How a node's devices are registered. json and text are distinguished by their content: NVIDIA has written both.
Registration = Literal["json", "text", "metax", "enflame", "capacity"]

# percent: of one GPU. units: compute units of the GPU, so only the share of its total is meaningful.
# mask: one bit for each core, set if the core exists (or is allocated).
CoreUnit = Literal["percent", "units", "mask"]


class DerivedGpus(Struct, frozen=True, kw_only=True):
    """How HAMi derives a node's GPUs from its capacity, for vendors whose plugin registers none."""

    name: str  # a GPU's id is <node>-<name>-<number>
    counted_in: str  # the resource that counts GPUs,
    per_gpu: int = 1  # and how much of it is one GPU
    slots: int = 1
    memory: Bytes = 0  # of each GPU; where the vendor has a memory resource, its capacity is divided instead
    cores: int = 100
    numa_nodes: int = 1  # GPUs are counted through one NUMA node after the other


class Vendor(Struct, frozen=True, kw_only=True):
    """One vendor: its name in HAMi, its resources, its annotations and their units."""

    word: str
    count: str
    memory: str | None = None
    memory_percentage: str | None = None
    core: str | None = None
    memory_unit: Bytes | None = None  # bytes of 1 of the memory resource; None: there is no such resource
    memory_counted: bool = True  # False: the memory in its annotations is a placeholder, not an amount
    core_unit: CoreUnit = "percent"
    registration: Registration = "json"
    registers: tuple[str, ...] = ()  # node annotations, newest release first
    allocated: tuple[str, ...] = ()  # pod annotations: the final allocation
    to_allocate: tuple[str, ...] = ()  # pod annotations: what its device plugin has yet to hand out
    gpus: DerivedGpus | None = None

    @property
    def quotas(self) -> tuple[str, ...]:
        """The resources that a ResourceQuota may limit; Kubernetes itself handles the count."""
        return tuple(name for name in (self.memory, self.core) if name)

    @property
    def resources(self) -> tuple[str, ...]:
        return tuple(name for name in (self.count, self.memory, self.memory_percentage, self.core) if name)


def _assigned(prefix: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (f"hami.io/{prefix}-devices-allocated",), (f"hami.io/{prefix}-devices-to-allocate",)


def _ascend(word: str) -> Vendor:
    allocated, to_allocate = _assigned(word)
    return Vendor(
        word=word,
        count=f"huawei.com/{word}",
        memory=f"huawei.com/{word}-memory",
        core=f"huawei.com/{word}-core",
        memory_unit=MIB,
        core_unit="units",
        registers=(f"hami.io/node-register-{word}",),
        allocated=allocated,
        to_allocate=to_allocate,
    )


def _iluvatar(word: str) -> Vendor:
    allocated, to_allocate = _assigned(word)
    return Vendor(
        word=word,
        count=f"iluvatar.ai/{word}-vgpu",
        memory=f"iluvatar.ai/{word}.vMem",
        core=f"iluvatar.ai/{word}.vCore",
        memory_unit=256 * MIB,
        registration="text",
        registers=(f"hami.io/node-{word}-register",),
        allocated=allocated,
        to_allocate=to_allocate,
    )


_ASCEND = ("910A", "910B2", "910B3", "910B4", "910B4-1", "310P", "910C")
_ILUVATAR = ("BI-V100", "BI-V150", "MR-V100", "MR-V50")

VENDORS: tuple[Vendor, ...] = (
    Vendor(
        word="NVIDIA",
        count="nvidia.com/gpu",
        memory="nvidia.com/gpumem",
        memory_percentage="nvidia.com/gpumem-percentage",
        core="nvidia.com/gpucores",
        memory_unit=MIB,
        registers=("hami.io/node-nvidia-register", "4pd.io/node-nvidia-register"),
        allocated=("hami.io/vgpu-devices-allocated", "4pd.io/vgpu-ids-new"),
        to_allocate=("hami.io/vgpu-devices-to-allocate", "4pd.io/devices-to-allocate"),
    ),
    *(_ascend(f"Ascend{chip}") for chip in _ASCEND),
    Vendor(
        word="MLU",
        count="cambricon.com/vmlu",
        memory="cambricon.com/mlu.smlu.vmemory",
        core="cambricon.com/mlu.smlu.vcore",
        memory_unit=256 * MIB,
        registration="capacity",
        allocated=("hami.io/cambricon-mlu-devices-allocated",),
        to_allocate=("hami.io/cambricon-mlu-devices-to-allocate",),
        gpus=DerivedGpus(name="cambricon-mlu", counted_in="cambricon.com/mlu.smlu.vcore", per_gpu=100, slots=100),
    ),
    Vendor(
        word="DCU",
        count="hygon.com/dcunum",
        memory="hygon.com/dcumem",
        core="hygon.com/dcucores",
        memory_unit=MIB,
        registration="text",
        registers=("hami.io/node-dcu-register", "4pd.io/node-dcu-register"),
        allocated=("hami.io/dcu-devices-allocated",),
        to_allocate=("hami.io/dcu-devices-to-allocate",),
    ),
    *(_iluvatar(chip) for chip in _ILUVATAR),
    Vendor(
        word="Metax-GPU",
        count="metax-tech.com/gpu",
        registration="capacity",
        allocated=("hami.io/metax-gpu-devices-allocated",),
        to_allocate=("hami.io/metax-gpu-devices-to-allocate",),
        gpus=DerivedGpus(name="metax", counted_in="metax-tech.com/gpu", memory=65536 * MIB),
    ),
    Vendor(
        word="Metax-SGPU",
        count="metax-tech.com/sgpu",
        memory="metax-tech.com/vmemory",
        core="metax-tech.com/vcore",
        memory_unit=1024 * MIB,
        registration="metax",
        registers=("metax-tech.com/node-gpu-devices",),
        allocated=("hami.io/metax-sgpu-devices-allocated",),
        to_allocate=("hami.io/metax-sgpu-devices-to-allocate",),
    ),
    Vendor(
        word="Mthreads",
        count="mthreads.com/vgpu",
        memory="mthreads.com/sgpu-memory",
        core="mthreads.com/sgpu-core",
        memory_unit=512 * MIB,
        core_unit="units",
        registration="capacity",
        allocated=("hami.io/mthreads-vgpu-devices-allocated",),
        gpus=DerivedGpus(name="mthreads", counted_in="mthreads.com/sgpu-core", per_gpu=16, slots=100, cores=16),
    ),
    Vendor(
        word="GCU",
        count="enflame.com/gcu",
        memory_counted=False,
        registration="capacity",
        allocated=("hami.io/enflame-gcu-devices-allocated",),
        to_allocate=("hami.io/enflame-gcu-devices-to-allocate",),
        gpus=DerivedGpus(name="GCU", counted_in="enflame.com/gcu"),
    ),
    Vendor(
        word="Enflame",
        count="enflame.com/drs-gcu",
        memory="enflame.com/gcu-memory",
        core="enflame.com/gcu-core",
        memory_unit=1024 * MIB,
        registration="enflame",
        registers=("enflame.com/gcu-drs-capacity",),
        allocated=("hami.io/enflame-vgpu-devices-allocated",),
    ),
    Vendor(
        word="kunlun",
        count="kunlunxin.com/xpu",
        registration="capacity",
        allocated=("hami.io/kunlun-allocated",),
        gpus=DerivedGpus(name="kunlun", counted_in="kunlunxin.com/xpu", memory=98304 * MIB, numa_nodes=2),
    ),
    Vendor(
        word="XPU",
        count="kunlunxin.com/vxpu",
        memory="kunlunxin.com/vxpu-memory",
        memory_unit=MIB,
        registers=("hami.io/node-register-xpu",),
        allocated=("hami.io/xpu-devices-allocated",),
        to_allocate=("hami.io/xpu-devices-to-allocate",),
    ),
    Vendor(
        word="AWSNeuron",
        count="aws.amazon.com/neuron",
        core="aws.amazon.com/neuroncore",
        memory_counted=False,
        core_unit="mask",
        registration="capacity",
        allocated=("hami.io/aws-neuron-devices-allocated",),
        gpus=DerivedGpus(name="AWSNeuron", counted_in="aws.amazon.com/neuron"),
    ),
    Vendor(
        word="AMD",
        count="amd.com/gpu",
        memory="amd.com/gpumem",
        core="amd.com/gpucores",
        memory_unit=MIB,
        core_unit="units",
        registers=("hami.io/node-amd-register",),
        allocated=("hami.io/amd-devices-allocated",),
        to_allocate=("hami.io/amd-devices-to-allocate",),
    ),
    Vendor(
        word="Vastai",
        count="vastaitech.com/va",
        registers=("hami.io/node-va-register",),
        allocated=("hami.io/Vastai-devices-allocated",),
        to_allocate=("hami.io/Vastai-devices-to-allocate",),
    ),
    Vendor(
        word="Biren",
        count="birentech.com/gpu",
        registers=("hami.io/node-biren-register",),
        allocated=("hami.io/Biren-devices-allocated",),
        to_allocate=("hami.io/Biren-devices-to-allocate",),
    ),
)

NVIDIA = VENDORS[0]

BY_WORD = {vendor.word: vendor for vendor in VENDORS}
BY_REGISTER = {key: vendor for vendor in VENDORS for key in vendor.registers}
BY_ALLOCATED = {key: vendor for vendor in VENDORS for key in vendor.allocated}
BY_TO_ALLOCATE = {key: vendor for vendor in VENDORS for key in vendor.to_allocate}
BY_RESOURCE = {name: vendor for vendor in VENDORS for name in vendor.resources}
BY_QUOTA = {f"limits.{name}": vendor for vendor in VENDORS for name in vendor.quotas}


def vendor_by_resource(name: str) -> Vendor | None:
    """The vendor of a resource: from the table, or NVIDIA for resources that its plugin makes of a divided GPU."""
    found = BY_RESOURCE.get(name)
    if found is None and name.startswith("nvidia.com/") and (name.startswith(_MIG) or name.endswith(".shared")):
        return NVIDIA
    return found


_MIG = "nvidia.com/mig-"
