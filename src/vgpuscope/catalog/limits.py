"""How many things get series, at most. Text that others write (annotations, labels, pages) cannot pass these numbers.

The numbers are above 100 containers on each GPU, 16 GPUs on each node and 5,000 nodes, so no real cluster reaches them.
"""

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

ClusterOmission: TypeAlias = Literal[
    "unregistered-device", "mig-limit", "container-limit", "node-limit", "cluster-limit"
]
NodeOmission: TypeAlias = Literal["unknown-device", "container-limit", "node-limit"]
FleetOmission: TypeAlias = Literal["gpu-limit", "target-limit", "fleet-limit"]

CLUSTER_OMISSIONS: tuple[ClusterOmission, ...] = get_args(ClusterOmission)
NODE_OMISSIONS: tuple[NodeOmission, ...] = get_args(NodeOmission)
FLEET_OMISSIONS: tuple[FleetOmission, ...] = get_args(FleetOmission)


class SeriesLimit(Struct, frozen=True, kw_only=True):
    """The largest number of things of one kind that get series."""

    what: str
    most: int
    reason: str = ""  # under which the rest is counted; "": the rest is summed up in one more series


# ── cluster exporter ─────────────────────────────────────────────────────────────────────────────────────────────
CONTAINER_DEVICES = SeriesLimit(what="devices of one container", most=128, reason="container-limit")
POD_INSTANCES = SeriesLimit(
    what="MIG instances of one GPU that one pod names, over the life of the pod", most=16, reason="mig-limit"
)
NODE_DEVICES = SeriesLimit(what="registered devices of one node", most=256, reason="node-limit")
NODE_HOLDERS = SeriesLimit(what="devices held by containers of one node", most=8192, reason="node-limit")
NODE_OFFERS = SeriesLimit(what="resources of one node that the kubelet only counts", most=64, reason="node-limit")
NODE_FINDINGS = SeriesLimit(what="findings of one node with a series of their own; all are counted", most=32)
CLUSTER_TYPES = SeriesLimit(what="GPU types", most=500, reason="cluster-limit")
CLUSTER_SCHEDULERS = SeriesLimit(what="schedulers with a name; the rest is `other`", most=20)
CLUSTER_WAITING = SeriesLimit(what="namespaces and reasons of waiting pods", most=500)
CLUSTER_SERIES = SeriesLimit(
    what="series of the cluster (`cluster.max_series`); further nodes have none",
    most=64_000_000,
    reason="cluster-limit",
)

# ── node agent ───────────────────────────────────────────────────────────────────────────────────────────────────
CONTAINER_MIGS = SeriesLimit(
    what="MIG instances of one container, as HAMi's annotation numbers them", most=128, reason="container-limit"
)
NODE_CONTAINERS = SeriesLimit(what="containers on GPUs and MIG instances", most=8192, reason="node-limit")
NODE_VGPUS = SeriesLimit(what="devices of HAMi regions", most=8192, reason="node-limit")
NODE_MIG_HOLDINGS = SeriesLimit(what="MIG instances held through HAMi", most=8192, reason="node-limit")
UNSEEN_DEVICES = SeriesLimit(
    what="devices that annotations and regions name while no driver has answered", most=128, reason="unknown-device"
)
HOST_CONTAINERS = SeriesLimit(
    what="containers that hold a GPU, with series of their CPU, memory, I/O and network", most=2048, reason="node-limit"
)

# ── analyzer ─────────────────────────────────────────────────────────────────────────────────────────────────────
GPU_TENANTS = SeriesLimit(what="tenants of one GPU or MIG instance", most=512, reason="gpu-limit")
TARGET_GPUS = SeriesLimit(
    what="GPUs and MIG instances of one target that the analyzer scrapes itself", most=1024, reason="target-limit"
)
FLEET_GPUS = SeriesLimit(what="GPUs and MIG instances of the fleet", most=1_000_000, reason="fleet-limit")
