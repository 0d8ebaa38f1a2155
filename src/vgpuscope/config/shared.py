"""Settings that several services have: address, Kubernetes API, metric families, web configuration, log."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from vgpuscope.catalog.metric import FAMILIES
from vgpuscope.model.quantity import Seconds

Families = Annotated[
    tuple[str, ...],
    Meta(
        description=f"Metric families to publish, separated by commas; all: every family but dcgm-pods. "
        f"Allowed: {', '.join(FAMILIES)}.",
        extra={"flag": "--families", "form": "families", "placeholder": "LIST"},
    ),
]
WebConfigFile = Annotated[
    str | None,
    Meta(
        description="File with TLS, basic auth and bearer tokens, in the format of Prometheus' exporter-toolkit; "
        "read again when it changes.",
        extra={"flag": "--web.config.file", "placeholder": "FILE", "unset": "plain HTTP without authentication"},
    ),
]
Hosts = Annotated[
    tuple[str, ...],
    Meta(
        description="Host names under which requests without credentials are answered, separated by commas: "
        "vgpuscope.monitoring.svc, *.example.com. localhost and addresses always are. A request under another name is "
        "answered with 421, because a page can point a name of its own at this machine.",
        extra={
            "form": "list",
            "unset": "on a loopback address only localhost and addresses, otherwise every name",
        },
    ),
]
Kubeconfig = Annotated[
    str | None,
    Meta(
        description="Kubeconfig of the cluster.",
        extra={"flag": "--kubeconfig", "placeholder": "FILE", "unset": "the service account of the pod"},
    ),
]
SealKeys = Annotated[
    str,
    Meta(
        min_length=1,
        description="File of the keys that seal assignments, or none: then HAMi's scheduler may be the one that "
        "assigns, and what pods' annotations say is believed. docs/security.md has its format.",
        extra={"placeholder": "FILE|none"},
    ),
]
ResyncInterval = Annotated[
    Seconds,
    Meta(
        ge=1,
        le=86400,
        description="Time between two full lists of the objects. Watches deliver the changes.",
        extra={"form": "duration"},
    ),
]
RESYNC_INTERVAL: Seconds = 1800.0


def metrics_address(port: int) -> Meta:
    """The description of the address of a service that serves little else than its metrics."""
    return Meta(
        description=f"Address that serves /metrics and the health checks; IPv6 in brackets, as in [::]:{port}.",
        extra={"flag": "--listen", "form": "address", "placeholder": "HOST:PORT"},
    )


class LogConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much is logged, and in which format."""

    v: Annotated[
        int,
        Meta(
            ge=0,
            le=10,
            description="Log level: 4 adds a summary of each node, 5 the details and score of each GPU, 6 every query "
            "with its duration. Warnings and errors are always logged.",
            extra={"flag": "--v", "short": "-v", "placeholder": "LEVEL"},
        ),
    ] = 4
    format: Annotated[
        Literal["text", "json"],
        Meta(
            description="Format of log lines: klog-style text, or one JSON object per line.",
            extra={"flag": "--log-format"},
        ),
    ] = "text"
