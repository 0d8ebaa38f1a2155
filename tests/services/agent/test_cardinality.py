"""A tenant that names new devices in each sample makes no series: the number of series is bounded by what exists."""

import json
import re

import pytest

from tests.logic.node.builders import A, B, instance, make_gpu, readings
from tests.native.scenario import GIB, gpu_uuid
from tests.services.agent.noderoot import NodeRoot
from tests.services.agent.sampling import bare_sampler
from vgpuscope.catalog import agent as m
from vgpuscope.catalog.limits import UNSEEN_DEVICES
from vgpuscope.catalog.metric import DEFAULT_FAMILIES
from vgpuscope.formats.kube.pods import decode_pods
from vgpuscope.logic.node.snapshot import NodeTracker
from vgpuscope.sim.regions import DeviceUse, RegionFile
from vgpuscope.views.build import Build
from vgpuscope.views.exposition.page import Renderer
from vgpuscope.views.node.metrics import SelfUse, node_samples

pytestmark = pytest.mark.attack

SAMPLES, REWRITES = 40, 200
OWN = 8  # series of the tenant's own container, such as the method by which it was measured
MIG = "MIG-11111111-0000-0000-0000-000000000000"
ALLOCATED, INSTANCES = "hami.io/vgpu-devices-allocated", "hami.io/vgpu-mig-allocations"
# HAMi's own metric with numbers in its labels: one series of each vGPU at a time
NUMBERS = re.compile(r'(context|module|data|offset)="[^"]*"')


def series(text):
    return {NUMBERS.sub("", line.rsplit(" ", 1)[0]) for line in text.splitlines() if not line.startswith("#")}


def sixteen(number):
    """New UUIDs with each number, as long as real ones."""
    return [f"GPU-{number:08x}-{place:04x}-4000-8000-000000000000" for place in range(16)]


def rename(region, uuids):
    """Another content of the same file, as a tenant writes it."""
    region._write_header(uuids=uuids, memory_limits=[GIB] * 16, sm_limit=100)


def region_file(folder):
    folder.mkdir(parents=True)
    made = RegionFile(folder / "x.cache", layout="v1.2", uuids=sixteen(0), memory_limits=[GIB] * 16, now=0)
    made.attach(7, now=0, alive={7})
    made.update(7, host_pid=0, devices=[DeviceUse(context=0, data=GIB, driver_used=GIB, sm=50)] * 16)
    return made


def test_a_region_that_names_16_new_devices_in_each_of_40_samples_adds_no_series(tmp_path):
    node = NodeRoot(tmp_path)
    node.nvml.gpu(0, memory_used=4 * GIB, utilization=50)
    uid = node.pod("tenant", annotations={ALLOCATED: f"{gpu_uuid(0)},NVIDIA,1024,10:;"})
    region = region_file(node.hook / "containers" / f"{uid}_main")
    with node.agent("--families", "all", interval="0.05") as agent:
        before = series(agent.get()[2].decode())
        seen = set(before)
        for number in range(1, SAMPLES + 1):
            rename(region, sixteen(number))
            agent.samples_after(2)
            seen |= series(agent.get()[2].decode())
    assert len(seen - before) <= OWN
    assert not [one for one in seen if any(uuid in one for uuid in sixteen(SAMPLES))]
    assert any(one.startswith(m.REGIONS_DISPUTED.name) for one in seen)


def test_without_a_driver_a_region_adds_series_for_a_limited_number_of_devices(tmp_path):
    (tmp_path / "proc").mkdir()
    region = region_file(tmp_path / "containers" / "uid-a_main")
    sampler = bare_sampler(tmp_path)
    seen = set()
    for number in range(SAMPLES):
        rename(region, sixteen(number))
        _, page = sampler.cycle()
        seen |= set(re.findall(r'gpu_uuid="([^"]*)"', page.text().decode()))
    assert seen == {uuid for number in range(UNSEEN_DEVICES.most // 16) for uuid in sixteen(number)}


def pod(**annotations):
    """A pod with one container, as the API server sends it."""
    made = {
        "metadata": {"uid": "uid-p", "name": "p", "namespace": "ml", "annotations": annotations},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        "status": {"phase": "Running"},
    }
    return decode_pods(json.dumps({"kind": "PodList", "metadata": {}, "items": [made]}).encode()).items


def instances(number, *, mig, gpu=B, profile="1g.10gb", place=0):
    made = {"containerIndex": 0, "deviceIndex": place, "gpuUUID": gpu, "profile": profile, "migUUID": mig}
    return json.dumps(
        [made | {"placement": {"start": 0, "size": 1}, "gpuInstanceID": number, "computeInstanceID": number}]
    )


ATTACKS = {
    "devices that the node does not have": lambda n: {
        ALLOCATED: "".join(f"{uuid},NVIDIA,1,1:" for uuid in sixteen(n)) + ";"
    },
    "MIG instances that the node does not have": lambda n: {INSTANCES: instances(n, mig=f"MIG-forged-{n}")},
    "MIG instances of GPUs that the node does not have": lambda n: {
        INSTANCES: instances(n, mig=MIG, gpu=sixteen(n)[0])
    },
    "other descriptions of a MIG instance": lambda n: {INSTANCES: instances(n, mig=MIG, profile=f"forged-{n}")},
    "other places of a MIG instance": lambda n: {INSTANCES: instances(n, mig=MIG, place=1000 + n)},
}


class Node:
    """One tracker and one page, as a running agent has them."""

    def __init__(self):
        self._tracker = NodeTracker(node="n1", window=60.0)
        self._renderer = Renderer(m.METRICS, (*DEFAULT_FAMILIES, "dcgm"))
        self._at = 1000.0
        self.cut = make_gpu(uuid=B, index=1, mig_enabled=True, processes=None, instances=(instance(MIG, gi=1, ci=1),))

    def page(self, pods, *gpus, **more):
        self._at += 1
        read = readings(*(gpus or (make_gpu(), self.cut)), at=self._at, pods=pods, **more)
        snapshot = self._tracker.conclude(read, ratio=1.0).complete()
        return self._renderer.render(node_samples(snapshot, build=BUILD, self_use=SelfUse())).text().decode()


BUILD = Build(version="1", revision="r", build_date="d", python_version="3", compiler="c", platform="p")


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_annotation_rewritten_200_times_does_not_make_the_series_grow(attack):
    node = Node()
    honest = series(node.page(pod(**{ALLOCATED: f"{A},NVIDIA,1024,10:;", INSTANCES: instances(1, mig=MIG)})))
    seen = set()
    for number in range(REWRITES):
        seen |= series(node.page(pod(**ATTACKS[attack](number))))
    assert len(seen - honest) <= OWN


def test_an_annotation_that_names_other_devices_is_counted_and_named_in_the_snapshot():
    text = Node().page(pod(**ATTACKS["devices that the node does not have"](1)))
    assert f'{m.WITHOUT_SERIES.name}{{node="n1",reason="unknown-device"}} 16' in text
    assert sixteen(1)[0] not in text


def test_instances_of_a_gpu_that_stopped_answering_keep_their_series():
    node = Node()
    held = pod(**{INSTANCES: instances(1, mig=MIG)})
    before = {one for one in series(node.page(held)) if one.startswith(("hami_mig_device_info", "MigInfo"))}
    silent = make_gpu(uuid=B, index=1, health="unresponsive", mig_enabled=True, processes=None)
    assert before
    assert before <= series(node.page(held, make_gpu(), silent))
