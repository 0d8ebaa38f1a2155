"""Converts pages to samples: a Prometheus that scrapes on its own schedule, restarts, and loses targets.

It follows the documentation of Prometheus. Labels of the target and of the page are merged by `honor_labels`. A series
ends with a stale marker if it is gone from the page or if its target does not answer. `up` shows the state of the
target. While Prometheus itself is down nothing is written, not even a marker.
"""

import math
import random
from collections.abc import Callable, Iterator
from math import inf

from msgspec import Struct

from bench.trust_world import Gpu, Labels, Row, agent_page, base_unit_page, dcgm_page
from tests.services.analyzer.promstub import STALE

Samples = list[tuple[float, float]]
Page = list[Row]
Edit = Callable[[float, Page], Page]

_POD_LABELS = ("namespace", "pod", "container")


class Setup(Struct, frozen=True, kw_only=True):
    """An exporter and how Prometheus scrapes it."""

    schema: str  # dcgm, dcgm-4.7 or agent
    interval: float
    relabel: str = "plain"  # or exported: honor_labels is off; honored: it is on, and the target has labels of its own

    @property
    def name(self) -> str:
        """The name in reports."""
        return f"{self.schema} {self.relabel} {self.interval:g}s"


class Target(Struct, kw_only=True):
    """One exporter as one Prometheus sees it."""

    setup: Setup
    gpus: tuple[Gpu, ...]
    job: str
    instance: str
    replica: str = ""  # replica of an HA pair; both write to one store
    since: float = -inf  # when service discovery adds the target
    until: float = inf
    down: tuple[tuple[float, float], ...] = ()  # when the target does not answer
    unseen: tuple[tuple[float, float], ...] = ()  # when Prometheus itself is down
    missed: tuple[int, ...] = ()  # scrapes that time out, counted backwards from the judgement
    phase: float = 0.0
    frozen_from: float = inf  # from then on it serves the page of this time
    edit: Edit | None = None
    jitter: float = 0.0
    stamps: Callable[[float], float] | None = None  # own scrapes only: the timestamps on the page
    broken: Callable[[float, bytes], bytes | None] | None = None  # own scrapes only: modifies the answer

    def page(self, t: float, now: float) -> Page:
        """The page at a time."""
        t = min(t, self.frozen_from)
        rows: Page = []
        for gpu in self.gpus:
            if self.setup.schema == "agent":
                rows += agent_page(gpu, t, now)
            else:
                rows += base_unit_page(gpu, t) if self.setup.schema == "dcgm-4.7" else dcgm_page(gpu, t)
        return self.edit(t, rows) if self.edit else rows

    def scrapes(self, begin: float, end: float, seed: int) -> Iterator[float]:
        """The times at which Prometheus scrapes."""
        dice = random.Random(seed)
        step = self.setup.interval
        for number in range(math.ceil((begin - self.phase) / step), math.floor((end - self.phase) / step) + 1):
            at = self.phase + step * number + dice.uniform(-1, 1) * self.jitter
            if self.since <= at:
                yield at

    def answers(self, t: float) -> bool:
        """Whether a scrape at this time gets a page."""
        back = round((self.phase - t) / self.setup.interval)
        return not _within(t, self.down) and back not in self.missed


def recorded(
    target: Target, *, now: float, begin: float, end: float, seed: int = 0
) -> list[tuple[dict[str, str], Samples]]:
    """All samples of a target in the store afterwards."""
    store = _Store(target, now)
    shown: set[tuple[str, Labels]] = set()
    for t in target.scrapes(begin, end, seed):
        if _within(t, target.unseen):
            shown = set()  # a restarted Prometheus does not know the earlier series
            continue
        if t >= target.until:
            store.ended({*shown, *store.health}, t)
            break
        up = target.answers(t)
        page = target.page(t, now) if up else []
        store.put(page, t)
        seen = {(name, labels) for name, labels, _ in page}
        store.ended(shown - seen, t)
        store.up(t, answered=up, samples=len(page))
        shown = seen
    return store.series()


class _Store:
    """The series of one target."""

    health = (("up", ()), ("scrape_duration_seconds", ()), ("scrape_samples_scraped", ()))

    def __init__(self, target: Target, now: float) -> None:
        self._target, self._now = target, now
        self._samples: dict[tuple[str, Labels], Samples] = {}

    def put(self, page: Page, t: float) -> None:
        at = self._now + t
        for name, labels, value in page:
            self._samples.setdefault((name, labels), []).append((at, value))

    def ended(self, keys: set[tuple[str, Labels]], t: float) -> None:
        for key in keys:
            if key in self._samples:
                self._samples[key].append((self._now + t, STALE))

    def up(self, t: float, *, answered: bool, samples: int) -> None:
        self.put([("up", (), float(answered)), ("scrape_samples_scraped", (), float(samples))], t)
        self.put([("scrape_duration_seconds", (), 0.01 if answered else 10.0)], t)

    def series(self) -> list[tuple[dict[str, str], Samples]]:
        health = {name for name, _ in self.health}
        found = []
        for (name, labels), samples in self._samples.items():
            merged = merged_labels(self._target, () if name in health else labels)
            found.append(({"__name__": name, **merged}, samples))
        return found


def merged_labels(target: Target, labels: Labels) -> dict[str, str]:
    """Labels of the page and of the target, merged by `honor_labels`."""
    own = {"job": target.job, "instance": target.instance}
    if target.setup.relabel != "plain":
        name = "vgpuscope-agent" if target.setup.schema == "agent" else "nvidia-dcgm-exporter"
        place = target.gpus[0].node if target.gpus else "node"
        own |= {"namespace": "gpu-operator", "pod": f"{name}-{sum(target.instance.encode()) % 997:05x}"}
        own |= {"container": name, "endpoint": "metrics", "service": name, "node": place}
    if target.replica:
        own["prometheus_replica"] = target.replica
    if target.setup.relabel == "exported":
        return {**{f"exported_{name}" if name in own else name: value for name, value in labels}, **own}
    return {**own, **dict(labels)}


def text(page: Page, stamp: float | None = None) -> bytes:
    """The page as an exporter writes it."""
    when = f" {round(stamp * 1000)}" if stamp is not None else ""
    lines = []
    for name, labels, value in page:
        inner = ",".join(f'{label}="{content}"' for label, content in labels)
        lines.append(f"{name}{{{inner}}} {value}{when}\n")
    return "".join(lines).encode()


def without(*names: str, begin: float = -inf, end: float = inf) -> Edit:
    """Removes series whose names contain one of these from the page between two times."""
    return lambda t, page: (
        [row for row in page if not any(name in row[0] for name in names)] if begin <= t < end else page
    )


def instead(name: str, value: float, *, begin: float = -inf, end: float = inf) -> Edit:
    """Replaces the value of series whose names contain this."""
    return lambda t, page: (
        [(row[0], row[1], value if name in row[0] else row[2]) for row in page] if begin <= t < end else page
    )


def _within(t: float, spans: tuple[tuple[float, float], ...]) -> bool:
    return any(begin <= t < end for begin, end in spans)
