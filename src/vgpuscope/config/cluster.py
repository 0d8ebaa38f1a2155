"""Settings of the cluster exporter."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from vgpuscope.catalog.limits import CLUSTER_SERIES
from vgpuscope.catalog.metric import DEFAULT_FAMILIES
from vgpuscope.config.shared import (
    RESYNC_INTERVAL,
    Families,
    Hosts,
    Kubeconfig,
    ResyncInterval,
    SealKeys,
    WebConfigFile,
    metrics_address,
)
from vgpuscope.model.service import CLUSTER_PORT, EXTENDER_LEASE, everywhere


class ClusterConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the cluster exporter."""

    listen: Annotated[str, metrics_address(CLUSTER_PORT)] = everywhere(CLUSTER_PORT)
    kubeconfig: Kubeconfig = None
    families: Families = DEFAULT_FAMILIES
    namespaces: Annotated[
        tuple[str, ...],
        Meta(
            description="Namespaces whose pods and quotas are watched, separated by commas.",
            extra={"flag": "--namespaces", "form": "list", "placeholder": "LIST", "unset": "all"},
        ),
    ] = ()
    scheduler_metrics: Annotated[
        Literal["auto", "on", "off"],
        Meta(
            description="Whether to publish hami_scheduler_*, which are estimates. auto: only if no vgpuscope extender "
            f"runs in the cluster, that is, the lease {EXTENDER_LEASE} was not renewed in the last minute.",
            extra={"flag": "--scheduler-metrics"},
        ),
    ] = "auto"
    lease_namespace: Annotated[
        str,
        Meta(
            max_length=63,
            description=f"Namespace of the extender's lease {EXTENDER_LEASE}; a lease in another one is ignored.",
            extra={
                "flag": "--lease-namespace",
                "placeholder": "NAME",
                "unset": "the namespace of the service account, or kube-system",
            },
        ),
    ] = ""
    seal_keys: SealKeys = "none"
    web_config_file: WebConfigFile = None
    hosts: Hosts = ()
    max_series: Annotated[
        int,
        Meta(
            ge=1000,
            description="Largest number of series of the page. A further node gets no series; the log names it.",
        ),
    ] = CLUSTER_SERIES.most
    resync_interval: ResyncInterval = RESYNC_INTERVAL
