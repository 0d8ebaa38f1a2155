"""Whoever may create or change a pod writes annotations that say that it has GPUs: it holds nothing by them.

Admission policies refuse such writes where there are some. This is what extender and exporter make of them if not.
"""

import json

import pytest

from vgpuscope.catalog.cluster import CLAIMED_GPUS, CLAIMED_MEMORY
from vgpuscope.catalog.label_sets import FindingLabels
from vgpuscope.formats.hami.seal import SEAL, SealKey, Seals
from vgpuscope.formats.kube.objects import decode_cluster_pods, decode_nodes
from vgpuscope.logic.cluster.ledger import ClusterLedger
from vgpuscope.logic.scheduler.state import SchedulerState
from vgpuscope.views.cluster.metrics import node_samples

pytestmark = pytest.mark.attack
GPUS = ("GPU-a", "GPU-b")
REGISTER = json.dumps(
    [
        {"id": gpu, "count": 10, "devmem": 10000, "devcore": 100, "type": "NVIDIA-T4", "numa": 0, "health": True}
        for gpu in GPUS
    ]
)
ALLOCATED, NODE = "hami.io/vgpu-devices-allocated", "hami.io/vgpu-node"
EVERYTHING = "".join(f"{gpu},NVIDIA,10000,100:" for gpu in GPUS) + ";"
OLD, NEW = "2026-01-01T00:00:00Z", "2026-11-17T08:00:00Z"
SINCE = 1780000000.0  # between the two
KEYS = Seals([SealKey("k", b"x" * 32, SINCE)])


def pod(name, notes, *, node="", asks=1, created=NEW, writer="kubectl-patch"):
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(asks)}}} if asks else {}
    fields: dict[str, object] = {"f:metadata": {"f:annotations": {f"f:{key}": {} for key in notes}}}
    managed = [
        {"manager": "kube-scheduler", "time": NEW, "fieldsV1": {"f:spec": {}}},
        {"manager": writer, "operation": "Update", "time": NEW, "fieldsType": "FieldsV1", "fieldsV1": fields},
    ]
    meta = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "annotations": notes, "creationTimestamp": created}
    spec = {"containers": [{"name": "main", **limits}]} | ({"nodeName": node} if node else {})
    return {"metadata": meta | {"managedFields": managed}, "spec": spec, "status": {"phase": "Pending"}}


def claim(text=EVERYTHING, *, key=ALLOCATED, node="n1"):
    return {key: text, NODE: node, "hami.io/vgpu-time": "1790000000"}


def sealed(name, notes, *, bound=True):
    return notes | {SEAL: KEYS.seal(f"uid-{name}", notes, bound=bound)}


class World:
    """What the extender and the exporter know after some events."""

    def __init__(self, seals=None):
        self.seals, self.state, self.ledger = seals, SchedulerState(), ClusterLedger()
        node = {"metadata": {"name": "n1", "annotations": {"hami.io/node-nvidia-register": REGISTER}}}
        (read,) = decode_nodes(json.dumps({"kind": "NodeList", "items": [node]}).encode()).items
        for fold in (self.state, self.ledger):
            fold.set_node(read)

    def see(self, item):
        page = decode_cluster_pods(json.dumps({"kind": "PodList", "items": [item]}).encode(), seals=self.seals)
        for one in page.items:
            self.state.set_pod(one)
            self.ledger.set_pod(one)

    def held(self):
        """MiB of each GPU that is held, for the extender and for the exporter: they must agree."""
        used = {gpu.id: gpu.used_memory for gpu in self.state.node_info("n1").gpus if gpu.used_memory}
        shown = {one.device.id: one.memory_allocated // 2**20 for one in self.ledger.node("n1").devices}
        assert used == {gpu: memory for gpu, memory in shown.items() if memory}
        return used

    def forged(self):
        """Pod, reason, number of GPUs and writer of what is shown as forged."""
        found = [one for one in self.ledger.node("n1").findings if one.kind == "forged-assignment"]
        return [(one.pod, one.reason, one.claimed_gpus, one.writer) for one in found]


@pytest.mark.parametrize("key", [ALLOCATED, "4pd.io/vgpu-ids-new"])
@pytest.mark.parametrize("seals", [None, KEYS], ids=["hami", "sealed"])
@pytest.mark.parametrize("node", ["", "n1"], ids=["unbound", "bound"])
def test_a_pod_that_requests_nothing_holds_nothing(key, seals, node):
    world = World(seals)
    world.see(pod("forged", claim(key=key), asks=0, node=node))
    assert world.held() == {}
    reason = "unsealed" if seals else "unrequested"
    assert world.forged() == [("forged", reason, 2, "kubectl-patch")]


def test_a_series_says_how_much_is_claimed_and_not_held():
    """The program that wrote it is no label: its name is free text, and each change would be a new series."""
    world = World(KEYS)
    world.see(pod("honest", sealed("honest", claim("GPU-a,NVIDIA,3000,30:;")), node="n1"))
    world.see(pod("forged", claim(), node="n1"))
    found = {
        one.metric.name: (FindingLabels(*one.row).pod, FindingLabels(*one.row).reason, one.value)
        for one in node_samples(world.ledger.node("n1"))
        if one.metric in {CLAIMED_GPUS, CLAIMED_MEMORY}
    }
    assert found == {
        "vgpuscope_cluster_claimed_gpus": ("forged", "unsealed", 2),
        "vgpuscope_cluster_claimed_memory_bytes": ("forged", "unsealed", 20000 * 2**20),
    }
    assert "kubectl-patch" not in str(found)


def test_what_it_claims_is_shown_apart_from_what_is_held():
    world = World()
    world.see(pod("honest", claim("GPU-a,NVIDIA,3000,30:;"), node="n1"))
    world.see(pod("forged", claim(), asks=0))
    assert world.held() == {"GPU-a": 3000}
    ledger = world.ledger.node("n1")
    assert [one.pod for one in ledger.holders] == ["honest"]
    (finding,) = ledger.findings
    assert finding.claimed_memory == 20000 * 2**20
    assert (finding.kind, ledger.finding_counts[0].count) == ("forged-assignment", 1)


@pytest.mark.parametrize("node", ["", "n1"], ids=["unbound", "bound"])
def test_a_pod_that_requests_a_gpu_holds_only_what_the_scheduler_sealed(node):
    world = World(KEYS)
    world.see(pod("honest", sealed("honest", claim("GPU-a,NVIDIA,3000,30:;")), node="n1"))
    world.see(pod("forged", claim(), node=node))
    world.see(pod("copied", sealed("honest", claim(), bound=bool(node)), node=node))
    world.see(pod("odd", claim() | {SEAL: "k.\u00e9"}, node=node))
    assert world.held() == {"GPU-a": 3000}
    assert sorted(one[:3] for one in world.forged()) == [(name, "unsealed", 2) for name in ("copied", "forged", "odd")]


CHANGES = {
    "emptied": {},
    "emptied of all but the request": {NODE: "n1"},
    "rewritten": claim("GPU-b,NVIDIA,1,0:;"),
    "moved": claim("GPU-a,NVIDIA,3000,30:;", node="n2"),
    "what it was to get before": sealed(
        "mine", claim("GPU-b,NVIDIA,1,0:;") | {"hami.io/vgpu-time": "1780000001"}, bound=False
    ),
    "an older seal of it": sealed("mine", claim("GPU-b,NVIDIA,1,0:;") | {"hami.io/vgpu-time": "1780000001"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_who_changes_what_a_running_pod_has_neither_frees_nor_takes_a_gpu(change):
    world = World(KEYS)
    world.see(pod("mine", sealed("mine", claim("GPU-a,NVIDIA,3000,30:;")), node="n1"))
    for _ in range(2):  # the second time the watch repeats itself
        world.see(pod("mine", CHANGES[change], node="n1"))
        assert world.held() == {"GPU-a": 3000}


def test_a_pod_that_has_ended_holds_nothing_whatever_it_says():
    world = World(KEYS)
    world.see(pod("mine", sealed("mine", claim("GPU-a,NVIDIA,3000,30:;")), node="n1"))
    ended = pod("mine", {}, node="n1")
    ended["status"]["phase"] = "Failed"
    world.see(ended)
    assert world.held() == {}


def test_pods_that_ran_before_assignments_were_sealed_keep_what_they_have():
    world = World(KEYS)
    world.see(pod("old", claim("GPU-a,NVIDIA,3000,30:;"), node="n1", created=OLD))
    world.see(pod("waiting", claim("GPU-b,NVIDIA,3000,30:;"), created=OLD))  # is decided again, and sealed
    assert world.held() == {"GPU-a": 3000}
    assert [one[0] for one in world.forged()] == ["waiting"]


def test_another_key_seals_and_the_old_one_is_still_believed():
    before = sealed("mine", claim("GPU-a,NVIDIA,3000,30:;"))
    both = Seals([SealKey("n", b"y" * 32, SINCE + 1), SealKey("k", b"x" * 32, SINCE)])
    world = World(both)
    world.see(pod("mine", before, node="n1"))
    notes = claim("GPU-b,NVIDIA,1,0:;")
    world.see(pod("next", notes | {SEAL: both.seal("uid-next", notes, bound=True)}, node="n1"))
    assert world.held() == {"GPU-a": 3000, "GPU-b": 1}


def test_a_pod_that_somebody_else_binds_with_the_seal_of_an_assignment_that_was_given_up_holds_nothing():
    """It was to get a GPU, its tenant emptied the annotation, and the GPU was given to another pod meanwhile."""
    world, wanted = World(KEYS), claim("GPU-a,NVIDIA,8000,30:;")
    world.see(pod("mine", sealed("mine", wanted, bound=False)))
    assert world.held() == {"GPU-a": 8000}
    world.see(pod("mine", {}))
    assert world.held() == {}
    world.see(pod("victim", sealed("victim", claim("GPU-a,NVIDIA,9000,30:;")), node="n1"))
    world.see(pod("mine", sealed("mine", wanted, bound=False), node="n1"))
    assert world.held() == {"GPU-a": 9000}
    assert world.forged() == [("mine", "unsealed", 1, "kubectl-patch")]


def test_a_pod_that_was_bound_elsewhere_than_the_scheduler_decided_holds_nothing():
    world = World(KEYS)
    world.see(pod("mine", sealed("mine", claim("GPU-a,NVIDIA,3000,30:;")), node="n2"))
    assert world.held() == {}


def test_a_request_for_one_vendors_devices_is_none_for_those_of_another():
    """Where assignments have no seals, the request decides: of this vendor, by this container."""
    world = World()
    ascend = {"hami.io/Ascend910B3-devices-allocated": "GPU-a,Ascend910B3,3000,30:;"}
    world.see(pod("forged", claim("GPU-a,NVIDIA,1000,0:;") | ascend))
    assert world.held() == {"GPU-a": 1000}
    assert world.forged() == [("forged", "unrequested", 1, "kubectl-patch")]
