"""What holds of every store of results, to be asked of any."""

import pytest

from tests.store.fleets import NOON, points
from tests.store.results import rollup
from vgpuscope.model.history import HistoryPoint, Step

_ALL = {"begin": 0, "end": 2 * NOON, "limit": 10**6}


async def every_point(store) -> dict[str, list[HistoryPoint]]:
    """All points of GPUs, then all of pods, by step."""
    found: dict[str, list[HistoryPoint]] = {}
    for step in ("analysis", "hour", "day"):
        found[step] = await points(store, step=step, **_ALL)
        found[step] += await points(store, step=step, **_ALL, namespace="")
    return found


async def rolled(store, step: Step) -> list[HistoryPoint]:
    """The roll-up as it is defined, from the points of single analyses."""
    single = (await every_point(store))["analysis"]
    return rollup.rolled(single, step)


_ROUNDED = {
    "memory_used": 600.0,
    "memory_allocated": 600.0,
    "held_seconds": 0.01,
    "energy": 0.01,
}  # integrals, to 1 byte × second, 1 ms and 1 mJ


def assert_equal_points(found: list[HistoryPoint], wanted: list[HistoryPoint]) -> None:
    """The same points with the same numbers, up to the rounding of the last bit."""
    ours, theirs = ({_key(p): p for p in some} for some in (found, wanted))
    assert len(ours) == len(found) == len(wanted)
    assert ours.keys() == theirs.keys()
    for key, point in ours.items():
        for field in HistoryPoint.__struct_fields__:
            got, want = getattr(point, field), getattr(theirs[key], field)
            if isinstance(want, dict):
                got, want = ({w: s for w, s in shares.items() if s} for shares in (got, want))
            assert got == pytest.approx(want, abs=_ROUNDED.get(field)), field


async def assert_some_fields_are_those_of_the_whole(store) -> None:
    """Points of which only some fields are read have the numbers of whole points, and nothing else."""
    for fields in ({"seconds", "held_seconds", "by_class"}, {"by_verdict", "memory_used"}, {"score", "energy"}):
        for step, asked in ((step, more) for step in ("hour", "day") for more in ({}, {"namespace": ""})):
            whole = await points(store, step=step, **_ALL, **asked)
            some = await points(store, step=step, **_ALL, **asked, fields=frozenset(fields))
            assert whole
            assert list(map(_key, some)) == list(map(_key, whole))
            assert [[getattr(one, name) for name in sorted(fields)] for one in some] == [
                [getattr(one, name) for name in sorted(fields)] for one in whole
            ]
            assert {(one.util_max, one.power, tuple(one.by_status)) for one in some} == {(None, None, ())}


async def assert_gpus_of_tenants_are_those_of_their_pods(store) -> None:
    """Narrowed to namespaces, points of GPUs are those of the steps in which one of their pods held the GPU."""
    for step in ("analysis", "hour", "day"):
        gpus = await points(store, step=step, **_ALL)
        pods = await points(store, step=step, **_ALL, namespace="")
        for names in ((), ("",), ("ml",), ("batch", "ml"), tuple({pod.namespace for pod in pods})):
            held = {(pod.time, pod.gpu_id, pod.mig) for pod in pods if pod.namespace and pod.namespace in names}
            found = await points(store, step=step, **_ALL, tenants_of=names)
            assert {(one.time, one.gpu_id, one.mig) for one in found} == held
            assert all(one in gpus for one in found)  # of two analyses of one moment, one can be without the pod


def _key(point: HistoryPoint) -> tuple:
    return point.time, point.gpu_id, point.mig, point.namespace, point.pod
