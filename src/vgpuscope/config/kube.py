"""Settings of what is read beyond the GPU before GPUs are taken back: the Kubernetes API, and signs of use."""

from typing import Annotated

from msgspec import Meta, Struct

from vgpuscope.knowledge.stops import STOPPED_KINDS
from vgpuscope.logic.reclaim.activity_queries import INFERENCE_SERVERS
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.reclaim import ActivityQuery


class KubeConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Kubernetes API, as taking GPUs back uses it."""

    enabled: Annotated[
        bool,
        Meta(
            description="Read pods, their owners and namespaces from the Kubernetes API before GPUs are taken back: "
            "annotations, priority classes, age. reclaim.action scale does so in any case. The kubeconfig is "
            "analyzer.kubeconfig.",
        ),
    ] = False
    kinds: Annotated[
        tuple[str, ...],
        Meta(
            description="Kinds of objects that reclaim.action scale may change, separated by commas; Pod: pods without "
            "an owner are evicted. Workloads of other kinds are held back by the brake no_action.",
            extra={"form": "list", "unset": "none"},
        ),
    ] = STOPPED_KINDS


class ActivityConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Signs of use beyond the GPU. They can only keep a workload from losing its GPUs."""

    recent: Annotated[
        Seconds,
        Meta(
            ge=60,
            le=30 * 86400,
            description="A notebook whose last activity is not older than this is in use, and so is a workload that "
            "was restored within this time.",
            extra={"form": "duration"},
        ),
    ] = 3600.0
    queries: Annotated[
        tuple[ActivityQuery, ...],
        Meta(
            description="PromQL expressions with a name. A pod is in use if its value is above 0. `by` is pod (labels "
            "namespace and pod) or queue (label queue; the annotation vgpuscope.io/queue names the queues of a pod). "
            "Read only if Prometheus is the source. In a variable it is JSON.",
            extra={"form": "json", "unset": "none"},
        ),
    ] = INFERENCE_SERVERS
