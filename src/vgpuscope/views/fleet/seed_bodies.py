"""The bodies that gpu-oour's endpoints answer with; its fields come first, in its order."""

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from vgpuscope.views.fleet.results.results import ResultRow


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
    """The body of `/`."""

    service: str
    version: str
    features: Features
    config: InfoConfig
    endpoints: dict[str, str]
    read_only: bool


class HealthBody(Struct, frozen=True):
    """The body of `/health`; the first six fields are gpu-oour's."""

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
    stale_since: str | None  # null: the results are those of the last analysis
    stale_reason: str | None
    targets_up: int | None  # scrape targets that answer; null: the source does not know its targets
    targets_down: int | None  # targets that should answer and do not
    faults: tuple[str, ...]  # what was missing in the last analysis: the first few, with their codes
    failing: tuple[str, ...] = ()  # what failed after the last analysis (page, log, store), with codes
    ai_error: str | None = None  # code of the error with which the language model last failed; null: it did not
    control_error: str | None = None  # code of the error with which the last report of a low GPU failed; null: none did


class Triggered(Struct, frozen=True):
    """The body of `/analyze`."""

    status: str
    message: str
    use_ai: bool


class LowBody(Struct, frozen=True):
    """The body of `/results/low`; `count` is the number of rows on all pages.

    `gpus` has GPUs and MIG instances, and for shared GPUs their tenants, each with its own numbers. Fields from
    `total_gpus` to `mig_instances` are those of `/results/stats`: no filter of the rows changes them.
    """

    count: int
    threshold: float
    timestamp: str | None
    gpus: list[ResultRow]
    stale: bool = False
    total_gpus: int = 0  # GPUs analysed, of all statuses
    unknown_count: int = 0  # GPUs whose verdict is unknown
    tenants_total: int = 0
    tenants_unknown: int = 0
    low_utilization_count: int = 0  # GPUs and MIG instances with a score below the threshold
    mig_instances: int = 0  # among total_gpus
    gpu_rows: int = 0  # of count: rows of GPUs and MIG instances
    tenant_rows: int = 0  # of count: rows of tenants


SomeOfRow: Any = msgspec.defstruct(
    "SomeOfRow",
    [(field.name, field.type | UnsetType, UNSET) for field in msgspec.structs.fields(ResultRow)],
    kw_only=True,
    forbid_unknown_fields=True,
)


class SomeOfLow(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `/results/low` if only some fields were requested."""

    count: int
    threshold: float
    timestamp: str | None
    gpus: list[SomeOfRow]
    stale: bool = False
    total_gpus: int = 0
    unknown_count: int = 0
    tenants_total: int = 0
    tenants_unknown: int = 0
    low_utilization_count: int = 0  # GPUs and MIG instances with a score below the threshold
    mig_instances: int = 0  # among total_gpus
    gpu_rows: int = 0  # of count: rows of GPUs and MIG instances
    tenant_rows: int = 0  # of count: rows of tenants


class Updated(Struct, frozen=True):
    """The body of `/config/update`."""

    status: str
    updates: dict[str, Any]
    note: str
