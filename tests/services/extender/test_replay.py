"""Our allocation law: replaying any log of decisions gives the ledger of the cluster exporter.

A cluster is driven at random: pods are filtered, bound, fail to bind, and end. Each decision is logged as the extender
logs it. The log alone, replayed, has to hold the same GPUs as the cluster exporter's books, which read the annotations
that were written.
"""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.logic.scheduler.clusters import cluster, node, request
from vgpuscope.formats.kube.objects import decode_cluster_pods
from vgpuscope.logic.cluster.state import ClusterState
from vgpuscope.logic.scheduler.decision_log import DecisionLog
from vgpuscope.logic.scheduler.place import place
from vgpuscope.model.cluster_event import NodeSet, PodSet
from vgpuscope.model.placement import DecidedGpu, Decision
from vgpuscope.model.quantity import MIB
from vgpuscope.services.extender.pods import assignment_notes

NODES = [node("gpu-0", gpus=2), node("gpu-1", gpus=3, memory=24_000), node("gpu-2", gpus=1, slots=2)]
NAMES = [one.name for one in NODES]

steps = st.lists(
    st.tuples(
        st.sampled_from(["filter", "bind", "fail"]),
        st.integers(0, 7),  # which pod
        st.integers(1, 3),  # GPUs
        st.sampled_from([1_000, 6_000, 12_000, 20_000]),
        st.sampled_from([0, 30, 60, 100]),
    ),
    max_size=40,
)


class Cluster:
    """The extender's books, the exporter's books, and the log, all told the same."""

    def __init__(self):
        self.state, self.exporter, self.log = cluster(*NODES), ClusterState(), DecisionLog()
        for one in NODES:
            self.exporter.apply(NodeSet(one))
        self.requests, self.assigned, self.bound, self.number = {}, {}, set(), 0

    def filter(self, key, count, memory, cores):
        if key in self.bound:
            return  # a pod that is bound is not filtered again
        asked = self.requests.setdefault(key, request(f"pod-{key}", count=count, memory=memory, cores=cores))
        self.take_back(key)  # a new filter decides anew
        found = place(self.state, asked, NAMES)
        if found.node:
            self.hold(key, asked, found)
        self.write(key, "filter", "assigned" if found.node else "refused", found.node, found.gpus)

    def bind(self, key):
        if key in self.assigned and key not in self.bound:
            self.bound.add(key)
            found = self.assigned[key]
            self.watched(key, assignment_notes(self.requests[key], found, float(self.number)), at=found.node)
            self.write(key, "bind", "bound", found.node, found.gpus)

    def fail(self, key):
        """The binding failed: phase failed, the assignment is cleared."""
        if key in self.assigned and key not in self.bound:
            found = self.assigned[key]
            self.take_back(key)
            self.write(key, "bind", "failed", found.node, ())

    def step(self, verb, key, count, memory, cores):
        """One step of a history."""
        if verb == "filter":
            self.filter(key, count, memory, cores)
        elif verb == "bind":
            self.bind(key)
        else:
            self.fail(key)

    def hold(self, key, asked, found):
        self.assigned[key] = found
        self.state.assume(asked, found)
        self.watched(key, assignment_notes(asked, found, float(self.number)))

    def take_back(self, key):
        if self.assigned.pop(key, None) is not None:
            self.state.drop_pod(self.requests[key].uid)
            self.watched(key, {})

    def watched(self, key, notes, at=None):
        """The exporter sees the pod as the API server has it."""
        pod = pod_object(self.requests[key], notes, at)
        [seen] = decode_cluster_pods(json.dumps({"kind": "PodList", "items": [pod]}).encode()).items
        self.exporter.apply(PodSet(seen))

    def write(self, key, verb, outcome, at, gpus):
        self.number += 1
        asked = self.requests[key]
        self.log.add(
            Decision(
                id=f"d{self.number}",
                at=float(self.number),
                verb=verb,
                namespace=asked.namespace,
                pod=asked.name,
                pod_uid=asked.uid,
                outcome=outcome,
                node=at,
                devices=tuple(DecidedGpu(uuid=one.uuid, memory=one.memory, cores=one.cores) for one in gpus),
            )
        )

    def ledger(self):
        """What the cluster exporter says that each pod holds."""
        return sorted(
            (holder.pod_uid, name, holder.device, holder.memory // MIB, holder.cores)
            for name in NAMES
            for holder in self.exporter.node(name).holders
        )


def pod_object(asked, notes, at):
    """The pod as the API server has it: what it asks for, what was written, and where it is bound."""
    (ask,) = asked.asks
    limits = {"nvidia.com/gpu": ask.count, "nvidia.com/gpumem": ask.memory, "nvidia.com/gpucores": ask.cores}
    return {
        "metadata": {
            "name": asked.name,
            "namespace": asked.namespace,
            "uid": asked.uid,
            "annotations": {name: text for name, text in notes.items() if text is not None},
        },
        "spec": {
            "schedulerName": "hami-scheduler",
            "containers": [{"name": ask.name, "resources": {"limits": {k: str(v) for k, v in limits.items()}}}],
            **({"nodeName": at} if at else {}),
        },
        "status": {"phase": "Pending"},
    }


def replay(log):
    """What each pod holds by the log alone: the last assignment or binding, unless a later decision took it back."""
    held = {}
    for entry in reversed(log.find(limit=10_000)):
        if entry.outcome in ("assigned", "bound"):
            held[entry.pod_uid] = entry
        else:
            held.pop(entry.pod_uid, None)
    return sorted(
        (uid, entry.node, gpu.uuid, gpu.memory, gpu.cores) for uid, entry in held.items() for gpu in entry.devices
    )


@given(steps)
@settings(deadline=None)
def test_replaying_any_decision_log_gives_the_ledger_of_the_cluster_exporter(history):
    world = Cluster()
    for step in history:
        world.step(*step)
        assert replay(world.log) == world.ledger()


@given(steps)
@settings(deadline=None)
def test_no_replayed_log_allocates_more_than_a_gpu_has(history):
    world = Cluster()
    for step in history:
        world.step(*step)
    limits = {device.id: device for one in NODES for device in one.devices}
    totals: dict[str, list[int]] = {}
    for _, _, uuid, memory, cores in replay(world.log):
        slots = totals.setdefault(uuid, [0, 0, 0])
        slots[0], slots[1], slots[2] = slots[0] + 1, slots[1] + memory, slots[2] + cores
    for uuid, (slots_used, memory, cores) in totals.items():
        device = limits[uuid]
        assert slots_used <= device.slots
        assert memory <= device.memory // MIB
        assert cores <= device.cores
