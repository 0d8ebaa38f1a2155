"""Our services: their names, by which a client notices that it asks the wrong one, and their default addresses.

No other file of the package spells a default port.
"""

from typing import Final, Literal

from vgpuscope.model.wording import sentences

ServiceName = Literal["agent", "cluster exporter", "analyzer"]

AGENT_PORT: Final = 9394
CLUSTER_PORT: Final = 31993
ANALYZER_PORT: Final = 8080

HEADER: Final = "x-vgpuscope-service"  # on every answer but a page of metrics
ASK: Final[dict[str, str]] = {  # the command that asks each
    "agent": "vgpuscope top",
    "cluster exporter": "vgpuscope nodes",
    "analyzer": "vgpuscope results",
}


def local(port: int) -> str:
    """HOST:PORT of a service that only this machine can reach."""
    return f"127.0.0.1:{port}"


def everywhere(port: int) -> str:
    """HOST:PORT that listens on every IPv4 interface."""
    return f"0.0.0.0:{port}"


def default_url(port: int) -> str:
    """Where a client looks for a service unless it is given another address."""
    return f"http://{local(port)}"


def with_article(name: str) -> str:
    """An agent, a cluster exporter."""
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


def how_to_ask(there: str, url: str, *, instead: str = "") -> str:
    """The hint where another service than the one that is wanted answers."""
    command = ASK.get(there)
    return sentences(instead, f"`{command} {url}` reads from the {there}." if command else "")
