"""Settings of the cluster exporter."""

from typing import Annotated

from msgspec import Meta, Struct

from vgpuscope.catalog.limits import CLUSTER_SERIES
from vgpuscope.catalog.metric import DEFAULT_FAMILIES
from vgpuscope.config.shared import Families, WebConfigFile
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import CLUSTER_PORT, everywhere


class ClusterConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the cluster exporter."""

    listen: Annotated[
        str,
        Meta(
            description="Address that serves /metrics and the health checks; IPv6 in brackets, "
            f"as in [::]:{CLUSTER_PORT}.",
            extra={"form": "address", "placeholder": "HOST:PORT"},
        ),
    ] = everywhere(CLUSTER_PORT)
    kubeconfig: Annotated[
        str | None,
        Meta(
            description="Kubeconfig of the cluster.",
            extra={"placeholder": "FILE", "unset": "the service account of the pod"},
        ),
    ] = None
    families: Families = DEFAULT_FAMILIES
    namespaces: Annotated[
        tuple[str, ...],
        Meta(
            description="Namespaces whose pods and quotas are watched, separated by commas.",
            extra={"form": "list", "placeholder": "LIST", "unset": "all"},
        ),
    ] = ()
    web_config_file: WebConfigFile = None
    max_series: Annotated[
        int,
        Meta(
            ge=1000,
            description="Largest number of series of the page. A further node gets no series; the log names it.",
            extra={"flag": None},
        ),
    ] = CLUSTER_SERIES.most
    resync_interval: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=86400,
            description="Time between two full lists of the objects. Watches deliver the changes.",
            extra={"form": "duration", "flag": None},
        ),
    ] = 1800.0
