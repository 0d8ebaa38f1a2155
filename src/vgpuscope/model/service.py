"""Our services as they name themselves to each other, so that a client notices that it asks the wrong one."""

from typing import Final, Literal

from vgpuscope.model.wording import sentences

ServiceName = Literal["agent", "cluster exporter", "analyzer"]

HEADER: Final = "x-vgpuscope-service"  # on every answer but a page of metrics
ASK: Final[dict[str, str]] = {  # the command that asks each
    "agent": "vgpuscope top",
    "cluster exporter": "vgpuscope nodes",
    "analyzer": "vgpuscope results",
}


def with_article(name: str) -> str:
    """An agent, a cluster exporter."""
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


def how_to_ask(there: str, url: str, *, instead: str = "") -> str:
    """The hint where another service than the one that is wanted answers."""
    command = ASK.get(there)
    return sentences(instead, f"`{command} {url}` asks the {there}." if command else "")
