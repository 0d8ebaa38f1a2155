"""Our services: their names, by which a client detects that it asks the wrong one, and their default addresses.

No other file of the package contains a default port of ours, of the kubelet or of dcgm-exporter. Only the simulator
has its own.
"""

from typing import Final, Literal

from vgpuscope.model.wording import sentences

ServiceName = Literal["agent", "cluster exporter", "analyzer", "extender", "device plugin"]

AGENT_PORT: Final = 9394
CLUSTER_PORT: Final = 31993
ANALYZER_PORT: Final = 8080
EXTENDER_PORT: Final = 8080
PLUGIN_PORT: Final = 9396

KUBELET_PORT: Final = 10250
DCGM_EXPORTER_PORT: Final = 9400

LEADER_LABEL: Final = "vgpuscope.io/role"  # on the pod of the extender that leads; the chart's Service selects it
EXTENDER_LEASE: Final = "vgpuscope-extender"  # by it, the cluster exporter knows that an extender runs

HEADER: Final = "x-vgpuscope-service"  # on every answer except a page of metrics
CREDENTIALS_HEADER: Final = "x-vgpuscope-credentials"  # on answers to requests with credentials that nobody checked
UNCHECKED: Final = "unchecked"
ASK: Final[dict[str, str]] = {  # the command that queries each service
    "agent": "vgpuscope top",
    "cluster exporter": "vgpuscope nodes",
    "analyzer": "vgpuscope results",
    "extender": "vgpuscope why NAMESPACE/POD",
}


def local(port: int) -> str:
    """HOST:PORT of a service that only this machine can reach."""
    return f"127.0.0.1:{port}"


def everywhere(port: int) -> str:
    """HOST:PORT that listens on every IPv4 interface."""
    return f"0.0.0.0:{port}"


def default_url(port: int) -> str:
    """The address where a client looks for a service, unless it is given another one."""
    return f"http://{local(port)}"


def with_article(name: str) -> str:
    """The name with its article: an agent, a cluster exporter."""
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


def how_to_ask(there: str, url: str, *, instead: str = "") -> str:
    """The hint when another service than the expected one answers."""
    command = ASK.get(there)
    return sentences(instead, f"`{command} {url}` reads from the {there}." if command else "")
