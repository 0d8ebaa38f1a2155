"""What the ledger costs: time for an event, memory for a pod, time for the totals of a large cluster."""

import gc
import tracemalloc

from msgspec.structs import replace

from tests.cputime import seconds
from tests.logic.cluster.builders import GIB, device, given, ledger, node, pod
from vgpuscope.logic.cluster.capacity import CapacityTotals

NODES, PODS_ON_EACH = 250, 32


def cluster():
    nodes = [node(*(device(f"GPU-{i}-{g}", g) for g in range(8)), name=f"n{i}") for i in range(NODES)]
    pods = [
        pod(f"p{k}", given(f"GPU-{i}-{k % 8}", GIB, 20), on=f"n{i}", namespace=f"ns{i % 20}-{k}")
        for i in range(NODES)
        for k in range(PODS_ON_EACH)
    ]
    return nodes, pods


def test_a_pod_event_costs_less_than_50_microseconds():
    nodes, pods = cluster()
    made = ledger(nodes, pods)
    versions = iter([[replace(one, deleting=i % 2 == 0) for one in pods] for i in range(3)])
    assert seconds(lambda: [made.set_pod(one) for one in next(versions)]) / len(pods) < 50e-6


def test_a_pod_costs_less_than_a_kilobyte_beside_itself():
    nodes, pods = cluster()
    gc.collect()
    tracemalloc.start()
    try:
        made = ledger(nodes, pods)
        assert tracemalloc.get_traced_memory()[0] / len(pods) < 1000
    finally:
        tracemalloc.stop()
    assert made.node("n0") is not None


def test_the_totals_of_5000_nodes_cost_less_than_5_milliseconds():
    nodes, pods = cluster()
    made, sums = ledger(nodes, pods), CapacityTotals()
    some = [made.node(one.name) for one in nodes]
    for copy in range(5000 // NODES):
        for one in some:
            sums.put(replace(one, name=f"{one.name}-{copy}"))
    assert seconds(lambda: (sums.cluster(), sums.types())) < 5e-3
