"""Settings of the device plugin."""

from typing import Annotated

from msgspec import Meta, Struct

from vgpuscope.config.shared import Hosts, Kubeconfig, SealKeys, WebConfigFile, metrics_address
from vgpuscope.model.plugin import RESOURCE
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import PLUGIN_PORT, everywhere


class PluginConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the device plugin."""

    listen: Annotated[str, metrics_address(PLUGIN_PORT)] = everywhere(PLUGIN_PORT)
    node_name: Annotated[
        str,
        Meta(
            description="Name of this node in Kubernetes.",
            extra={"flag": "--node-name", "placeholder": "NAME", "aliases": ("NODE_NAME",), "unset": "the host name"},
        ),
    ] = ""
    kubelet_dir: Annotated[
        str,
        Meta(
            min_length=1,
            description="The kubelet's directory of device plugins, in which its kubelet.sock is.",
            extra={"flag": "--kubelet-dir", "placeholder": "DIR"},
        ),
    ] = "/var/lib/kubelet/device-plugins"
    hook_path: Annotated[
        str,
        Meta(
            pattern="^/",
            description="HAMi's directory on the host, mounted here at the same path; regions of containers are in its "
            "subdirectory containers.",
            extra={"flag": "--hook-path", "placeholder": "DIR"},
        ),
    ] = "/usr/local/vgpu"
    library: Annotated[
        str | None,
        Meta(
            description="HAMi's libvgpu.so on the host, which enforces limits. If the file does not exist, containers "
            "share GPUs by time only and get no limits.",
            extra={"unset": "libvgpu.so in the hook path"},
        ),
    ] = None
    split_count: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description=f"Number of containers that can share a GPU: units of {RESOURCE} that one GPU counts as. With "
            "1, pods that no HAMi scheduler placed get whole GPUs.",
            extra={"flag": "--split-count", "placeholder": "N"},
        ),
    ] = 10
    memory_scaling: Annotated[
        float,
        Meta(
            gt=0,
            le=100,
            description="Memory that is registered, as a multiple of the GPU's own. Above 1, HAMi's library moves "
            "memory to the host when the GPU is full.",
        ),
    ] = 1.0
    core_scaling: Annotated[
        float,
        Meta(
            gt=0,
            le=100,
            description="Compute that is registered, as a multiple of the GPU's own.",
        ),
    ] = 1.0
    core_limits: Annotated[
        bool,
        Meta(description="Let HAMi's library enforce the limit of SM use."),
    ] = True
    memory_if_unknown: Annotated[
        Annotated[int, Meta(ge=1, le=2**31 - 1)] | None,
        Meta(
            description="MiB of memory to register for a GPU whose driver does not report it.",
            extra={"unset": "such a GPU is not registered"},
        ),
    ] = None
    library_log_level: Annotated[
        Annotated[int, Meta(ge=0, le=4)] | None,
        Meta(
            description="Log level of HAMi's library in containers.",
            extra={"unset": "the library's own default"},
        ),
    ] = None
    handshake: Annotated[
        bool,
        Meta(
            description="Write the handshake annotation every 30 s, for HAMi schedulers of v2.8 and v2.9. Older ones "
            "cannot read the registration, with or without it.",
        ),
    ] = False
    read_interval: Annotated[
        Seconds,
        Meta(
            ge=0.1,
            le=5,
            description="Time between two reads of the driver. A change of health reaches the kubelet within 15 s with "
            "any of the allowed values.",
            extra={"form": "duration"},
        ),
    ] = 3.0
    clear_faults_after: Annotated[
        Seconds,
        Meta(
            ge=0,
            le=30 * 86400,
            description="Age at which an XID no longer makes a GPU unhealthy, once the driver reports the GPU. 0: only "
            "an operator clears it, by removing it from the node's annotation vgpuscope.io/gpu-faults.",
            extra={"form": "duration"},
        ),
    ] = 0.0
    forget_gpus_after: Annotated[
        Seconds,
        Meta(
            ge=0,
            le=30 * 86400,
            description="Time after which a lost GPU is no longer registered, if the driver reports the node's other "
            "GPUs without it all the time: then it was taken out. 0: it stays registered as unhealthy.",
            extra={"form": "duration"},
        ),
    ] = 86400.0
    feedback: Annotated[
        bool,
        Meta(
            description="Run HAMi's priority feedback: containers of a low priority wait while one of a higher "
            "priority computes on their GPU. Only one program of a node may do this; HAMi's monitor does.",
        ),
    ] = False
    seal_keys: SealKeys = "none"
    podresources_socket: Annotated[
        str,
        Meta(
            min_length=1,
            description="The kubelet's PodResources socket, which says which pods the kubelet knows, or none. Without "
            "it an allocation may have to be refused that could have been told from another.",
            extra={"flag": "--podresources-socket", "placeholder": "PATH|none"},
        ),
    ] = "/var/lib/kubelet/pod-resources/kubelet.sock"
    kubeconfig: Kubeconfig = None
    web_config_file: WebConfigFile = None
    hosts: Hosts = ()
