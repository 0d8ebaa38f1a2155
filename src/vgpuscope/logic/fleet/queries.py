"""Which PromQL queries answer what is to be known of a fleet, and the recording rules that make them cheaper."""

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


class Ask(NamedTuple):
    """The statistics that are wanted of a quantity. More than one: its samples are asked for."""

    group: Group
    quantity: int
    statistics: tuple[Statistic, ...]
    name: str
    matchers: tuple[Matcher, ...]
    recorded: bool = False  # it is a recording rule's result, and needs only to be read

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
        """What is missing if it fails: begins with the term."""
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
) -> Iterator[Ask]:
    """The queries for a group, by the metrics that are there and the samples that a series may have.

    `recorded`: where a recording rule's result is there, it is read.
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
                yield Ask(group, index, (statistic,), rule, matchers, recorded=True)
            else:
                yield Ask(group, index, (statistic,), name, matchers)


# ── recording rules ──────────────────────────────────────────────────────────────────────────────────────────────

# Only what does not decide about being idle: a rule that is no longer evaluated goes on saying its last word for five
# minutes, and in these a GPU may have begun to work.
RECORDED: Final[tuple[Statistic, ...]] = ("mean", "p95")
RECORDED_SECONDS: Final = 600.0  # the window of the rules, which is the analyzer's usual one
RECORDED_EVERY: Final = 30.0  # seconds between two evaluations


def record_name(name: str, statistic: Statistic) -> str:
    """What the rule for a statistic of a metric is called."""
    return f"vgpuscope:{name}:{statistic}_10m"


class Rule(NamedTuple):
    """A recording rule that the analyzer makes use of."""

    group: Group
    metric: str  # what it records a statistic of
    name: str
    expression: str


def recording_rules() -> Iterator[Rule]:
    """All of them."""
    for group in GROUPS:
        for quantity in [one for one in group.quantities if not (one.twin or one.counter)]:
            for statistic in RECORDED:
                for name in quantity.names(statistic, many=False)[:1]:
                    expression = _FUNCTIONS[statistic].format(series=name, window=window(RECORDED_SECONDS))
                    yield Rule(group, name, record_name(name, statistic), expression)


def gathered(asks: Iterable[Ask]) -> Iterator[Ask]:
    """The same in fewer queries: where several statistics of a quantity are of one metric, its samples are asked for.

    An engine takes about as long to give twenty samples of a series as to give one statistic of them.
    """
    for _, quantity in groupby(asks, key=lambda ask: (id(ask.group), ask.quantity)):
        by_name: dict[str, list[Ask]] = {}
        for ask in quantity:
            by_name.setdefault(ask.name, []).append(ask)
        for together in by_name.values():
            yield together[0]._replace(statistics=tuple(ask.statistics[0] for ask in together))


def matchers_for(group: Group, condition: tuple[Matcher, ...]) -> tuple[Matcher, ...]:
    """The configured condition as it applies to a group.

    GPUs and instances of our agent do not name tenants, so what the condition says of pods must not hide them: there
    all matchers apply but those on pod, namespace and container.
    """
    if group.schema == "dcgm" or group.kind == "container":
        return condition
    return tuple(matcher for matcher in condition if matcher.label.removeprefix(EXPORTED) not in TENANT_LABELS)
