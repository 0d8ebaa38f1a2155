"""Settings of the analyzer. Sections and keys are those of gpu-oour's config.yaml, and its variables are understood."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from vgpuscope.config.shared import WebConfigFile
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import ANALYZER_PORT, CLUSTER_PORT, everywhere

_MIB = "in MiB, as nvidia-smi says MB"


class PrometheusConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where window statistics come from, and which series count."""

    url: Annotated[
        str | None,
        Meta(
            description="Prometheus, Thanos, Mimir or VictoriaMetrics, with the path before /api/v1 if there is one.",
            extra={
                "form": "url",
                "flag": "--prometheus-url",
                "placeholder": "URL",
                "aliases": ("PROM_URL",),
                "unset": "none: the analyzer scrapes by itself",
            },
        ),
    ] = None
    query_condition: Annotated[
        str,
        Meta(
            description="Matchers that every query carries; of its own scrapes the analyzer keeps what fulfils them.",
            extra={"form": "condition", "flag": None, "aliases": ("QUERY_CONDITION",)},
        ),
    ] = '{pod!=""}'
    time_window_min: Annotated[
        float,
        Meta(
            gt=0,
            le=10080,
            description="Minutes that are judged.",
            extra={"flag": "--window-minutes", "placeholder": "MINUTES", "aliases": ("TIME_WINDOW_MIN",)},
        ),
    ] = 10
    step: Annotated[
        Seconds,
        Meta(
            ge=0.1,
            le=3600,
            description="Time between two samples of a series, to know how many are to be expected. What the series "
            "show counts instead; in fleets of tens of thousands a longer time is not seen, so say it here.",
            extra={"form": "duration", "flag": None},
        ),
    ] = 30.0
    username: Annotated[
        str | None, Meta(description="User for basic authentication.", extra={"flag": None, "unset": "none"})
    ] = None
    password: Annotated[
        str | None, Meta(description="Its password.", extra={"flag": None, "secret": True, "unset": "none"})
    ] = None
    bearer_token: Annotated[
        str | None, Meta(description="Bearer token.", extra={"flag": None, "secret": True, "unset": "none"})
    ] = None
    bearer_token_file: Annotated[
        str | None,
        Meta(
            description="File that holds the bearer token; read for every analysis.",
            extra={"flag": None, "unset": "none"},
        ),
    ] = None
    headers: Annotated[
        tuple[str, ...],
        Meta(
            description="More headers, each as Name: value; X-Scope-OrgID for Mimir's tenant, for example.",
            extra={"form": "headers", "flag": None, "secret": True, "unset": "none"},
        ),
    ] = ()
    ca_file: Annotated[
        str | None,
        Meta(
            description="Certificate authority that signed its certificate (PEM).",
            extra={"flag": None, "unset": "the system's"},
        ),
    ] = None
    insecure: Annotated[bool, Meta(description="Take its certificate unseen.", extra={"flag": None})] = False
    deadline: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=3600,
            description="All queries of one analysis must be answered within this; what is not is unknown.",
            extra={"form": "duration", "flag": None},
        ),
    ] = 60.0


class ScoringConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weights of the score's terms; they are normalised, so only their proportions count."""

    gpu_util_weight: Annotated[
        float, Meta(ge=0, le=1e6, description="Weight of GPU utilisation.", extra={"flag": None})
    ] = 0.5
    mem_copy_weight: Annotated[
        float, Meta(ge=0, le=1e6, description="Weight of memory traffic.", extra={"flag": None})
    ] = 0.2
    mem_used_weight: Annotated[
        float, Meta(ge=0, le=1e6, description="Weight of memory in use.", extra={"flag": None})
    ] = 0.2
    power_weight: Annotated[
        float, Meta(ge=0, le=1e6, description="Weight of power against the card's limit.", extra={"flag": None})
    ] = 0.1


class ThresholdsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one status ends and the next begins, in points of the score."""

    low_utilization: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="Below this a card is low, and listed by /results/low.",
            extra={"flag": "--threshold", "placeholder": "SCORE", "aliases": ("THRESHOLD",)},
        ),
    ] = 20
    idle: Annotated[float, Meta(ge=0, le=100, description="Below this a card is idle.", extra={"flag": None})] = 10
    high: Annotated[float, Meta(ge=0, le=100, description="From this on a card is high.", extra={"flag": None})] = 70


class SchedulerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often, and how much at once."""

    interval: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=86400,
            description="Time from the start of one analysis to the start of the next.",
            extra={"form": "duration", "flag": "--interval", "placeholder": "SECONDS", "aliases": ("INTERVAL",)},
        ),
    ] = 300.0
    max_workers: Annotated[
        int,
        Meta(
            ge=1,
            le=256,
            description="Queries that run at once.",
            extra={"flag": None, "aliases": ("MAX_WORKERS",)},
        ),
    ] = 8


class GpuDefaultsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is assumed of a card that does not say it."""

    memory_mb: Annotated[
        Annotated[float, Meta(gt=0, le=1e9)] | None,
        Meta(
            description=f"Memory of a card that reports none, {_MIB}.",
            extra={"flag": None, "unset": "nothing is assumed: the term is left out"},
        ),
    ] = None
    power_w: Annotated[
        float,
        Meta(
            gt=0,
            le=1e5,
            description="Power limit of a card that reports none and whose model is not in the table, in watts.",
            extra={"flag": None},
        ),
    ] = 250


class VerdictConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a card may be called idle."""

    min_coverage: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="Share of the expected samples that must be there; below it a card is unknown.",
            extra={"flag": None},
        ),
    ] = 0.8
    max_age_intervals: Annotated[
        float,
        Meta(
            ge=1,
            le=1000,
            description="The last sample may be this many sample intervals old.",
            extra={"flag": None},
        ),
    ] = 3
    idle_enter: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="The highest sample of the window must stay below this for a card to become idle, 0-1.",
            extra={"flag": None},
        ),
    ] = 0.05
    idle_leave: Annotated[
        float,
        Meta(ge=0, le=1, description="A sample from this on ends being idle, 0-1.", extra={"flag": None}),
    ] = 0.10
    held_memory: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="From this share of its memory on an idle card is idle-held, 0-1.",
            extra={"flag": None},
        ),
    ] = 0.05
    held_memory_mb: Annotated[
        float,
        Meta(
            ge=0,
            le=1e9,
            description=f"It must be at least this much, {_MIB}: a CUDA context alone takes some hundred.",
            extra={"flag": None},
        ),
    ] = 512
    unproductive_util: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="From this mean utilisation on a card can be busy-unproductive, 0-1.",
            extra={"flag": None},
        ),
    ] = 0.5
    unproductive_sm: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="It is, if less than this share of its SMs were active, 0-1; needs profiling metrics.",
            extra={"flag": None},
        ),
    ] = 0.10
    power_contradiction: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="A GPU that shows no work but draws more than this share of its power limit is unknown, 0-1.",
            extra={"flag": None},
        ),
    ] = 0.5
    stalled_util: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="From this mean utilisation on a GPU can be stalled, 0-1.",
            extra={"flag": None},
        ),
    ] = 0.95
    stalled_power: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="It is, if it draws at most this share of its power limit and nothing else is active, 0-1.",
            extra={"flag": None},
        ),
    ] = 0.25


class AiConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Opinion of a language model. The keys are read; the feature itself is not in this release."""

    enabled: Annotated[
        bool, Meta(description="Ask a language model.", extra={"flag": None, "aliases": ("AI_ENABLED",)})
    ] = False
    api_url: Annotated[
        str, Meta(description="Its address.", extra={"flag": None, "aliases": ("AI_API_URL",), "unset": "none"})
    ] = ""
    api_key: Annotated[
        str,
        Meta(
            description="Its key.",
            extra={"flag": None, "aliases": ("AI_API_KEY",), "secret": True, "unset": "none"},
        ),
    ] = ""
    model: Annotated[str, Meta(description="Its name.", extra={"flag": None, "aliases": ("AI_MODEL",)})] = "gpt-4"
    threshold: Annotated[
        float, Meta(ge=0, le=1, description="Confidence below which it is not heard.", extra={"flag": None})
    ] = 0.7
    max_tokens: Annotated[
        int, Meta(ge=1, le=10**6, description="Longest answer.", extra={"flag": None, "aliases": ("AI_MAX_TOKENS",)})
    ] = 2000
    retry_times: Annotated[
        int, Meta(ge=0, le=100, description="Attempts.", extra={"flag": None, "aliases": ("AI_RETRY_TIMES",)})
    ] = 3
    retry_delay: Annotated[
        Seconds,
        Meta(
            ge=0,
            le=600,
            description="Pause before the second attempt.",
            extra={"form": "duration", "flag": None, "aliases": ("AI_RETRY_DELAY",)},
        ),
    ] = 2.0


class ControlConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Calls to a control service. The keys are read; the feature itself is not in this release."""

    enabled: Annotated[
        bool,
        Meta(
            description="Call the control service for cards of low use.",
            extra={"flag": None, "aliases": ("CONTROL_API_ENABLED",)},
        ),
    ] = False
    api_url: Annotated[
        str, Meta(description="Its address.", extra={"flag": None, "aliases": ("CONTROL_API",), "unset": "none"})
    ] = ""
    timeout: Annotated[
        Seconds,
        Meta(ge=0.1, le=600, description="Time for its answer.", extra={"form": "duration", "flag": None}),
    ] = 5.0


class LoggingConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """gpu-oour's way to say how much is logged; `log.v` and `log.format` say the same more finely."""

    level: Annotated[
        Literal["DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL"] | None,
        Meta(
            description="Lowest level that is logged, by all services: DEBUG is log.v 6, INFO leaves it to log.v, the "
            "others take precedence over log.v.",
            extra={"form": "upper", "flag": None, "aliases": ("LOG_LEVEL",), "unset": "as log.v says"},
        ),
    ] = None
    format: Annotated[
        str | None,
        Meta(description="Read and left alone: lines look as log.format says.", extra={"flag": None, "unset": "none"}),
    ] = None


class AnalyzerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The analyzer as a process."""

    listen: Annotated[
        str,
        Meta(
            description=f"Address that serves the API and /metrics; IPv6 in brackets, as in [::]:{ANALYZER_PORT}.",
            extra={"form": "address", "placeholder": "HOST:PORT"},
        ),
    ] = everywhere(ANALYZER_PORT)
    targets: Annotated[
        tuple[str, ...],
        Meta(
            description="Without a Prometheus: agents and cluster exporters to scrape, as URLs with commas.",
            extra={"form": "list", "placeholder": "LIST", "unset": "those that Kubernetes knows"},
        ),
    ] = ()
    discover_services: Annotated[
        tuple[str, ...],
        Meta(
            description="Without a Prometheus and targets: Kubernetes Services whose endpoints are scraped, each as "
            "NAMESPACE/NAME:PORT.",
            extra={"form": "list", "flag": None, "unset": "none"},
        ),
    ] = ()
    scrape_interval: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=600,
            description="Without a Prometheus: time between two scrapes.",
            extra={"form": "duration", "flag": None},
        ),
    ] = 15.0
    scrape_token: Annotated[
        str | None,
        Meta(
            description="Without a Prometheus: bearer token that agents and cluster exporter want.",
            extra={"flag": None, "secret": True, "unset": "none"},
        ),
    ] = None
    kubeconfig: Annotated[
        str | None,
        Meta(
            description="Kubeconfig for discovery and owners of pods; in a cluster the service account is used.",
            extra={"placeholder": "FILE", "unset": "service account"},
        ),
    ] = None
    cluster_url: Annotated[
        str | None,
        Meta(
            description="The cluster exporter, which knows who owns pods.",
            extra={"form": "url", "flag": None, "unset": f"the target with port {CLUSTER_PORT}"},
        ),
    ] = None
    api_token: Annotated[
        Annotated[str, Meta(min_length=16)] | None,
        Meta(
            description="Bearer token that changing endpoints want; without one they are off, except on a loopback "
            "address.",
            extra={"flag": None, "secret": True, "aliases": ("VGPUSCOPE_API_TOKEN",), "unset": "none"},
        ),
    ] = None
    protect_reads: Annotated[
        bool, Meta(description="Reading needs the token too; health checks never do.", extra={"flag": None})
    ] = False
    proxy_user_header: Annotated[
        str | None,
        Meta(
            description="Header in which an authenticating proxy names the user, for example X-Forwarded-User; only "
            "where nobody else can reach the listener.",
            extra={"flag": None, "unset": "none is believed"},
        ),
    ] = None
    rate_limit: Annotated[
        float,
        Meta(
            gt=0,
            le=1e6,
            description="Requests a second that one client may make to the API, on average.",
            extra={"flag": None},
        ),
    ] = 50
    config_updates: Annotated[
        Literal["memory", "file", "refuse"],
        Meta(
            description="What /config/update does: lasts until the next start, is written to the file, or is refused.",
            extra={"flag": None},
        ),
    ] = "memory"
    history: Annotated[
        str,
        Meta(
            description="Where results are kept: a file (SQLite), a postgresql:// URL, or none.",
            extra={"placeholder": "FILE|URL|none"},
        ),
    ] = "none"
    keep_results: Annotated[
        Seconds,
        Meta(
            ge=60,
            description="Results of single analyses are kept this long.",
            extra={"form": "duration", "flag": None},
        ),
    ] = 86400.0
    keep_hours: Annotated[
        Seconds,
        Meta(ge=3600, description="Hourly roll-ups are kept this long.", extra={"form": "duration", "flag": None}),
    ] = 30 * 86400.0
    keep_days: Annotated[
        Seconds,
        Meta(ge=86400, description="Daily roll-ups are kept this long.", extra={"form": "duration", "flag": None}),
    ] = 400 * 86400.0
    forget_after: Annotated[
        Seconds,
        Meta(
            ge=0,
            le=30 * 86400,
            description="A GPU that no longer reports stays listed as unknown for this long, unless it is known to be "
            "gone before: its node was deleted, or its scrape target answers without it.",
            extra={"form": "duration", "flag": None},
        ),
    ] = 86400.0
    web_config_file: WebConfigFile = None
