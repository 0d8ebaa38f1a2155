"""Labels: does a series say whose GPU it is?"""

import re

from vgpuscope.catalog import agent as m
from vgpuscope.knowledge.gpu_series import (
    DCGM_PROFILING,
    DCGM_UTILIZATION,
    DEVICES,
    UUID_LABELS,
)
from vgpuscope.logic.doctor.judging import (
    failed,
    failed_if,
    gpu_of,
    grouped,
    named,
    nothing,
    passed,
    skipped,
    tenant_of,
    warned,
    warned_if,
)
from vgpuscope.model.doctor import CheckOutcome, DoctorFacts, Missing, SeriesValue, known

_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z-]{4,}|[A-Za-z][\w .:/-]{2,}")
_EXPORTER = re.compile(r"(nvidia-)?dcgm-exporter|vgpuscope-agent|hami-device-plugin|vgpu-monitor")
_SHARERS = 2


def honor_labels_off(facts: DoctorFacts) -> CheckOutcome:
    """`pod` is the exporter's pod, and the tenant is in `exported_pod`."""
    series = known(facts.series)
    if not any(one.job for one in series.now):
        return skipped(Missing(fact="prometheus", reason="elsewhere", place=series.origin))
    off = {one.job for one in series.now if "exported_pod" in one.labels or "exported_namespace" in one.labels}
    return warned(off, jobs=", ".join(sorted(off))) if off else passed(jobs=len({one.job for one in series.now}))


def pod_labels_missing(facts: DoctorFacts) -> CheckOutcome:
    """Busy GPUs of dcgm-exporter, and not one series of the job names a pod."""
    series = known(facts.series)
    shown = named(series, DCGM_UTILIZATION, *DCGM_PROFILING)
    if not shown:
        return nothing(series, DCGM_UTILIZATION)
    nameless = []
    for job, found in grouped(shown, lambda one: one.job).items():
        if not any(_tenant(one) for one in found) and any(one.value > 0 for one in found):
            nameless.append(f"{job or series.origin}: {len({gpu_of(one.labels) for one in found})}")
    return failed_if(nameless, count=len(shown))


def _tenant(one: SeriesValue) -> bool:
    """Whether a tenant is named; without honor_labels the exporter's own pod is none."""
    _, pod, container = tenant_of(one.labels)
    return bool(pod) and not (
        "exported_pod" not in one.labels and (_EXPORTER.match(pod) or _EXPORTER.fullmatch(container))
    )


def flapping(facts: DoctorFacts) -> CheckOutcome:
    """GPUs whose series change between labels with a pod and labels without."""
    series = known(facts.series)
    if series.flapping is None:
        return skipped(Missing(fact="prometheus", reason="elsewhere", place=series.origin))
    return failed(series.flapping, count=len(series.flapping)) if series.flapping else passed(gpus=series.gpus)


def shared_same_number(facts: DoctorFacts) -> CheckOutcome:
    """Several pods on one GPU, and all show the same numbers: those of the whole GPU."""
    series = known(facts.series)
    shown = [one for one in named(series, DCGM_UTILIZATION, *DCGM_PROFILING) if _tenant(one)]
    if not shown:
        return nothing(series, DCGM_UTILIZATION)
    by_gpu = grouped(shown, lambda one: (gpu_of(one.labels), one.labels.get("GPU_I_ID", ""), one.name, one.job))
    same = {
        f"{gpu}: {len(pods)} × {found[0].value:g}"
        for (gpu, *_), found in by_gpu.items()
        if len(pods := {tenant_of(one.labels) for one in found}) >= _SHARERS
        and found[0].value > 0
        and len({one.value for one in found}) == 1
    }
    return warned(same, count=len({text.partition(":")[0] for text in same})) if same else passed(count=len(by_gpu))


def hostname_is_pod(facts: DoctorFacts) -> CheckOutcome:
    """`Hostname` is the name of the exporter's pod, not of the node."""
    series = known(facts.series)
    shown = [
        one for one in series.now if one.name in DEVICES and (one.labels.get("Hostname") or one.labels.get("hostname"))
    ]
    if not shown:
        return nothing(series, "Hostname")
    wrong = {host for one in shown if _EXPORTER.match(host := one.labels.get("Hostname") or one.labels["hostname"])}
    return warned_if(wrong, count=len(shown))


def condition_matches_nothing(facts: DoctorFacts) -> CheckOutcome:
    """prometheus.query_condition excludes every GPU series."""
    found = known(facts.prometheus)
    if found.matched is None:
        return skipped(
            Missing(fact="prometheus", reason="no-data", detail="prometheus.query_condition", place=found.url)
        )
    if found.matched or not found.unmatched:
        return passed(count=found.matched)
    return failed([found.condition], count=found.unmatched)


def uuid_unreadable(facts: DoctorFacts) -> CheckOutcome:
    """UUIDs that are no text: HAMi read its region at the wrong place."""
    series = known(facts.series)
    shown = [(one, one.labels[name]) for one in series.now for name in UUID_LABELS if one.labels.get(name)]
    if not shown:
        return nothing(series, *UUID_LABELS)
    wrong = [f"{one.name}: {uuid[:24].encode('unicode_escape').decode()}" for one, uuid in shown if not _readable(uuid)]
    return failed_if(wrong, count=len(shown))


def _readable(uuid: str) -> bool:
    return uuid.isprintable() and uuid.isascii() and _UUID.fullmatch(uuid) is not None


def agent_containers_nameless(facts: DoctorFacts) -> CheckOutcome:
    """Containers that an agent found by their cgroup, and whose pod it cannot name."""
    series = known(facts.series)
    shown = named(series, m.CONTAINER_STATE.name)
    if not shown:
        return nothing(series, m.CONTAINER_STATE.name)
    nameless = {one.labels.get("pod_uid", "?") for one in shown if not tenant_of(one.labels)[1]}
    return warned_if(nameless, count=len(shown))
