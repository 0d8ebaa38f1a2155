"""Settings of the node agent."""

from typing import Annotated

from msgspec import Meta, Struct

from vgpuscope.catalog.metric import DEFAULT_FAMILIES
from vgpuscope.config.shared import Families, WebConfigFile
from vgpuscope.model.errors import RatioInvalid
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import AGENT_PORT, everywhere


class AgentConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the node agent."""

    listen: Annotated[
        str,
        Meta(
            description="Address that serves /metrics and the health checks; IPv6 in brackets, "
            f"as in [::]:{AGENT_PORT}.",
            extra={"form": "address", "placeholder": "HOST:PORT"},
        ),
    ] = everywhere(AGENT_PORT)
    node_name: Annotated[
        str,
        Meta(
            description="Name of this node, as Kubernetes knows it.",
            extra={"placeholder": "NAME", "aliases": ("NODE_NAME", "CURRENT_NODE_NAME"), "unset": "the host's name"},
        ),
    ] = ""
    hook_path: Annotated[
        str,
        Meta(
            min_length=1,
            description="HAMi's directory on the host; container regions are read below its containers/.",
            extra={"placeholder": "DIR", "aliases": ("HOOK_PATH",)},
        ),
    ] = "/usr/local/vgpu"
    proc_root: Annotated[
        str,
        Meta(
            min_length=1,
            description="Where the host's /proc is mounted.",
            extra={"placeholder": "DIR"},
        ),
    ] = "/proc"
    pods: Annotated[
        str,
        Meta(
            description="Who knows the pods of this node: kube (API server), kubelet, file:PATH (a PodList in JSON) or "
            "none. auto is kube in a cluster or with a kubeconfig, else none.",
            extra={"form": "pods", "placeholder": "kube|kubelet|file:PATH|none"},
        ),
    ] = "auto"
    kubeconfig: Annotated[
        str | None,
        Meta(
            description="Kubeconfig for --pods kube; in a cluster the service account is used without one.",
            extra={"placeholder": "FILE", "unset": "service account"},
        ),
    ] = None
    kubelet_url: Annotated[
        str | None,
        Meta(
            description="Address of the kubelet for --pods kubelet.",
            extra={"form": "url", "flag": None, "unset": "https://<node name>:10250"},
        ),
    ] = None
    kubelet_ca: Annotated[
        str | None,
        Meta(
            description="Certificate authority that signed the kubelet's certificate (PEM).",
            extra={"flag": None, "unset": "the cluster's"},
        ),
    ] = None
    kubelet_insecure: Annotated[
        bool,
        Meta(description="Take the kubelet's certificate unseen.", extra={"flag": None}),
    ] = False
    podresources_socket: Annotated[
        str,
        Meta(
            min_length=1,
            description="The kubelet's PodResources socket (who was given which device), or none.",
            extra={"placeholder": "PATH|none"},
        ),
    ] = "/var/lib/kubelet/pod-resources/kubelet.sock"
    sample_interval: Annotated[
        Seconds,
        Meta(
            ge=0.05,
            le=3600,
            description="Time between two samples of the node.",
            extra={"form": "duration", "placeholder": "SECONDS"},
        ),
    ] = 1.0
    families: Families = DEFAULT_FAMILIES
    ratio: Annotated[
        float | None,
        Meta(
            description="Virtualisation ratio: how many parts a card without HAMi limits is cut into. Above 0.",
            extra={"form": "ratio", "placeholder": "N", "error": RatioInvalid, "unset": "from the ratio file, else 1"},
        ),
    ] = None
    ratio_file: Annotated[
        str | None,
        Meta(
            description="File that holds the virtualisation ratio; read again when it changes. Not with a ratio.",
            extra={"placeholder": "FILE", "unset": "./gpu_allocation.txt where there is one"},
        ),
    ] = None
    web_config_file: WebConfigFile = None
    window: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=3600,
            description="Time over which mean and maximum of fast-changing values are kept; at least one scrape apart.",
            extra={"form": "duration", "flag": None},
        ),
    ] = 60.0
    driver_deadline: Annotated[
        Seconds,
        Meta(
            ge=0.1,
            le=600,
            description="After this long a call into the driver counts as hung.",
            extra={"form": "duration", "flag": None},
        ),
    ] = 5.0
    resync_interval: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=86400,
            description="With --pods kube: the pods are listed anew after this long; in between a watch tells changes.",
            extra={"form": "duration", "flag": None, "aliases": ("HAMI_RESYNC_INTERVAL",)},
        ),
    ] = 300.0
