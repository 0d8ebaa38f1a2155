"""The largest amounts of NVIDIA GPUs that a pod can request: the webhook and the filter refuse the same.

HAMi counts more than 100 percent of the cores as 100, so that is accepted.
"""

from collections.abc import Mapping
from typing import Final

from vgpuscope.knowledge.vendors import NVIDIA

LARGEST: Final = 2**31 - 1  # HAMi counts in 32 bits
MOST_GPUS: Final = 1024  # of one pod: what an assignment can hold
MOST_CORES: Final = 100  # percent of one GPU
MOST: Final[Mapping[str, int]] = {
    NVIDIA.count: MOST_GPUS,
    NVIDIA.memory or "": LARGEST,  # MiB
    NVIDIA.memory_percentage or "": 100,
    NVIDIA.core or "": LARGEST,
}
