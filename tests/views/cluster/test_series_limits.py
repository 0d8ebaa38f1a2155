"""How many series a cluster's page can have, whatever pods and nodes say of themselves; and honest ones lose none."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.contract.clusterrun import holder, registered
from tests.controlplane import pod as written
from tests.logic.cluster import builders as made
from tests.services.cluster.test_cardinality import ALLOCATED, INSTANCES, NODE, Cluster
from tools.writers.series import series_per
from vgpuscope.catalog import cluster as m
from vgpuscope.catalog.label_sets import HeldInstanceLabels
from vgpuscope.catalog.limits import (
    CONTAINER_DEVICES,
    NODE_DEVICES,
    NODE_FINDINGS,
    NODE_HOLDERS,
    NODE_OFFERS,
    POD_INSTANCES,
)
from vgpuscope.catalog.metric import DEFAULT_FAMILIES
from vgpuscope.logic.cluster.reconcile import LISTED
from vgpuscope.model.allocation import OfferedResource
from vgpuscope.views.cluster.metrics import NodeSamples

pytestmark = pytest.mark.attack

NODES = {"n1": ("GPU-a", "GPU-b"), "n2": ("GPU-c",)}
REAL = tuple(uuid for uuids in NODES.values() for uuid in uuids)
REASONS = 24  # kinds and reasons of findings and of lost GPUs, for one node
OF_PODS = 160  # series of the page without nodes and pods: cluster, types, watches, schedulers, quotas

names = st.text(min_size=1, max_size=12) | st.sampled_from(("n1", "n2", "n3"))
uuids = st.sampled_from(REAL) | st.text(min_size=1, max_size=12)
devices = st.tuples(uuids, st.integers(0, 10**12), st.integers(0, 200)).map(
    lambda one: f"{one[0]},NVIDIA,{one[1]},{one[2]}:"
)
allocations = st.lists(st.lists(devices, max_size=5).map(lambda some: "".join(some) + ";"), max_size=6).map("".join)
instances = st.lists(
    st.fixed_dictionaries(
        {
            "containerIndex": st.integers(0, 3),
            "deviceIndex": st.integers(0, 10**6),
            "gpuUUID": uuids,
            "profile": st.text(max_size=8),
            "placement": st.fixed_dictionaries({"start": st.integers(0, 10**6), "size": st.integers(1, 10**6)}),
            "migUUID": st.text(min_size=1, max_size=8),
            "gpuInstanceID": st.integers(-5, 10**6),
            "computeInstanceID": st.integers(-5, 10**6),
        }
    ),
    max_size=20,
).map(json.dumps)
notes = st.fixed_dictionaries(
    {}, optional={ALLOCATED: allocations | st.text(), INSTANCES: instances | st.text(), NODE: names}
)
pods = st.tuples(st.sampled_from(("", *NODES, "n3")), st.integers(1, 3), notes)


def bound(found):
    """The largest number of series that these pods may have, by what exists."""
    per = {scope: series_per(scope, m.METRICS, DEFAULT_FAMILIES) for scope in ("device", "holder", "instance", "place")}
    gpus = len(REAL)
    nodes = gpus * per["device"] + 4 * (
        per["place"] + REASONS + LISTED
    )  # a deleted node, and all assumed ones together
    held = sum((containers + 2) * gpus * per["holder"] for _, containers, _ in found)
    return nodes + held + len(found) * gpus * POD_INSTANCES.most * per["instance"] + OF_PODS


def page_of(found):
    cluster = Cluster()
    for name, gpus in NODES.items():
        cluster.put(registered(name, *gpus))
    for number, (node, containers, annotations) in enumerate(found):
        names = [f"c{place}" for place in range(containers)]
        limits = {"nvidia.com/gpu": "1"}
        item = written(f"p{number}", node=node or None, containers=names, annotations=annotations, limits=limits)
        cluster.put(item)
    return cluster


@example([("n1", 1, {ALLOCATED: "".join(f"GPU-{i},NVIDIA,1,1:;" for i in range(900)), NODE: "n1"})])
@example([("n1", 1, {ALLOCATED: "GPU-a,NVIDIA,1,1:;" * 900, NODE: "n1"})])
@given(st.lists(pods, max_size=4))
def test_no_annotation_makes_more_series_than_devices_and_containers_allow(found):
    series = page_of(found).series()
    assert len(series) <= bound(found)
    assert all(any(f'"{uuid}"' in one for uuid in REAL) for one in series if 'gpu_uuid="' in one)


@given(st.lists(pods, max_size=3))
def test_no_series_is_on_the_page_twice_whatever_annotations_say(found):
    cluster = page_of(found)
    cluster.series()
    lines = [line.rsplit(b" ", 1)[0] for line in cluster.exporter._page.text().splitlines()]
    assert len(lines) == len(set(lines))


@given(st.lists(st.tuples(st.sampled_from(REAL), st.integers(1, 8000)), max_size=8))
def test_honest_pods_lose_nothing(held):
    cluster = page_of([])
    for number, (gpu, memory) in enumerate(held):
        where = next(name for name, gpus in NODES.items() if gpu in gpus)
        cluster.put(holder(f"p{number}", where, gpu, memory=memory))
    series = cluster.series()
    for name in (m.HOLDER_MEMORY.name, "hami_vgpu_memory_allocated_bytes", "vGPUMemoryAllocated"):
        assert sum(one.startswith(f"{name}{{") for one in series) == len(held)
    assert omitted(cluster) == {}


def omitted(cluster):
    """What the page says has no series, by reason."""
    lines = cluster.exporter._page.text().decode().splitlines()
    told = [line.rsplit(" ", 1) for line in lines if line.startswith(f"{m.WITHOUT_SERIES.name}{{")]
    return {name.split('"')[1]: int(count) for name, count in told if int(count)}


def test_a_device_that_is_not_registered_is_counted_and_named_by_the_api_and_not_by_series():
    cluster = page_of([("n1", 1, {ALLOCATED: "GPU-gone,NVIDIA,1,1:GPU-a,NVIDIA,1,1:;", NODE: "n1"})])
    series = cluster.series()
    assert not [one for one in series if "GPU-gone" in one]
    assert omitted(cluster) == {"unregistered-device": 1}
    assert f'{m.FINDINGS.name}{{node="n1",kind="vanished-device"}}' in series
    (finding,) = cluster.exporter._state.node("n1").findings
    assert (finding.kind, finding.device, finding.pod) == ("vanished-device", "GPU-gone", "p0")


def test_a_deleted_node_keeps_its_name_while_a_pod_is_bound_to_it():
    series = page_of([("n3", 1, {ALLOCATED: "GPU-x,NVIDIA,1,1:;", NODE: "n3"})]).series()
    assert f'{m.FINDINGS.name}{{node="n3",kind="node-unknown"}}' in series


def test_findings_on_nodes_that_only_annotations_name_are_counted_without_the_names():
    found = [("", 1, {ALLOCATED: "GPU-x,NVIDIA,1,1:;", NODE: f"nowhere-{number}"}) for number in range(40)]
    cluster = page_of(found)
    series = cluster.series()
    assert not [one for one in series if "nowhere" in one]
    assert f'{m.FINDINGS.name}{{kind="node-unknown"}} 40' in cluster.exporter._page.text().decode()
    assert sum(one.startswith(f"{m.FINDING.name}{{") for one in series) == NODE_FINDINGS.most == LISTED
    assert omitted(cluster) == {"unregistered-device": 40}


def rows(*devices_and_pods, **of_node):
    """The samples by row, and what was left out."""
    samples = NodeSamples()
    found = samples.of(made.settled(*devices_and_pods, **of_node))
    return found, dict(samples.omitted.get("n1", {}))


def count(found, metric):
    return sum(sample.metric is metric for samples in found.values() for sample in samples)


def test_a_node_has_series_for_no_more_devices_than_the_limit():
    all_gpus = [made.device(f"GPU-{i:03}", i) for i in range(NODE_DEVICES.most + 3)]
    beyond = made.pod("p", made.given(all_gpus[-1].id))
    found, left = rows(*all_gpus, beyond)
    assert (count(found, m.DEVICE_INFO), left) == (NODE_DEVICES.most, {"node-limit": 4})
    assert count(found, m.HOLDER_MEMORY) == 0


def test_a_container_has_series_for_no_more_devices_than_the_limit():
    all_gpus = [made.device(f"GPU-{i:03}", i) for i in range(CONTAINER_DEVICES.most + 3)]
    greedy = made.pod("greedy", *(made.given(one_gpu.id) for one_gpu in all_gpus))
    found, left = rows(*all_gpus, greedy, made.pod("small", made.given(all_gpus[-1].id)))
    assert (count(found, m.HOLDER_MEMORY), left) == (CONTAINER_DEVICES.most + 1, {"container-limit": 3})


def test_a_node_has_series_for_no_more_allocations_than_the_limit():
    all_gpus = [made.device(f"GPU-{i:03}", i) for i in range(CONTAINER_DEVICES.most)]
    pods = [made.pod(f"p{i}", *(made.given(one_gpu.id) for one_gpu in all_gpus)) for i in range(65)]
    found, left = rows(*all_gpus, *pods)
    assert count(found, m.HOLDER_MEMORY) == NODE_HOLDERS.most
    assert left == {"node-limit": 65 * CONTAINER_DEVICES.most - NODE_HOLDERS.most}


def test_a_node_has_series_for_no_more_counted_resources_than_the_limit():
    offers = [
        OfferedResource(resource=f"nvidia.com/mig-{i}", mode="mig", capacity=1, allocatable=1)
        for i in range(NODE_OFFERS.most + 2)
    ]
    found, left = rows(offers=tuple(offers))
    assert (count(found, m.OFFERED), left) == (NODE_OFFERS.most, {"node-limit": 2})


def test_a_hundred_containers_on_each_of_sixteen_gpus_are_below_every_limit():
    all_gpus = [made.device(f"GPU-{i}", i) for i in range(16)]
    pods = [made.pod(f"p{i}-{j}", made.given(one_gpu.id)) for i, one_gpu in enumerate(all_gpus) for j in range(100)]
    found, left = rows(*all_gpus, *pods)
    assert (count(found, m.HOLDER_MEMORY), left) == (1600, {})


def test_a_pod_that_rewrites_its_instances_shows_the_first_ones_and_takes_none_from_its_neighbour():
    samples, one_gpu = NodeSamples(), made.device()
    own = made.instance(start=0, mig="MIG-own", gpu_instance=1, compute_instance=0)
    honest = made.pod("honest", made.given(), instances=(own,))
    seen = set()
    for number in range(POD_INSTANCES.most + 5):
        fake = made.instance(start=1, mig=f"MIG-{number}", gpu_instance=2, compute_instance=0)
        copy = made.pod("attacker", made.given(), instances=(fake, own))
        found = samples.of(made.settled(one_gpu, honest, copy))
        shown = {row.mig_uuid for row in found if isinstance(row, HeldInstanceLabels)}
        assert "MIG-own" in shown
        seen |= shown
    assert len(seen) <= POD_INSTANCES.most + 1
    assert samples.omitted["n1"]["mig-limit"] == 1


def test_a_further_node_has_no_series_once_the_cluster_has_the_most_that_were_set():
    cluster = Cluster(max_series=1000)
    for number in range(40):
        cluster.put(registered(f"n{number}", f"GPU-{number}", f"GPU-{number}-b"))
    series = cluster.series()
    assert 1000 <= len(series) <= 1000 + 2 * series_per("device", m.METRICS, DEFAULT_FAMILIES) + OF_PODS
    shown = ready(series)
    assert omitted(cluster) == {"cluster-limit": 2 * (40 - len(shown))}
    for name in list(shown)[:5]:
        cluster.put(registered(name), word="DELETED")
    cluster.series()  # now there is room
    now = ready(cluster.series())
    assert len(shown) - 5 < len(now) <= len(shown)
    assert omitted(cluster) == {"cluster-limit": 2 * (35 - len(now))}


def ready(series):
    """The nodes that have series."""
    return {one.split('"')[1] for one in series if one.startswith(f"{m.NODE_READY.name}{{")}
