"""Settings that several processes have: the page of metrics, the web configuration, the log."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from vgpuscope.catalog.metric import FAMILIES

Families = Annotated[
    tuple[str, ...],
    Meta(
        description=f"Families of metrics to publish, with commas, or all. Known: {', '.join(FAMILIES)}.",
        extra={"form": "families", "placeholder": "LIST"},
    ),
]
WebConfigFile = Annotated[
    str | None,
    Meta(
        description="TLS, basic auth and bearer tokens, in the shape of Prometheus' exporter-toolkit; "
        "read again when it changes.",
        extra={"flag": "--web.config.file", "placeholder": "FILE", "unset": "plain HTTP, open to all"},
    ),
]


class LogConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much is logged, and in which shape."""

    v: Annotated[
        int,
        Meta(
            ge=0,
            le=10,
            description="How much to log: 4 a summary of each node, 5 detail of each device and how it was scored, "
            "6 queries and their times. Warnings and errors are always logged.",
            extra={"flag": "--v", "short": "-v", "placeholder": "LEVEL"},
        ),
    ] = 4
    format: Annotated[
        Literal["text", "json"],
        Meta(description="Log lines as text like klog's, or one JSON object each.", extra={"flag": "--log-format"}),
    ] = "text"
