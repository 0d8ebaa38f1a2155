"""A fleet as dcgm-exporter shows it, of any size: the same GPUs, holders and samples in every run."""

import random
from collections.abc import Iterator
from typing import NamedTuple

STEP = 30  # seconds between two samples
WINDOW = 600
NAMES = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_SM_CLOCK",
)
GPUS_ON_NODE = 8
_MEMORY = 40_536  # MiB
_HANDED_OVER = 100  # one of this many GPUs gets a new holder within the window
_SEED = 20250601
_LOADS = ((0, 0), (0, 3), (5, 25), (30, 60), (60, 90), (85, 100), (95, 100))  # utilisation in percent, from and to

Labels = dict[str, str]


class Holder(NamedTuple):
    """A GPU while one pod has it; `begins` and `ends` are in seconds from the moment of all handovers."""

    labels: Labels
    low: int
    high: int
    begins: float = float("-inf")
    ends: float = float("inf")


def holders(gpus: int, *, handovers: bool) -> Iterator[Holder]:
    """Every GPU with its pod; some GPUs have two pods, one after the other."""
    dice = random.Random(_SEED)
    for number in range(gpus):
        low, high = dice.choice(_LOADS)
        if handovers and number % _HANDED_OVER == _HANDED_OVER // 2:
            yield Holder(_labels(number, dice, round_=0), 0, 0, ends=0)
            yield Holder(_labels(number, dice, round_=1), low, high, begins=0)
        else:
            yield Holder(_labels(number, dice, round_=0), low, high)


def values(holder: Holder, dice: random.Random) -> tuple[float, ...]:
    """One sample of each metric, in the order of NAMES."""
    load = dice.randint(holder.low, holder.high)
    used = 4 if not holder.high else _MEMORY * (20 + holder.high // 2) // 100
    return (
        float(load),
        float(load // 2),
        float(used),
        float(_MEMORY - used),
        round(38 + 2.1 * load + dice.random(), 3),
        1410.0 if holder.high else 210.0,
    )


def _labels(number: int, dice: random.Random, *, round_: int) -> Labels:
    node, index = divmod(number, GPUS_ON_NODE)
    return {
        "DCGM_FI_DRIVER_VERSION": "550.54.15",
        "Hostname": f"gpu-node-{node:05d}",
        "UUID": f"GPU-{number:08x}-7c3a-4e5b-9d21-{number * 2654435761 % 2**48:012x}",
        "container": "main",
        "device": f"nvidia{index}",
        "gpu": str(index),
        "instance": f"10.{node >> 8 & 255}.{node & 255}.17:9400",
        "job": "dcgm-exporter",
        "modelName": "NVIDIA A100-PCIE-40GB",
        "namespace": f"team-{number % 37:02d}",
        "pci_bus_id": f"00000000:{index + 16:02X}:00.0",
        "pod": f"trainer-{number:06d}-{round_}-{dice.getrandbits(20):05x}",
    }
