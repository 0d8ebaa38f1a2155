"""Counted GPUs in the ledger: what is offered, asked for and free on nodes without HAMi."""

import pytest

from tests.logic.cluster.builders import asks, device, given, ledger, node, pod
from vgpuscope.catalog import cluster as m
from vgpuscope.model.allocation import OfferedResource, PodState
from vgpuscope.views.cluster.metrics import NodeSamples, node_samples
from vgpuscope.views.exposition.page import Renderer
from vgpuscope.views.exposition.sharded import ShardedPage

GPU = "nvidia.com/gpu"
FAMILIES = ("native", "hami", "hami-legacy", "handbook")


def offer(capacity=4, allocatable=None, **more):
    given = {"resource": GPU, "mode": "whole", "type": "H100"} | more
    return OfferedResource(capacity=capacity, allocatable=capacity if allocatable is None else allocatable, **given)


def user(name, count=1, resource=GPU, on="n1", **more):
    return PodState(uid=f"uid-{name}", namespace="ml", name=name, node=on, asks=asks({resource: count}), **more)


def settled(*offers, pods=(), devices=(), **of_node):
    return ledger([node(*devices, offers=offers, **of_node)], pods).node("n1")


def counts(made):
    return [(one.offer.capacity, one.requested, one.free) for one in made.offers]


def test_whole_gpus_are_counted_by_capacity_and_requests():
    made = settled(offer(4), pods=[user("a", 2, phase="Running"), user("b"), user("elsewhere", on="n2")])
    assert counts(made) == [(4, 3, 1)]
    assert [(one.pod, one.count) for one in made.offers[0].holders] == [("a", 2), ("b", 1)]


@pytest.mark.parametrize(("phase", "requested"), [("Running", 2), ("Pending", 2), ("Succeeded", 0), ("Failed", 0)])
def test_a_pod_holds_what_it_asks_for_until_it_has_ended(phase, requested):
    assert counts(settled(offer(4), pods=[user("a", 2, phase=phase)])) == [(4, requested, 4 - requested)]


def test_each_resource_of_a_node_has_its_own_count():
    small, large = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
    offers = (offer(7, resource=small, mode="mig"), offer(1, resource=large, mode="mig"))
    made = settled(*offers, pods=[user("a", 3, small), user("b", 1, large)])
    assert counts(made) == [(7, 3, 4), (1, 1, 0)]


def test_of_shared_gpus_the_number_of_gpus_follows_from_the_replicas():
    made = settled(offer(16, mode="time-slicing", replicas=4), offer(8, resource=f"{GPU}.shared", replicas=None))
    assert [one.gpus for one in made.offers] == [4, None]


@pytest.mark.parametrize(
    ("offered", "of_node", "lost"),
    [
        (offer(4, 0), {}, "kubelet-zero"),
        (offer(4), {"ready": False}, "node-not-ready"),
        (offer(4), {"schedulable": False}, "node-unschedulable"),
    ],
)
def test_gpus_that_take_no_pods_are_not_free(offered, of_node, lost):
    (one,) = settled(offered, **of_node).offers
    assert (one.lost, one.free, one.usable) == (lost, 0, 0)


def test_an_unhealthy_gpu_under_a_pod_leaves_no_negative_rest():
    assert counts(settled(offer(2, 1), pods=[user("a", 2)])) == [(2, 2, 0)]


def test_gpus_that_a_dra_driver_publishes_are_not_counted_again():
    published = device("GPU-a", vendor="gpu.nvidia.com")
    assert settled(offer(4), devices=[published]).offers == ()


def test_counted_gpus_are_in_no_total_of_registered_ones_and_no_finding():
    made = settled(offer(4), pods=[user("a", 9)])
    assert (made.capacity.total.cards, made.types, made.findings) == (0, (), ())


def page(made):
    drawn = ShardedPage(m.METRICS, FAMILIES)
    drawn.update_rows("n1", NodeSamples().of(made))
    lines = [line for line in drawn.text().decode().splitlines() if not line.startswith("#")]
    plain = Renderer(m.METRICS, FAMILIES).render(node_samples(made)).text().decode().splitlines()
    assert sorted(lines) == sorted(line for line in plain if not line.startswith("#"))
    return lines


def test_counted_gpus_are_under_our_names_and_never_under_hamis():
    lines = page(settled(offer(4, 3), pods=[user("a", 2)]))
    labels = '{node="n1",resource="nvidia.com/gpu",type="H100",mode="whole"}'
    assert [line for line in lines if "counted" in line] == [
        f"vgpuscope_cluster_counted_capacity{labels} 4",
        f"vgpuscope_cluster_counted_allocatable{labels} 3",
        f"vgpuscope_cluster_counted_requested{labels} 2",
        f"vgpuscope_cluster_counted_free{labels} 1",
    ]
    assert all(line.startswith("vgpuscope_cluster_") for line in lines)


def test_a_node_with_registered_gpus_has_them_and_no_counted_ones():
    made = settled(devices=[device()], pods=[pod("p", given("GPU-0"))])
    assert made.offers == ()
    assert not any("counted" in line for line in page(made))
