"""What the parts of an answer know: values of the agents' metrics, and the answers of the cluster exporter."""

from typing import NamedTuple

from msgspec import Struct

from vgpuscope.model.cluster import NodeLedger
from vgpuscope.model.errors import ScopeError
from vgpuscope.model.pending import PendingList


class SeenSeries(NamedTuple):
    """One series of a metric."""

    name: str
    labels: dict[str, str]


class LabelledValues(NamedTuple):
    """The values of all metrics that have the same labels."""

    labels: dict[str, str]
    values: dict[str, float]  # by metric


class TenantKey(NamedTuple):
    """A container on a GPU or MIG instance; "" for no instance."""

    gpu_id: str
    mig: str
    namespace: str
    pod: str
    container: str


class GpuFacts(Struct, kw_only=True, gc=False):
    """The last values of one GPU or MIG instance, as its agent shows them."""

    values: dict[str, float] = {}  # by metric
    info: dict[str, str] = {}  # labels that identify it
    mode: str | None = None
    ledger: dict[str, float] = {}  # bytes by owner: containers, system, unattributed, free
    throttle: tuple[str, ...] = ()
    xids: dict[int, int] = {}  # counts


class TenantFacts(Struct, kw_only=True, gc=False):
    """The last values of one container on one GPU."""

    values: dict[str, float] = {}
    state: str | None = None
    mode: str | None = None
    allocated: bool | None = None


class NodeFacts(Struct, kw_only=True):
    """The last values of one agent."""

    version: str | None = None
    sampled: float | None = None  # time of the last sample
    up: dict[str, bool] = {}  # by source
    absent: dict[str, bool] = {}
    ages: dict[str, float] = {}


class Facts(Struct, kw_only=True):
    """What agents show. Not changed once it is published."""

    gpus: dict[tuple[str, str], GpuFacts] = {}  # by GPU and MIG instance
    tenants: dict[TenantKey, TenantFacts] = {}
    nodes: dict[str, NodeFacts] = {}


class ClusterFacts(Struct, frozen=True, kw_only=True, tag="cluster"):
    """What the cluster exporter answered."""

    nodes: tuple[NodeLedger, ...] = ()
    revision: int = 0  # another one for other nodes
    pending: PendingList
    page: tuple[tuple[SeenSeries, float], ...] | None = None  # samples of its metrics; None: the page could not be read
    fault: ScopeError | None = None  # why a part of this is missing
