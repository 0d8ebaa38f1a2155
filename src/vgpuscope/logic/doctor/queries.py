"""The questions that doctor asks a PromQL engine. Each is bounded, however large the fleet is."""

from collections.abc import Iterable

from vgpuscope.catalog import agent as m
from vgpuscope.formats.prom.promql import Matcher, one_of, selector
from vgpuscope.knowledge.gpu_series import ANY_GPU_METRIC, DCGM_UTILIZATION, DEVICES, JOBS, LOOKED_AT, UUID_LABELS
from vgpuscope.logic.fleet.queries import matchers_of_gpus

_HOUR = "1h"
_PER_QUERY_GPUS = 2000
_HEX = "0123456789abcdef"
_CHANGES = 4  # of the labels of one GPU in an hour, with one pod: it has lost and found its pod twice
# labels of exporters: a condition on one of them says nothing about targets
_EXPORTERS_OWN = frozenset(
    {"gpu", "UUID", "gpu_uuid", "device", "modelName", "Hostname", "hostname", "node", "namespace", "pod", "container"}
)

Condition = tuple[Matcher, ...]


def of_targets(condition: Condition) -> Condition:
    """The part of a condition that selects targets."""
    return tuple(one for one in matchers_of_gpus(condition) if one.label not in _EXPORTERS_OWN)


def names() -> str:
    """How many series each GPU metric has, whatever the condition: it may be what is wrong."""
    return f"count by (__name__) ({selector('', (Matcher('__name__', '=~', ANY_GPU_METRIC),))})"


def count(condition: Condition) -> str:
    """How many series of GPUs fulfil the whole condition."""
    return f"count({selector('', (one_of('__name__', sorted(DEVICES)), *condition))})"


def all_targets() -> str:
    """How many targets there are, whatever the condition."""
    return "count(up)"


def gpu_jobs(condition: Condition) -> str:
    """Jobs that had GPU series in the last hour."""
    clocks = one_of("__name__", [DCGM_UTILIZATION, m.SAMPLE_TIME.name, *sorted(DEVICES)])
    return f"count by (job) (last_over_time({selector('', (clocks, *matchers_of_gpus(condition)))}[{_HOUR}]))"


def named_jobs(condition: Condition) -> str:
    """Jobs that are named after an exporter of GPUs."""
    return f"count by (job) ({selector('up', (Matcher('job', '=~', JOBS), *of_targets(condition)))})"


def up(jobs: Iterable[str], condition: Condition) -> str:
    """How many targets of each job answer: 1 of those that do, 0 of those that do not."""
    return f'count_values by (job) ("value", {_up(jobs, condition)})'


def down(jobs: Iterable[str], condition: Condition) -> str:
    """Some targets that do not answer."""
    return f"topk(5, {_up(jobs, condition)} == 0)"


def one_target(jobs: Iterable[str], condition: Condition) -> str:
    """One target of each job."""
    return f"topk by (job) (1, {_up(jobs, condition)})"


def scrapes(job: str, instance: str, condition: Condition) -> str:
    """The scrapes of one target."""
    found = selector("up", (Matcher("job", "=", job), Matcher("instance", "=", instance), *of_targets(condition)))
    return f"{found}[{_HOUR}]"


def ages(condition: Condition, some: Condition) -> str:
    """How old the newest GPU series of a target is that answers; of each job the oldest."""
    clocks = selector(
        "", (one_of("__name__", [DCGM_UTILIZATION, m.SAMPLE_TIME.name]), *matchers_of_gpus(condition), *some)
    )
    current = f"max by (job, instance) (timestamp({clocks}))"
    before = f"max by (job, instance) (max_over_time(timestamp({clocks})[{_HOUR}:5m]))"
    alive = f"{selector('up', of_targets(condition))} == 1"
    return f"max by (job) ((time() - ({current} or {before})) and on (job, instance) ({alive}))"


def series(condition: Condition, some: Condition) -> str:
    """Every series that doctor looks at."""
    return selector("", (one_of("__name__", sorted(LOOKED_AT)), *matchers_of_gpus(condition), *some))


def all_gpus(condition: Condition) -> str:
    """How many GPUs there are."""
    devices = one_of("__name__", sorted(DEVICES))
    return f"count by (__name__) ({selector('', (devices, *matchers_of_gpus(condition)))})"


def some_gpus(gpus: int) -> Condition:
    """Matchers that leave so many GPUs as can be looked at, chosen by the end of their UUIDs."""
    if gpus <= _PER_QUERY_GPUS:
        return ()
    share = _PER_QUERY_GPUS / gpus * len(_HEX)
    tails = f"[{_HEX[: max(1, int(share))]}]" if share >= 1 else f"[{_HEX[: max(1, int(share * 16))]}]0"
    return tuple(Matcher(label, "=~", f"(.*{tails})?") for label in UUID_LABELS)


def flapping(label: str, condition: Condition, some: Condition) -> str:
    """GPUs that lost their pod and found the same one again, at least twice in an hour."""
    base = (*matchers_of_gpus(condition), *some)
    every = selector(DCGM_UTILIZATION, base)
    with_pod = selector(DCGM_UTILIZATION, (*base, Matcher(label, "!=", "")))
    state = f"(count by (job, UUID) ({with_pod}) * 0 + 1) or (count by (job, UUID) ({every}) * 0)"
    pods = f"count by (job, UUID) (count by (job, UUID, {label}) (last_over_time({with_pod}[{_HOUR}])))"
    return f"(changes(({state})[{_HOUR}:30s]) >= {_CHANGES}) and on (job, UUID) ({pods} == 1)"


def _up(jobs: Iterable[str], condition: Condition) -> str:
    return selector("up", (one_of("job", sorted(jobs)), *of_targets(condition)))
