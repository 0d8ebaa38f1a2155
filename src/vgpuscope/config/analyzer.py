"""Settings of the analyzer. Sections and keys are those of gpu-oour's config.yaml, and its variables are understood."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from vgpuscope.config.shared import Hosts, WebConfigFile
from vgpuscope.model.caller import Role
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import ANALYZER_PORT, CLUSTER_PORT, everywhere

_MIB = "in MiB"
DEFAULT_PROMETHEUS = "http://prometheus:9090"
LogResults: TypeAlias = Literal["changes", "table", "off"]


class PrometheusConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where window statistics come from, and which series are used."""

    url: Annotated[
        str | None,
        Meta(
            description="URL of Prometheus, Thanos, Mimir or VictoriaMetrics, with the path before /api/v1, if any.",
            extra={
                "form": "url",
                "flag": "--prometheus-url",
                "placeholder": "URL",
                "aliases": ("PROM_URL",),
                "unset": f"{DEFAULT_PROMETHEUS}; none with analyzer.targets or analyzer.discover_services: the "
                "analyzer scrapes them itself",
            },
        ),
    ] = None
    query_condition: Annotated[
        str,
        Meta(
            description="Label matchers added to every query. Without Prometheus, they filter the scraped series.",
            extra={"form": "condition", "aliases": ("QUERY_CONDITION",)},
        ),
    ] = '{pod!=""}'
    time_window_min: Annotated[
        float,
        Meta(
            ge=0.1,
            le=10080,
            description="Length of the analysed window, in minutes.",
            extra={"flag": "--window-minutes", "placeholder": "MINUTES", "aliases": ("TIME_WINDOW_MIN",)},
        ),
    ] = 10
    step: Annotated[
        Seconds,
        Meta(
            ge=0.1,
            le=3600,
            description="Expected time between two samples of a series. The measured time takes precedence. In fleets "
            "of tens of thousands of GPUs a longer time is not detected: set it here.",
            extra={"form": "duration"},
        ),
    ] = 30.0
    username: Annotated[str | None, Meta(description="User for basic authentication.", extra={"unset": "none"})] = None
    password: Annotated[
        str | None,
        Meta(description="Password for basic authentication.", extra={"secret": True, "unset": "none"}),
    ] = None
    bearer_token: Annotated[
        str | None,
        Meta(description="Bearer token for Prometheus.", extra={"secret": True, "unset": "none"}),
    ] = None
    bearer_token_file: Annotated[
        str | None,
        Meta(
            description="File with the bearer token; read before every analysis.",
            extra={"unset": "none"},
        ),
    ] = None
    headers: Annotated[
        tuple[str, ...],
        Meta(
            description="Additional HTTP headers, each as Name: value; for example X-Scope-OrgID for Mimir.",
            extra={"form": "headers", "secret": True, "unset": "none"},
        ),
    ] = ()
    ca_file: Annotated[
        str | None,
        Meta(
            description="CA certificate that signed the certificate of Prometheus (PEM file).",
            extra={"unset": "the CAs of the system"},
        ),
    ] = None
    insecure: Annotated[bool, Meta(description="Skip verification of the TLS certificate.")] = False
    deadline: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=3600,
            description="Deadline for all queries of one analysis. Unanswered queries leave their values unknown.",
            extra={"form": "duration"},
        ),
    ] = 60.0


class ScoringConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weights of the terms of the score. They are normalised: only their proportions matter."""

    gpu_util_weight: Annotated[float, Meta(ge=0, le=1e6, description="Weight of GPU utilisation.")] = 0.5
    mem_copy_weight: Annotated[float, Meta(ge=0, le=1e6, description="Weight of memory traffic.")] = 0.2
    mem_used_weight: Annotated[float, Meta(ge=0, le=1e6, description="Weight of memory in use.")] = 0.2
    power_weight: Annotated[
        float,
        Meta(ge=0, le=1e6, description="Weight of power draw as a share of the power limit."),
    ] = 0.1


class ThresholdsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits between the statuses, in points of the score."""

    low_utilization: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="Below this score the status of a GPU is low, and /results/low lists it.",
            extra={"flag": "--threshold", "placeholder": "SCORE", "aliases": ("THRESHOLD",)},
        ),
    ] = 20
    idle: Annotated[float, Meta(ge=0, le=100, description="Below this score the status is idle.")] = 10
    high: Annotated[float, Meta(ge=0, le=100, description="From this score on the status is high.")] = 70


class SchedulerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often to analyse, and how many queries run at once."""

    interval: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=3600,
            description="Time from the start of one analysis to the start of the next.",
            extra={"form": "duration", "flag": "--interval", "placeholder": "SECONDS", "aliases": ("INTERVAL",)},
        ),
    ] = 300.0
    max_workers: Annotated[
        int,
        Meta(
            ge=1,
            le=256,
            description="Queries that run at the same time.",
            extra={"aliases": ("MAX_WORKERS",)},
        ),
    ] = 8


class GpuDefaultsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values assumed for a GPU that does not report them."""

    memory_mb: Annotated[
        Annotated[float, Meta(ge=1, le=1e9)] | None,
        Meta(
            description=f"Memory of a GPU that does not report it, {_MIB}.",
            extra={"unset": "none: the memory term is excluded from the score"},
        ),
    ] = None
    power_w: Annotated[
        float,
        Meta(
            ge=1,
            le=1e5,
            description="Power limit of a GPU that does not report it and whose model is unknown, in watts.",
        ),
    ] = 250


class VerdictConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the verdict of a GPU is idle, and what its class is."""

    min_coverage: Annotated[
        float,
        Meta(
            ge=0.1,
            le=1,
            description="Minimum share of the expected samples, 0-1; with fewer samples the verdict is unknown.",
        ),
    ] = 0.8
    max_age_intervals: Annotated[
        float,
        Meta(
            ge=1,
            le=1000,
            description="Maximum age of the last sample, in sample intervals; after that the verdict is unknown.",
        ),
    ] = 3
    idle_enter: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="The verdict becomes idle if every utilisation sample of the window is below this, 0-1.",
        ),
    ] = 0.05
    idle_leave: Annotated[
        float,
        Meta(ge=0, le=1, description="One sample at or above this ends the verdict idle, 0-1."),
    ] = 0.10
    held_memory: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="An idle GPU with at least this share of its memory in use has the class idle-held, 0-1.",
        ),
    ] = 0.05
    held_memory_mb: Annotated[
        float,
        Meta(
            ge=0,
            le=1e9,
            description=f"Minimum memory in use of the class idle-held, {_MIB}. A CUDA context uses some hundred.",
        ),
    ] = 512
    unproductive_util: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Minimum mean utilisation of the class busy-unproductive, 0-1.",
        ),
    ] = 0.5
    unproductive_sm: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Maximum share of active SMs of the class busy-unproductive, 0-1; needs profiling metrics.",
        ),
    ] = 0.10
    power_contradiction: Annotated[
        float,
        Meta(
            ge=0.01,
            le=1,
            description="Without compute activity, a power draw above this share of the limit means unknown, 0-1.",
        ),
    ] = 0.5
    stalled_util: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Minimum mean utilisation of the class stalled, 0-1.",
        ),
    ] = 0.95
    stalled_power: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Maximum power draw of the class stalled, as a share of the limit, 0-1.",
        ),
    ] = 0.25
    preparing_cpu: Annotated[
        float,
        Meta(
            ge=0.01,
            le=100_000,
            description="Minimum CPU use of the class idle-preparing, in cores: the GPU is idle, its tenant's CPUs are "
            "not. The highest value in the window counts. Without CPU metrics of the agent no tenant has this class.",
        ),
    ] = 0.25


class LoggingConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The logging section of gpu-oour; `log.v` and `log.format` are the settings of vgpuscope."""

    level: Annotated[
        Literal["DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL"] | None,
        Meta(
            description="Lowest level that all services log. DEBUG means log.v 6, INFO uses log.v, all others take "
            "precedence over log.v.",
            extra={"form": "upper", "aliases": ("LOG_LEVEL",), "unset": "log.v"},
        ),
    ] = None
    format: Annotated[
        str | None,
        Meta(description="Accepted and ignored; log.format is used.", extra={"unset": "none"}),
    ] = None


class AnalyzerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The analyzer as a service."""

    listen: Annotated[
        str,
        Meta(
            description=f"Address that serves the API and /metrics; IPv6 in brackets, as in [::]:{ANALYZER_PORT}.",
            extra={"flag": "--listen", "form": "address", "placeholder": "HOST:PORT"},
        ),
    ] = everywhere(ANALYZER_PORT)
    targets: Annotated[
        tuple[str, ...],
        Meta(
            description="Without Prometheus: URLs of the agents and cluster exporters to scrape, separated by commas.",
            extra={
                "flag": "--targets",
                "form": "list",
                "placeholder": "LIST",
                "unset": "discovered through Kubernetes",
            },
        ),
    ] = ()
    discover_services: Annotated[
        tuple[str, ...],
        Meta(
            description="Without Prometheus and targets: Kubernetes Services whose endpoints are scraped, each as "
            "NAMESPACE/NAME:PORT.",
            extra={"form": "list", "unset": "none"},
        ),
    ] = ()
    log_results: Annotated[
        LogResults,
        Meta(
            description="How the results of an analysis are logged. changes: a line for each GPU or tenant whose "
            "verdict changed, and the counts once an hour. table: the table of all GPUs after each analysis, as in "
            "gpu-oour. off: neither.",
            extra={"flag": "--log-results"},
        ),
    ] = "changes"
    scrape_interval: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=600,
            description="Without Prometheus: time between two scrapes.",
            extra={"form": "duration"},
        ),
    ] = 15.0
    scrape_token: Annotated[
        str | None,
        Meta(
            description="Bearer token for the cluster exporter and the extender, and without Prometheus for agents.",
            extra={"secret": True, "unset": "none"},
        ),
    ] = None
    kubeconfig: Annotated[
        str | None,
        Meta(
            description="Kubeconfig for discovery and for the owners of pods.",
            extra={"flag": "--kubeconfig", "placeholder": "FILE", "unset": "the service account of the pod"},
        ),
    ] = None
    cluster_url: Annotated[
        str | None,
        Meta(
            description="URL of the cluster exporter, which knows the owners of pods.",
            extra={"form": "url", "unset": f"the target with port {CLUSTER_PORT}"},
        ),
    ] = None
    extender_url: Annotated[
        str | None,
        Meta(
            description="URL of the scheduler extender, whose decisions the console shows.",
            extra={"form": "url", "unset": "none"},
        ),
    ] = None
    api_token: Annotated[
        Annotated[str, Meta(min_length=16)] | None,
        Meta(
            description="Bearer token for endpoints that change something. Without it, only users and tokens of the "
            "web configuration, or programs on a loopback address, can change something.",
            extra={"secret": True, "aliases": ("VGPUSCOPE_API_TOKEN",), "unset": "none"},
        ),
    ] = None
    api_token_role: Annotated[
        Role,
        Meta(description="Role of the API token: read, operate (start analyses) or admin."),
    ] = "admin"  # noqa: S105 - a role, not a password
    api_token_namespaces: Annotated[
        tuple[str, ...],
        Meta(
            description="Namespaces whose pods the holder of the API token can see, separated by commas.",
            extra={"form": "list", "unset": "all namespaces"},
        ),
    ] = ()
    protect_reads: Annotated[
        bool,
        Meta(
            description="Require the API token, or a user or token of the web configuration, for reading too; health "
            "checks never need it.",
        ),
    ] = False
    proxy_user_header: Annotated[
        str | None,
        Meta(
            description="Header in which an authenticating proxy sends the user name, for example X-Forwarded-User. "
            "Use it only if all requests come through that proxy.",
            extra={"unset": "none: such headers are ignored"},
        ),
    ] = None
    proxy_role_header: Annotated[
        str | None,
        Meta(
            description="Header in which the proxy sends the user's role: read, operate or admin. Any other value is "
            "read.",
            extra={"unset": "none: every user of the proxy has the role admin"},
        ),
    ] = None
    session_lifetime: Annotated[
        Seconds,
        Meta(
            ge=60,
            le=30 * 86400,
            description="How long a browser stays logged in.",
            extra={"form": "duration"},
        ),
    ] = 43200.0
    session_key: Annotated[
        Annotated[str, Meta(min_length=32)] | None,
        Meta(
            description="Secret that signs the session cookies of browsers; the same for all replicas.",
            extra={
                "secret": True,
                "unset": "made from the API token; without one, a random key for each process",
            },
        ),
    ] = None
    rate_limit: Annotated[
        float,
        Meta(
            gt=0,
            le=1e6,
            description="Average number of API requests per second allowed for one client.",
        ),
    ] = 50
    config_updates: Annotated[
        Literal["memory", "file", "refuse"],
        Meta(
            description="Where /config/update keeps a change: in memory until the next start, or in the settings file. "
            "refuse rejects all changes.",
        ),
    ] = "memory"
    history: Annotated[
        str,
        Meta(
            description="Store for results: a file (SQLite), a postgresql:// URL, or none.",
            extra={"flag": "--history", "placeholder": "FILE|URL|none"},
        ),
    ] = "none"
    keep_results: Annotated[
        Seconds,
        Meta(
            ge=60,
            description="Retention of the results of single analyses.",
            extra={"form": "duration"},
        ),
    ] = 86400.0
    keep_hours: Annotated[
        Seconds,
        Meta(ge=3600, description="Retention of hourly roll-ups.", extra={"form": "duration"}),
    ] = 30 * 86400.0
    keep_days: Annotated[
        Seconds,
        Meta(ge=86400, description="Retention of daily roll-ups.", extra={"form": "duration"}),
    ] = 400 * 86400.0
    forget_after: Annotated[
        Seconds,
        Meta(
            ge=0,
            le=30 * 86400,
            description="A GPU without new samples is listed as unknown for this long. It is removed earlier if its "
            "node was deleted, or if its scrape target answers without it.",
            extra={"form": "duration"},
        ),
    ] = 86400.0
    web_config_file: WebConfigFile = None
    hosts: Hosts = ()

    @property
    def keeps_results(self) -> bool:
        """Whether results are stored."""
        return self.history not in {"", "none"}
