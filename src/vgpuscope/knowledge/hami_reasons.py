"""HAMi's own words for why it refuses a node, up to v2.10, and the one code of docs/scheduling-codes.md for each.

One word is ours, in the form of HAMi's: HAMi does not read ResourceClaims, so it has no word for a GPU that one holds.

Both directions use this table: the cluster exporter reads the words in events, the scheduler extender writes them.
"""

NOT_HEALTHY = "CardNotHealth"
CORDONED = "CardCordoned"
TYPE_MISMATCH = "CardTypeMismatch"
NUMA_NOT_FIT = "NumaNotFit"
UUID_MISMATCH = "CardUuidMismatch"
SLOTS_EXHAUSTED = "CardTimeSlicingExhausted"
EXCLUSIVE_CONFLICT = "ExclusiveDeviceAllocateConflict"
QUOTA_NOT_FIT = "ResourceQuotaNotFit"
MEMORY_SHORT = "CardInsufficientMemory"
CORES_SHORT = "CardInsufficientCore"
CORES_EXHAUSTED = "CardComputeUnitsExhausted"
MIG_INFEASIBLE = "CardMigTopologyInfeasible"
TOO_FEW_FIT = "AllocatedCardsInsufficientRequest"
TOO_FEW_GPUS = "NodeInsufficientDevice"
UNREGISTERED = "node unregistered"
HELD_BY_CLAIM = "CardHeldByClaim"  # of our extender only

HAMI_REASONS: dict[str, str] = {
    NOT_HEALTHY: "SCHED_DEVICE_UNHEALTHY",
    "CardUnhealthy": "SCHED_DEVICE_UNHEALTHY",  # Metax
    CORDONED: "SCHED_DEVICE_CORDONED",
    TYPE_MISMATCH: "SCHED_DEVICE_TYPE_MISMATCH",
    NUMA_NOT_FIT: "SCHED_NUMA_MISMATCH",
    UUID_MISMATCH: "SCHED_DEVICE_UUID_MISMATCH",
    SLOTS_EXHAUSTED: "SCHED_SLOTS_EXHAUSTED",
    EXCLUSIVE_CONFLICT: "SCHED_EXCLUSIVE_CONFLICT",
    HELD_BY_CLAIM: "SCHED_EXCLUSIVE_CONFLICT",
    QUOTA_NOT_FIT: "SCHED_QUOTA_EXCEEDED",
    MEMORY_SHORT: "SCHED_INSUFFICIENT_GPU_MEMORY",
    CORES_SHORT: "SCHED_INSUFFICIENT_GPU_CORES",
    CORES_EXHAUSTED: "SCHED_INSUFFICIENT_GPU_CORES",
    MIG_INFEASIBLE: "SCHED_MIG_INFEASIBLE",
    "CardNotFoundCustomFilterRule": "SCHED_DEVICE_RULE_MISMATCH",
    "CardQosPolicyMismatch": "SCHED_DEVICE_RULE_MISMATCH",  # Metax
    "CardAppClassMismatch": "SCHED_DEVICE_RULE_MISMATCH",  # Metax
    "ModeNotFit": "SCHED_MODE_MISMATCH",
    TOO_FEW_FIT: "SCHED_INSUFFICIENT_GPU_COUNT",
    TOO_FEW_GPUS: "SCHED_INSUFFICIENT_GPU_COUNT",
    "NodeUnfitPod": "SCHED_NO_NODE_FITS",
    UNREGISTERED: "SCHED_NODE_UNREGISTERED",
    "node usage unavailable": "SCHED_NODE_UNREGISTERED",
}


def hami_words(code: str) -> tuple[str, ...]:
    """HAMi's words for a code; empty if HAMi never gives this reason."""
    return tuple(word for word, of in HAMI_REASONS.items() if of == code)
