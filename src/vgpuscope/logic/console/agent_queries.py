"""The PromQL of what agents show beside an analysis. Each query reads several metrics at once."""

from collections.abc import Iterable

from vgpuscope.formats.prom.promql import Matcher, one_of, selector, window
from vgpuscope.model.quantity import Seconds

Matchers = tuple[Matcher, ...]


def of_gpu(gpu_id: str) -> Matchers:
    """The series of one GPU."""
    return (Matcher("gpu_uuid", "=", gpu_id),)


def of_node(node: str) -> Matchers:
    """The series of one node."""
    return (Matcher("node", "=", node),)


def of_pod(namespace: str, pod: str, uid: str | None) -> Matchers:
    """By its UID, which no scrape configuration renames; its names are renamed without honor_labels."""
    if uid:
        return (Matcher("pod_uid", "=", uid),)
    return Matcher("namespace", "=", namespace), Matcher("pod", "=", pod)


def values(names: Iterable[str], matchers: Iterable[Matcher]) -> str:
    """The current values of some metrics."""
    return selector("", (one_of("__name__", sorted(names)), *matchers))


def current_states(names: Iterable[str], matchers: Iterable[Matcher]) -> str:
    """Of metrics with one series for each state, the states that are true now."""
    return f"{values(names, matchers)} == 1"


def samples(names: Iterable[str], matchers: Iterable[Matcher], *, seconds: Seconds) -> str:
    """The samples of some metrics in the last seconds."""
    return f"{values(names, matchers)}[{window(seconds)}]"
