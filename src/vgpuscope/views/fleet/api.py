"""The summary of the fleet, the event that announces an analysis, and the settings as gpu-oour shows them."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from vgpuscope.model.analysis import (
    Analysis,
    Fault,
    Target,
)
from vgpuscope.views.fleet.results.results import (
    ResultRow,
    Stats,
)


class Summary(Struct, frozen=True, kw_only=True):
    """The fleet in a few figures."""

    timestamp: str | None
    stale: bool
    partial: bool
    source: str
    schemas: tuple[str, ...]
    window_minutes: float | None
    seconds: float | None  # duration of the analysis
    requests: int
    errors_total: int
    faults: tuple[Fault, ...]
    gpus: int  # physical GPUs
    instances: int  # MIG instances among the rows
    rows: int
    nodes: int
    namespaces: int
    shared: int
    stats: Stats
    tenants: int
    stale_since: str | None = None  # null: the results are those of the last analysis
    stale_reason: str | None = None
    targets_up: int | None = None  # scrape targets that answer; null: the source does not know its targets
    targets_down: int | None = None  # targets that should answer and do not
    down_targets: tuple[Target, ...] = ()  # the first of these targets


class ShownAnalysis(Struct, frozen=True, kw_only=True):
    """Which analysis is shown now."""

    number: int | None  # null: there is no analysis yet
    timestamp: str | None
    gpus: int
    stale: bool


def summary(
    analysis: Analysis | None,
    rows: Sequence[ResultRow],
    stats: Stats,
    *,
    stale: bool,
    errors: int,
    stale_since: str | None = None,
    stale_reason: str | None = None,
) -> Summary:
    """The fleet as of the last good analysis."""
    up, down = target_counts(analysis)
    return Summary(
        timestamp=stats.timestamp,
        stale=stale,
        partial=bool(analysis and analysis.faults),
        source=analysis.source if analysis else "",
        schemas=analysis.schemas if analysis else (),
        window_minutes=round(analysis.window.seconds / 60, 2) if analysis else None,
        seconds=round(analysis.seconds, 3) if analysis else None,
        requests=analysis.requests if analysis else 0,
        errors_total=errors,
        faults=analysis.faults if analysis else (),
        gpus=len({row.gpu_id for row in rows}),
        instances=sum(bool(row.mig) for row in rows),
        rows=len(rows),
        nodes=len({row.hostname for row in rows}),
        namespaces=len(stats.by_namespace),
        shared=sum(row.shared for row in rows),
        stats=stats,
        tenants=stats.tenants_total,
        stale_since=stale_since,
        stale_reason=stale_reason,
        targets_up=up,
        targets_down=down,
        down_targets=tuple(target for target in analysis.targets if not target.up)[:_MOST_TARGETS] if analysis else (),
    )


_MOST_TARGETS = 100  # targets that are listed


def target_counts(analysis: Analysis | None) -> tuple[int | None, int | None]:
    """How many scrape targets answer, and how many should but do not; None: the source does not know."""
    if analysis is None or not analysis.targets:
        return None, None
    up = sum(target.up for target in analysis.targets)
    return up, len(analysis.targets) - up


def shown_config(config: Any) -> dict[str, Any]:
    """The settings that concern the analyzer, section by section, without secrets."""
    prometheus = config.prometheus
    return {
        "prometheus": {
            "url": prometheus.url or "",
            "query_condition": prometheus.query_condition,
            "time_window_min": whole(prometheus.time_window_min),
            "step": f"{prometheus.step:g}s",
        },
        "scoring": msgspec.to_builtins(config.scoring),
        "thresholds": _section(config.thresholds),
        "verdict": msgspec.to_builtins(config.verdict),
        "scheduler": _section(config.scheduler),
        "gpu_defaults": _section(config.gpu_defaults),
        "ai": {"enabled": config.ai.enabled, "model": config.ai.model if config.ai.enabled else None},
        "control": {"enabled": config.control.enabled, "api_url": _origin(config.control.api_url)},
    }


def _origin(url: str) -> str | None:
    """Where a URL leads, without what may be secret in it: user, path and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}" if parts.hostname else None


def whole(value: float) -> float:
    """20 rather than 20.0: clients of gpu-oour read integers there."""
    return int(value) if value == int(value) else value


def _section(section: Struct) -> dict[str, Any]:
    found = msgspec.to_builtins(section)
    return {name: whole(value) if isinstance(value, float) else value for name, value in found.items()}
