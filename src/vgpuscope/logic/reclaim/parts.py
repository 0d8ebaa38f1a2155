"""How much of a GPU each workload holds, in whole GPUs.

It is the memory limit divided by the GPU's memory. If a limit is unknown, the GPU is divided equally. All parts of a
GPU together never exceed the GPU, and each MIG instance is an equal part of it.
"""

from collections import Counter
from collections.abc import Sequence

from vgpuscope.logic.reclaim.workloads import workload_id
from vgpuscope.model.analysis import GpuUse, TenantUse
from vgpuscope.model.quantity import Ratio


def parts(gpus: Sequence[GpuUse], wanted: set[str]) -> dict[str, Ratio]:
    """The GPUs that each of these workloads holds: 0.5 is half a GPU, 8.0 are eight."""
    instances = Counter(gpu.gpu_id for gpu in gpus)
    found: dict[str, Ratio] = dict.fromkeys(wanted, 0.0)
    for gpu in gpus:
        if any(workload_id(use) in wanted for use in gpu.tenants):
            for key, part in _of_gpu(gpu).items():
                if key in wanted:
                    found[key] += part / instances[gpu.gpu_id]
    return found


def _of_gpu(gpu: GpuUse) -> dict[str, Ratio]:
    holders: dict[str, list[TenantUse]] = {}
    for use in gpu.tenants:
        holders.setdefault(workload_id(use), []).append(use)
    memory = gpu.terms.get("mem_total")
    total = (memory.mean if memory else None) or 0.0
    limits = {key: _limit(uses) for key, uses in holders.items()}
    shares = {
        key: min(1.0, limit / total) if limit is not None and total > 0 else 1 / len(holders)
        for key, limit in limits.items()
    }
    over = max(1.0, sum(shares.values()))
    return {key: share / over for key, share in shares.items()}


def _limit(uses: Sequence[TenantUse]) -> int | None:
    limits = [use.memory_limit for use in uses if use.memory_limit is not None]
    return sum(limits) if len(limits) == len(uses) else None
