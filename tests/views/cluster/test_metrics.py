"""The cluster's conclusions as samples."""

from typing import Any

import pytest
from msgspec import structs

from vgpuscope.catalog import cluster as m
from vgpuscope.logic.cluster.ledger import ClusterLedger
from vgpuscope.model.allocation import Assignment, HeldInstance, NodeState, PodState, QuotaState, RegisteredDevice
from vgpuscope.views.cluster.metrics import NodeSamples, namespace_samples, node_samples
from vgpuscope.views.exposition.page import Renderer
from vgpuscope.views.exposition.sharded import ShardedPage

GIB = 2**30
GPU = RegisteredDevice(id="GPU-a", vendor="NVIDIA", slots=7, memory=80 * GIB, cores=100, type="A100", healthy=True)


def given(index=0, name="main", memory=GIB, cores=10):
    return Assignment(
        container_index=index, container=name, init=False, vendor="NVIDIA", device="GPU-a", memory=memory, cores=cores
    )


def ledger(*assignments, **more):
    made = ClusterLedger()
    made.set_node(NodeState(name="n1", devices=(GPU,)))
    place: dict[str, Any] = {"node": "n1", "assigned_node": "n1", "phase": "Running"}
    made.set_pod(PodState(uid="u1", namespace="ml", name="p", assignments=assignments, **place, **more))
    return made


def values(samples, metric):
    return [(s.row, s.value, s.extra) for s in samples if s.metric is metric and s.value is not None]


def test_a_container_that_was_given_a_gpu_twice_has_one_series_with_the_sum():
    found = values(node_samples(ledger(given(), given()).node("n1")), m.HOLDER_MEMORY)
    assert [(row.container, value) for row, value, _ in found if row.as_container] == [("main", 2 * GIB)]


def lines(made, family, name):
    """The lines of a name on the node's page, by shards as it is served."""
    page = ShardedPage(m.METRICS, (family,))
    page.update_rows("n1", NodeSamples().of(made.node("n1")))
    return [line for line in page.text().decode().splitlines() if line.startswith(f"{name}{{")]


@pytest.mark.parametrize(
    ("family", "name", "index"),
    [
        ("hami", "hami_vgpu_memory_allocated_bytes", 'container_index="0"'),
        ("hami-legacy", "vGPUMemoryAllocated", 'containeridx="0"'),
    ],
)
def test_hamis_names_add_up_the_containers_of_a_pod_and_ours_tell_them_apart(family, name, index):
    made = ledger(given(1, "a"), given(2, "b", memory=2 * GIB))
    (line,) = lines(made, family, name)
    assert index in line
    assert line.endswith(f" {3 * GIB}")
    assert len(lines(made, "native", m.HOLDER_MEMORY.name)) == 2


def test_hamis_names_count_the_larger_init_container_until_it_has_ended():
    init = structs.replace(given(0, "init", memory=5 * GIB), init=True)
    made = ledger(init, given(1, "a", memory=2 * GIB))
    (line,) = lines(made, "hami", "hami_vgpu_memory_allocated_bytes")
    assert line.endswith(f" {5 * GIB}")
    made = ledger(init, given(1, "a", memory=2 * GIB), init_done=True)
    (line,) = lines(made, "hami", "hami_vgpu_memory_allocated_bytes")
    assert line.endswith(f" {2 * GIB}")


def test_a_pod_more_changes_values_of_hamis_device_series_and_makes_no_new_ones():
    def series(*assignments):
        made = ledger(*assignments)
        names = ("hami_gpu_memory_allocated_bytes", "hami_node_gpu_overview")
        return [line.rsplit(" ", 1)[0] for name in names for line in lines(made, "hami", name)]

    assert len(series()) == 2
    assert series() == series(given()) == series(given(), given(1, "b", cores=60))


def test_no_series_is_on_the_page_twice():
    made = ledger(given(), given(), given(1, "side"))
    lines = (
        Renderer(m.METRICS, ("native", "hami", "hami-legacy")).render(node_samples(made.node("n1"))).text().splitlines()
    )
    series = [line.rsplit(b" ", 1)[0] for line in lines if not line.startswith(b"#")]
    assert len(series) == len(set(series))


def test_an_instance_is_shown_once_the_plugin_has_made_it():
    planned = HeldInstance(container_index=0, device="GPU-a", profile="1g.10gb", start=0, size=1)
    made = HeldInstance(
        container_index=0,
        device="GPU-a",
        profile="1g.10gb",
        start=1,
        size=1,
        mig="MIG-1",
        gpu_instance=9,
        compute_instance=0,
    )
    found = values(node_samples(ledger(given(), instances=(planned, made)).node("n1")), m.MIG_INSTANCE)
    assert [row.mig_name for row, _, _ in found] == ["1g.10gb-9"]


def test_a_quota_without_a_limit_has_no_limit_series_and_hamis_label_says_zero():
    made = ledger(given(memory=4 * GIB))
    samples = list(namespace_samples(made.namespace("ml")))
    assert values(samples, m.QUOTA_LIMIT) == []
    assert {extra for _, _, extra in values(samples, m.LEGACY_QUOTA_USED)} == {("0",)}
    made.set_quota(QuotaState(namespace="ml", name="q", hard={"nvidia.com/gpumem": 10000}))
    limits = values(namespace_samples(made.namespace("ml")), m.QUOTA_LIMIT)
    assert [value for _, value, _ in limits] == [10000]
