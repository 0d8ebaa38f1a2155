"""Settings of the node agent."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from vgpuscope.catalog.metric import DEFAULT_FAMILIES
from vgpuscope.config.shared import Families, Hosts, SealKeys, WebConfigFile, metrics_address
from vgpuscope.model.errors import RatioInvalid
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import AGENT_PORT, KUBELET_PORT, everywhere


class AgentConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the node agent."""

    listen: Annotated[str, metrics_address(AGENT_PORT)] = everywhere(AGENT_PORT)
    node_name: Annotated[
        str,
        Meta(
            description="Name of this node in Kubernetes.",
            extra={
                "flag": "--node-name",
                "placeholder": "NAME",
                "aliases": ("NODE_NAME", "CURRENT_NODE_NAME"),
                "unset": "the host name",
            },
        ),
    ] = ""
    hook_path: Annotated[
        str,
        Meta(
            min_length=1,
            description="HAMi's directory on the host; container regions are read from its subdirectory containers.",
            extra={"flag": "--hook-path", "placeholder": "DIR", "aliases": ("HOOK_PATH",)},
        ),
    ] = "/usr/local/vgpu"
    proc_root: Annotated[
        str,
        Meta(
            min_length=1,
            description="Where the host's /proc is mounted.",
            extra={"flag": "--proc-root", "placeholder": "DIR"},
        ),
    ] = "/proc"
    cgroup_root: Annotated[
        str,
        Meta(
            min_length=1,
            description="Where the host's /sys/fs/cgroup is mounted, for CPU, memory and I/O of containers that hold a "
            "GPU; none: these are not read.",
            extra={"flag": "--cgroup-root", "placeholder": "DIR|none"},
        ),
    ] = "/sys/fs/cgroup"
    command_lines: Annotated[
        Literal["auto", "hide", "show"],
        Meta(
            description="Command lines of processes on GPUs, in the API and in top. hide: only the "
            "kernel's short name is shown. auto hides them unless the agent listens on a loopback address only.",
            extra={"flag": "--command-lines", "placeholder": "auto|hide|show"},
        ),
    ] = "auto"
    pods: Annotated[
        str,
        Meta(
            pattern="^(auto|kube|kubelet|none|file:.+)$",
            description="Source of the pods of this node: kube (API server), kubelet, file:PATH (a PodList in JSON) or "
            "none. auto means kube in a cluster or with a kubeconfig, otherwise none.",
            extra={"flag": "--pods", "form": "pods", "placeholder": "kube|kubelet|file:PATH|none"},
        ),
    ] = "auto"
    kubeconfig: Annotated[
        str | None,
        Meta(
            description="Kubeconfig for --pods kube.",
            extra={"flag": "--kubeconfig", "placeholder": "FILE", "unset": "the service account of the pod"},
        ),
    ] = None
    kubelet_url: Annotated[
        str | None,
        Meta(
            description="URL of the kubelet for --pods kubelet.",
            extra={"form": "url", "unset": f"https://<node name>:{KUBELET_PORT}"},
        ),
    ] = None
    kubelet_ca: Annotated[
        str | None,
        Meta(
            description="CA certificate that signed the kubelet's certificate (PEM file).",
            extra={"unset": "the CA of the cluster"},
        ),
    ] = None
    kubelet_insecure: Annotated[
        bool,
        Meta(description="Skip verification of the kubelet's TLS certificate."),
    ] = False
    podresources_socket: Annotated[
        str,
        Meta(
            min_length=1,
            description="The kubelet's PodResources socket, which lists the devices of each container, or none.",
            extra={"flag": "--podresources-socket", "placeholder": "PATH|none"},
        ),
    ] = "/var/lib/kubelet/pod-resources/kubelet.sock"
    dcgm: Annotated[
        str,
        Meta(
            pattern="^(auto(:[a-z0-9-]{1,63})?|none|https?://.+)$",
            description="dcgm-exporter on this node whose profiling fields are added where the driver has none (Ampere "
            "and older): a URL, auto:NAMESPACE (the only pod of this node and namespace that runs dcgm-exporter), auto "
            "(in any namespace: every pod whose image has this name is believed) or none.",
            extra={"flag": "--dcgm", "form": "dcgm", "placeholder": "URL|auto|none"},
        ),
    ] = "none"
    sample_interval: Annotated[
        Seconds,
        Meta(
            ge=0.05,
            le=3600,
            description="Time between two samples of the node.",
            extra={"flag": "--sample-interval", "form": "duration", "placeholder": "SECONDS"},
        ),
    ] = 1.0
    families: Families = DEFAULT_FAMILIES
    ratio: Annotated[
        float | None,
        Meta(
            description="Virtualisation ratio: number of parts that a GPU without HAMi limits is split into; above 0.",
            extra={
                "flag": "--ratio",
                "form": "ratio",
                "placeholder": "N",
                "error": RatioInvalid,
                "unset": "from the ratio file, otherwise 1",
            },
        ),
    ] = None
    ratio_file: Annotated[
        str | None,
        Meta(
            description="File with the virtualisation ratio; read again when it changes. Excludes --ratio.",
            extra={"flag": "--ratio-file", "placeholder": "FILE", "unset": "./gpu_allocation.txt if it exists"},
        ),
    ] = None
    web_config_file: WebConfigFile = None
    hosts: Hosts = ()
    window: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=3600,
            description="Window for the mean and maximum of fast-changing values; at least one scrape interval.",
            extra={"form": "duration"},
        ),
    ] = 60.0
    driver_deadline: Annotated[
        Seconds,
        Meta(
            ge=0.1,
            le=600,
            description="Deadline of a call to the driver; after that it is reported as hung.",
            extra={"form": "duration"},
        ),
    ] = 5.0
    resync_interval: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=86400,
            description="With --pods kube: time between two full lists of the pods. Watches deliver the changes.",
            extra={"form": "duration", "aliases": ("HAMI_RESYNC_INTERVAL",)},
        ),
    ] = 300.0
    seal_keys: SealKeys = "none"
