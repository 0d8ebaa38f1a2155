"""The PromQL queries that read a fleet, and the recording rules that make them cheaper."""

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from vgpuscope.catalog import agent as m
from vgpuscope.formats.prom.promql import Matcher, one_of, selector, window
from vgpuscope.knowledge.exporters import GROUPS, MANY_SAMPLES, STATISTICS, Group, Statistic
from vgpuscope.knowledge.series_labels import EXPORTED, TENANT_LABELS
from vgpuscope.model.quantity import Seconds, UnixTime

_FUNCTIONS: Final[dict[Statistic, str]] = {
    "mean": "avg_over_time({series}[{window}])",
    "max": "max_over_time({series}[{window}])",
    "p95": "quantile_over_time(0.95,{series}[{window}])",
    "samples": "count_over_time({series}[{window}])",
    "last": "timestamp({series})",
}

_RATE: Final = "rate({series}[{window}])"
_FROZEN: Final = (0.25, 0.5)  # of the window: the shorter part may hold a single sample
ALIVE: Final = "vector(1)"  # a query that every engine answers, whatever it stores


class StatisticsQuery(NamedTuple):
    """The statistics that are wanted of one quantity. If there are several, its samples are queried instead."""

    group: Group
    quantity: int
    statistics: tuple[Statistic, ...]
    name: str
    matchers: tuple[Matcher, ...]
    recorded: bool = False  # the metric is the result of a recording rule, which only needs to be read

    @property
    def series(self) -> str:
        return selector(self.name, self.matchers)

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(self.quantity * len(STATISTICS) + STATISTICS.index(one) for one in self.statistics)

    @property
    def raw(self) -> bool:
        return len(self.statistics) > 1

    @property
    def part(self) -> str:
        """What is missing if the query fails; begins with the term."""
        return f"{self.group.quantities[self.quantity].term} {' '.join(self.statistics)} ({self.name})"

    def query(self, window: str) -> str:
        if self.recorded:
            return self.series
        if self.raw:
            return f"{self.series}[{window}]"
        function = _RATE if self.group.quantities[self.quantity].counter else _FUNCTIONS[self.statistics[0]]
        return function.format(series=self.series, window=window)


def plan(
    group: Group, *, present: Iterable[str], condition: tuple[Matcher, ...], expected: float, recorded: bool = False
) -> Iterator[StatisticsQuery]:
    """The queries for a group, by the metrics that exist and the number of samples that a series may have.

    `recorded`: if the result of a recording rule exists, it is read.
    """
    there, matchers = frozenset(present), matchers_for(group, condition)
    for index, quantity in enumerate(group.quantities):
        for statistic in STATISTICS:
            names = quantity.names(statistic, many=expected > MANY_SAMPLES)
            name = next((name for name in names if name in there), None)
            if name is None:
                continue
            rule = record_name(name, statistic)
            if recorded and statistic in RECORDED and rule in there:
                yield StatisticsQuery(group, index, (statistic,), rule, matchers, recorded=True)
            else:
                yield StatisticsQuery(group, index, (statistic,), name, matchers)


# ── recording rules ──────────────────────────────────────────────────────────────────────────────────────────────

# Only statistics that do not decide whether a GPU is idle. A rule that is no longer evaluated keeps its last value for
# five minutes, and the GPU may have begun to work in that time.
RECORDED: Final[tuple[Statistic, ...]] = ("mean", "p95")
RECORDED_SECONDS: Final = 600.0  # the window of the rules, which is the analyzer's default window
RECORDED_EVERY: Final = 30.0  # seconds between two evaluations
_RULES_LATE: Final[Seconds] = 3 * RECORDED_EVERY  # rules that were evaluated longer ago are not used


def record_name(name: str, statistic: Statistic) -> str:
    """The name of the rule for a statistic of a metric."""
    return f"vgpuscope:{name}:{statistic}_10m"


class RecordingRule(NamedTuple):
    """A recording rule that the analyzer uses."""

    group: Group
    metric: str  # the metric whose statistic it records
    name: str
    expression: str


def recording_rules() -> Iterator[RecordingRule]:
    """All recording rules that the analyzer uses."""
    for group in GROUPS:
        for quantity in [one for one in group.quantities if not (one.twin or one.counter)]:
            for statistic in RECORDED:
                for name in quantity.names(statistic, many=False)[:1]:
                    expression = _FUNCTIONS[statistic].format(series=name, window=window(RECORDED_SECONDS))
                    yield RecordingRule(group, name, record_name(name, statistic), expression)


def rules_to_check(present: Collection[str]) -> tuple[RecordingRule, ...]:
    """The first rule of each group that exists; it stands for the other rules of the group."""
    first = {id(rule.group): rule for rule in reversed(list(recording_rules())) if rule.name in present}
    return tuple(first.values())


def evaluation_time(rule: RecordingRule, condition: tuple[Matcher, ...]) -> str:
    """When a rule was last evaluated."""
    return f"max(timestamp({selector(rule.name, matchers_for(rule.group, condition))}))"


def is_recent(evaluated: UnixTime | None, *, end: UnixTime) -> bool:
    """Whether a rule was evaluated recently enough to be read."""
    return evaluated is not None and evaluated >= end - _RULES_LATE


def unrecorded_series(rule: RecordingRule, condition: tuple[Matcher, ...]) -> str:
    """How many series of the metric the rule does not cover."""
    matchers = matchers_for(rule.group, condition)
    return f"count({selector(rule.metric, matchers)}) - count({selector(rule.name, matchers)})"


# ── other queries ────────────────────────────────────────────────────────────────────────────────────────────────


def named(names: Iterable[str], matchers: Iterable[Matcher]) -> str:
    """All series of some metrics."""
    return selector("", (one_of("__name__", sorted(names)), *matchers))


def series_counts(names: Iterable[str], matchers: Iterable[Matcher]) -> str:
    """The current number of series of each metric."""
    return f"count by (__name__) ({named(names, matchers)})"


def true_labels(names: Iterable[str], matchers: Iterable[Matcher], *, seconds: Seconds) -> str:
    """The series of metrics that are 1 if their labels are true, if they were so in the window."""
    return f"last_over_time({named(names, matchers)}[{window(seconds)}]) > 0"


def xids(group: Group, matchers: Iterable[Matcher], *, seconds: Seconds) -> str:
    """The XIDs of the window: those counted in it, or the last one if it changed in the window."""
    series, within = selector(group.xids, matchers), window(seconds)
    new = f"({series} > 0 unless {series} offset {within})"
    return f"({series} > 0 and changes({series}[{within}]) > 0) or {new}"


def frozen_agents(matchers: Iterable[Matcher], *, seconds: Seconds) -> str:
    """Agents that answer but no longer take samples: the time of their sample is the same in every scrape."""
    series = selector(m.SAMPLE_TIME.name, matchers)
    spans = [window(seconds * part) for part in _FROZEN]
    same = (f"(changes({series}[{span}]) == 0 and count_over_time({series}[{span}]) > 1)" for span in spans)
    return " or ".join(same)


def targets(jobs: Iterable[str], matchers: Iterable[Matcher]) -> str:
    """The engine's own metric of the targets of some jobs."""
    return selector("up", (one_of("job", jobs), *matchers))


def means(group: Group, name: str, gpu_ids: Iterable[str], *, condition: tuple[Matcher, ...], step: Seconds) -> str:
    """The means of a metric of some GPUs, each over one step."""
    matchers = (*matchers_for(group, condition), one_of(group.uuid, sorted(gpu_ids)))
    return f"avg_over_time({selector(name, matchers)}[{window(step)}])"


def gathered(asks: Iterable[StatisticsQuery]) -> Iterator[StatisticsQuery]:
    """The same statistics in fewer queries: several statistics of one metric become one query for its samples.

    An engine takes about as long to return twenty samples of a series as to return one statistic of them.
    """
    for _, quantity in groupby(asks, key=lambda ask: (id(ask.group), ask.quantity)):
        by_name: dict[str, list[StatisticsQuery]] = {}
        for ask in quantity:
            by_name.setdefault(ask.name, []).append(ask)
        for together in by_name.values():
            yield together[0]._replace(statistics=tuple(ask.statistics[0] for ask in together))


def matchers_for(group: Group, condition: tuple[Matcher, ...]) -> tuple[Matcher, ...]:
    """The matchers of the configured condition that apply to a group.

    Series of GPUs and MIG instances from our agent do not name tenants, so a condition on pods must not hide them. For
    these groups, all matchers apply except those on pod, namespace and container.
    """
    if group.schema == "dcgm" or group.kind == "container":
        return condition
    return matchers_of_gpus(condition)


def matchers_of_gpus(condition: tuple[Matcher, ...]) -> tuple[Matcher, ...]:
    """The part of a condition that selects GPUs, not tenants."""
    return tuple(matcher for matcher in condition if matcher.label.removeprefix(EXPORTED) not in TENANT_LABELS)


def for_all(condition: tuple[Matcher, ...]) -> tuple[Matcher, ...]:
    """The part of the condition that applies to every group."""
    return tuple(matcher for matcher in condition if all(matcher in matchers_for(one, condition) for one in GROUPS))
