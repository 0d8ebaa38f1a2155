"""What all checks use: judgements, and what the labels of a series say."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from vgpuscope.catalog import agent as m
from vgpuscope.knowledge.gpu_series import DEVICES, UUID_LABELS
from vgpuscope.model.doctor import (
    Absent,
    CheckOutcome,
    DoctorFacts,
    Missing,
    ObjectNames,
    SeriesFacts,
    SeriesValue,
    Status,
    known,
)
from vgpuscope.model.quantity import Seconds

K = TypeVar("K")
V = TypeVar("V")
Judge = Callable[[DoctorFacts], CheckOutcome]

ANSWERS = frozenset({"refused", "wrong-service", "unreadable"})  # something is there: another check says what is wrong
_EXAMPLES = 5  # objects that a finding names
_TENANT = (("namespace", "podnamespace"), ("pod", "podname"), ("container", "ctrname"))


class NamedObjects(dict[str, ObjectNames]):
    """Examples, with the names that commands need."""


def passed(**numbers: float | str) -> CheckOutcome:
    """In order."""
    return CheckOutcome(status="pass", numbers=numbers)


def warned(examples: Iterable[str] = (), **numbers: float | str) -> CheckOutcome:
    """It works, but numbers can mislead."""
    return _finding("warn", examples, numbers)


def failed(examples: Iterable[str] = (), **numbers: float | str) -> CheckOutcome:
    """Something is broken."""
    return _finding("fail", examples, numbers)


def _finding(status: Status, examples: Iterable[str], numbers: dict[str, float | str]) -> CheckOutcome:
    """`omitted`: how many objects are not named, so that five names below `7 GPUs` are no contradiction."""
    each = sorted(dict.fromkeys(examples))
    omitted = {"omitted": len(each) - _EXAMPLES} if len(each) > _EXAMPLES else {}
    names = examples[each[0]] if isinstance(examples, NamedObjects) and each else ObjectNames()
    return CheckOutcome(status=status, numbers={**numbers, **omitted}, examples=tuple(each[:_EXAMPLES]), names=names)


def failed_if(found: Collection[str], **numbers: float | str) -> CheckOutcome:
    """Failed with the number of findings; without any, in order with these numbers."""
    return failed(found, count=len(found)) if found else passed(**numbers)


def warned_if(found: Collection[str], **numbers: float | str) -> CheckOutcome:
    """A warning with the number of findings; without any, in order with these numbers."""
    return warned(found, count=len(found)) if found else passed(**numbers)


def skipped(missing: Missing) -> CheckOutcome:
    """It could not be looked at."""
    return CheckOutcome(status="skipped", missing=missing)


def few(examples: Iterable[str]) -> tuple[str, ...]:
    """The first examples, each once, in order."""
    return tuple(sorted(dict.fromkeys(examples))[:_EXAMPLES])


def nothing(facts: SeriesFacts, *names: str) -> CheckOutcome:
    """Skipped: there is no series of these names to judge."""
    return skipped(_no_series(facts, *names))


def named(facts: SeriesFacts, *names: str) -> list[SeriesValue]:
    """The series of these metrics."""
    wanted = frozenset(names)
    return [one for one in facts.now if one.name in wanted]


def grouped(items: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """The items by key, in order."""
    found: dict[K, list[V]] = defaultdict(list)
    for one in items:
        found[key(one)].append(one)
    return dict(found)


def gpu_of(labels: Mapping[str, str]) -> str:
    """The UUID of the GPU; "" if none is named."""
    return next((labels[name] for name in UUID_LABELS if labels.get(name)), "")


def tenant_of(labels: Mapping[str, str]) -> tuple[str, str, str]:
    """Namespace, pod and container as the exporter wrote them; "" for each that is not there."""
    displaced = "exported_pod" in labels or "exported_namespace" in labels
    if displaced:
        namespace, pod, container = (labels.get(f"exported_{one}", "") for one, _ in _TENANT)
    else:
        namespace, pod, container = (labels.get(one) or labels.get(other, "") for one, other in _TENANT)
    return namespace, pod, container


def target_of(labels: Mapping[str, str]) -> tuple[str, str]:
    """Job and instance that were scraped."""
    return labels.get("job", ""), labels.get("instance", "")


def ours(facts: SeriesFacts) -> frozenset[tuple[str, str]]:
    """Targets that are vgpuscope's own."""
    return frozenset(target_of(one.labels) for one in named(facts, m.BUILD_INFO.name, m.SAMPLE_TIME.name))


def nodes_with_series(facts: SeriesFacts) -> frozenset[str]:
    """Nodes that some GPU series names."""
    labels = ("node", "nodeid", "Hostname", "hostname", "kubernetes_node", "exported_node", "nodename")
    return frozenset(
        one.labels[name]
        for one in facts.now
        if one.name in DEVICES or one.name == m.SAMPLE_TIME.name
        for name in labels
        if one.labels.get(name)
    )


def with_code(facts: DoctorFacts, here: object, code: str) -> CheckOutcome:
    """Failed where a source has this error code: on this machine, whose fact is `here`, or for an agent.

    Raises Absent if neither is known.
    """
    found = []
    if isinstance(here, Missing) and here.code == code:
        found.append(here.detail)
    if not isinstance(facts.agents, Missing):
        found += [
            f"{agent.node or agent.url}: {message or code}"
            for agent in facts.agents
            for _, fault, message in agent.faults
            if fault == code
        ]
    if found:
        return failed(found, count=len(found))
    if isinstance(here, Missing):
        known(facts.agents)
    return passed()


def sources_down(facts: DoctorFacts, source: str) -> list[str]:
    """Nodes on which an agent cannot read a source that should be there."""
    found = []
    if not isinstance(facts.agents, Missing):
        found += [
            f"{agent.node or agent.url}: {code or 'down'}"
            for agent in facts.agents
            for name, code, _ in agent.faults
            if name == source and not code.endswith("_ABSENT")
        ]
    if not isinstance(facts.series, Missing):
        series = facts.series
        absent = {one.labels.get("node") for one in named(series, m.SOURCE_ABSENT.name) if one.value == 1}
        found += [
            node
            for one in named(series, m.SOURCE_UP.name)
            if one.value == 0 and one.labels.get("source") == source and not _absent(series, one, absent)
            for node in [one.labels.get("node", "")]
            if not any(known.startswith(f"{node}:") for known in found)
        ]
    return found


def _absent(series: SeriesFacts, up: SeriesValue, nodes: set[str | None]) -> bool:
    if up.labels.get("node") not in nodes:
        return False
    same = ("node", "source")
    return any(
        one.value == 1 and all(one.labels.get(name) == up.labels.get(name) for name in same)
        for one in named(series, m.SOURCE_ABSENT.name)
    )


def sample_ages(facts: DoctorFacts, *asked: object) -> list[tuple[str, Seconds]]:
    """Node and age of the last sample of each agent, by its series.

    Raises Absent if there is none, and all that was asked directly is missing too.
    """
    unasked = all(isinstance(one, Missing) for one in asked)
    if isinstance(facts.series, Missing):
        if unasked:
            known(asked[-1])
        return []
    times = named(facts.series, m.SAMPLE_TIME.name)
    if not times and unasked:
        raise Absent(_no_series(facts.series, m.SAMPLE_TIME.name))
    return [(one.labels.get("node", "?"), facts.at - one.value) for one in times]


def any_agent(facts: DoctorFacts) -> None:
    """Raises Absent unless an agent can be judged, by asking it or by its series."""
    seen = not isinstance(facts.series, Missing) and named(facts.series, m.SOURCE_UP.name)
    if not seen:
        known(facts.agents)


def gpu_nodes(facts: DoctorFacts) -> set[str]:
    """Nodes that have GPUs, by the scheduler's ledger or the API server; empty if neither is known."""
    found: set[str] = set()
    if not isinstance(facts.cluster, Missing):
        found |= {node.name for node in facts.cluster.nodes if node.known and (node.devices or node.offers)}
    if not isinstance(facts.kubernetes, Missing):
        found |= {node.name for node in facts.kubernetes.nodes or () if node.offered or node.registered}
    return found


def _no_series(facts: SeriesFacts, *names: str) -> Missing:
    return Missing(fact="series", reason="no-data", detail=", ".join(sorted(names)[:3]), place=facts.origin)
