"""What changed in an analysis, and its counts, as events of the log."""

from vgpuscope.model.analysis import Analysis
from vgpuscope.model.result_change import ChangeKind, ResultChange
from vgpuscope.views.fleet.log.detail import Event
from vgpuscope.views.fleet.results.results import Stats

_MESSAGES: dict[ChangeKind, str] = {
    "appeared": "GPU appeared",
    "gone": "GPU is gone",
    "health": "GPU health changed",
    "verdict": "verdict changed",
    "class": "class changed",
    "tenant_verdict": "verdict of a tenant changed",
    "tenant_class": "class of a tenant changed",
}
_OF_INSTANCE: dict[ChangeKind, str] = {"appeared": "MIG instance appeared", "gone": "MIG instance is gone"}


def change_event(change: ResultChange) -> Event:
    """One change, with the GPU, its node and the tenant, and what was before."""
    tenant, score = change.tenant, change.score
    where = {
        "node": change.node or None,
        "gpu": change.gpu_id,
        "mig": change.mig or None,
        "namespace": tenant.namespace if tenant else None,
        "pod": tenant.pod if tenant else None,
    }
    if change.kind == "health":
        what: dict[str, object] = {"health": change.health, "was": change.before or None}
    elif change.kind == "gone":
        what = {"was": change.before}
    else:
        what = {
            "container": tenant.container or None if tenant and change.kind.startswith("tenant") else None,
            "verdict": change.verdict,
            "was": change.before or None,
            "use_class": change.use_class,
            "score": None if score is None else round(score, 1),
            "reason": change.reason or None,
        }
    messages = _MESSAGES | _OF_INSTANCE if change.mig else _MESSAGES
    return messages[change.kind], where | what


def analysis_event(analysis: Analysis, stats: Stats, *, analyses: int, changes: int) -> Event:
    """The counts of an analysis, as /results/stats has them; `analyses`: how many there were since the last event."""
    verdicts, tenants = stats.by_verdict, stats.tenants_by_verdict
    return "analysis completed", {
        "analyses": analyses,
        "changes": changes,
        "gpus": len({gpu.gpu_id for gpu in analysis.gpus}),
        "mig_instances": stats.mig_instances or None,
        "in_use": verdicts["in_use"],
        "idle": verdicts["idle"],
        "unknown": verdicts["unknown"],
        "low_score": stats.low_utilization_count,
        "tenants": stats.tenants_total,
        "tenants_in_use": tenants["in_use"],
        "tenants_idle": tenants["idle"],
        "tenants_unknown": tenants["unknown"],
        "seconds": round(analysis.seconds, 3),
    }
