"""The fields of dcgm-exporter that we read: both names of each, the unit, and what the field means to us.

Since DCGM 4.7, fields also have names with base units (ratios, bytes, watts, hertz, joules). Some releases wrote 0-100
under the names that end in _RATIO, so only the values show the unit of these.
"""

from typing import Final

from msgspec import Struct

from vgpuscope.catalog import agent as m
from vgpuscope.catalog.metric import Metric
from vgpuscope.knowledge.link_speeds import HIGHEST_NVLINK, HIGHEST_PCIE
from vgpuscope.model.quantity import MIB

# Upper bounds that no GPU reaches. Blank values of DCGM (2147483632, 9223372036854775792, 140737488355328 and a few
# above each) lie far beyond them. One blank value even lifts a mean above its bound, if the mean is of fewer than
# MANY_SAMPLES samples (knowledge/exporters.py).
MOST_MEMORY: Final = 4096.0 * 1024 * MIB
MOST_POWER: Final = 10_000.0
MOST_CLOCK: Final = 10e9


class DcgmField(Struct, frozen=True, kw_only=True):
    """One field; `high` is the highest possible value in base units."""

    name: str  # of all releases
    scale: float = 1.0  # value under this name for 1 in base units: 100 for percent
    base_name: str = ""  # since DCGM 4.7, in base units; "" if we do not read it under another name
    term: str = ""  # of an analysis; "" if analyses do not use it
    activity: str = ""  # the field of Activity; "" if it is not a profiling value
    high: float = 1.0
    meaning: str

    @property
    def is_ratio(self) -> bool:
        """Whether it has a name that says 0-1 while some releases wrote 0-100."""
        return self.base_name.endswith("_RATIO")


def _field(
    metric: Metric,
    meaning: str,
    *,
    base_name: str = "",
    term: str = "",
    activity: str = "",
    high: float = 1.0,
) -> DcgmField:
    """A field that our agent can imitate: the catalog has its name and scale."""
    alias = metric.alias("dcgm")
    return DcgmField(
        name=alias.name,
        scale=alias.scale,
        base_name=f"DCGM_FI_{base_name}" if base_name else "",
        term=term,
        activity=activity,
        high=high,
        meaning=meaning,
    )


GPU_UTIL: Final = _field(m.GPU_UTILIZATION, "time with a kernel", base_name="DEV_GPU_UTIL_RATIO", term="gpu_util")
MEM_COPY: Final = _field(
    m.GPU_MEMORY_CONTROLLER, "time with memory traffic", base_name="DEV_MEMORY_UTIL_RATIO", term="mem_copy"
)
ENCODER: Final = _field(m.GPU_ENCODER, "time of video encoders", base_name="DEV_ENC_UTIL_RATIO", term="encoder")
DECODER: Final = _field(m.GPU_DECODER, "time of video decoders", base_name="DEV_DEC_UTIL_RATIO", term="decoder")
FB_USED: Final = _field(
    m.GPU_MEMORY_USED, "memory in use", base_name="DEV_FB_USED_BYTES", term="mem_used", high=MOST_MEMORY
)
FB_FREE: Final = _field(
    m.GPU_MEMORY_FREE, "free memory", base_name="DEV_FB_FREE_BYTES", term="mem_free", high=MOST_MEMORY
)
FB_RESERVED: Final = _field(
    m.GPU_MEMORY_RESERVED,
    "memory that the driver keeps",
    base_name="DEV_FB_RESERVED_BYTES",
    term="mem_reserved",
    high=MOST_MEMORY,
)
FB_TOTAL: Final = _field(
    m.GPU_MEMORY_TOTAL, "all memory", base_name="DEV_FB_CAPACITY_BYTES", term="mem_total", high=MOST_MEMORY
)
POWER: Final = _field(m.GPU_POWER, "power draw", base_name="DEV_BOARD_POWER_WATTS", term="power", high=MOST_POWER)
POWER_LIMIT: Final = _field(m.GPU_POWER_LIMIT, "power limit in effect", term="power_limit", high=MOST_POWER)
SET_POWER_LIMIT: Final = DcgmField(
    name="DCGM_FI_DEV_POWER_MGMT_LIMIT", term="power_limit", high=MOST_POWER, meaning="power limit that was set"
)
SM_CLOCK: Final = _field(
    m.GPU_SM_CLOCK, "clock of the SMs", base_name="DEV_SM_CLOCK_HERTZ", term="sm_clock", high=MOST_CLOCK
)
ENERGY: Final = DcgmField(
    name=m.GPU_TOTAL_ENERGY.name,
    scale=1000,
    base_name="DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
    term="energy",
    high=MOST_POWER,
    meaning="energy since boot; a counter, so the bound is that of its rate",
)

ENGINE: Final = _field(
    m.GPU_ENGINE_ACTIVE,
    "time with a busy graphics or compute context",
    base_name="PROF_GR_ENGINE_UTIL_RATIO",
    term="engine_active",
    activity="engine",
)
SM: Final = _field(m.GPU_SM_ACTIVE, "SMs with a warp", base_name="PROF_SM_UTIL_RATIO", term="sm_active", activity="sm")
OCCUPANCY: Final = _field(
    m.GPU_SM_OCCUPANCY, "resident warps", base_name="PROF_SM_OCCUPANCY_RATIO", activity="occupancy"
)
TENSOR: Final = _field(
    m.GPU_TENSOR_ACTIVE, "cycles of tensor pipes", base_name="PROF_TENSOR_UTIL_RATIO", activity="tensor"
)
FP64: Final = _field(m.GPU_FP64_ACTIVE, "cycles of FP64 pipes", base_name="PROF_FP64_UTIL_RATIO", activity="fp64")
FP32: Final = _field(m.GPU_FP32_ACTIVE, "cycles of FP32 pipes", base_name="PROF_FP32_UTIL_RATIO", activity="fp32")
FP16: Final = _field(m.GPU_FP16_ACTIVE, "cycles of FP16 pipes", base_name="PROF_FP16_UTIL_RATIO", activity="fp16")
DRAM: Final = _field(
    m.GPU_DRAM_ACTIVE,
    "memory bandwidth in use",
    base_name="PROF_DRAM_UTIL_RATIO",
    term="dram_active",
    activity="dram",
)
PCIE_SENT: Final = _field(
    m.GPU_PCIE_SENT_RATE, "bytes sent by PCIe", term="pcie_out", activity="pcie_sent", high=HIGHEST_PCIE
)
PCIE_RECEIVED: Final = _field(
    m.GPU_PCIE_RECEIVED_RATE, "bytes received by PCIe", term="pcie_in", activity="pcie_received", high=HIGHEST_PCIE
)
NVLINK_SENT: Final = _field(m.GPU_NVLINK_SENT_RATE, "bytes sent by NVLink", activity="nvlink_sent", high=HIGHEST_NVLINK)
NVLINK_RECEIVED: Final = _field(
    m.GPU_NVLINK_RECEIVED_RATE, "bytes received by NVLink", activity="nvlink_received", high=HIGHEST_NVLINK
)

DEVICE_FIELDS: Final = (
    GPU_UTIL,
    MEM_COPY,
    ENCODER,
    DECODER,
    FB_USED,
    FB_FREE,
    FB_RESERVED,
    FB_TOTAL,
    POWER,
    POWER_LIMIT,
    SET_POWER_LIMIT,
    SM_CLOCK,
    ENERGY,
)
PROFILING_FIELDS: Final = (
    ENGINE,
    SM,
    OCCUPANCY,
    TENSOR,
    FP64,
    FP32,
    FP16,
    DRAM,
    PCIE_SENT,
    PCIE_RECEIVED,
    NVLINK_SENT,
    NVLINK_RECEIVED,
)
FIELDS: Final = (*DEVICE_FIELDS, *PROFILING_FIELDS)
