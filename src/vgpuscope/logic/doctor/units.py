"""Units: is a number what its name says?"""

import math

from vgpuscope.catalog import agent as m
from vgpuscope.knowledge.exporters import SENTINELS
from vgpuscope.knowledge.gpu_series import (
    DCGM_PERCENTS,
    DCGM_POWER,
    DCGM_PROFILING,
    DCGM_RATIOS,
    HAMI_ALLOCATED,
    HAMI_CONTAINER_SM,
    HAMI_HOST_MEMORY,
    HAMI_RATIOS,
)
from vgpuscope.logic.doctor.judging import (
    failed_if,
    gpu_of,
    grouped,
    named,
    nothing,
    ours,
    passed,
    target_of,
    tenant_of,
    warned,
    warned_if,
)
from vgpuscope.model.doctor import CheckOutcome, DoctorFacts, SeriesValue, known

_ROUNDING = 1.001
_ABSURD = 1e6  # no percent, ratio or watts comes near
_SLACK = 2**30  # bytes that contexts may take beyond an allocation


def ratio_scale_mixed(facts: DoctorFacts) -> CheckOutcome:
    """HAMi's `_ratio` names, of which some hold 0-1 and others 0-100."""
    series = known(facts.series)
    mine = ours(series)
    theirs = [one for one in named(series, *HAMI_RATIOS) if target_of(one.labels) not in mine and one.value > 0]
    if not theirs:
        return nothing(series, *HAMI_RATIOS)
    highest = {name: max(one.value for one in found) for name, found in grouped(theirs, lambda one: one.name).items()}
    small = sorted(name for name, most in highest.items() if most <= _ROUNDING)
    large = sorted(name for name, most in highest.items() if most > _ROUNDING)
    shown = [f"{name}: {highest[name]:g}" for name in (*small, *large)]
    return warned(shown, small=len(small), large=len(large)) if small and large else passed(names=len(highest))


def dcgm_ratio_is_percent(facts: DoctorFacts) -> CheckOutcome:
    """A `_RATIO` name of DCGM that holds 0-100."""
    series = known(facts.series)
    shown = [one for one in named(series, *DCGM_RATIOS) if not _absurd(one.value)]
    if not shown:
        return nothing(series, *DCGM_RATIOS)
    wrong = {f"{one.name}: {one.value:g} ({one.job})" for one in shown if one.value > _ROUNDING}
    return warned(wrong, count=len({text.partition(":")[0] for text in wrong})) if wrong else passed(count=len(shown))


def above_100(facts: DoctorFacts) -> CheckOutcome:
    """Utilisation above 100 percent."""
    series = known(facts.series)
    scales = (
        (1.0, (m.CONTAINER_SM.name, m.GPU_UTILIZATION.name, *DCGM_PROFILING)),
        (100.0, (*DCGM_PERCENTS, *HAMI_CONTAINER_SM)),
    )
    judged = [(one, most) for most, names in scales for one in named(series, *names) if not _absurd(one.value)]
    if not judged:
        return nothing(series, m.GPU_UTILIZATION.name)
    over = [f"{_whose(one)}: {one.name} {one.value:g}" for one, most in judged if one.value > most * _ROUNDING]
    return warned_if(over, count=len(judged))


def absurd_value(facts: DoctorFacts) -> CheckOutcome:
    """Blank values of DCGM, and numbers that no GPU reaches."""
    series = known(facts.series)
    names = (*DCGM_PERCENTS, *DCGM_RATIOS, *DCGM_PROFILING, DCGM_POWER, *HAMI_CONTAINER_SM)
    shown = named(series, *names)
    if not shown:
        return nothing(series, *DCGM_PERCENTS)
    wrong = [f"{_whose(one)}: {one.name} {one.value:.0f}" for one in shown if _absurd(one.value)]
    return failed_if(wrong, count=len(shown))


def mig_repeated(facts: DoctorFacts) -> CheckOutcome:
    """A number of the whole GPU that is repeated for each MIG instance."""
    series = known(facts.series)
    shown = [one for one in named(series, DCGM_POWER) if one.labels.get("GPU_I_ID")]
    if not shown:
        return nothing(series, DCGM_POWER)
    by_gpu = grouped(shown, lambda one: (gpu_of(one.labels), one.job))
    repeated = [
        f"{gpu}: {len(found)} × {found[0].value:g} W"
        for (gpu, _), found in by_gpu.items()
        if len({one.labels["GPU_I_ID"] for one in found}) > 1 and len({one.value for one in found}) == 1
    ]
    return warned_if(repeated, count=len(by_gpu))


def used_above_allocated(facts: DoctorFacts) -> CheckOutcome:
    """Memory in use on GPUs of which the scheduler has allocated less."""
    series = known(facts.series)
    allocated = {gpu_of(one.labels): one.value for one in named(series, *HAMI_ALLOCATED)}
    used = {gpu_of(one.labels): one.value for one in named(series, *HAMI_HOST_MEMORY)}
    both = allocated.keys() & used.keys() - {""}
    if not both:
        return nothing(series, *HAMI_ALLOCATED)
    over = [
        f"{gpu}: {used[gpu] / 2**30:.1f} GiB > {allocated[gpu] / 2**30:.1f} GiB"
        for gpu in both
        if used[gpu] > allocated[gpu] + _SLACK
    ]
    return warned_if(over, count=len(both))


def _absurd(value: float) -> bool:
    blank = any(0 <= value - one < 32 for one in SENTINELS)
    return math.isnan(value) or value < 0 or value > _ABSURD or blank


def _whose(one: SeriesValue) -> str:
    tenant = "/".join(part for part in tenant_of(one.labels)[:2] if part)
    return tenant or gpu_of(one.labels) or "?"
