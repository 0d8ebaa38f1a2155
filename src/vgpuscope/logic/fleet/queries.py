"""The PromQL queries that read a fleet, and the recording rules that make them cheaper."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from vgpuscope.formats.prom.promql import Matcher, selector, window
from vgpuscope.knowledge.exporters import GROUPS, MANY_SAMPLES, STATISTICS, Group, Statistic
from vgpuscope.knowledge.series_labels import EXPORTED, TENANT_LABELS

_FUNCTIONS: Final[dict[Statistic, str]] = {
    "mean": "avg_over_time({series}[{window}])",
    "max": "max_over_time({series}[{window}])",
    "p95": "quantile_over_time(0.95,{series}[{window}])",
    "samples": "count_over_time({series}[{window}])",
    "last": "timestamp({series})",
}

_RATE: Final = "rate({series}[{window}])"


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
    return tuple(matcher for matcher in condition if matcher.label.removeprefix(EXPORTED) not in TENANT_LABELS)
