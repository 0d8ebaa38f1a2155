"""GPUs whose every second is written down, and the tracks that exporters would show of them.

The truth of a case is how it was written. Statistics are taken from samples by the plainest code there is, none of it
the product's.
"""

from collections.abc import Callable
from statistics import fmean

from vgpuscope.logic.fleet.assembly import assemble
from vgpuscope.logic.fleet.scoring import ScoreWeights, Thresholds
from vgpuscope.logic.fleet.verdict import VerdictRules
from vgpuscope.model.analysis import Hole, Reading, Stat, Tenant, Term, Track, Window

GIB = 2**30
BEGIN, SECONDS, EVERY = 1_700_000_000.0, 600, 15
WINDOW = Window(begin=BEGIN, end=BEGIN + SECONDS, interval=float(EVERY))
GPU = "GPU-11111111-0000-0000-0000-000000000000"
A100 = "NVIDIA A100-SXM4-80GB"  # 400 W by the data sheet

Signal = float | Callable[[int], float]  # a level, or one for each second of the window


def pod(name, **more):
    return Tenant(namespace="ml", pod=name, **more)


def gpu(*, begin=0, end=SECONDS, every=EVERY, schema="dcgm", tenant=None, mig="", model=A100, at=BEGIN, **levels):
    """The whole GPU's numbers, as long as a tenant had it: util, copy, memory and total in GiB, watts, limit, …"""
    times = [t for t in range(0, SECONDS, every) if begin <= t < end]
    terms = {_TERMS[name][0]: _stat(level, times, _TERMS[name][1], at) for name, level in levels.items()}
    return Track(
        schema=schema,
        gpu_id=GPU,
        mig=mig,
        model=model,
        hostname="node-1",
        gpu_index="0",
        tenant=tenant,
        terms=terms,
        first=at + times[0],
        last=at + times[-1],
        interval=float(every),
    )


def own(name, *, begin=0, end=SECONDS, state="", mig="", at=BEGIN, who=None, **levels):
    """A tenant's own numbers, as our agent has them: sm, memory in GiB, total (its limit)."""
    track = gpu(begin=begin, end=end, schema="vgpuscope", tenant=who or pod(name), mig=mig, at=at, **levels)
    return Track(**{field: getattr(track, field) for field in track.__struct_fields__} | {"own": True, "state": state})


def analysed(*tracks, at=BEGIN, previous=None, faults=(), rules=None, **more):
    """What is concluded of these tracks in the window that begins then."""
    window = Window(begin=at, end=at + SECONDS, interval=float(EVERY))
    reading = Reading(window=window, tracks=tracks, faults=faults, source="truth")
    given = {
        "weights": ScoreWeights(),
        "thresholds": Thresholds(),
        "rules": rules or VerdictRules(),
        "owners": {},
        **more,
    }
    return assemble(reading, previous=previous or {}, **given)


def the(*tracks, **more):
    (use,) = analysed(*tracks, **more)
    return use


_TERMS: dict[str, tuple[Term, float]] = {
    "util": ("gpu_util", 1),
    "copy": ("mem_copy", 1),
    "memory": ("mem_used", GIB),
    "total": ("mem_total", GIB),
    "watts": ("power", 1),
    "limit": ("power_limit", 1),
    "sm_active": ("sm_active", 1),
    "engine": ("engine_active", 1),
    "sm": ("process_sm", 1),
    "encoder": ("encoder", 1),
    "decoder": ("decoder", 1),
}


def _stat(level: Signal, times, unit, at) -> Stat:
    values = [unit * (level(t) if callable(level) else level) for t in times]
    top = sorted(values)[int(0.95 * (len(values) - 1))]
    return Stat(mean=fmean(values), max=max(values), p95=top, samples=len(values), holes=_holes(times, at))


def _holes(times, at) -> tuple[Hole, ...]:
    """The ends of the window at which there was nothing."""
    found = []
    if times[0] > 3 * EVERY:
        found.append(Hole(at, at + times[0]))
    if times[-1] < SECONDS - 4 * EVERY:
        found.append(Hole(at + times[-1], at + SECONDS))
    return tuple(found)
