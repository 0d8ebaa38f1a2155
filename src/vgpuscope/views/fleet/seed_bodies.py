"""The bodies that gpu-oour's endpoints answer with; its fields come first, in its order."""

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from vgpuscope.views.fleet.results import ResultRow


class Features(Struct, frozen=True):
    ai_analysis: bool
    prometheus_metrics: bool
    control_api: bool


class InfoConfig(Struct, frozen=True):
    prometheus_url: str
    threshold: float
    interval: float
    time_window_min: float
    max_workers: int


class Info(Struct, frozen=True):
    """What `/` says."""

    service: str
    version: str
    features: Features
    config: InfoConfig
    endpoints: dict[str, str]
    read_only: bool


class HealthBody(Struct, frozen=True):
    """What `/health` says; the first six fields are gpu-oour's."""

    status: str
    prometheus_connected: bool
    last_analysis: str | None
    analysis_timeout: bool
    ai_enabled: bool
    interval: float
    source: str
    last_success: str | None
    partial: bool
    leader: bool
    history: bool  # the store of results answers
    error: dict[str, str] | None
    stale_since: str | None  # null: what is shown is what the last analysis found
    stale_reason: str | None
    targets_up: int | None  # scrape targets that answer; null: the source does not know its targets
    targets_down: int | None  # that are expected to answer, and do not
    faults: tuple[str, ...]  # what was missing in the last analysis: the first few, with their codes
    failing: tuple[str, ...] = ()  # what failed after the last analysis (page, log, store), with codes


class Triggered(Struct, frozen=True):
    """What `/analyze` says."""

    status: str
    message: str
    use_ai: bool


class LowBody(Struct, frozen=True):
    """What `/results/low` says; `count` is that of all pages.

    `gpus` are GPUs that one tenant has, or none, and of shared GPUs the tenants, each with its own numbers.
    """

    count: int
    threshold: float
    timestamp: str | None
    gpus: list[ResultRow]
    stale: bool = False
    total_gpus: int = 0  # that were analysed, of all statuses
    unknown_count: int = 0  # of these, those whose verdict is unknown
    tenants_total: int = 0
    tenants_unknown: int = 0


SomeOfRow: Any = msgspec.defstruct(
    "SomeOfRow",
    [(field.name, field.type | UnsetType, UNSET) for field in msgspec.structs.fields(ResultRow)],
    kw_only=True,
    forbid_unknown_fields=True,
)


class SomeOfLow(Struct, frozen=True, forbid_unknown_fields=True):
    """What `/results/low` says when only some fields were asked for."""

    count: int
    threshold: float
    timestamp: str | None
    gpus: list[SomeOfRow]
    stale: bool = False
    total_gpus: int = 0
    unknown_count: int = 0
    tenants_total: int = 0
    tenants_unknown: int = 0


class Updated(Struct, frozen=True):
    """What `/config/update` says."""

    status: str
    updates: dict[str, Any]
    note: str
