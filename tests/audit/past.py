"""What an analyzer would have read of a planned fleet in an hour of the past."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from tests.audit.hardware import MIB, busy, used, watts
from tests.audit.plan import Gpu, Node, Plan
from vgpuscope.model.analysis import Reading, Stat, Target, Tenant, Term, Track, Window

SAMPLES = 6  # of a series in an hour


def reading(plan: Plan, hour: int, *, end: float, seconds: float, targets: Mapping[str, str]) -> Reading:
    """The reading of an hour; `targets` are the names of the nodes' scrape targets, all of which answered then."""
    window = Window(begin=end - seconds, end=end, interval=seconds / SAMPLES)
    tracks = tuple(track for node in plan.nodes if node.agent != "absent" for track in _node(plan, node, hour, window))
    return Reading(
        window=window,
        tracks=tuple(replace(track, target=targets[track.hostname]) for track in tracks),
        schemas=("vgpuscope",),
        source="the planned past",
        targets=tuple(Target(name=name, up=True) for name in targets.values()),
        own=True,
    )


def _node(plan: Plan, node: Node, hour: int, window: Window) -> Iterator[Track]:
    for index, gpu in enumerate(node.gpus):
        yield _track(node, index, gpu, _device(plan, gpu, hour), window)
        for one in gpu.instances:
            terms: dict[Term, float] = {
                "mem_used": used(plan, gpu, hour, one.uuid) * MIB,
                "mem_total": one.memory * MIB,
            }
            if gpu.model.profiled:
                sm = sum(pod.sm(use, hour) for pod, use in plan.uses(hour) if use.instance == one.uuid) / 100
                terms |= {"sm_active": sm * 0.9, "engine_active": sm}
            yield _track(node, index, gpu, terms, window, mig=one.uuid, profile=one.profile)
    for pod, use in plan.uses(hour):
        if use.node != node.name:
            continue
        index, gpu = next((n, one) for n, one in enumerate(node.gpus) if one.uuid == use.gpu)
        terms = {"mem_used": use.used * MIB}
        if use.allocated:
            terms["mem_total"] = use.allocated * MIB
        if not use.instance or gpu.model.profiled:
            terms["process_sm"] = pod.sm(use, hour) / 100
        tenant = Tenant(
            namespace=pod.namespace, pod=pod.name, container=use.container, pod_uid=pod.uid if pod.listed else ""
        )
        yield _track(
            node,
            index,
            gpu,
            terms if use.used else {},
            window,
            mig=use.instance or "",
            tenant=tenant,
            own=True,
            state="active" if use.used else "not-started",
        )


def _device(plan: Plan, gpu: Gpu, hour: int) -> dict[Term, float]:
    sm = busy(plan, gpu, hour)
    found: dict[Term, float] = {
        "mem_used": used(plan, gpu, hour) * MIB,
        "mem_total": gpu.model.memory * MIB,
        "power": watts(gpu, sm),
        "power_limit": gpu.model.limit_watts,
        "sm_clock": 1.41e9,
    }
    if not gpu.instances:
        found |= {"gpu_util": sm / 100, "mem_copy": sm / 200, "encoder": 0.0, "decoder": 0.0}
        if gpu.model.profiled:
            found |= {"sm_active": sm / 100 * 0.9, "engine_active": sm / 100}
    return found


def _track(node: Node, index: int, gpu: Gpu, terms: dict[Term, float], window: Window, **more: object) -> Track:
    return Track(
        schema="vgpuscope",
        gpu_id=gpu.uuid,
        gpu_index=str(index),
        hostname=node.name,
        model=gpu.model.name,
        terms={
            name: Stat(mean=value, max=value, p95=value, samples=SAMPLES, holes=()) for name, value in terms.items()
        },
        first=window.begin + window.interval,
        last=window.end,
        **({"health": "ok"} | more),  # type: ignore[arg-type]
    )
