"""Every metric of the node agent."""

from typing import Unpack

from vgpuscope.catalog.limits import NODE_OMISSIONS
from vgpuscope.catalog.metric import (
    Alias,
    Labels,
    Metric,
    MetricOptions,
    Type,
    build_info,
    described,
    loop_restarts,
    renamed,
    same,
)
from vgpuscope.model.device import HEALTH, THROTTLE_REASONS
from vgpuscope.model.quantity import MIB
from vgpuscope.model.serving import QUANTILES
from vgpuscope.model.usage import MODES, STATES

GPU = same("node", "gpu_uuid")
MIG = same("node", "gpu_uuid", "mig_uuid")
CONTAINER = same("node", "namespace", "pod", "pod_uid", "container", "gpu_uuid", "mig_uuid")
POD = same("node", "namespace", "pod", "pod_uid", "gpu_uuid")
VGPU = same("node", "namespace", "pod", "pod_uid", "container", "vdevice_index", "gpu_uuid")
HOST = same("node", "namespace", "pod", "pod_uid", "container")
HOST_POD = same("node", "namespace", "pod", "pod_uid")
NODE = same("node")
SOURCE = same("node", "source")

ZONE = (("zone", "vGPU"),)  # HAMi sets this constant label on every series except hami_build_info
HAMI_HOST = renamed(node="node", device_index="gpu_index", device_uuid="gpu_uuid", device_type="hami_type")
HAMI_HOST_NO_NODE = renamed(device_index="gpu_index", device_uuid="gpu_uuid", device_type="hami_type")
LEGACY_HOST = renamed(nodeid="node", deviceidx="gpu_index", deviceuuid="gpu_uuid", devicetype="hami_type")
HAMI_CONTAINER = renamed(
    namespace="namespace", pod="pod", container="container", vdevice_index="vdevice_index", device_uuid="gpu_uuid"
)
LEGACY_CONTAINER = renamed(
    podnamespace="namespace", podname="pod", ctrname="container", vdeviceid="vdevice_index", deviceuuid="gpu_uuid"
)
HANDBOOK_CONTAINER = renamed(pod="pod", namespace="namespace", device="gpu_uuid", container="container")
HANDBOOK_GPU = renamed(node="node", device="gpu_uuid")
POD_MONITOR = renamed(pod="pod", namespace="namespace", gpu_id="gpu_index")

DCGM_DEVICE = (
    ("gpu", "gpu_index"),
    ("UUID", "gpu_uuid"),
    ("pci_bus_id", "pci_bus_id"),
    ("device", "device"),
    ("modelName", "model"),
    ("Hostname", "node"),
    ("DCGM_FI_DRIVER_VERSION", "driver_version"),
    ("container", "container"),
    ("namespace", "namespace"),
    ("pod", "pod"),
    ("pod_uid", "pod_uid"),
)
DCGM_INSTANCE = (("GPU_I_PROFILE", "instance_profile"), ("GPU_I_ID", "gpu_instance"), *DCGM_DEVICE)


def _dcgm(
    name: str,
    labels: Labels = DCGM_DEVICE,
    *,
    scale: float = 1.0,
    when: str = "",
    help: str = "",
    type: Type | None = None,
) -> Alias:
    return Alias(family="dcgm", name=name, labels=labels, scale=scale, when=when, help=help, type=type)


def _dcgm_pods(name: str, *, when: str, help: str, scale: float = 1.0) -> Alias:
    return Alias(family="dcgm-pods", name=name, labels=DCGM_INSTANCE, scale=scale, when=when, help=help)


def _gpu(name: str, help: str, unit: str, *aliases: Alias, **more: Unpack[MetricOptions]) -> Metric:
    return described("gpu", GPU, f"vgpuscope_gpu_{name}", help, unit, *aliases, **more)


def _mig(name: str, help: str, unit: str, *aliases: Alias, **more: Unpack[MetricOptions]) -> Metric:
    return described("mig", MIG, f"vgpuscope_mig_{name}", help, unit, *aliases, **more)


# Amounts of containers, pods and vGPUs are added up if a family's labels do not distinguish them.
def _container(name: str, help: str, unit: str, *aliases: Alias, **more: Unpack[MetricOptions]) -> Metric:
    more.setdefault("merge", "sum")
    return described("container", CONTAINER, f"vgpuscope_container_{name}", help, unit, *aliases, **more)


def _pod(name: str, help: str, unit: str, *aliases: Alias) -> Metric:
    return described("pod", POD, f"vgpuscope_pod_{name}", help, unit, *aliases, merge="sum")


def _vgpu(name: str, help: str, unit: str, *aliases: Alias, **more: Unpack[MetricOptions]) -> Metric:
    more.setdefault("merge", "sum")
    return described("vgpu", VGPU, f"vgpuscope_vgpu_{name}", help, unit, *aliases, **more)


def _host(name: str, help: str, unit: str, *, labels: Labels = HOST) -> Metric:
    return described("host", labels, f"vgpuscope_host_{name}", help, unit)


def _node(name: str, help: str, unit: str, **more: Unpack[MetricOptions]) -> Metric:
    return described("node", NODE, f"vgpuscope_{name}", help, unit, **more)


def _hami_host(name: str, scale: float, help: str, labels: Labels = HAMI_HOST) -> Alias:
    return Alias(family="hami", name=name, labels=labels, scale=scale, help=help, const=ZONE)


def _hami(name: str, scale: float, help: str) -> Alias:
    return Alias(family="hami", name=name, labels=HAMI_CONTAINER, scale=scale, help=help, const=ZONE, when="pod")


def _legacy(name: str, scale: float, help: str) -> Alias:
    return Alias(
        family="hami-legacy", name=name, labels=LEGACY_CONTAINER, scale=scale, help=help, const=ZONE, when="pod"
    )


def _handbook(name: str, labels: Labels, scale: float, help: str, when: str = "") -> Alias:
    return Alias(family="handbook", name=name, labels=labels, scale=scale, help=help, when=when)


def _pod_monitor(name: str, scale: float, help: str) -> Alias:
    return Alias(family="pod", name=name, labels=POD_MONITOR, scale=scale, help=help, when="pod")


# ── GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────────
GPU_INFO = described(
    "gpu",
    same("node", "gpu_uuid", "gpu_index", "model", "serial", "minor", "pci_bus_id", "driver_version"),
    "vgpuscope_gpu_info",
    "Identity of the GPU; always 1. Join on gpu_uuid: the index may change at a reboot.",
    "",
)
GPU_HEALTH = _gpu(
    "health", "Health of the GPU: 1 for the current state, 0 for the others.", "", extra=("health",), each=len(HEALTH)
)
GPU_MODE = _gpu(
    "mode",
    "How the GPU is shared: 1 for the current mode, 0 for the others; free: no container holds or uses it.",
    "",
    extra=("mode",),
    each=len(MODES) + 1,
)
GPU_SHARERS = _gpu("sharers", "Containers that hold or use the GPU.", "")
GPU_PROCESSES = _gpu("processes", "Processes that the driver lists on the GPU, each counted once.", "")
GPU_MEMORY_TOTAL = _gpu(
    "memory_total_bytes",
    "Memory of the GPU (frame buffer).",
    "bytes",
    _handbook("hami_gpu_memory_total_bytes", HANDBOOK_GPU, 1, "Memory of the physical GPU in bytes"),
    _dcgm("DCGM_FI_DEV_FB_TOTAL", scale=1 / MIB, when="whole", help="Total Frame Buffer of the GPU in MB."),
)
GPU_MEMORY_USED = _gpu(
    "memory_used_bytes",
    "Memory in use, without the memory that the driver reserves.",
    "bytes",
    _dcgm("DCGM_FI_DEV_FB_USED", scale=1 / MIB, when="whole", help="Framebuffer memory used (in MiB)."),
)
GPU_MEMORY_FREE = _gpu(
    "memory_free_bytes",
    "Free memory.",
    "bytes",
    _dcgm("DCGM_FI_DEV_FB_FREE", scale=1 / MIB, when="whole", help="Framebuffer memory free (in MiB)."),
)
GPU_MEMORY_RESERVED = _gpu(
    "memory_reserved_bytes",
    "Memory that the driver reserves; total = used + free + reserved.",
    "bytes",
    _dcgm("DCGM_FI_DEV_FB_RESERVED", scale=1 / MIB, when="whole", help="Framebuffer memory reserved (in MiB)."),
)
GPU_MEMORY_LEDGER = _gpu(
    "memory_ledger_bytes",
    "Memory of the GPU by owner; containers + system + unattributed + free = total.",
    "bytes",
    extra=("owner",),
    each=4,
)
GPU_UTILIZATION = _gpu(
    "utilization_ratio",
    "Share of the last sample period in which at least one kernel ran, 0-1. It does not show how many SMs were busy.",
    "ratio",
    _hami_host("hami_host_gpu_utilization_ratio", 100, "GPU core utilization ratio (0-100)"),
    Alias(
        family="hami-legacy",
        name="HostCoreUtilization",
        labels=LEGACY_HOST,
        scale=100,
        help="GPU core utilization (0-100)",
        const=ZONE,
    ),
    _dcgm("DCGM_FI_DEV_GPU_UTIL", scale=100, help="GPU utilization (in %)."),
)
GPU_UTILIZATION_MEAN = _gpu("utilization_mean_ratio", "Mean utilisation over the last window, 0-1.", "ratio")
GPU_UTILIZATION_MAX = _gpu("utilization_max_ratio", "Highest utilisation sampled in the last window, 0-1.", "ratio")
GPU_BUSY = _gpu(
    "busy_seconds_total",
    "Utilisation integrated over time; its rate() is the true mean between any two scrapes.",
    "seconds",
)
GPU_SM_LEDGER = _gpu(
    "sm_ledger_seconds_total",
    "Busy time not attributed to a running container: system processes, unattributed, ended containers. "
    "Together with sm_seconds of all containers it adds up to busy_seconds.",
    "seconds",
    extra=("owner",),
    each=3,
)
GPU_MEMORY_CONTROLLER = _gpu(
    "memory_controller_ratio",
    "Share of time in which memory was read or written, 0-1. It does not show how full the memory is.",
    "ratio",
    _hami_host(
        "hami_host_gpu_memory_controller_utilization_ratio",
        100,
        "GPU memory controller utilization ratio (0-100)",
        HAMI_HOST_NO_NODE,
    ),
    _dcgm("DCGM_FI_DEV_MEM_COPY_UTIL", scale=100, help="Memory utilization (in %)."),
)
GPU_MEMORY_CONTROLLER_MEAN = _gpu(
    "memory_controller_mean_ratio", "Mean memory traffic over the last window, 0-1.", "ratio"
)
GPU_MEMORY_CONTROLLER_MAX = _gpu(
    "memory_controller_max_ratio", "Highest memory traffic sampled in the last window, 0-1.", "ratio"
)
GPU_MEMORY_USED_MAX = _gpu("memory_used_max_bytes", "Highest memory use sampled in the last window.", "bytes")
GPU_ENCODER = _gpu(
    "encoder_ratio",
    "Share of time the video encoder was busy, 0-1.",
    "ratio",
    _dcgm("DCGM_FI_DEV_ENC_UTIL", scale=100, help="Encoder utilization (in %)."),
)
GPU_DECODER = _gpu(
    "decoder_ratio",
    "Share of time the video decoder was busy, 0-1.",
    "ratio",
    _dcgm("DCGM_FI_DEV_DEC_UTIL", scale=100, help="Decoder utilization (in %)."),
)
GPU_JPEG = _gpu("jpeg_ratio", "Share of time the JPEG engine was busy, 0-1.", "ratio")
GPU_OFA = _gpu("ofa_ratio", "Share of time the optical flow engine was busy, 0-1.", "ratio")
GPU_POWER = _gpu(
    "power_watts",
    "Power draw.",
    "watts",
    _dcgm("DCGM_FI_DEV_POWER_USAGE", help="Power draw (in W)."),
)
GPU_POWER_MEAN = _gpu("power_mean_watts", "Mean power draw over the last window.", "watts")
GPU_POWER_MAX = _gpu("power_max_watts", "Highest power draw sampled in the last window.", "watts")
GPU_POWER_LIMIT = _gpu(
    "power_limit_watts",
    "Enforced power limit of the GPU: the lowest of all limits that apply.",
    "watts",
    _dcgm("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", help="Enforced power limit (in W)."),
)
GPU_POWER_LIMIT_MAX = _gpu(
    "power_limit_max_watts",
    "The highest power limit that can be set on the GPU.",
    "watts",
    _dcgm("DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", help="Maximum power management limit (in W)."),
)
GPU_ENERGY = _gpu(
    "energy_joules_total",
    "Energy since the agent first saw the GPU; a driver reload does not reset it.",
    "joules",
)
GPU_ENERGY_LEDGER = _gpu(
    "energy_ledger_joules_total",
    "Energy not attributed to a running container: system processes, unattributed, ended containers. "
    "Together with the energy of all containers it adds up to the energy of the GPU.",
    "joules",
    extra=("owner",),
    each=3,
)
GPU_TEMPERATURE = _gpu(
    "temperature_celsius",
    "Core temperature.",
    "celsius",
    _dcgm("DCGM_FI_DEV_GPU_TEMP", help="GPU temperature (in C)."),
)
GPU_MEMORY_TEMPERATURE = _gpu(
    "memory_temperature_celsius",
    "Memory temperature.",
    "celsius",
    _dcgm("DCGM_FI_DEV_MEMORY_TEMP", help="Memory temperature (in C)."),
)
GPU_SM_CLOCK = _gpu(
    "sm_clock_hertz",
    "SM clock.",
    "hertz",
    _dcgm("DCGM_FI_DEV_SM_CLOCK", scale=1e-6, help="SM clock frequency (in MHz)."),
)
GPU_MEMORY_CLOCK = _gpu(
    "memory_clock_hertz",
    "Memory clock.",
    "hertz",
    _dcgm("DCGM_FI_DEV_MEM_CLOCK", scale=1e-6, help="Memory clock frequency (in MHz)."),
)
GPU_SM_CLOCK_LIMIT = _gpu(
    "sm_clock_limit_hertz",
    "Maximum SM clock of the GPU.",
    "hertz",
    _dcgm("DCGM_FI_DEV_MAX_SM_CLOCK", scale=1e-6, help="Maximum supported SM clock (in MHz)."),
)
GPU_MEMORY_CLOCK_LIMIT = _gpu(
    "memory_clock_limit_hertz",
    "Maximum memory clock of the GPU.",
    "hertz",
    _dcgm("DCGM_FI_DEV_MAX_MEM_CLOCK", scale=1e-6, help="Maximum supported memory clock (in MHz)."),
)
GPU_SM_CLOCK_MEAN = _gpu("sm_clock_mean_hertz", "Mean SM clock over the last window.", "hertz")
GPU_FAN = _gpu(
    "fan_speed_ratio",
    "Intended fan speed, 0-1; can be above 1.",
    "ratio",
    _dcgm("DCGM_FI_DEV_FAN_SPEED", scale=100, help="Fan speed (in %)."),
)
GPU_THROTTLE = _gpu(
    "throttle_active",
    "1 while this reason lowers the clocks. The reason idle is not a fault.",
    "",
    extra=("reason",),
    each=len(THROTTLE_REASONS),
)
GPU_PCIE_SENT = _gpu("pcie_sent_bytes_total", "Bytes sent over PCIe since the driver was loaded.", "bytes")
GPU_PCIE_RECEIVED = _gpu("pcie_received_bytes_total", "Bytes received over PCIe since the driver was loaded.", "bytes")
GPU_PCIE_REPLAYS = _gpu(
    "pcie_replays_total",
    "PCIe packets that were sent again since the driver was loaded.",
    "",
    _dcgm("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", help="Total number of PCIe retries."),
)
GPU_ECC_CORRECTED = _gpu(
    "ecc_corrected_errors_total",
    "Corrected ECC errors since the driver was loaded.",
    "",
    _dcgm("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", help="Total number of single-bit volatile ECC errors."),
)
GPU_ECC_UNCORRECTED = _gpu(
    "ecc_uncorrected_errors_total",
    "Uncorrected ECC errors since the driver was loaded.",
    "",
    _dcgm("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", help="Total number of double-bit volatile ECC errors."),
)
GPU_REMAPPED_CORRECTED = _gpu(
    "remapped_rows_corrected",
    "Memory rows remapped for corrected errors, over the lifetime of the GPU.",
    "",
    _dcgm(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", help="Number of remapped rows for correctable errors", type="counter"
    ),
)
GPU_REMAPPED_UNCORRECTED = _gpu(
    "remapped_rows_uncorrected",
    "Memory rows remapped for uncorrected errors, over the lifetime of the GPU.",
    "",
    _dcgm(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        help="Number of remapped rows for uncorrectable errors",
        type="counter",
    ),
)
GPU_REMAP_PENDING = _gpu("remap_pending", "1 if a memory row will be remapped at the next reset.", "")
GPU_REMAP_FAILED = _gpu(
    "remap_failed",
    "1 if remapping of a memory row has failed.",
    "",
    _dcgm("DCGM_FI_DEV_ROW_REMAP_FAILURE", help="Whether remapping of rows has failed"),
)
GPU_XIDS = _gpu(
    "xid_errors_total",
    "XID errors since the agent started listening. action is the advice of NVIDIA's catalogue (docs/xid.md); with "
    "restart-app only the application is affected. fatal=true: work on the GPU cannot go on.",
    "",
    extra=("xid", "action", "fatal"),
    each=None,
)
GPU_LAST_XID = described(
    "gpu",
    DCGM_DEVICE,
    "DCGM_FI_DEV_XID_ERRORS",
    "Value of the last XID error encountered.",
    "",
    family="dcgm",
)
GPU_TOTAL_ENERGY = described(
    "gpu",
    DCGM_DEVICE,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "Total energy consumption since boot (in mJ).",
    "",
    type="counter",
    family="dcgm",
)
# HAMi queries the driver with the old call, whose used memory includes reserved memory. All HAMi names for a GPU's
# memory do the same here; ours and DCGM's show reserved memory separately.
HOST_MEMORY_USED = described(
    "gpu",
    HAMI_HOST,
    "hami_host_gpu_memory_used_bytes",
    "GPU device memory usage in bytes",
    "bytes",
    Alias(
        family="hami-legacy",
        name="HostGPUMemoryUsage",
        labels=LEGACY_HOST,
        help="GPU device memory usage in bytes",
        const=ZONE,
    ),
    _handbook(
        "hami_gpu_memory_used_bytes",
        HANDBOOK_GPU,
        1,
        "Memory in use on the physical GPU in bytes, with what the driver reserves, as HAMi's monitor counts it",
    ),
    family="hami",
    const=ZONE,
)


# ── profiling counters: the driver's (GPM), or a dcgm-exporter's on the same node ────────────────────────────────
def _prof(name: str, labels: Labels = DCGM_DEVICE, *, help: str) -> Alias:
    when = "whole" if labels is DCGM_DEVICE else ""  # of a MIG GPU, dcgm-exporter shows the instances only
    return _dcgm(f"DCGM_FI_PROF_{name}", labels, when=when, help=help)


_PROF_HELP: dict[str, str] = {
    "GR_ENGINE_ACTIVE": "Ratio of time the graphics engine is active.",
    "SM_ACTIVE": "The ratio of cycles an SM has at least 1 warp assigned.",
    "SM_OCCUPANCY": "The ratio of number of warps resident on an SM.",
    "PIPE_TENSOR_ACTIVE": "Ratio of cycles the tensor (HMMA) pipe is active.",
    "PIPE_FP64_ACTIVE": "Ratio of cycles the fp64 pipes are active.",
    "PIPE_FP32_ACTIVE": "Ratio of cycles the fp32 pipes are active.",
    "PIPE_FP16_ACTIVE": "Ratio of cycles the fp16 pipes are active.",
    "DRAM_ACTIVE": "Ratio of cycles the device memory interface is active sending or receiving data.",
    "PCIE_TX_BYTES": "The rate of data transmitted over the PCIe bus, in bytes per second.",
    "PCIE_RX_BYTES": "The rate of data received over the PCIe bus, in bytes per second.",
    "NVLINK_TX_BYTES": "The rate of data transmitted over NVLink, in bytes per second.",
    "NVLINK_RX_BYTES": "The rate of data received over NVLink, in bytes per second.",
}


def _gpu_prof(name: str, dcgm: str, help: str, unit: str = "ratio") -> Metric:
    return _gpu(name, help, unit, _prof(dcgm, help=_PROF_HELP[dcgm]))


def _mig_prof(name: str, dcgm: str, help: str) -> Metric:
    return _mig(name, help, "ratio", _prof(dcgm, DCGM_INSTANCE, help=_PROF_HELP[dcgm]))


GPU_ENGINE_ACTIVE = _gpu_prof(
    "engine_active_ratio", "GR_ENGINE_ACTIVE", "Share of time in which a compute or graphics engine was busy, 0-1."
)
GPU_ENGINE_ACTIVE_MEAN = _gpu("engine_active_mean_ratio", "Mean of engine_active_ratio over the last window.", "ratio")
GPU_ENGINE_ACTIVE_MAX = _gpu("engine_active_max_ratio", "Highest engine_active_ratio in the last window.", "ratio")
GPU_SM_ACTIVE = _gpu_prof(
    "sm_active_ratio", "SM_ACTIVE", "Share of SMs that were busy, averaged over time, 0-1: how much of the GPU works."
)
GPU_SM_ACTIVE_MEAN = _gpu("sm_active_mean_ratio", "Mean of sm_active_ratio over the last window.", "ratio")
GPU_SM_ACTIVE_MAX = _gpu("sm_active_max_ratio", "Highest sm_active_ratio in the last window.", "ratio")
GPU_SM_OCCUPANCY = _gpu_prof(
    "sm_occupancy_ratio", "SM_OCCUPANCY", "Resident warps as a share of the most that the SMs can hold, 0-1."
)
GPU_TENSOR_ACTIVE = _gpu_prof(
    "tensor_active_ratio", "PIPE_TENSOR_ACTIVE", "Share of cycles in which a tensor pipe was busy, 0-1."
)
GPU_FP64_ACTIVE = _gpu_prof("fp64_active_ratio", "PIPE_FP64_ACTIVE", "Share of cycles of the FP64 pipes, 0-1.")
GPU_FP32_ACTIVE = _gpu_prof("fp32_active_ratio", "PIPE_FP32_ACTIVE", "Share of cycles of the FP32 pipes, 0-1.")
GPU_FP16_ACTIVE = _gpu_prof("fp16_active_ratio", "PIPE_FP16_ACTIVE", "Share of cycles of the FP16 pipes, 0-1.")
GPU_DRAM_ACTIVE = _gpu_prof("dram_active_ratio", "DRAM_ACTIVE", "Share of the memory bandwidth that was used, 0-1.")
GPU_PCIE_SENT_RATE = _gpu_prof(
    "pcie_sent_bytes_per_second", "PCIE_TX_BYTES", "Traffic over PCIe from the GPU.", "bytes_per_second"
)
GPU_PCIE_RECEIVED_RATE = _gpu_prof(
    "pcie_received_bytes_per_second", "PCIE_RX_BYTES", "Traffic over PCIe to the GPU.", "bytes_per_second"
)
GPU_NVLINK_SENT_RATE = _gpu_prof(
    "nvlink_sent_bytes_per_second", "NVLINK_TX_BYTES", "Traffic over all NVLinks from the GPU.", "bytes_per_second"
)
GPU_NVLINK_RECEIVED_RATE = _gpu_prof(
    "nvlink_received_bytes_per_second", "NVLINK_RX_BYTES", "Traffic over all NVLinks to the GPU.", "bytes_per_second"
)
# DCGM's value is a rate in MB/s over all links and both directions, although dcgm-exporter calls it a counter.
GPU_NVLINK_BANDWIDTH = described(
    "gpu",
    DCGM_DEVICE,
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "Total number of NVLink bandwidth counters for all lanes.",
    "",
    type="counter",
    family="dcgm",
    when="whole",
)
GPU_PROFILING_INFO = _gpu(
    "profiling_info",
    "Where profiling values of the GPU and its MIG instances come from (source: gpm, dcgm or none), and why the driver "
    "has none (reason); always 1.",
    "",
    extra=("source", "reason"),
)
MIG_ENGINE_ACTIVE = _mig_prof(
    "engine_active_ratio",
    "GR_ENGINE_ACTIVE",
    "Share of time in which the MIG instance computed, 0-1 of the instance. Absent if it may be the work of another "
    "compute instance of the same GPU instance.",
)
MIG_ENGINE_ACTIVE_MEAN = _mig("engine_active_mean_ratio", "Mean of engine_active_ratio over the last window.", "ratio")
MIG_ENGINE_ACTIVE_MAX = _mig("engine_active_max_ratio", "Highest engine_active_ratio in the last window.", "ratio")
MIG_SM_ACTIVE = _mig_prof("sm_active_ratio", "SM_ACTIVE", "Share of the MIG instance's SMs that were busy, 0-1.")
MIG_SM_ACTIVE_MEAN = _mig("sm_active_mean_ratio", "Mean of sm_active_ratio over the last window.", "ratio")
MIG_SM_ACTIVE_MAX = _mig("sm_active_max_ratio", "Highest sm_active_ratio in the last window.", "ratio")
MIG_SM_OCCUPANCY = _mig_prof("sm_occupancy_ratio", "SM_OCCUPANCY", "Resident warps of the MIG instance, 0-1.")
MIG_TENSOR_ACTIVE = _mig_prof(
    "tensor_active_ratio", "PIPE_TENSOR_ACTIVE", "Share of cycles of the MIG instance's tensor pipes, 0-1."
)
MIG_FP64_ACTIVE = _mig_prof(
    "fp64_active_ratio", "PIPE_FP64_ACTIVE", "Share of cycles of the MIG instance's FP64 pipes, 0-1."
)
MIG_FP32_ACTIVE = _mig_prof(
    "fp32_active_ratio", "PIPE_FP32_ACTIVE", "Share of cycles of the MIG instance's FP32 pipes, 0-1."
)
MIG_FP16_ACTIVE = _mig_prof(
    "fp16_active_ratio", "PIPE_FP16_ACTIVE", "Share of cycles of the MIG instance's FP16 pipes, 0-1."
)
MIG_DRAM_ACTIVE = _mig_prof(
    "dram_active_ratio", "DRAM_ACTIVE", "Share of the MIG instance's memory bandwidth that was used, 0-1."
)
MIG_DECODER = _mig("decoder_ratio", "Share of time the MIG instance's busiest video decoder was busy, 0-1.", "ratio")
MIG_JPEG = _mig("jpeg_ratio", "Share of time the MIG instance's busiest JPEG engine was busy, 0-1.", "ratio")
MIG_OFA = _mig("ofa_ratio", "Share of time the MIG instance's busiest optical flow engine was busy, 0-1.", "ratio")
MIG_BUSY = _mig(
    "busy_seconds_total",
    "Busy time of the MIG instance, in seconds of the whole GPU: 2 of 7 slices that are busy for 7 s add 2 s. "
    "It is a part of the GPU's busy_seconds.",
    "seconds",
)
MIG_ENERGY = _mig(
    "energy_joules_total",
    "The MIG instance's part of the GPU's energy, divided by busy time, then by memory.",
    "joules",
)
MIG_METHOD = _mig(
    "method_info",
    "How a figure of the MIG instance was found out, and whether it was measured, derived or shared out; always 1.",
    "",
    extra=("resource", "method", "certainty"),
    each=2,
)

# ── MIG instances ────────────────────────────────────────────────────────────────────────────────────────────────
MIG_INFO = described(
    "mig",
    same("node", "gpu_uuid", "mig_uuid", "mig_index", "profile", "gpu_instance", "compute_instance"),
    "vgpuscope_mig_info",
    "Identity of the MIG instance; always 1.",
    "",
)
MIG_MEMORY_TOTAL = _mig(
    "memory_total_bytes",
    "Memory of the MIG instance.",
    "bytes",
    _dcgm("DCGM_FI_DEV_FB_TOTAL", DCGM_INSTANCE, scale=1 / MIB, help="Total Frame Buffer of the GPU in MB."),
)
MIG_MEMORY_USED = _mig(
    "memory_used_bytes",
    "Memory in use in the MIG instance. Compute instances of one GPU instance share memory and show the same value.",
    "bytes",
    _dcgm("DCGM_FI_DEV_FB_USED", DCGM_INSTANCE, scale=1 / MIB, help="Framebuffer memory used (in MiB)."),
)
MIG_MEMORY_FREE = _mig(
    "memory_free_bytes",
    "Free memory of the MIG instance.",
    "bytes",
    _dcgm("DCGM_FI_DEV_FB_FREE", DCGM_INSTANCE, scale=1 / MIB, help="Framebuffer memory free (in MiB)."),
)
MIG_MEMORY_RESERVED = _mig(
    "memory_reserved_bytes",
    "Memory that the driver reserves in the MIG instance.",
    "bytes",
    _dcgm("DCGM_FI_DEV_FB_RESERVED", DCGM_INSTANCE, scale=1 / MIB, help="Framebuffer memory reserved (in MiB)."),
)
MIG_MEMORY_LEDGER = _mig(
    "memory_ledger_bytes",
    "Memory of the MIG instance by owner; containers + system + unattributed + free = total.",
    "bytes",
    extra=("owner",),
    each=4,
)

# ── containers: the rows of the ledger ───────────────────────────────────────────────────────────────────────────
CONTAINER_INFO = _container(
    "info",
    "How the container got the GPU; always 1. allocated=false: it uses the GPU without an allocation.",
    "",
    extra=("mode", "allocated"),
    merge="max",
)
CONTAINER_STATE = _container(
    "state",
    "State of the container, 1 for the current one: not-started (holds the GPU, has not started CUDA), idle, active, "
    "unknown (runs, but the driver does not report utilisation). A container that has ended has no series.",
    "",
    extra=("state",),
    each=len(STATES),
    merge="max",
)
CONTAINER_METHOD = _container(
    "method_info",
    "How the container's part of a resource was found out; always 1. certainty is measured (by the driver, of its own "
    "processes), derived (by a rule, from something measured) or shared-out (a total, divided in proportion).",
    "",
    extra=("resource", "method", "certainty"),
    each=3,
    merge="max",
)
CONTAINER_MEMORY_ERROR = _container(
    "memory_error_bound_bytes",
    "How far the container's memory_used_bytes can be off; absent if no bound is known.",
    "bytes",
)
CONTAINER_SM_ERROR = _container(
    "sm_error_bound_ratio", "How far the container's sm_ratio can be off; absent if no bound is known.", "ratio"
)
CONTAINER_PROCESSES = _container("processes", "Processes of the container on the GPU.", "")
CONTAINER_MEMORY_USED = _container(
    "memory_used_bytes",
    "Physical memory of the GPU that the container uses: a row of the ledger.",
    "bytes",
    _handbook("hami_vgpu_memory_usage_bytes", HANDBOOK_CONTAINER, 1, "GPU memory used by the container", "pod"),
    _dcgm_pods("DCGM_FI_DEV_FB_USED", scale=1 / MIB, when="shared", help="Framebuffer memory used (in MiB)."),
)
CONTAINER_MEMORY_TOTAL = _container(
    "memory_total_bytes",
    "Memory limit of the container: HAMi's limit, its MIG instance, or GPU memory divided by the virtualisation ratio.",
    "bytes",
)
CONTAINER_SM = _container(
    "sm_ratio",
    "The container's part of the GPU's busy time, 0-1 of the whole GPU: a row of the ledger.",
    "ratio",
    _handbook("hami_vgpu_utilization_percent", HANDBOOK_CONTAINER, 100, "GPU compute used by the container", "pod"),
    _dcgm_pods("DCGM_FI_DEV_GPU_UTIL", scale=100, when="sharing", help="GPU utilization (in %)."),
)
CONTAINER_SM_MEAN = _container("sm_mean_ratio", "Mean of sm_ratio over the last window, 0-1 of the whole GPU.", "ratio")
CONTAINER_SM_MAX = _container(
    "sm_max_ratio", "Highest sm_ratio sampled in the last window, 0-1 of the whole GPU.", "ratio"
)
CONTAINER_INSTANCE_SM = _container(
    "instance_sm_ratio",
    "The container's part of its MIG instance's busy time, 0-1 of the instance; absent outside MIG.",
    "ratio",
)
CONTAINER_INSTANCE_SM_MEAN = _container(
    "instance_sm_mean_ratio", "Mean of instance_sm_ratio over the last window.", "ratio"
)
CONTAINER_INSTANCE_SM_MAX = _container(
    "instance_sm_max_ratio", "Highest instance_sm_ratio in the last window.", "ratio"
)
CONTAINER_SM_SECONDS = _container("sm_seconds_total", "The container's busy time on the GPU.", "seconds")
CONTAINER_ENERGY = _container(
    "energy_joules_total",
    "The container's part of the GPU's energy, divided by SM time, then by memory.",
    "joules",
    _dcgm_pods(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        scale=1000,
        when="apart",
        help="Total energy consumption since boot (in mJ).",
    ),
)
CONTAINER_POWER = _container(
    "power_watts",
    "The container's part of the GPU's power in the last sample.",
    "watts",
    _dcgm_pods("DCGM_FI_DEV_POWER_USAGE", when="apart", help="Power draw (in W)."),
)

CONTAINER_CPU = _container(
    "cpu_cores",
    "CPU cores that the container used on its node, mean over the last window. It is the same on each of its GPUs.",
    "",
    merge="max",
)

# ── containers beside their GPU, and the node ────────────────────────────────────────────────────────────────────
HOST_CPU = _host("cpu_seconds_total", "CPU time of a container that holds a GPU.", "seconds")
HOST_CPU_LIMIT = _host("cpu_limit_cores", "CPU limit of the container in cores; absent without a limit.", "")
HOST_PERIODS = _host("cpu_periods_total", "Periods in which the container's CPU limit applied.", "")
HOST_THROTTLED_PERIODS = _host(
    "cpu_throttled_periods_total", "Of these, periods in which the container was stopped by its CPU limit.", ""
)
HOST_THROTTLED = _host(
    "cpu_throttled_seconds_total", "Time for which the CPU limit stopped tasks of the container.", "seconds"
)
HOST_MEMORY = _host("memory_used_bytes", "Memory of the container on its node, with page cache.", "bytes")
HOST_WORKING_SET = _host(
    "memory_working_set_bytes",
    "Memory of the container on its node, without page cache that the kernel can take back at once.",
    "bytes",
)
HOST_MEMORY_LIMIT = _host("memory_limit_bytes", "Memory limit of the container; absent without a limit.", "bytes")
HOST_READ = _host(
    "io_read_bytes_total", "Bytes that the container read from block devices; network file systems are not.", "bytes"
)
HOST_WRITTEN = _host("io_written_bytes_total", "Bytes that the container wrote to block devices.", "bytes")
HOST_RECEIVED = _host(
    "network_received_bytes_total",
    "Bytes that the pod received, without the loopback interface; absent for pods on the host's network.",
    "bytes",
    labels=HOST_POD,
)
HOST_SENT = _host(
    "network_sent_bytes_total",
    "Bytes that the pod sent, without the loopback interface; absent for pods on the host's network.",
    "bytes",
    labels=HOST_POD,
)
NODE_CPU = _node(
    "node_cpu_seconds_total", "CPU time of the node since boot, all CPUs together.", "seconds", extra=("mode",), each=5
)
NODE_CPUS = _node("node_cpus", "CPUs of the node that are online.", "")
NODE_MEMORY_TOTAL = _node("node_memory_total_bytes", "Memory of the node.", "bytes")
NODE_MEMORY_AVAILABLE = _node(
    "node_memory_available_bytes", "Memory of the node that new programs can get without swapping.", "bytes"
)
NODE_LOAD = _node(
    "node_load_average",
    "Mean number of tasks that run, wait for a CPU or wait for a disk, by minutes.",
    "",
    extra=("minutes",),
    each=3,
)
HOST_FAULTS = _node(
    "host_faults_total",
    "Values of CPU, memory, I/O and network that could not be had, by reason: not-found (no cgroup of the container), "
    "vanished (its container ended while it was read), no-file (the controller is off), unreadable, malformed, "
    "backwards (a counter fell). They are absent, not 0.",
    "",
    extra=("reason",),
    each=None,
)

# ── pods ─────────────────────────────────────────────────────────────────────────────────────────────────────────
POD_MEMORY_USED = _pod(
    "memory_used_bytes",
    "Physical memory of the GPU that the pod's containers use.",
    "bytes",
    _pod_monitor("pod_gpu_memory_used", 1 / MIB, "GPU memory usage per pod (aggregated physical usage, MB)"),
)
POD_MEMORY_TOTAL = _pod(
    "memory_total_bytes",
    "Memory limit of the pod on the GPU: HAMi's limit, otherwise GPU memory divided by the virtualisation ratio.",
    "bytes",
    _pod_monitor("pod_total_gpu_memory", 1 / MIB, "Total GPU memory per pod (allocated vGPU memory, MB)"),
)
POD_SM = _pod(
    "sm_ratio",
    "The pod's part of the GPU's busy time, 0-1 of the whole GPU.",
    "ratio",
    _pod_monitor("pod_gpu_sm_util", 100, "GPU SM utilization per pod (aggregated physical utilization, %)"),
)

# ── HAMi's regions ───────────────────────────────────────────────────────────────────────────────────────────────
VGPU_MEMORY_USED = _vgpu(
    "memory_used_bytes",
    "Memory in use by HAMi's own accounting, on which its limit is enforced.",
    "bytes",
    _hami("hami_vgpu_memory_used_bytes", 1, "vGPU device memory usage in bytes"),
    _hami("hami_container_device_memory_bytes", 1, "Container device memory usage in bytes"),
    _legacy("vGPU_device_memory_usage_in_bytes", 1, "vGPU device memory usage in bytes"),
)
VGPU_MEMORY_LIMIT = _vgpu("memory_limit_bytes", "HAMi's memory limit; absent without a limit.", "bytes")
HAMI_VGPU_MEMORY_LIMIT = described(
    "vgpu",
    HAMI_CONTAINER,
    "hami_vgpu_memory_limit_bytes",
    "vGPU device memory limit in bytes",
    "bytes",
    _legacy("vGPU_device_memory_limit_in_bytes", 1, "vGPU device memory limit in bytes, 0 is unlimited"),
    family="hami",
    const=ZONE,
    when="pod",
    merge="sum",
)
VGPU_CONTEXT = _vgpu(
    "memory_context_bytes",
    "Memory of CUDA contexts.",
    "bytes",
    _hami("hami_vgpu_memory_context_bytes", 1, "Container device memory context size in bytes"),
    _legacy("vGPU_device_memory_context_size_bytes", 1, "Container device memory context size in bytes"),
)
VGPU_MODULE = _vgpu(
    "memory_module_bytes",
    "Memory of loaded modules.",
    "bytes",
    _hami("hami_vgpu_memory_module_bytes", 1, "Container device memory module size in bytes"),
    _legacy("vGPU_device_memory_module_size_bytes", 1, "Container device memory module size in bytes"),
)
VGPU_BUFFER = _vgpu(
    "memory_buffer_bytes",
    "Memory of the application's allocations.",
    "bytes",
    _hami("hami_vgpu_memory_buffer_bytes", 1, "Container device memory buffer size in bytes"),
    _legacy("vGPU_device_memory_buffer_size_bytes", 1, "Container device memory buffer size in bytes"),
)
VGPU_MEMORY_DESC = described(
    "vgpu",
    LEGACY_CONTAINER,
    "Device_memory_desc_of_container",
    "Container device memory description (deprecated: its labels hold numbers)",
    "bytes",
    family="hami-legacy",
    const=ZONE,
    when="pod",
    extra=("context", "module", "data", "offset"),
    volatile=True,
    merge="sum",
)
VGPU_SM = _vgpu(
    "sm_ratio",
    "SM utilisation of the container's processes by HAMi's library, 0-1 of the whole GPU; the sum can be above 1.",
    "ratio",
    _hami("hami_container_device_utilization_ratio", 100, "Container device SM utilization ratio"),
    _legacy("Device_utilization_desc_of_container", 100, "Container device SM utilization"),
)
VGPU_SM_LIMIT = _vgpu(
    "sm_limit_ratio", "HAMi's SM limit, 0-1 of the GPU; absent without a limit.", "ratio", merge="max"
)
VGPU_PRIORITY = _vgpu("priority", "Task priority: 0 high, 1 low.", "", merge="max")
VGPU_BLOCKED = _vgpu(
    "blocked", "1 while a container of higher priority stops this one from launching kernels.", "", merge="max"
)
VGPU_LAST_KERNEL = _vgpu(
    "last_kernel_timestamp_seconds",
    "When HAMi's library last saw a kernel launch or an attach.",
    "seconds",
    merge="max",
)
VGPU_LAST_KERNEL_AGE = described(
    "vgpu",
    HAMI_CONTAINER,
    "hami_container_last_kernel_elapsed_seconds",
    "Seconds since last kernel execution in container",
    "seconds",
    _legacy("Device_last_kernel_of_container", 1, "Seconds since last kernel execution in container"),
    family="hami",
    const=ZONE,
    when="pod",
    merge="min",
)
MIG_HOLDING = described(
    "holding",
    (
        *HAMI_CONTAINER,
        ("mig_uuid", "mig_uuid"),
        ("profile", "profile"),
        ("gpu_instance_id", "gpu_instance"),
        ("compute_instance_id", "compute_instance"),
        ("instance_id", "gpu_instance"),  # only in HAMi v2.9
    ),
    "hami_mig_device_info",
    "MIG runtime identity for a container allocation",
    "",
    Alias(
        family="hami-legacy",
        name="MigInfo",
        labels=(*LEGACY_CONTAINER, ("instanceid", "gpu_instance")),
        help="Mig device information for container",
        const=ZONE,
    ),
    family="hami",
    const=ZONE,
)

# ── sources and the agent itself ─────────────────────────────────────────────────────────────────────────────────
SOURCE_UP = described("source", SOURCE, "vgpuscope_source_up", "1 if the last read of the source succeeded.", "")
SOURCE_ABSENT = described(
    "source",
    SOURCE,
    "vgpuscope_source_absent",
    "1 if the source does not exist on this node, which is not a fault.",
    "",
)
SOURCE_ERROR = described(
    "source",
    SOURCE,
    "vgpuscope_source_error_info",
    "Why the source has no values now, as a code of docs/errors.md; always 1. Absent if it has, or is not configured.",
    "",
    extra=("code",),
)
SOURCE_READ_SECONDS = described(
    "source", SOURCE, "vgpuscope_source_read_seconds", "How long the last read of the source took.", "seconds"
)
SOURCE_AGE_SECONDS = described(
    "source", SOURCE, "vgpuscope_source_age_seconds", "Age of the last successful read of the source.", "seconds"
)
BUILD_INFO = build_info("node")
SAMPLES = _node("samples_total", "Samples taken of this node.", "")
SAMPLE_SECONDS = _node("sample_seconds", "How long the last sample took, end to end.", "seconds")
SAMPLE_TIME = _node("sample_timestamp_seconds", "When the last sample was taken.", "seconds")
RATIO = _node("virtualization_ratio", "Number of vGPUs into which a GPU is divided (gpu_allocation.txt).", "ratio")
REGIONS = _node("regions", "HAMi regions read in the last sample.", "")
REGIONS_REFUSED = _node(
    "regions_refused", "HAMi regions rejected in the last sample, by reason.", "", extra=("reason",), each=None
)
REGIONS_ORPHANED = _node(
    "regions_orphaned",
    "Region directories whose pod no longer exists; HAMi's monitor or our device plugin removes them, "
    "this agent never does.",
    "",
)
REGIONS_DISPUTED = _node(
    "regions_disputed",
    "Devices that a container's HAMi region claims, but that were not assigned to the container.",
    "",
    extra=("namespace", "pod", "container"),
    each=None,
)
WITHOUT_SERIES = _node(
    "without_series",
    "Allocations and containers that have no series, by reason: an annotation names a device that the node does not "
    "have, or a limit is reached.",
    "",
    extra=("reason",),
    each=len(NODE_OMISSIONS),
)
CORRECTIONS = _node(
    "region_corrections_total",
    "Region values corrected: false-zero (read while HAMi refreshed it), dead-process (killed, still counted).",
    "",
    extra=("kind",),
    each=2,
)
DROPPED = _node(
    "dropped_values_total",
    "Impossible values of the driver that were dropped, by reason; they are absent, not clamped.",
    "",
    extra=("reason",),
    each=None,
)
SCALED = _node(
    "ledger_scaled_total",
    "Times the ledger rows of a GPU exceeded its total and were scaled down in proportion, by resource.",
    "",
    extra=("resource",),
    each=2,
)
ENDED = _node("containers_ended_total", "Containers whose series were removed because the container ended.", "")
ERRORS = _node("errors_total", "Errors by code; docs/errors.md explains each.", "", extra=("code",), each=None)
LOOP_RESTARTS = loop_restarts("node")
PROCESS_CPU = described("node", (), "process_cpu_seconds_total", "CPU time of the agent.", "seconds")
PROCESS_RSS = described("node", (), "process_resident_memory_bytes", "Resident memory of the agent.", "bytes")
PROCESS_FDS = described("node", (), "process_open_fds", "Open file descriptors of the agent.", "")
PROCESS_START = described("node", (), "process_start_time_seconds", "When the agent was started.", "seconds")

# prometheus-cpp, on which k8s-vgpu-monitor is built, reports these of its listener; latencies are in microseconds there
EXPOSER_BYTES = described(
    "node", (), "exposer_transferred_bytes_total", "Transferred bytes to metrics services", "bytes", family="pod"
)
EXPOSER_SCRAPES = described(
    "node", (), "exposer_scrapes_total", "Number of times metrics were scraped", "", family="pod"
)
EXPOSER_LATENCIES = described(
    "node",
    (),
    "exposer_request_latencies",
    "Latencies of serving metrics requests, in microseconds. Quantiles are those of the last minute.",
    "",
    type="summary",
    family="pod",
    extra=("quantile",),
    each=len(QUANTILES),
)
EXPOSER_LATENCY_SUM = described(
    "node",
    (),
    "exposer_request_latencies_sum",
    "Latencies of serving metrics requests, added up, in microseconds.",
    "",
    type="counter",
    family="pod",
    part_of=EXPOSER_LATENCIES.name,
)
EXPOSER_LATENCY_COUNT = described(
    "node",
    (),
    "exposer_request_latencies_count",
    "Metrics requests whose latencies were added up.",
    "",
    type="counter",
    family="pod",
    part_of=EXPOSER_LATENCIES.name,
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
