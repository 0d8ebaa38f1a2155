"""Recording rules: how much of its own limit a workload uses. HPA and KEDA can scale on the result."""

from typing import NamedTuple

from tools.alerting.expressions import CONTAINER, OF_POD, VGPU, per, share


class Recorded(NamedTuple):
    """One recording rule."""

    name: str
    expr: str


_LIMITED_BY_HAMI = share(
    per(VGPU, "vgpuscope_vgpu_memory_used_bytes", *OF_POD), per(VGPU, "vgpuscope_vgpu_memory_limit_bytes", *OF_POD)
)
_INSTANCE = f"{CONTAINER}, mig_uuid"
_LIMITED_OTHERWISE = share(
    per(_INSTANCE, "vgpuscope_container_memory_used_bytes", *OF_POD),
    per(_INSTANCE, "vgpuscope_container_memory_total_bytes", *OF_POD),
)
_SM = per(CONTAINER, "vgpuscope_container_sm_mean_ratio", *OF_POD)
_SM_LIMIT = per(CONTAINER, "vgpuscope_vgpu_sm_limit_ratio", *OF_POD)
_WHOLE_GPU = per(CONTAINER, 'vgpuscope_container_info{mode="exclusive"}', *OF_POD)  # always 1, which is the limit

MEMORY = "vgpuscope:container_memory_of_limit:ratio"
CORES = "vgpuscope:container_cores_of_limit:ratio"

RULES = (
    Recorded(MEMORY, f"max by ({CONTAINER}) ({_LIMITED_BY_HAMI})\nor\nmax by ({CONTAINER}) ({_LIMITED_OTHERWISE})"),
    Recorded(CORES, f"{share(_SM, _SM_LIMIT)}\nor\n{share(_SM, _WHOLE_GPU)}"),
    Recorded("vgpuscope:pod_memory_of_limit:ratio", f"max by (cluster, namespace, pod) ({MEMORY})"),
    Recorded("vgpuscope:pod_cores_of_limit:ratio", f"max by (cluster, namespace, pod) ({CORES})"),
)
