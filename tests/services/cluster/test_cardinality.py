"""A pod's author, a claim or a node's annotation makes no series beyond what exists in the cluster.

The objects go through the exporter's own decoders and watches; only the network is missing.
"""

import asyncio
import json
import re

import pytest

from tests.contract.clusterrun import holder, registered
from tests.controlplane import pod
from vgpuscope.config import ClusterConfig
from vgpuscope.services.cluster.process import ClusterExporter

pytestmark = pytest.mark.attack

REWRITES = 200
OWN = 64  # series that one pod with one container on two GPUs may have: its allocations, findings and MIG instances
COUNT = re.compile('sharedcontainers="[0-9]+"')  # HAMi's own label with a number: one series of each GPU at a time
ALLOCATED, INSTANCES, NODE = "hami.io/vgpu-devices-allocated", "hami.io/vgpu-mig-allocations", "hami.io/vgpu-node"


class Cluster:
    """An exporter whose watches are fed by hand."""

    def __init__(self, **settings):
        self.exporter = ClusterExporter(ClusterConfig(**settings))
        self._kinds = {kind.name: kind for kind in self.exporter._kinds}
        self._version = 1
        for kind in self._kinds.values():
            kind._take_list({})

    def put(self, item, word="MODIFIED"):
        self._version += 1
        meta = {"uid": f"uid-{item['metadata']['name']}", **item["metadata"], "resourceVersion": str(self._version)}
        watch = self._kinds[f"{item['kind'].lower()}s"]._watch
        watch.take(watch._decode_event(json.dumps({"type": word, "object": {**item, "metadata": meta}}).encode()))

    def series(self):
        """The names and labels of all series, once everything was computed."""
        asyncio.run(self.exporter._settle())
        self.exporter._settle_cluster()
        self.exporter._settle_pods()
        lines = self.exporter._page.text().decode().splitlines()
        return {COUNT.sub("", line.rsplit(" ", 1)[0]) for line in lines if not line.startswith("#")}


def cluster():
    """Two GPUs and an honest holder of one."""
    made = Cluster()
    made.put(registered("n1", "GPU-a", "GPU-b"))
    made.put(holder("honest", "n1", "GPU-a"))
    return made


def forged(number, where="n1", **annotations):
    """The attacker's pod: one container, bound to n1, with annotations that change with the number."""
    notes = {NODE: where, ALLOCATED: "GPU-b,NVIDIA,1000,10:;", **annotations}
    return pod("attacker", node="n1", annotations=notes, limits={"nvidia.com/gpu": "1"})


def sixteen(number):
    return "".join(f"GPU-forged-{number}-{place},NVIDIA,1000,10:" for place in range(16)) + ";"


def segments(number):
    """As many containers as an annotation can name, on a GPU that exists."""
    return "GPU-b,NVIDIA,1,0:;" * (2 + number)


def instances(number, gpu="GPU-b"):
    """MIG instances that do not exist."""
    return json.dumps(
        [
            {
                "containerIndex": 0,
                "deviceIndex": place,
                "gpuUUID": gpu,
                "profile": f"{place}g.forged{number}",
                "placement": {"start": place, "size": 1},
                "migUUID": f"MIG-forged-{number}-{place}",
                "gpuInstanceID": number * 100 + place,
                "computeInstanceID": 0,
            }
            for place in range(16)
        ]
    )


def claim(number):
    """A claim that a user with the right to its status allocated to devices that no slice has."""
    devices = [{"driver": "gpu.nvidia.com", "pool": f"forged-{number}", "device": f"gpu-{i}"} for i in range(16)]
    place = {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"forged-{number}"]}]}
        ]
    }
    status = {"allocation": {"devices": {"results": devices}, "nodeSelector": place}}
    return {"kind": "ResourceClaim", "metadata": {"name": "claim", "namespace": "ml"}, "status": status}


def published():
    device = {"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-dra"}}, "capacity": {"memory": {"value": "80Gi"}}}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1", "generation": 1}, "devices": [device]}
    return {"kind": "ResourceSlice", "metadata": {"name": "n1-gpus"}, "spec": spec}


ATTACKS = {
    "devices that no node registers": lambda n: forged(n, **{ALLOCATED: sixteen(n)}),
    "devices on nodes that do not exist": lambda n: forged(n, where=f"forged-{n}"),
    "an unbound pod on nodes that do not exist": lambda n: pod(
        "attacker", annotations={NODE: f"forged-{n}", ALLOCATED: sixteen(n)}, limits={"nvidia.com/gpu": "1"}
    ),
    "containers that the pod does not have": lambda n: forged(n, **{ALLOCATED: segments(n)}),
    "MIG instances that do not exist": lambda n: forged(n, **{INSTANCES: instances(n)}),
    "MIG instances of GPUs that do not exist": lambda n: forged(n, **{INSTANCES: instances(n, f"GPU-forged-{n}")}),
    "claims of devices that were never published": claim,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_object_rewritten_200_times_does_not_make_the_series_grow(attack):
    made = cluster()
    made.put(published())
    before = made.series()
    seen = set(before)
    for number in range(REWRITES):
        made.put(ATTACKS[attack](number))
        seen |= made.series()
    assert len(seen - before) <= OWN
    assert before <= seen


def logged(made, caplog):
    """The lines about what has no series."""
    made.exporter._tell.keep(made.exporter._report_omitted())
    return [record.fields for record in caplog.records if "without series" in record.getMessage()]


def test_the_log_names_the_node_and_a_few_examples_once_however_often_the_annotation_changes(caplog):
    made = cluster()
    for number in range(20):
        made.put(ATTACKS["devices that no node registers"](number))
        made.series()
        lines = logged(made, caplog)
    (line,) = lines
    assert (line["node"], line["omitted"]) == ("n1", "unregistered-device 16")
    assert line["examples"].startswith("ml/attacker GPU-forged-0-0, ")
    assert line["examples"].count("GPU-forged") == 3


def test_nodes_that_do_not_exist_have_one_line_together(caplog):
    made = cluster()
    for number in range(20):
        made.put(ATTACKS["an unbound pod on nodes that do not exist"](number))
        made.series()
        lines = logged(made, caplog)
    assert len(lines) == 1
    made.put(ATTACKS["an unbound pod on nodes that do not exist"](0), word="DELETED")
    made.series()
    assert made.exporter._report_omitted() == set()
