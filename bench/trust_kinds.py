"""Every kind of workload, outage and contradiction that is judged, including healthy ones.

Each kind defines what the GPU did and what happened to the evidence. The kinds were written without looking up how the
analyzer handles them.
"""

from collections.abc import Callable, Mapping
from math import inf, nan
from typing import Any

from bench.trust_case import BUSY, EITHER, IDLE, PREPARING, UNPROVEN, Case, Kind, Subject
from bench.trust_scrapes import Page, Setup, instead, without
from bench.trust_world import (
    H100,
    L40S,
    T4,
    Gpu,
    Instance,
    Signal,
    Tenant,
    cycle,
    either,
    flat,
    never,
    noise,
    ramp,
    spans,
)

KINDS: list[Kind] = []


def _setups(schema: str, *ways: tuple[float, str]) -> tuple[Setup, ...]:
    return tuple(Setup(schema=schema, interval=interval, relabel=relabel) for interval, relabel in ways)


DCGM = _setups("dcgm", (15, "plain"), (30, "exported"), (60, "plain"))
AGENT = _setups("agent", (15, "plain"), (30, "exported"), (60, "plain"))
BOTH = DCGM + AGENT
HONORED = _setups("dcgm", (30, "honored")) + _setups("agent", (15, "honored"))
VIDEO = (*BOTH, *HONORED)
RATIO = _setups("dcgm-4.7", (15, "plain"), (30, "exported"))
EVERY = (
    *_setups("dcgm", (15, "plain"), (30, "plain"), (60, "plain"), (15, "exported"), (60, "exported"), (30, "honored")),
    *_setups("agent", (15, "plain"), (30, "plain"), (60, "plain"), (15, "exported"), (60, "honored")),
)
SLOW = tuple(Setup(schema=schema, interval=120) for schema in ("dcgm", "agent"))
RARE = tuple(Setup(schema=schema, interval=900) for schema in ("dcgm", "agent"))


def kind(
    name: str,
    truth: str,
    setups: tuple[Setup, ...] = BOTH,
    *,
    world: str = "usual",
    own: bool = True,
    own_schema: str = "",
) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """Add a kind to the table; `own`: it can also happen to an analyzer with its own scrapes."""
    schemas = tuple(dict.fromkeys(setup.schema for setup in setups if own_schema in setup.schema)) if own else ()

    def add(make: Callable[[Case], None]) -> Callable[[Case], None]:
        KINDS.append(Kind(name=name, truth=truth, setups=setups, make=make, world=world, own=schemas))
        return make

    return add


# ── work of all kinds ────────────────────────────────────────────────────────────────────────────────────────────


@kind("training", BUSY, EVERY)
def _(c: Case) -> None:
    c.shows(c.gpu(noise(c.number, 0.7, 1.0), memory=70_000))


@kind("training, waits for data", BUSY)
def _(c: Case) -> None:
    c.shows(c.gpu(cycle(c.m(3), c.m(3) * 0.3 + c.seen, phase=c.dice.uniform(0, c.m(3))), memory=60_000))


@kind("training, one long pause for a checkpoint", BUSY)
def _(c: Case) -> None:
    c.shows(c.gpu(spans((-inf, -c.m(6.5))), memory=60_000))


@kind("one burst, one sample", BUSY)
def _(c: Case) -> None:
    at = c.somewhen(c.seen)
    c.shows(c.gpu(spans((at, at + c.seen)), memory=400))


@kind("one burst between two scrapes, in the agent's maximum and counter", BUSY, AGENT)
def _(c: Case) -> None:
    target = c.target(c.gpu(memory=9_000))
    back = c.dice.randint(3, int(c.m(8) // c.s))
    at = target.phase - back * c.s + 0.3 * c.s
    target.gpus[0].tenants[0].compute = spans((at, at + max(1.0, 0.3 * c.s)))


@kind("a job as regular as the scrapes, always between two", BUSY, (*AGENT, *_setups("dcgm", (30, "plain"))))
def _(c: Case) -> None:
    target = c.target(c.gpu(memory=9_000))
    gpu = target.gpus[0]
    if not c.agent:
        target.phase = -0.05 * c.s  # the page shows what was collected just before the scrape
        gpu.tenants[0].compute = cycle(gpu.collect, 0.4 * gpu.collect, phase=0.3 * gpu.collect)
    else:
        gpu.tenants[0].compute = cycle(c.s, max(1.0, 0.3 * c.s), phase=target.phase + 0.3 * c.s)


@kind("work that only the energy counter shows", BUSY, _setups("dcgm", (60, "plain"), (60, "exported")), own=False)
def _(c: Case) -> None:
    gpu = c.gpu(cycle(60, 40, level=1.0, phase=8), memory=9_000, profiling=False)
    c.shows(gpu, phase=-58.0)  # collections at full and at half minutes; the latter are never scraped


@kind("inference at night, a request now and then", BUSY, (*AGENT, *_setups("dcgm", (15, "plain"), (30, "exported"))))
def _(c: Case) -> None:
    long = max(1.0, 0.16 * c.collect)
    at = [c.somewhen(long) for _ in range(3)]
    c.shows(c.gpu(spans(*((t - t % 1, t - t % 1 + long) for t in at)), memory=66_000))


@kind("chat server, little traffic", BUSY)
def _(c: Case) -> None:
    peaks = cycle(c.m(2.5), c.seen, level=0.16, phase=c.dice.uniform(0, c.m(2.5)))
    c.shows(c.gpu(either(noise(c.number, 0, 0.03), peaks), memory=70_000))


@kind("notebook in use", BUSY)
def _(c: Case) -> None:
    cells = [c.somewhen(c.seen) for _ in range(3)]
    c.shows(c.gpu(spans(*((at, at + c.seen) for at in cells), level=0.4), memory=12_000))


@kind("video, encoding only", BUSY, VIDEO)
def _(c: Case) -> None:
    c.shows(c.gpu(encoder=noise(c.number, 0.2, 0.5), memory=900, model=L40S))


@kind("video, decoding only", BUSY, VIDEO)
def _(c: Case) -> None:
    c.shows(c.gpu(noise(c.number, 0, 0.02), decoder=noise(c.number, 0.3, 0.7), memory=900, model=L40S))


@kind("pictures, JPEG engine only", BUSY, AGENT)
def _(c: Case) -> None:
    c.shows(c.gpu(jpeg=noise(c.number, 0.2, 0.6), memory=900))


@kind("a pod that crashes again and again", BUSY)
def _(c: Case) -> None:
    period, phase = c.m(3.5), c.dice.uniform(0, c.m(1))
    work = cycle(period, c.seen, phase=phase)
    rest = tuple((phase + n * period + c.seen + 2, phase + (n + 1) * period) for n in range(-6, 3))
    pod = Tenant(pod=c.pod(), compute=work, memory=lambda t: 30_000 if work(t) else 0, paused=rest)
    c.shows(c.gpu(tenants=(pod,)))


@kind("a large model is loaded: memory grows, PCIe is busy, no kernel runs", BUSY)
def _(c: Case) -> None:
    begin, end = -c.m(9), -c.m(0.5)
    grows = ramp(begin, end, 1_500, 74_000)
    c.shows(c.gpu(memory=grows, pcie=spans((begin, end), level=2.4e9), copy=spans((begin, end), level=0.02)))


@kind("GPUDirect: PCIe moves gigabytes a second, no kernel runs", BUSY)
def _(c: Case) -> None:
    c.shows(c.gpu(memory=40_000, pcie=noise(c.number, 7e9, 1.1e10), copy=noise(c.number, 0.02, 0.04)))


@kind("only rank 0 of a pod's GPUs works", IDLE, _setups("dcgm", (30, "plain")) + _setups("agent", (30, "plain")))
def _(c: Case) -> None:
    pod = c.pod()
    worker = c.gpu(noise(c.number, 0.6, 0.9), pod=pod)
    c.truth[Subject(worker.uuid)] = BUSY
    c.target(worker, *(c.gpu(pod=pod, memory=3_000) for _ in range(3)))


# ── power and other contradictions ───────────────────────────────────────────────────────────────────────────────


@kind("360 W of 400 W and utilisation 0", UNPROVEN)
def _(c: Case) -> None:
    c.shows(c.gpu(watts=noise(c.number, 355, 365), profiling=False))


@kind("360 W and utilisation 0, the limit is not exported", UNPROVEN, (*BOTH, *HONORED))
def _(c: Case) -> None:
    c.shows(c.gpu(watts=noise(c.number, 355, 365), profiling=False, shows_limit=False))


@kind("56 to 60 % of the power limit and utilisation 0", UNPROVEN)
def _(c: Case) -> None:
    c.shows(c.gpu(watts=noise(c.number, 224, 240), profiling=False))


@kind("T4 at 68 W and utilisation 0, the limit is not exported", UNPROVEN)
def _(c: Case) -> None:
    gpu = c.gpu(watts=noise(c.number, 64, 68), profiling=False, shows_limit=False, model=T4, memory=3_000)
    c.shows(gpu)


@kind("stalled collective: utilisation 100 %, power as if idle", BUSY)
def _(c: Case) -> None:
    c.shows(c.gpu(flat(1.0), watts=noise(c.number, 82, 95), copy=never, memory=70_000))


@kind("two exporters contradict each other", UNPROVEN, _setups("agent", (15, "plain"), (30, "plain")), own=False)
def _(c: Case) -> None:
    c.shows(gpu := c.gpu(noise(c.number, 0.8, 1.0)), edit=_zeros)
    c.shows(gpu, setup=Setup(schema="dcgm", interval=c.s), job="dcgm-beside")


def _zeros(_: float, page: Page) -> Page:
    work = ("utilization", "controller", "busy", "sm_", "power", "energy", "clock", "state")
    return [(name, labels, 0.0 if any(part in name for part in work) else value) for name, labels, value in page]


# ── holders ──────────────────────────────────────────────────────────────────────────────────────────────────────


@kind("handover, idle to busy", BUSY)
def _(c: Case) -> None:
    at = -c.m(4)
    old = Tenant(pod=c.pod("-a"), memory=flat(3_000), until=at)
    new = Tenant(pod=c.pod("-b"), memory=flat(60_000), since=at + 2, compute=flat(0.9))
    c.shows(c.gpu(tenants=(old, new)))


@kind("handover, busy to idle", UNPROVEN)
def _(c: Case) -> None:
    at = -c.m(c.dice.uniform(3, 4.5))
    old = Tenant(pod=c.pod("-a"), memory=flat(60_000), until=at, compute=flat(0.9))
    new = Tenant(pod=c.pod("-b"), memory=flat(3_000), since=at + 2)
    c.shows(c.gpu(tenants=(old, new)))


@kind("handover, idle to idle, the new pod is young", UNPROVEN)
def _(c: Case) -> None:
    at = -c.m(3)
    old = Tenant(pod=c.pod("-a"), memory=flat(60_000), until=at)
    new = Tenant(pod=c.pod("-b"), memory=flat(3_000), since=at + 2)
    c.shows(c.gpu(tenants=(old, new)))


@kind("a pod of the same name takes over, with another UID", UNPROVEN, AGENT)
def _(c: Case) -> None:
    at = -c.m(2.5)
    old = Tenant(pod=c.pod(), memory=flat(60_000), until=at)
    new = Tenant(pod=c.pod(), memory=flat(600), since=at + c.s, generation=1)
    c.shows(c.gpu(tenants=(old, new)))


@kind("the pod has finished", UNPROVEN, own=False)
def _(c: Case) -> None:
    pod = Tenant(pod=c.pod(), memory=flat(60_000), until=-c.m(4), compute=spans((-inf, -c.m(5))))
    c.shows(c.gpu(tenants=(pod,)))


@kind("labels of the pod appear halfway, the work was before", UNPROVEN, DCGM, own=False)
def _(c: Case) -> None:
    c.shows(c.gpu(spans((-inf, -c.m(5.5)))), edit=_anonymous(-inf, -c.m(5)))


@kind("labels of the pod come and go, it works", BUSY, DCGM, own=False)
def _(c: Case) -> None:
    def flapping(t: float, page: Page) -> Page:
        return _anonymous(-inf, inf)(t, page) if t // c.m(1) % 2 else page

    c.shows(c.gpu(cycle(c.m(2.6), c.m(1)), memory=40_000), edit=flapping)


def _anonymous(begin: float, end: float) -> Callable[[float, Page], Page]:
    """Removes the pod labels, as if the kubelet's socket did not answer."""
    hidden = {"pod", "namespace", "container"}

    def edit(t: float, page: Page) -> Page:
        if not begin <= t < end:
            return page
        return [(name, tuple(pair for pair in labels if pair[0] not in hidden), value) for name, labels, value in page]

    return edit


# ── gaps ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _hole(c: Case, length: float) -> tuple[float, float]:
    at = -c.dice.uniform(c.m(1) + length, c.m(9))
    return at, at + length


def _unseen_work(c: Case, *times: tuple[float, float]) -> Signal:
    """Work that no exporter shows later; with an agent there is none, because its counters would show it."""
    return never if c.agent else spans(*times)


@kind("a hole of 5 minutes in a job", UNPROVEN, EVERY, own=False)
def _(c: Case) -> None:
    hole = _hole(c, c.m(5))
    c.shows(c.gpu(_unseen_work(c, hole)), unseen=(hole,), job=f"hole-{c.number}")


def _restarted(c: Case) -> None:
    c.shows(c.gpu(_unseen_work(c, (-c.m(7), -c.m(3)))), unseen=((-c.m(7.5), -c.m(2.5)),))


kind("Prometheus was down for 5 minutes", UNPROVEN, EVERY, world="restarted", own=False)(_restarted)
for _seconds in (30, 60):
    kind(
        f"Prometheus was down for 5 minutes, all jobs have {_seconds} s",
        UNPROVEN,
        tuple(one for one in EVERY if one.interval == _seconds),
        world=f"restarted-{_seconds}s",
        own=False,
    )(_restarted)


@kind("Prometheus was down for 4 minutes, until just now", UNPROVEN, EVERY, world="restarted-late", own=False)
def _(c: Case) -> None:
    c.shows(c.gpu(_unseen_work(c, (-c.m(4.5), -c.m(2)))), unseen=((-c.m(5.5), -c.m(1.5)),))


@kind("Prometheus was down twice, 2.5 minutes each", UNPROVEN, EVERY, world="two-holes", own=False)
def _(c: Case) -> None:
    holes = ((-c.m(8.5), -c.m(6)), (-c.m(4), -c.m(1.5)))
    c.shows(c.gpu(_unseen_work(c, (-c.m(8), -c.m(6.5)))), unseen=holes)


@kind("Prometheus has only the last 5 minutes", UNPROVEN, EVERY, world="young", own=False)
def _(c: Case) -> None:
    c.shows(c.gpu(spans((-inf, -c.m(7)))), since=-c.m(5))


@kind("two holes in a job", UNPROVEN, own=False)
def _(c: Case) -> None:
    holes = ((-c.m(8.5), -c.m(5.5)), (-c.m(4), -c.m(1.2)))
    c.shows(c.gpu(_unseen_work(c, holes[0])), unseen=holes, job=f"holes-{c.number}")


@kind("the beginning of the window is missing", UNPROVEN, EVERY, own=False)
def _(c: Case) -> None:
    c.shows(c.gpu(spans((-inf, -c.m(8.2)))), since=-c.m(c.dice.uniform(5, 6.8)), job=f"late-{c.number}")


@kind("a new node, 90 seconds old", UNPROVEN, own=False)
def _(c: Case) -> None:
    c.shows(c.gpu(memory=0), since=-c.m(1.5) - c.s)


@kind("a hole of one series: utilisation", UNPROVEN, DCGM)
def _(c: Case) -> None:
    begin, end = _hole(c, c.m(5))
    c.shows(c.gpu(spans((begin, end)), profiling=False, watts=flat(80)), edit=without("UTIL", begin=begin, end=end))


@kind("a hole of the agent's compute series", UNPROVEN, AGENT)
def _(c: Case) -> None:
    begin, end = _hole(c, c.m(5))
    names = ("_utilization_", "_busy_seconds", "_sm_", "_controller_", "_encoder", "_decoder", "_jpeg", "_ofa")
    gpu = c.gpu(spans((begin, end)), watts=flat(80))
    # counters that come back would show the missed work, so they are removed for the whole time
    c.shows(
        gpu,
        edit=lambda t, page: without(*names, begin=begin, end=end)(t, without("_seconds_total", "_energy")(t, page)),
    )


@kind("only memory and power are exported", UNPROVEN)
def _(c: Case) -> None:
    keep = ("FB_", "POWER", "memory_used", "memory_total", "memory_free", "_info", "_power_")
    gpu = c.gpu(noise(c.number, 0.1, 0.2), watts=flat(90), profiling=False)
    c.shows(gpu, edit=lambda _, page: [row for row in page if any(part in row[0] for part in keep)])


@kind("the exporter died 4 minutes ago", UNPROVEN)
def _(c: Case) -> None:
    c.shows(c.gpu(spans((-c.m(3), inf))), down=((-c.m(4), inf),))


@kind("the exporter died 7 minutes ago", UNPROVEN)
def _(c: Case) -> None:
    c.shows(c.gpu(spans((-c.m(5), inf))), down=((-c.m(7), inf),))


@kind("the exporter did not answer for 4 minutes", UNPROVEN)
def _(c: Case) -> None:
    hole = _hole(c, c.m(4))
    c.shows(c.gpu(_unseen_work(c, hole), profiling=False), down=(hole,))


@kind("the exporter is killed for its memory every 3 minutes, and is away for 2", UNPROVEN, BOTH)
def _(c: Case) -> None:
    phase = c.dice.uniform(0, c.m(1))
    holes = tuple((phase - c.m(3) * n, phase - c.m(3) * n + c.m(2)) for n in range(-1, 6))
    c.shows(c.gpu(memory=9_000), down=holes)


@kind("a scrape longer than the window", UNPROVEN, RARE, own=False)
def _(c: Case) -> None:
    c.shows(c.gpu(spans((-c.m(8), -c.m(2)), level=0.5)), phase=-c.m(c.dice.choice([0.5, 3, 9])))


@kind("scrapes every 2 minutes in a window of 10, one of them shows work", BUSY, SLOW, own=False)
def _(c: Case) -> None:
    at = c.somewhen(c.seen)
    c.shows(c.gpu(spans((at, at + c.seen))))


@kind("scrapes every 2 minutes in a window of 10, idle", EITHER, SLOW, own=False)
def _(c: Case) -> None:
    c.shows(c.gpu())


# ── replicas and duplicates ──────────────────────────────────────────────────────────────────────────────────────


def _replicas(c: Case, gpu: Gpu, first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    instance = f"10.9.{c.number & 255}.{c.number >> 8}:9400"
    for name, more in (("a", first), ("b", second)):
        c.target(gpu, replica=f"prometheus-{name}", instance=instance, **more)


@kind("HA replicas, the one that saw the work has a hole now", BUSY, own=False)
def _(c: Case) -> None:
    gpu = c.gpu(spans((-c.m(8.5), -c.m(6))), profiling=False)
    _replicas(c, gpu, {"unseen": ((-c.m(9.5), -c.m(5)),)}, {"unseen": ((-c.m(5), inf),)})


@kind("HA replicas, both have the same hole", UNPROVEN, own=False)
def _(c: Case) -> None:
    holes = {"unseen": (_hole(c, c.m(4.5)),), "job": f"ha-{c.number}"}
    _replicas(c, c.gpu(), holes, holes)


@kind("HA replicas, both began 4 minutes ago", UNPROVEN, own=False)
def _(c: Case) -> None:
    young = {"since": -c.m(4), "job": f"ha-young-{c.number}"}
    _replicas(c, c.gpu(), young, young)


@kind("HA replicas, idle", IDLE, own=False)
def _(c: Case) -> None:
    _replicas(c, c.gpu(), {}, {})


@kind("HA replicas, one is down, idle", IDLE, own=False)
def _(c: Case) -> None:
    _replicas(c, c.gpu(), {}, {"unseen": ((-c.m(6), inf),)})


@kind("two jobs scrape one exporter, every 15 s and every 60 s, idle", IDLE, _setups("dcgm", (15, "plain")), own=False)
def _(c: Case) -> None:
    c.shows(gpu := c.gpu())
    c.shows(gpu, job="gpu-metrics", setup=Setup(schema="dcgm", interval=60))


@kind("two jobs scrape one exporter, the slow one alone saw it all", BUSY, _setups("dcgm", (15, "plain")), own=False)
def _(c: Case) -> None:
    c.shows(gpu := c.gpu(spans((-c.m(8.5), -c.m(7)))), since=-c.m(5), job=f"fast-{c.number}")
    c.shows(gpu, job="gpu-metrics", setup=Setup(schema="dcgm", interval=60))


@kind("agent and dcgm-exporter on one GPU, idle", IDLE, _setups("agent", (15, "plain"), (30, "plain")), own=False)
def _(c: Case) -> None:
    c.shows(gpu := c.gpu())
    c.shows(gpu, setup=Setup(schema="dcgm", interval=30), job="dcgm-beside")


@kind(
    "agent and dcgm-exporter, the agent is dead, dcgm-exporter sees work",
    BUSY,
    _setups("agent", (15, "plain")),
    own=False,
)
def _(c: Case) -> None:
    c.shows(gpu := c.gpu(spans((-c.m(6), inf), level=0.8)), down=((-c.m(6.5), inf),))
    c.shows(gpu, setup=Setup(schema="dcgm", interval=30), job="dcgm-beside")


@kind("the exporter is rolled out again under a new address, idle", IDLE, own=False)
def _(c: Case) -> None:
    gpu, at = c.gpu(), -c.m(4)
    c.shows(gpu, until=at)
    c.shows(gpu, since=at)


@kind("the exporter is rolled out again, the work was before", BUSY, own=False)
def _(c: Case) -> None:
    gpu, at = c.gpu(spans((-inf, -c.m(5.5)))), -c.m(4)
    c.shows(gpu, until=at)
    c.shows(gpu, since=at)


# ── bad values ───────────────────────────────────────────────────────────────────────────────────────────────────


@kind("lost GPU, XID 79", UNPROVEN)
def _(c: Case) -> None:
    c.shows(c.gpu(memory=30_000, lost_from=-c.m(c.dice.uniform(4, 8))))


@kind("utilisation is DCGM's blank value", UNPROVEN, DCGM)
def _(c: Case) -> None:
    c.shows(c.gpu(noise(c.number, 0.3, 0.6), profiling=False, watts=flat(90)), edit=instead("UTIL", 2147483632.0))


@kind("utilisation is NaN", UNPROVEN)
def _(c: Case) -> None:
    edit = lambda t, page: instead("UTIL", nan)(t, instead("_ratio", nan)(t, without("_seconds_total")(t, page)))  # noqa: E731
    c.shows(c.gpu(noise(c.number, 0.3, 0.6), profiling=False, watts=flat(90)), edit=edit)


@kind("the agent hangs: its page is that of 8 minutes ago", UNPROVEN, AGENT)
def _(c: Case) -> None:
    c.shows(c.gpu(spans((-c.m(7), inf))), frozen_from=-c.m(8))


@kind("counters begin at 0 again, the work was just before", BUSY, AGENT)
def _(c: Case) -> None:
    at = -c.m(c.dice.uniform(3, 6))
    long = max(2.0, 1.2 * c.s)
    c.shows(c.gpu(spans((at - 2 * c.s - long, at - 2 * c.s)), restarts=(at,)))


@kind("counters begin at 0 again, idle", IDLE)
def _(c: Case) -> None:
    c.shows(c.gpu(restarts=(-c.m(c.dice.uniform(3, 6)),)))


@kind("DCGM 4.7 names, training", BUSY, RATIO)
def _(c: Case) -> None:
    c.shows(c.gpu(noise(c.number, 0.5, 0.99), memory=60_000))


@kind("DCGM 4.7 names, a burst of 60 %", BUSY, RATIO)
def _(c: Case) -> None:
    at = c.somewhen(c.seen)
    c.shows(c.gpu(spans((at, at + c.seen), level=0.6), profiling=False))


@kind("DCGM 4.7 names, ratios from 0 to 100, training", BUSY, RATIO)
def _(c: Case) -> None:
    def percent(_: float, page: Page) -> Page:
        return [(name, labels, value * 100 if name.endswith("_RATIO") else value) for name, labels, value in page]

    c.shows(c.gpu(noise(c.number, 0.3, 0.9), memory=60_000), edit=percent)


@kind("DCGM 4.7 names, idle", IDLE, RATIO)
def _(c: Case) -> None:
    c.shows(c.gpu())


# ── MIG ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _mig(c: Case, gi: int, *, level: float = 0.0, shown: bool = True, memory: float = 9_000) -> Instance:
    pod = Tenant(pod=c.pod(f"-{gi}"), compute=noise(gi, 0.8 * level, level), memory=flat(memory))
    return Instance(gi=gi, tenant=pod, compute_shown=shown)


MIG_DCGM = _setups("dcgm", (15, "plain"), (30, "exported"), (60, "plain"))


@kind("MIG with profiling metrics, one busy, one idle", BUSY, MIG_DCGM)
def _(c: Case) -> None:
    c.shows(c.cut((_mig(c, 1, level=0.8), BUSY), (_mig(c, 2), IDLE)))


@kind("MIG with profiling metrics, both idle", IDLE, MIG_DCGM)
def _(c: Case) -> None:
    c.shows(c.cut((_mig(c, 1), IDLE), (_mig(c, 2), IDLE)))


MIG_AGENT = _setups("agent", (15, "plain"), (30, "exported"), (60, "honored"))


def _small(c: Case, gi: int, compute: Signal = never, **more: Any) -> Instance:
    """An instance with one of seven slices."""
    pod = Tenant(pod=c.pod(f"-{gi}"), compute=compute, memory=flat(4_000))
    return Instance(gi=gi, tenant=pod, compute_shown=True, profile="1g.10gb", memory=9_984, **more)


@kind("MIG, the agent has GPM, one busy, one idle", BUSY, MIG_AGENT)
def _(c: Case) -> None:
    c.shows(c.cut((_mig(c, 1, level=0.8), BUSY), (_mig(c, 2), IDLE), model=H100))


@kind("MIG, the agent has GPM, all idle, one holds nearly nothing", IDLE, MIG_AGENT)
def _(c: Case) -> None:
    c.shows(c.cut((_mig(c, 1), IDLE), (_small(c, 7), IDLE), (_mig(c, 2, memory=30), IDLE), model=H100))


@kind("MIG, the agent has GPM, a seventh of the GPU works a little", BUSY, MIG_AGENT)
def _(c: Case) -> None:
    c.shows(c.cut((_small(c, 7, noise(c.number, 0.1, 0.25)), BUSY), (_small(c, 8), IDLE), model=H100))


@kind("MIG, the agent has GPM, one burst between two scrapes", BUSY, MIG_AGENT)
def _(c: Case) -> None:
    target = c.target(c.cut((_small(c, 7), BUSY), (_small(c, 8), IDLE), model=H100))
    back = c.dice.randint(3, int(c.m(8) // c.s))
    at = target.phase - back * c.s + 0.3 * c.s
    target.gpus[0].instances[0].tenant.compute = spans((at, at + max(1.0, 0.3 * c.s)))


@kind("MIG, the agent has GPM, an instance only decodes video", BUSY, MIG_AGENT)
def _(c: Case) -> None:
    c.shows(c.cut((_small(c, 7, decoder=noise(c.number, 0.3, 0.6)), BUSY), (_small(c, 8), IDLE), model=H100))


@kind("MIG, GPM was switched off 4 minutes ago", UNPROVEN, MIG_AGENT)
def _(c: Case) -> None:
    gone = without("_active_", "_sm_", "decoder", begin=-c.m(4))
    c.shows(c.cut((_mig(c, 1), UNPROVEN), (_mig(c, 2, level=0.5), BUSY), model=H100), edit=gone)


@kind("MIG, GPM began in the middle of the window", UNPROVEN, MIG_AGENT)
def _(c: Case) -> None:
    gone = without("_active_", "_sm_", "decoder", end=-c.m(5))
    c.shows(c.cut((_mig(c, 1), UNPROVEN), (_mig(c, 2), UNPROVEN), model=H100), edit=gone)


@kind("MIG, the agent reads a dcgm-exporter, one busy, one idle", BUSY, MIG_AGENT)
def _(c: Case) -> None:
    busy, idle = _small(c, 7, noise(c.number, 0.3, 0.9), beside=True), _small(c, 8, beside=True)
    c.shows(c.cut((busy, BUSY), (idle, IDLE)))


@kind("MIG, the agent reads a dcgm-exporter, both idle", IDLE, MIG_AGENT)
def _(c: Case) -> None:
    c.shows(c.cut((_small(c, 7, beside=True), IDLE), (_small(c, 8, beside=True), IDLE)))


@kind("MIG without profiling metrics", UNPROVEN, (*MIG_DCGM, *AGENT))
def _(c: Case) -> None:
    instances = (_mig(c, 1, level=0.3, shown=False), UNPROVEN), (_mig(c, 2, shown=False), UNPROVEN)
    c.shows(c.cut(*instances, watts=flat(150)))


@kind("MIG, utilisation 0 is exported for every instance", UNPROVEN, MIG_DCGM)
def _(c: Case) -> None:
    def zeros(_: float, page: Page) -> Page:
        labels = {row[1] for row in page}
        return [*page, *(("DCGM_FI_DEV_GPU_UTIL", one, 0.0) for one in sorted(labels))]

    instances = (_mig(c, 1, level=0.3, shown=False), UNPROVEN), (_mig(c, 2, shown=False), UNPROVEN)
    c.shows(c.cut(*instances, watts=flat(150)), edit=zeros)


# ── shared GPUs ──────────────────────────────────────────────────────────────────────────────────────────────────


def _tenant(c: Case, name: str, **more: object) -> Tenant:
    usual: dict[str, object] = {"memory": flat(16_000), "limit": 24_576, "namespace": f"team-{name}"}
    return Tenant(pod=c.pod(f"-{name}"), **(usual | more))  # type: ignore[arg-type]


@kind("HAMi: a worker, a notebook that does nothing, and a pod that has not started", BUSY, AGENT)
def _(c: Case) -> None:
    worker = _tenant(c, "worker", compute=noise(c.number, 0.6, 0.8))
    empty = _tenant(c, "empty", started=False, memory=never)
    c.shows(c.shared((worker, BUSY), (_tenant(c, "notebook", memory=flat(20_480)), IDLE), (empty, UNPROVEN)))


@kind("HAMi: three of four tenants do nothing", BUSY, AGENT)
def _(c: Case) -> None:
    idle = [(_tenant(c, f"idle{n}", memory=flat(800)), IDLE) for n in range(3)]
    c.shows(c.shared((_tenant(c, "worker", compute=noise(c.number, 0.2, 0.5)), BUSY), *idle))


@kind("HAMi: all tenants do nothing", IDLE, (*AGENT, *_setups("agent", (15, "honored"))))
def _(c: Case) -> None:
    c.shows(c.shared((_tenant(c, "one"), IDLE), (_tenant(c, "two"), IDLE)))


@kind("HAMi: a tenant with one burst beside idle ones", BUSY, AGENT)
def _(c: Case) -> None:
    at = c.somewhen(c.seen)
    burst = _tenant(c, "burst", compute=spans((at, at + c.seen), level=0.3))
    c.shows(c.shared((burst, BUSY), (_tenant(c, "idle"), IDLE)))


@kind("HAMi: a burst between two scrapes beside a busy tenant", BUSY, AGENT)
def _(c: Case) -> None:
    worker = _tenant(c, "worker", compute=flat(0.5))
    target = c.target(c.shared((worker, BUSY), (burst := _tenant(c, "burst"), BUSY)))
    at = target.phase - c.dice.randint(3, int(c.m(8) // c.s)) * c.s + 0.3 * c.s
    burst.compute = spans((at, at + max(1.0, 0.3 * c.s)), level=0.4)


@kind("HAMi: the card is at 90 %, every tenant is shown with 0", UNPROVEN, AGENT)
def _(c: Case) -> None:
    tenants = [(_tenant(c, name, launches=flat(1.0)), UNPROVEN) for name in ("one", "two")]
    c.shows(c.shared(*tenants, gpu=BUSY, unattributed=flat(0.9)))


@kind("HAMi: a tenant without numbers of its own", UNPROVEN, AGENT)
def _(c: Case) -> None:
    blind = _tenant(c, "blind", measured=False, compute=flat(0.3))
    c.shows(c.shared((_tenant(c, "worker", compute=flat(0.5)), BUSY), (blind, UNPROVEN), gpu=BUSY))


@kind("HAMi: a young tenant beside a busy one", UNPROVEN, AGENT)
def _(c: Case) -> None:
    young = _tenant(c, "young", since=-c.m(3))
    c.shows(c.shared((_tenant(c, "worker", compute=flat(0.5)), BUSY), (young, UNPROVEN), gpu=BUSY))


@kind("HAMi: series of one tenant have a hole", UNPROVEN, AGENT)
def _(c: Case) -> None:
    begin, end = _hole(c, c.m(4))
    holed = _tenant(c, "holed")

    def edit(t: float, page: Page) -> Page:
        return [row for row in page if not (begin <= t < end and ("pod", holed.pod) in row[1])]

    c.shows(c.shared((_tenant(c, "worker", compute=flat(0.5)), BUSY), (holed, UNPROVEN), gpu=BUSY), edit=edit)


@kind("HAMi: false zeros in the library's numbers of a busy tenant", BUSY, AGENT)
def _(c: Case) -> None:
    seed = c.number

    def edit(t: float, page: Page) -> Page:
        zero = (int(t / c.s) * 2654435761 + seed) % 4 == 0
        return [(name, labels, 0.0 if zero and name == "vgpuscope_vgpu_sm_ratio" else v) for name, labels, v in page]

    c.shows(c.shared((_tenant(c, "worker", compute=flat(0.4)), BUSY), (_tenant(c, "idle"), IDLE)), edit=edit)


@kind("time-slicing: the card's numbers are copied to every pod, busy", BUSY, DCGM)
def _(c: Case) -> None:
    worker = _tenant(c, "worker", compute=noise(c.number, 0.5, 0.8))
    c.shows(c.shared((worker, BUSY), (_tenant(c, "other"), UNPROVEN), mode="time-slicing"))


@kind("time-slicing: the card's numbers are copied to every pod, idle", IDLE, DCGM)
def _(c: Case) -> None:
    c.shows(c.shared((_tenant(c, "one"), EITHER), (_tenant(c, "two"), EITHER), mode="time-slicing"))


@kind("time-slicing: one burst", BUSY, DCGM)
def _(c: Case) -> None:
    at = c.somewhen(c.seen)
    worker = _tenant(c, "worker", compute=spans((at, at + c.seen)))
    c.shows(c.shared((worker, BUSY), (_tenant(c, "other"), UNPROVEN), mode="time-slicing"))


@kind("time-slicing: the agent sees each pod, one works", BUSY, AGENT)
def _(c: Case) -> None:
    worker = _tenant(c, "worker", compute=noise(c.number, 0.5, 0.8))
    c.shows(c.shared((worker, BUSY), (_tenant(c, "other"), IDLE), mode="time-slicing"))


# ── truly idle ───────────────────────────────────────────────────────────────────────────────────────────────────


@kind("idle, nothing held", IDLE, EVERY)
def _(c: Case) -> None:
    c.shows(c.gpu(memory=4))


@kind("idle, a notebook holds 20 GiB", IDLE, EVERY)
def _(c: Case) -> None:
    c.shows(c.gpu(memory=20_480, watts=noise(c.number, 60, 75)))


@kind("idle, a server holds all memory", IDLE)
def _(c: Case) -> None:
    c.shows(c.gpu(memory=75_000, watts=noise(c.number, 78, 90), clock=1410))


NO_POD = (*AGENT, *_setups("dcgm", (15, "exported"), (60, "exported")), *HONORED)


@kind("idle, no pod", IDLE, NO_POD, own_schema="agent")  # otherwise GPUs without a pod are not queried by default
def _(c: Case) -> None:
    c.shows(c.gpu(tenants=()))


@kind("idle, health checks cause 1 to 2 %", IDLE)
def _(c: Case) -> None:
    c.shows(c.gpu(noise(c.number, 0, 0.02), memory=300, watts=noise(c.number, 60, 70)))


@kind("idle, H100 at 118 W", IDLE)
def _(c: Case) -> None:
    c.shows(c.gpu(model=H100, memory=500))


@kind("idle, T4 without limit and profiling metrics", IDLE)
def _(c: Case) -> None:
    c.shows(c.gpu(model=T4, memory=2_000, shows_limit=False, profiling=False))


@kind("idle, power cannot be read", IDLE)
def _(c: Case) -> None:
    c.shows(c.gpu(memory=2_000, shows_power=False))


@kind("idle, power reads 0", IDLE)
def _(c: Case) -> None:
    c.shows(c.gpu(memory=2_000, watts=noise(c.number, 0, 0.4)))


@kind("idle, clocks are locked high", IDLE)
def _(c: Case) -> None:
    c.shows(c.gpu(memory=2_000, clock=1410, watts=noise(c.number, 95, 105)))


@kind("idle, single scrapes were missed", IDLE, _setups("dcgm", (15, "plain"), (30, "exported")) + AGENT[:2])
def _(c: Case) -> None:
    first = c.dice.randint(3, 8)
    c.shows(c.gpu(), missed=(first, first + c.dice.randint(4, 8)))


@kind("idle, scrapes come late and early", IDLE, own=False)
def _(c: Case) -> None:
    c.shows(c.gpu(), jitter=0.12 * c.s)


@kind("idle, it worked until 2 minutes before the window", IDLE)
def _(c: Case) -> None:
    c.shows(c.gpu(spans((-inf, -c.m(12)))))


@kind("idle, Prometheus was down before the window", IDLE, own=False)
def _(c: Case) -> None:
    c.shows(c.gpu(), unseen=((-inf, -c.m(11)),), job=f"earlier-{c.number}")


@kind("idle, scrapes every 2 minutes, window of 30", IDLE, SLOW, world="long", own=False)
def _(c: Case) -> None:
    c.shows(c.gpu())


@kind("scrapes every 2 minutes, window of 30: one burst, one sample", BUSY, SLOW, world="long", own=False)
def _(c: Case) -> None:
    at = c.somewhen(c.seen)
    c.shows(c.gpu(spans((at, at + c.seen))))


@kind("scrapes every 2 minutes, window of 30: a hole of 12 minutes", UNPROVEN, SLOW, world="long", own=False)
def _(c: Case) -> None:
    c.shows(c.gpu(_unseen_work(c, (-c.m(6), -c.m(4)))), unseen=((-c.m(7), -c.m(3)),), job=f"long-hole-{c.number}")


# ── only where the analyzer has its own scrapes ──────────────────────────────────────────────────────────────────
OWN: tuple[Setup, ...] = (Setup(schema="agent", interval=4),)


@kind("times on the page: an hour in the future", UNPROVEN, OWN, world="own")
def _(c: Case) -> None:
    c.shows(c.gpu(), stamps=lambda now: now + 3600)


@kind("times on the page: frozen before the window", UNPROVEN, OWN, world="own")
def _(c: Case) -> None:
    c.shows(c.gpu(), stamps=lambda now: now // 100_000 * 100_000)


@kind("times on the page: they run backwards, it works", BUSY, OWN, world="own")
def _(c: Case) -> None:
    c.shows(c.gpu(flat(0.8)), stamps=lambda now: 2 * (now // 1000 * 1000) + 1000 - now)


@kind("times on the page: every second page has the time of the one before, it works", BUSY, OWN, world="own")
def _(c: Case) -> None:
    c.shows(c.gpu(flat(0.8)), stamps=lambda now: now // (2 * c.s) * 2 * c.s)


@kind("the same series twice on a page, with 0 and with 80 %", UNPROVEN, OWN, world="own")
def _(c: Case) -> None:
    def twice(_: float, page: Page) -> Page:
        return [*page, *(row for row in instead("_ratio", 0.0)(0, page) if "_ratio" in row[0])]

    c.shows(
        c.gpu(flat(0.8), watts=flat(90)), edit=lambda t, page: without("_seconds_total", "_energy")(t, twice(t, page))
    )


@kind("pages are cut off in the middle", UNPROVEN, OWN, world="own")
def _(c: Case) -> None:
    c.shows(c.gpu(flat(0.5)), broken=lambda t, body: body[: len(body) // 3] if t > -c.m(6) else body)


@kind("the exporter answers 500", UNPROVEN, OWN, world="own")
def _(c: Case) -> None:
    c.shows(c.gpu(spans((-c.m(6), inf))), broken=lambda t, body: None if t > -c.m(6.5) else body)


@kind("the page is empty", UNPROVEN, OWN, world="own")
def _(c: Case) -> None:
    c.shows(c.gpu(spans((-c.m(6), inf))), broken=lambda t, body: b"" if t > -c.m(6.5) else body)


# ── data are prepared on CPUs ────────────────────────────────────────────────────────────────────────────────────


def _loader(c: Case, cpu: Signal | None, *, memory: float = 21_000.0, suffix: str = "", **more: Any) -> Tenant:
    return Tenant(pod=c.pod(suffix), memory=flat(memory), cpu=cpu, **more)


@kind("loads data: GPU idle, memory held, CPUs busy", PREPARING, AGENT)
def _(c: Case) -> None:
    c.shows(c.gpu(tenants=(_loader(c, noise(c.number, 4.0, 16.0)),)))


@kind("prepares data before the model is on the GPU", PREPARING, AGENT)
def _(c: Case) -> None:
    c.shows(c.gpu(tenants=(_loader(c, noise(c.number, 0.8, 1.2), memory=420),)))


@kind("prepares data in bursts", PREPARING, AGENT)
def _(c: Case) -> None:
    c.shows(c.gpu(tenants=(_loader(c, cycle(c.m(1), c.m(0.4), level=6.0, phase=c.dice.uniform(0, c.m(1)))),)))


@kind("prepares data; the driver does not tell processes apart", PREPARING, AGENT)
def _(c: Case) -> None:
    c.shows(c.gpu(tenants=(_loader(c, flat(3.0), measured=False),)))


@kind("one tenant prepares data, the other is abandoned", PREPARING, AGENT)
def _(c: Case) -> None:
    loads = _loader(c, noise(c.number, 2.0, 8.0), memory=9_000, suffix="-loads", limit=20_480)
    left = _loader(c, noise(c.number, 0.0, 0.03), memory=6_000, suffix="-left", limit=20_480)
    c.target(c.shared((loads, PREPARING), (left, IDLE)))


@kind("one tenant prepares data, the other computes", BUSY, AGENT)
def _(c: Case) -> None:
    loads = _loader(c, noise(c.number, 2.0, 8.0), memory=9_000, suffix="-loads", limit=20_480)
    works = _loader(c, flat(1.0), memory=6_000, suffix="-works", limit=20_480, compute=noise(c.number, 0.5, 0.9))
    c.target(c.shared((loads, PREPARING), (works, BUSY)))


@kind("training that loads its data meanwhile", BUSY, AGENT)
def _(c: Case) -> None:
    c.shows(c.gpu(tenants=(_loader(c, noise(c.number, 4.0, 9.0), compute=noise(c.number, 0.6, 1.0)),)))


@kind("a request now and then, answered on busy CPUs", BUSY, AGENT)
def _(c: Case) -> None:
    at = c.somewhen(c.seen)
    c.shows(c.gpu(tenants=(_loader(c, flat(1.5), compute=spans((at, at + c.seen))),)))


@kind("abandoned notebook with quiet CPUs", IDLE, AGENT)
def _(c: Case) -> None:
    c.shows(c.gpu(tenants=(_loader(c, noise(c.number, 0.0, 0.06)),)))


@kind("abandoned, and its cgroup cannot be read", IDLE, AGENT)
def _(c: Case) -> None:
    c.shows(c.gpu(tenants=(_loader(c, None),)))


@kind("abandoned after its data were loaded", IDLE, AGENT)
def _(c: Case) -> None:
    c.shows(c.gpu(tenants=(_loader(c, either(flat(0.02), spans((-inf, -c.m(11.5)), level=8.0))),)))
