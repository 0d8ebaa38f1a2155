"""Analyses to be stored: plain ones, and random ones."""

from typing import Any

from hypothesis import strategies as st

from vgpuscope.model.analysis import (
    STATUSES,
    USE_CLASSES,
    VERDICTS,
    Allocated,
    Analysis,
    Evidence,
    Fault,
    GpuUse,
    Score,
    ScoreTerm,
    Stat,
    Tenant,
    TenantUse,
    Window,
)
from vgpuscope.model.history import HistoryPoint
from vgpuscope.store.results.wanted import HistorySelection

HOUR, DAY = 3600, 86400
NOON = 1_790_000_000 // DAY * DAY + DAY // 2  # noon of some day
GIB = 1024**3


def gpu(number: int = 0, **fields) -> GpuUse:
    name = f"GPU-{number:08x}-0000-4000-8000-{number:012x}"
    return GpuUse(**{"gpu_id": name, "hostname": f"node-{number // 8}", "model": "NVIDIA A100", **fields})


def tenant(pod: str, *, namespace: str = "ml", container: str = "main", **fields) -> TenantUse:
    return TenantUse(tenant=Tenant(namespace=namespace, pod=pod, container=container, pod_uid=f"uid-{pod}"), **fields)


def analysis(end: float, *gpus: GpuUse, number: int = 1, window: float = 600) -> Analysis:
    return Analysis(
        number=number,
        started=end,
        seconds=1.5,
        window=Window(begin=end - window, end=end, interval=30),
        gpus=gpus,
        source="http://prometheus",
        schemas=("vgpuscope",),
        requests=6,
    )


async def points(store, **asked) -> list[HistoryPoint]:
    """The points that the store returns for these words."""
    return (await store.page(HistorySelection(**asked))).points


def fleet(end: float, all_gpus: int, *, number: int = 1) -> Analysis:
    """A large fleet with everything that a real analysis says of a GPU, one tenant on each."""
    return analysis(end, *(_full(i, end, number) for i in range(all_gpus)), number=number)


def _full(i: int, end: float, number: int) -> GpuUse:
    share = ((i * 7919 + number * 104_729) % 9973) / 9973
    terms = {
        term: Stat(mean=share * size, max=size * (share + 1) / 2, p95=size * share, samples=20)
        for term, size in {
            "gpu_util": 1.0,
            "mem_copy": 0.6,
            "mem_used": 60.0 * GIB,
            "mem_total": 80.0 * GIB,
            "power": 400.0,
            "power_limit": 400.0,
            "sm_clock": 1.4e9,
        }.items()
    }
    names: tuple[Any, ...] = ("gpu_util", "mem_copy", "mem_used", "power")
    parts = tuple(ScoreTerm(name=n, weight=0.25, value=share, points=share * 25, reference="400 W") for n in names)
    evidence = Evidence(
        reasons=("VERDICT_BUSY",),
        signal="gpu_util",
        signal_mean=share,
        signal_max=(share + 1) / 2,
        coverage=0.95,
        samples=19,
        expected=20,
        freshness=12.5,
        window_begin=end - 600,
        window_end=end,
        source="http://prometheus",
        schema="vgpuscope",
    )
    state: dict[str, Any] = {"verdict": "in_use", "use_class": "busy", "evidence": evidence}
    holder = tenant(f"train-{i}-{i * 7919 % 9973:05d}", own=True, terms=terms, owner=f"Job/train-{i}", **state)
    score = Score(value=share * 100, terms=parts, confidence=0.9)
    return gpu(i, terms=terms, score=score, status="high", tenants=(holder,), **state)


# ── random ones ──────────────────────────────────────────────────────────────────────────────────────────────────

NAMES = ("", "a", "ml", "日本", "it's; --", "tab\there", "back\\slash\nline", "%s :x")
words = st.sampled_from(NAMES)
ratios = st.none() | st.floats(0, 1)
stats = st.builds(Stat, mean=ratios, max=ratios, p95=ratios, samples=st.integers(0, 99), dropped=st.integers(0, 9))
memory = st.builds(Stat, mean=st.none() | st.floats(0, 2e11), max=st.none() | st.floats(0, 2e11))
watts = st.builds(Stat, mean=st.none() | st.floats(0, 700), max=st.none() | st.floats(0, 1000))
terms = st.fixed_dictionaries(
    {}, optional={"gpu_util": stats, "process_sm": stats, "mem_used": memory, "power": watts, "energy": watts}
)
allocations = st.none() | st.builds(Allocated, st.integers(0, 2**40), st.none() | st.integers(0, 1000))
scores = st.builds(Score, value=st.none() | st.floats(0, 100), confidence=st.floats(0, 1))
states = {
    "verdict": st.sampled_from(VERDICTS),
    "use_class": st.sampled_from(USE_CLASSES),
    "evidence": st.builds(
        Evidence, coverage=ratios, signal_mean=ratios, signal_max=ratios, reasons=st.just(("VERDICT_X",))
    ),
}


def moments(end: float):
    return st.none() | st.floats(end - 900, end).map(lambda t: round(t, 3))


@st.composite
def tenants(draw, end: float) -> TenantUse:
    return draw(
        st.builds(
            TenantUse,
            tenant=st.builds(Tenant, namespace=words, pod=words, container=words),
            own=st.booleans(),
            terms=terms,
            since=moments(end),
            until=moments(end),
            owner=words,
            score=scores,
            status=st.sampled_from(STATUSES),
            memory_limit=st.none() | st.integers(0, 2**37),
            idle_since=moments(end),
            allocated=allocations,
            **states,
        )
    )


@st.composite
def all_gpus(draw, end: float, number: int) -> GpuUse:
    return draw(
        st.builds(
            gpu,
            st.just(number),
            mig=st.sampled_from(("", "GI-1", "MIG-a")),
            gpu_instance=st.sampled_from(("", "1")),
            hostname=st.just("node"),
            terms=terms,
            score=scores,
            status=st.sampled_from(STATUSES),
            idle_since=moments(end),
            last_seen=moments(end),
            health=st.sampled_from(("", "ok", "lost")),
            xids=st.sampled_from(((), (13,), (48, 79))),
            tenants=st.lists(tenants(end), max_size=3).map(tuple),
            former=st.lists(tenants(end), max_size=2).map(tuple),
            allocated=allocations,
            **states,
        )
    )


@st.composite
def analyses(draw, *, number: int = 1, within: float = 3 * HOUR) -> Analysis:
    end = NOON + round(draw(st.floats(0, within)), 3)
    numbers = draw(st.lists(st.integers(0, 3), max_size=4, unique=True))
    found = analysis(
        end, *(draw(all_gpus(end, n)) for n in numbers), number=number, window=draw(st.sampled_from((60, 600)))
    )
    return found.__class__(
        **{f: getattr(found, f) for f in found.__struct_fields__ if f != "faults"},
        faults=draw(st.lists(st.builds(Fault, part=words, code=words, message=words), max_size=1).map(tuple)),
    )


@st.composite
def runs(draw, most: int = 8) -> list[Analysis]:
    """Analyses in any order of time, each with a number of its own."""
    return [draw(analyses(number=n)) for n in range(1, draw(st.integers(1, most)) + 1)]
