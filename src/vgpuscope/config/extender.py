"""Settings of the scheduler extender."""

from typing import Annotated

from msgspec import Meta, Struct

from vgpuscope.catalog.metric import DEFAULT_FAMILIES
from vgpuscope.config.shared import (
    RESYNC_INTERVAL,
    Families,
    Hosts,
    Kubeconfig,
    ResyncInterval,
    SealKeys,
    WebConfigFile,
)
from vgpuscope.model.placement import NodePolicy
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import EXTENDER_LEASE, EXTENDER_PORT, everywhere


class ExtenderConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the scheduler extender."""

    listen: Annotated[
        str,
        Meta(
            description="Address that kube-scheduler and the API server call; it serves /metrics and the health "
            f"checks, too. IPv6 in brackets, as in [::]:{EXTENDER_PORT}.",
            extra={"flag": "--listen", "form": "address", "placeholder": "HOST:PORT"},
        ),
    ] = everywhere(EXTENDER_PORT)
    kubeconfig: Kubeconfig = None
    leader_elect: Annotated[
        bool,
        Meta(
            description="Decide only while this replica holds the lease. Without it, only one replica may run.",
            extra={"flag": "--leader-elect", "placeholder": "BOOL"},
        ),
    ] = True
    lease_namespace: Annotated[
        str,
        Meta(
            max_length=63,
            description=f"Namespace of the lease {EXTENDER_LEASE}.",
            extra={
                "flag": "--lease-namespace",
                "placeholder": "NAME",
                "aliases": ("POD_NAMESPACE",),
                "unset": "the namespace of the service account, or kube-system",
            },
        ),
    ] = ""
    scheduler_lease: Annotated[
        str,
        Meta(
            max_length=253,
            description="Lease of the kube-schedulers beside the replicas, in the namespace of the extender's lease. "
            "Each of them asks only the extender in its own pod, so the replica beside the one that schedules leads.",
            extra={"unset": "a replica that is asked though it does not lead takes the lease"},
        ),
    ] = ""
    lease_duration: Annotated[
        Seconds,
        Meta(
            ge=3,
            le=300,
            description="Time after which another replica may take a lease that was not renewed. The leader renews "
            "it in a seventh of the time, and stops deciding after two thirds.",
            extra={"form": "duration"},
        ),
    ] = 15.0
    identity: Annotated[
        str,
        Meta(
            max_length=200,
            description="Name of this replica in the lease and in events.",
            extra={"aliases": ("POD_NAME",), "unset": "host name"},
        ),
    ] = ""
    scheduler_name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=63,
            description="schedulerName of the pods that this extender serves. The webhook writes it, and events "
            "come from it.",
            extra={"flag": "--scheduler-name", "placeholder": "NAME"},
        ),
    ] = "hami-scheduler"
    node_scheduler_policy: Annotated[
        NodePolicy,
        Meta(
            description="Which node is preferred, unless the pod's annotation hami.io/node-scheduler-policy sets it.",
            extra={"flag": "--node-scheduler-policy"},
        ),
    ] = "binpack"
    gpu_scheduler_policy: Annotated[
        str,
        Meta(
            description="Which GPUs of a node are preferred, unless the pod's annotation hami.io/gpu-scheduler-policy "
            "sets it: binpack, spread, topology-aware, mutex or numa, or several, separated by commas.",
            extra={"flag": "--gpu-scheduler-policy", "form": "gpu_policy", "placeholder": "POLICY"},
        ),
    ] = "spread"
    allow_from: Annotated[
        tuple[str, ...],
        Meta(
            description="Networks that may call /filter, /prioritize and /bind, in CIDR notation, separated by commas. "
            "Programs on the same machine are always allowed. With users or tokens in the web configuration, the role "
            "operate is needed instead.",
            extra={"flag": "--allow-from", "form": "networks", "placeholder": "LIST", "unset": "none"},
        ),
    ] = ()
    seal_keys: SealKeys = "none"
    writers: Annotated[
        tuple[str, ...],
        Meta(
            description="Users who may write the annotations that say who has a GPU, separated by commas, such as "
            "system:serviceaccount:NAMESPACE:NAME. The webhook denies all others, if the API server asks it about "
            "updates, too; it does so where it has no admission policies.",
            extra={"form": "list", "placeholder": "LIST", "unset": "the webhook does not look at them"},
        ),
    ] = ()
    state: Annotated[
        str,
        Meta(
            description="Where decisions are kept for 24 hours: a file, a postgresql:// URL, or none for memory only.",
            extra={"flag": "--state", "placeholder": "FILE|URL|none"},
        ),
    ] = "none"
    node_lock_timeout: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=86400,
            description="Age after which a lock on a node (hami.io/mutex.lock) is void.",
            extra={"form": "duration", "aliases": ("HAMI_NODELOCK_EXPIRE",)},
        ),
    ] = 300.0
    bind_timeout: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=300,
            description="Time for one binding. Keep it below the httpTimeout of the extender in kube-scheduler's "
            "configuration.",
            extra={"form": "duration"},
        ),
    ] = 25.0
    overwrite_default_scheduler: Annotated[
        bool,
        Meta(
            description="The webhook also takes pods with GPUs whose schedulerName is default-scheduler.",
        ),
    ] = True
    analyzer_url: Annotated[
        str | None,
        Meta(
            description="URL of a vgpuscope analyzer. Its idle workloads are advice for pods that do not fit.",
            extra={"form": "url", "placeholder": "URL", "unset": "none"},
        ),
    ] = None
    analyzer_token: Annotated[
        str | None,
        Meta(description="Bearer token for the analyzer.", extra={"secret": True, "unset": "none"}),
    ] = None
    families: Families = DEFAULT_FAMILIES
    web_config_file: WebConfigFile = None
    hosts: Hosts = ()
    resync_interval: ResyncInterval = RESYNC_INTERVAL
