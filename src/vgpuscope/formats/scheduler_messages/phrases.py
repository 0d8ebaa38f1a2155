"""Phrases of schedulers about why a pod is waiting → our codes.

Covers HAMi up to v2.10, vgpu-manager, kube-scheduler 1.10 to 1.35, Volcano, KAI, Kueue and the kubelet. The first row
that matches anywhere in a phrase is used. So a row comes before those whose words it contains: GPU memory before
memory, a volume's node affinity before node affinity, a queue's quota before a namespace's.
"""

import re
from functools import lru_cache

from vgpuscope.knowledge.hami_reasons import HAMI_REASONS, hami_words

_ACCELERATOR = "gpu|npu|mlu|dcu|gcu|xpu|tpu|ppu|sdaa|neuron|ascend|vcuda|i915|biren"

# HAMi's own words come first: no other scheduler uses them.
_HAMI = tuple(
    (code, "|".join(re.escape(word.lower()) for word in hami_words(code)))
    for code in dict.fromkeys(HAMI_REASONS.values())
)

# Patterns for phrases in lower case. A repetition stops at its own first character ([^/] after a /): linear search.
_ROWS: tuple[tuple[str, str], ...] = (
    ("SCHED_GATED", r"scheduling gates|schedulinggated"),
    ("SCHED_NODE_LOCKED", r"has been locked|node lock|lock(?:ing)? node"),
    # --- quotas -------------------------------------------------------------------------------------------------------
    ("SCHED_QUOTA_EXCEEDED", r"exceeded quota|quota exceeded"),
    (
        "SCHED_QUEUE_QUOTA",
        r"over ?quota|overlimit|allowable limit|queue resource quota|unused quota|insufficient quota|assign flavors"
        r"|clusterqueue|localqueue|queue .{0,200}(?:overused|quota|capability|not open|not found|doesn't exist)",
    ),
    ("SCHED_QUOTA_EXCEEDED", r"quota"),
    (
        "SCHED_GANG_WAITING",
        r"pod ?group|\bgang\b|minavailable|minmember|minimum required number of pods|can possibly be assigned"
        r"|job is not ready",
    ),
    ("SCHED_ADMISSION_DENIED", r"webhook|denied the request|is forbidden|violates podsecurity"),
    # --- claims and volumes, whose texts contain words of many other rows ---------------------------------------------
    ("SCHED_DRA_UNALLOCATABLE", r"resource ?claim|device ?class|allocate all claims|dynamicresources|resource ?slice"),
    (
        "SCHED_VOLUME",
        r"persistent ?volume|volume node affinity|\bpvc|volume count|volume zone|volumebinding|binding volumes"
        r"|free storage|storage ?class|available disk|csinode|unbound immediate",
    ),
    # --- errors instead of a result -----------------------------------------------------------------------------------
    (
        "SCHED_NO_EXTENDER",
        r"with extender at url|dial tcp|connection refused|no such host|i/o timeout|x509:|context deadline exceeded"
        r"|client\.timeout exceeded|(?:get|post) \"?https?://"
        r"|\bextender_(?:standby|not_synced)\b"  # our own: a replica does not lead, or has not listed the cluster
        r"|\bkube_(?:unreadable|unwritten|conflict|absent|forbidden): ",  # or the API server did not let it decide
    ),
    (
        "SCHED_BIND_FAILED",
        r"binding rejected|^pods? \"[^\"]*\" not found|operation cannot be fulfilled|bind plugin"
        r"|already assigned to node|failed to bind|already scheduled to another node",
    ),
    # --- devices ------------------------------------------------------------------------------------------------------
    ("SCHED_MODE_MISMATCH", r"mode not fit|mode mismatch|has mig enabled|memory type mismatch"),
    ("SCHED_MIG_INFEASIBLE", r"\bmig\b"),
    ("SCHED_DEVICE_UUID_MISMATCH", r"uuid"),
    ("SCHED_DEVICE_TYPE_MISMATCH", r"type ?mismatch|gpu ?type|device type"),
    ("SCHED_DEVICE_UNHEALTHY", r"unhealthy|not healthy"),
    ("SCHED_DEVICE_CORDONED", r"(?:card|gpu|device)s? (?:is |are )?cordoned"),
    ("SCHED_SLOTS_EXHAUSTED", r"time-?slicing|\bslots?\b"),
    ("SCHED_EXCLUSIVE_CONFLICT", r"exclusive"),
    ("SCHED_NUMA_MISMATCH", r"numa|topology locality|topologyaffinity"),
    ("SCHED_LINK_TOPOLOGY", r"link topology|nvlink|topology unsatisfied"),
    (
        "SCHED_NODE_UNREGISTERED",
        r"no vgpu |vgpu (?:registry|configuration)|not vgpu-enabled"
        r"|not initialized with device|memory factor invalid|missing from cache|node info build failed",
    ),
    ("SCHED_INSUFFICIENT_GPU_MEMORY", rf"(?:{_ACCELERATOR}|card|device)s?[ ._-]?mem|/[^/\s]*mem"),
    (
        "SCHED_INSUFFICIENT_GPU_CORES",
        rf"(?:{_ACCELERATOR}|card|device)s?[ ._-]?core|compute units|/[^/\s]*core",
    ),
    (
        "SCHED_INSUFFICIENT_GPU_COUNT",
        rf"/[^/\s]*(?:{_ACCELERATOR})|\bgpus\b|gpu cards|gpu resources"
        r"|enough gpu|gpu fitted|vastaitech\.com/",
    ),
    # --- nodes --------------------------------------------------------------------------------------------------------
    (
        "SCHED_NODE_NOT_READY",
        r"node\.kubernetes\.io/(?:not-ready|unreachable|network-unavailable|out-of-service|\w+-pressure)"
        r"|node.{0,20} not ready|notready|(?:disk|memory|pid) ?pressure|cloudprovider\.kubernetes\.io/uninitialized",
    ),
    ("SCHED_NODE_UNSCHEDULABLE", r"were unschedulable|kubernetes\.io/unschedulable|nodeunschedulable"),
    ("SCHED_TAINT", r"taint"),
    ("SCHED_POD_AFFINITY", r"pod (?:anti-)?affinity|anti-affinity|interpod"),
    ("SCHED_TOPOLOGY_SPREAD", r"topology ?spread"),
    ("SCHED_NODE_SELECTOR", r"node ?affinity|node ?selector|node name|nodename"),
    ("SCHED_PORT_CONFLICT", r"free ports|host ?port|nodeports"),
    ("SCHED_TOO_MANY_PODS", r"too many pods|insufficient pods|pod number exceeded"),
    ("SCHED_INSUFFICIENT_STORAGE", r"ephemeral-?storage"),
    ("SCHED_INSUFFICIENT_CPU", r"\bcpu\b"),
    ("SCHED_INSUFFICIENT_MEMORY", r"\bmemory\b"),
    # --- no reason given ----------------------------------------------------------------------------------------------
    ("SCHED_NO_NODES", r"no nodes available to schedule|^0 nodes are available"),
    (
        "SCHED_NO_NODE_FITS",
        r"do not meet|no available node|devicesharing error|unable to schedule|no nodes with enough"
        r"|resources for the workload|nodes (?:are )?(?:un)?available",
    ),
    # --- other scarce resources ---------------------------------------------------------------------------------------
    (
        "SCHED_INSUFFICIENT_RESOURCE",
        r"insufficient \S|enough resource|enough of |resource fit failed|overhead resources",
    ),
)
_COMPILED = tuple((code, re.compile(pattern)) for code, pattern in (*_HAMI, *_ROWS))

_LONGEST = 512  # characters of a phrase that are searched; real phrases have less than 200


def code_of(phrase: str) -> str | None:
    """The code of one phrase, given without counts and node names; None: no row matches."""
    return _code_of(phrase[:_LONGEST])


@lru_cache(maxsize=1024)  # a cluster repeats the same few phrases
def _code_of(phrase: str) -> str | None:
    text = phrase.lower()
    return next((code for code, pattern in _COMPILED if pattern.search(text)), None)
