"""Profiling counters, the dcgm-exporter beside an agent, and cgroups: why an agent does not have their values."""

from collections.abc import Callable

from vgpuscope.catalog import agent as m
from vgpuscope.knowledge.gpu_series import DCGM_PROFILING
from vgpuscope.logic.doctor.judging import (
    any_agent,
    failed,
    gpu_of,
    named,
    nothing,
    ours,
    passed,
    skipped,
    target_of,
    warned,
)
from vgpuscope.model.doctor import CheckOutcome, DoctorFacts, Missing, SeriesFacts, known
from vgpuscope.model.errors import (
    CgroupsAbsent,
    CgroupsHung,
    CgroupsUnknown,
    CgroupsUnreadable,
    DcgmNotFound,
    DcgmUnreadable,
    DcgmUnusable,
    DcgmWithoutFields,
)

_FOREIGN = frozenset(  # what an agent counts of an exporter's page that has other labels, units or GPUs
    {
        "dcgm-no-uuid",
        "dcgm-bad-instance",
        "dcgm-over-1",
        "dcgm-traffic-implausible",
        "dcgm-other-gpu",
        "dcgm-unknown-instance",
        "dcgm-too-many",
    }
)


# ── the driver's counters ────────────────────────────────────────────────────────────────────────────────────────


def gpm_unsupported(facts: DoctorFacts) -> CheckOutcome:
    """GPUs without GPM, for which no dcgm-exporter has profiling fields either."""
    series = known(facts.series)
    if not series.whole:  # an exporter that was not looked at may have them
        return skipped(Missing(fact="analyzer", reason="elsewhere", place=series.origin))
    return _blind(facts, warned, "unsupported")


def gpm_refused(facts: DoctorFacts) -> CheckOutcome:
    """GPUs whose counters the driver does not let the agent read."""
    return _blind(facts, warned, "no-symbols", "no-permission", "failed", "no-values")


def gpm_hung(facts: DoctorFacts) -> CheckOutcome:
    """A call for counters did not return, so the agent has switched them off."""
    return _blind(facts, failed, "hung", always=True)


def gpm_disturbs_memory(facts: DoctorFacts) -> CheckOutcome:
    """The memory of MIG instances could not be read any more, so the agent has switched the counters off."""
    return _blind(facts, warned, "disturbs-memory", always=True)


def _blind(facts: DoctorFacts, found: Callable[..., CheckOutcome], *reasons: str, always: bool = False) -> CheckOutcome:
    """GPUs without counters for one of these reasons; unless `always`, only those that no exporter measures."""
    series = known(facts.series)
    shown = named(series, m.GPU_PROFILING_INFO.name)
    if not shown:
        return nothing(series, m.GPU_PROFILING_INFO.name)
    covered = frozenset() if always else _measured_by_exporters(series) | _with_sm_activity(facts)
    blind = {
        gpu_of(one.labels): f"{one.labels.get('node', '?')} {gpu_of(one.labels)}: {one.labels['reason']}"
        for one in shown
        if one.labels.get("reason") in reasons
        and (always or one.labels.get("source") == "none")
        and gpu_of(one.labels) not in covered
    }
    return found(blind.values(), count=len(blind)) if blind else passed(count=len(shown))


def _measured_by_exporters(series: SeriesFacts) -> frozenset[str]:
    mine = ours(series)
    return frozenset(gpu_of(one.labels) for one in named(series, *DCGM_PROFILING) if target_of(one.labels) not in mine)


def _with_sm_activity(facts: DoctorFacts) -> frozenset[str]:
    """GPUs whose results rest on SM activity, wherever the analyzer has it from."""
    return frozenset() if isinstance(facts.analyzer, Missing) else facts.analyzer.unproductive


# ── the dcgm-exporter of --dcgm ──────────────────────────────────────────────────────────────────────────────────


def dcgm_no_answer(facts: DoctorFacts) -> CheckOutcome:
    """--dcgm names an exporter that does not answer."""
    return _coded(facts, "dcgm", failed, DcgmUnreadable.code)


def dcgm_not_found(facts: DoctorFacts) -> CheckOutcome:
    """--dcgm auto has found no exporter, or several."""
    return _coded(facts, "dcgm", warned, DcgmNotFound.code)


def dcgm_without_fields(facts: DoctorFacts) -> CheckOutcome:
    """The exporter has no profiling fields."""
    return _coded(facts, "dcgm", failed, DcgmWithoutFields.code)


def dcgm_unusable(facts: DoctorFacts) -> CheckOutcome:
    """The exporter's fields have other labels, units or GPUs; also if only some of them are rejected."""
    found = with_code(facts, DcgmUnusable.code)
    rejected: dict[str, float] = {}
    if not isinstance(facts.series, Missing):
        for one in named(facts.series, m.DROPPED.name):
            if one.labels.get("reason") in _FOREIGN and one.value > 0:
                rejected[f"{one.labels.get('node', '?')}: {one.labels['reason']}"] = one.value
    if found:
        return failed([*found, *rejected], count=len(found))
    return warned(rejected, count=len(rejected)) if rejected else _in_order(facts, "dcgm")


# ── cgroups ──────────────────────────────────────────────────────────────────────────────────────────────────────


def cgroups_absent(facts: DoctorFacts) -> CheckOutcome:
    """The host's cgroups are not mounted."""
    return _coded(facts, "cgroup", warned, CgroupsAbsent.code)


def cgroups_unreadable(facts: DoctorFacts) -> CheckOutcome:
    """The host's cgroups are mounted, and cannot be read."""
    return _coded(facts, "cgroup", warned, CgroupsUnreadable.code, CgroupsHung.code)


def cgroups_unknown(facts: DoctorFacts) -> CheckOutcome:
    """The directory is not a hierarchy of a known version."""
    return _coded(facts, "cgroup", warned, CgroupsUnknown.code)


def _coded(facts: DoctorFacts, source: str, judgement: Callable[..., CheckOutcome], *codes: str) -> CheckOutcome:
    found = with_code(facts, *codes)
    return judgement(found, count=len(found)) if found else _in_order(facts, source)


def _in_order(facts: DoctorFacts, source: str) -> CheckOutcome:
    """Passed, or skipped if no agent is configured to read the source."""
    used = False
    if not isinstance(facts.series, Missing):
        up = [one for one in named(facts.series, m.SOURCE_UP.name) if one.value == 1]
        used = any(one.labels.get("source") == source for one in [*up, *named(facts.series, m.SOURCE_ERROR.name)])
    if not isinstance(facts.agents, Missing):
        used = used or any(source not in agent.unused for agent in facts.agents)
    if used:
        return passed()
    return skipped(Missing(fact="agent", reason="no-data", detail=f"source {source}"))


def with_code(facts: DoctorFacts, *codes: str) -> list[str]:
    """Nodes whose agent has no values of a source for one of these reasons, with the agent's message if it was asked.

    Absent is raised unless an agent was asked, or its series are known.
    """
    any_agent(facts)
    found: dict[str, str] = {}
    if not isinstance(facts.series, Missing):
        for one in named(facts.series, m.SOURCE_ERROR.name):
            if one.labels.get("code") in codes:
                found[one.labels.get("node", "?")] = one.labels["code"]
    if not isinstance(facts.agents, Missing):
        for agent in facts.agents:
            for _, code, message in agent.faults:
                if code in codes:
                    found[agent.node or agent.url] = message or code
    return [f"{node}: {why}" for node, why in found.items()]
