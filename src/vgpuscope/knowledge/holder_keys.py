"""The annotations and labels of pods that say who has a GPU: only schedulers and device plugins write them.

The chart's admission policies have the same rule in CEL.
"""

from vgpuscope.knowledge.vendors import BY_ALLOCATED, BY_TO_ALLOCATE

_OURS = ("vgpuscope.io/assignment-seal", "vgpuscope.io/scheduler-epoch", "vgpuscope.io/retry")
_EXACT = frozenset(
    {"hami.io/vgpu-node", "hami.io/vgpu-time", "hami.io/bind-phase", "hami.io/bind-time"}
    | {"hami.io/vgpu-mig-allocations", *BY_ALLOCATED, *BY_TO_ALLOCATE, *_OURS}
)
LABELS = frozenset({"hami.io/vgpu-node", "4pd.io/vgpu-node"})


def is_assignment(key: str) -> bool:
    """Whether an annotation is part of an assignment; a policy that a tenant may choose is not."""
    devices = key.startswith("hami.io/") and key.endswith(("-devices-allocated", "-devices-to-allocate"))
    return key in _EXACT or devices or key.startswith("4pd.io/")
