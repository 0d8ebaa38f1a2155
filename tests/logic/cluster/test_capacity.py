"""What can still be had, by example; the laws are with the others."""

import pytest

from tests.logic.cluster.builders import GIB, device, given, instance, ledger, node, pod, settled, totals
from vgpuscope.model.cluster import Amount, Capacity

GPU = Amount(1, 10, 80 * GIB, 100)


def test_an_idle_gpu_is_free_as_a_whole():
    one = settled(device()).capacity
    assert one.total == one.usable == one.free == one.whole == GPU
    assert (one.largest_memory, one.largest_cores, one.whole_cards, one.fragmentation) == (80 * GIB, 100, 1, 0)


def test_what_is_left_beside_a_holder_is_free_in_pieces():
    one = settled(device(), pod("a", given(memory=30 * GIB, cores=40))).capacity
    assert one.free == Amount(1, 9, 50 * GIB, 60)
    assert one.allocated == Amount(1, 1, 30 * GIB, 40)
    assert (one.whole, one.whole_cards, one.fragmentation) == (Amount(), 0, 1)


def test_fragmentation_is_the_share_of_free_memory_beside_holders():
    one = settled(device("GPU-0", 0), device("GPU-1", 1), pod("a", given("GPU-1", memory=60 * GIB))).capacity
    assert one.fragmentation == pytest.approx(20 / 100)


def test_without_free_memory_there_is_no_fragmentation():
    assert settled(device(), pod("a", given(memory=80 * GIB))).capacity.fragmentation is None
    assert Capacity().fragmentation is None


@pytest.mark.parametrize(
    ("gpu", "held"),
    [({"slots": 1}, {}), ({}, {"memory": 80 * GIB}), ({}, {"cores": 100})],
    ids=["no slot", "no memory", "exclusive"],
)
def test_what_is_left_behind_a_full_gpu_is_stranded(gpu, held):
    one = settled(device(**gpu), pod("a", given(**held))).capacity
    assert (one.free, one.largest_memory, one.largest_cores) == (Amount(), 0, 0)
    assert one.stranded.cards == 1


def test_all_of_a_gpu_cannot_be_had_while_somebody_holds_a_part_without_cores():
    assert settled(device(), pod("a", given(cores=0))).capacity.largest_cores == 99
    assert settled(device(cores=200), pod("a", given(cores=0))).capacity.largest_cores == 100


def test_one_request_is_for_one_gpu_at_most_however_far_cores_are_scaled():
    assert settled(device(cores=300)).capacity.largest_cores == 100


@pytest.mark.parametrize(
    ("gpu", "of_node", "reason"),
    [
        ({"healthy": False, "cordoned": True}, {"ready": False}, "unhealthy"),
        ({"cordoned": True}, {"ready": False}, "cordoned"),
        ({}, {"allocatable": {"nvidia.com/gpu": 0}, "ready": False}, "kubelet-zero"),
        ({}, {"ready": False, "schedulable": False}, "node-not-ready"),
        ({}, {"schedulable": False}, "node-unschedulable"),
    ],
)
def test_a_gpu_that_takes_nothing_new_leaves_the_denominator_under_one_reason(gpu, of_node, reason):
    one = settled(device(**gpu), pod("a", given()), **of_node).capacity
    assert (one.total, one.lost, one.usable) == (GPU, {reason: GPU}, Amount())
    assert (one.free, one.allocated, one.largest_memory, one.whole_cards) == (Amount(), Amount(), 0, 0)


def test_what_is_left_of_a_mig_gpu_is_told_apart_because_placement_decides():
    held = pod("a", given(memory=10 * GIB, cores=15), instances=(instance(),))
    one = settled(device(mode="mig", slots=7), held).capacity
    assert (one.free, one.mig) == (Amount(), Amount(1, 6, 70 * GIB, 85))
    assert (one.largest_memory, one.whole_cards, one.fragmentation) == (0, 0, None)


def test_whole_gpus_are_those_of_one_vendor_on_one_node():
    nvidia = [device(f"GPU-{i}", i, type=("A100", "T4")[i % 2]) for i in range(3)]
    amd = [device(f"AMD-{i}", i, vendor="AMD", type="MI300X") for i in range(2)]
    made = ledger([node(*nvidia, *amd), node(*amd, name="n2")])
    assert made.node("n1").capacity.whole_cards == 3
    assert [(one.type, one.whole_cards) for one in made.node("n1").types] == [("MI300X", 2), ("A100", 2), ("T4", 1)]
    assert totals(made).cluster().whole_cards == 3
    assert totals(made).cluster().whole.cards == 7


def test_vendors_that_count_compute_units_are_shown_in_percent_of_a_gpu():
    one = settled(
        device(vendor="AMD", cores=304),
        pod("a", given(cores=77, vendor="AMD")),
    ).capacity
    assert (one.total.cores, one.allocated.cores, one.largest_cores) == (100, 26, 74)


def test_a_bit_for_each_core_cannot_be_added_up():
    one = settled(device(vendor="AWSNeuron", cores=3, memory=0, slots=2), pod("a", given(cores=2, memory=0))).capacity
    assert (one.total.cores, one.allocated.cores, one.free.cards) == (0, 0, 1)


def test_an_over_allocated_gpu_has_nothing_left_and_not_less():
    one = settled(device(memory=GIB, slots=1), pod("a", given()), pod("b", given())).capacity
    assert (one.stranded.memory, one.stranded.slots) == (0, 0)
    assert (one.allocated.memory - one.over.memory, one.allocated.slots - one.over.slots) == (GIB, 1)


def test_types_and_the_cluster_are_the_sum_of_their_nodes_and_the_best_of_them():
    made = ledger(
        [
            node(device()),
            node(device("GPU-1", memory=16 * GIB, type="T4"), name="n2"),
            node(device("GPU-2"), name="n3"),
        ],
        [pod("a", given(memory=30 * GIB, cores=50)), pod("b", given("GPU-2", memory=20 * GIB, cores=60), on="n3")],
    )
    cluster = totals(made).cluster()
    assert (cluster.total.cards, cluster.free.memory) == (3, (50 + 16 + 60) * GIB)
    assert (cluster.largest_memory, cluster.largest_cores) == (60 * GIB, 100)
    a100, t4 = totals(made).types()
    assert (a100.type, a100.free.memory, a100.largest_memory, a100.largest_cores) == ("A100", 110 * GIB, 60 * GIB, 50)
    assert (t4.type, t4.whole_cards) == ("T4", 1)


def test_a_node_put_again_stands_in_its_own_place():
    made = ledger([node(device())])
    sums = totals(made)
    made.set_pod(pod("a", given(memory=30 * GIB)))
    sums.put(made.node("n1"))
    assert sums.cluster() == made.node("n1").capacity


def test_a_reason_that_is_over_is_not_shown_any_more():
    made = ledger([node(device()), node(device(healthy=False), name="n2")])
    sums = totals(made)
    made.set_node(node(device(), name="n2"))
    sums.put(made.node("n2"))
    assert (sums.cluster().lost, sums.cluster().usable.cards) == ({}, 2)


def test_a_cluster_without_devices_has_no_capacity_and_no_types():
    sums = totals(ledger([node()]))
    assert (sums.cluster(), sums.types()) == (Capacity(), ())
