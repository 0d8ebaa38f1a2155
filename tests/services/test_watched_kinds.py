"""A watched object is stored by the state of its service and nowhere else, and a fresh list passes on only changes."""

import pytest
from msgspec.structs import replace

from tests.logic import test_dra_index as dra
from tests.logic.cluster.builders import asks
from tests.services.cluster.test_kept import maps
from vgpuscope.config import ClusterConfig
from vgpuscope.logic.cluster.state import ClusterState
from vgpuscope.logic.scheduler.state import SchedulerState
from vgpuscope.model.allocation import NodeState, PodState, QuotaState
from vgpuscope.model.pending import PodEvent
from vgpuscope.model.scheduling_codes import Reason
from vgpuscope.services.cluster.process import ClusterExporter
from vgpuscope.services.extender.cache import Cache, SeenNode, SeenPod
from vgpuscope.services.watched_kinds import KindBuilder

NODE = NodeState(name="n1")
QUOTA = QuotaState(namespace="ml", name="q", hard={"nvidia.com/gpumem": 5})
SLICE, CLAIM = dra.published(dra.gpu(0)), dra.claim(dra.held(), pods=())
KINDS = {
    "nodes": (NODE, replace(NODE, ready=False)),
    "quotas": (QUOTA, replace(QUOTA, hard={})),
    "slices": (SLICE, replace(SLICE, generation=2)),
    "claims": (CLAIM, replace(CLAIM, pods=("a",))),
}


class Recorded:
    """A state, and the events that were applied to it."""

    def __init__(self, state):
        self.state, self.events = state, []
        self.keeps = state.keeps

    def apply(self, event):
        self.events.append(event)
        self.state.apply(event)


@pytest.mark.parametrize("state", [ClusterState, SchedulerState])
@pytest.mark.parametrize("name", KINDS)
def test_a_fresh_list_passes_on_what_has_changed_and_nothing_else(state, name):
    fold = Recorded(state())
    kind, (one, changed) = getattr(KindBuilder(fold, resync=60.0), name)(), KINDS[name]
    kind._take_list({"key": one})
    kind._take_list({"key": one})
    assert len(fold.events) == 1
    kind._take_list({"key": changed})
    assert len(fold.events) == 2
    kind._take("key", one)  # an event of the watch is always passed on
    assert len(fold.events) == 3


@pytest.mark.parametrize("name", KINDS)
def test_a_watch_stores_keys_only(name):
    kind = getattr(KindBuilder(SchedulerState(), resync=60.0), name)()
    one, _ = KINDS[name]
    kind._take_list({"key": one})
    held = [name for name, where in maps(kind) if any(value is one for value in where.values())]
    assert [name for name in held if name not in ("_nodes", "_quotas", "ml", "_slices", "_claims")] == []


def test_a_pod_and_a_node_are_stored_once_by_the_extenders_cache():
    cache = Cache(resync=1800.0)
    pod = PodState(uid="u", namespace="ml", name="p", asks=asks({"nvidia.com/gpu": 1}))
    nodes, pods = cache.kinds[:2]
    nodes._take_list({"n1": SeenNode(NODE, 7)})
    pods._take_list({"u": SeenPod(pod, 7)})
    for kept, seen in ((NODE, "node"), (pod, "pod")):
        found = [
            name
            for name, where in maps(cache)
            if any(one is kept or getattr(one, seen, None) is kept for one in where.values())
        ]
        assert found == [f"_{seen}s"]


def event(**more):
    said = (Reason(code="SCHED_NO_NODE_FITS"),)
    return PodEvent(
        uid="e", pod_uid="u", namespace="ml", pod="p", component="s", reason="FailedScheduling", said=said, **more
    )


def test_an_event_that_a_fresh_list_repeats_is_not_counted_again():
    exporter = ClusterExporter(ClusterConfig())
    kind = next(one for one in exporter._kinds if one.name == "events")
    heard: list = []

    def keep(one):
        heard.append(one)
        exporter._set_event(one)

    kind._keep = keep
    for one in (event(), event(), event(count=2), event(count=2)):
        kind._take_list({"e": one})
    assert [one.count for one in heard] == [1, 2]
    kind._take_list({})
    assert exporter._events == {}
