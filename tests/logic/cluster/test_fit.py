"""What would make a pod fit: only what is certain."""

import pytest
from hypothesis import given as given_
from hypothesis import strategies as st

from tests.logic.cluster.builders import GIB, device, given, ledger, node, node_names, pod
from tests.logic.cluster.languages import english
from vgpuscope.logic.cluster.fit import advice
from vgpuscope.model.allocation import OfferedResource
from vgpuscope.model.words import Words

GPU = "nvidia.com/gpu"
QUOTA = Words("the quota of namespace ml", "命名空间 ml 的配额")


def said(*about, **more):
    return tuple(map(english, advice(*about, **more)))


def wish(count=1, **more):
    return {GPU: count, **{f"nvidia.com/{name}": amount for name, amount in more.items()}}


def told(asked, *gpus, pods=(), **of_node):
    made = ledger([node(*gpus, **of_node)], pods)
    return said(asked, [made.node(name) for name in node_names(made)])


BUSY = pod("p", given("GPU-0", 74 * GIB, 60))


def test_the_largest_free_piece_is_told_where_it_is_too_small():
    assert told(wish(gpumem=8192), device(), pods=[BUSY]) == (
        "The pod asks for 8.0 GiB of one GPU; the largest free piece is 6.0 GiB (n1 GPU 0): 2.0 GiB missing.",
    )


def test_a_piece_that_is_just_large_enough_is_enough():
    (said,) = told(wish(gpumem=6144), device(), pods=[BUSY])
    assert said == "Capacity is not the problem: n1 GPU 0 has a free slot, 6.0 GiB and 40% of its cores free."


def test_two_sizes_that_are_almost_the_same_are_told_apart():
    (said,) = told(wish(gpumem=6150), device(), pods=[BUSY])
    assert said == "The pod asks for 6150 MiB of one GPU; the largest free piece is 6144 MiB (n1 GPU 0): 6 MiB missing."


def test_a_free_piece_that_is_larger_than_the_gpu_is_explained():
    scaled = device(memory=160 * GIB, physical=80 * GIB, cores=200)
    (small,) = told(wish(gpumem=100 * 1024), scaled, pods=[BUSY])
    assert "the largest free piece is 86.0 GiB with memory scaling ×2 (n1 GPU 0): 14.0 GiB missing." in small
    (room,) = told(wish(gpumem=1024), scaled, pods=[BUSY])
    assert "86.0 GiB with memory scaling ×2 and 100% of its cores free." in room


def test_cores_that_no_gpu_has_are_told():
    assert told(wish(gpumem=1024, gpucores=50), device(), pods=[BUSY]) == (
        "The pod asks for 50% of a GPU's cores; no GPU gives more than 40% (n1 GPU 0): 10% missing.",
    )


def test_a_whole_gpu_is_only_for_who_is_alone_on_it():
    held = pod("p", given("GPU-0", GIB, 0))
    (said,) = told(wish(gpumem=1024, gpucores=100), device(), pods=[held])
    assert said == (
        "The pod asks for 100% of a GPU's cores; no GPU gives more than 99% (n1 GPU 0): 1% missing. A request for all "
        "cores needs a GPU without tenants."
    )


def test_where_there_is_room_something_else_keeps_the_pod_away():
    (said,) = told(wish(gpumem=1024, gpucores=30), device())
    assert said == "Capacity is not the problem: n1 GPU 0 has a free slot, 80.0 GiB and 100% of its cores free."
    assert told({GPU: 1, "nvidia.com/gpumem-percentage": 50}, device()) == (said,)


def test_a_gpu_that_is_out_of_service_is_named_if_it_would_have_room():
    (small, lost) = told(wish(gpumem=8192), device(), device("GPU-1", 1, healthy=False), pods=[BUSY])
    assert "6.0 GiB" in small
    assert lost == "n1 GPU 1 would have room, but accepts no pods: unhealthy."


def test_slots_that_are_gone_are_told():
    assert told(wish(gpumem=1), device(slots=1), pods=[BUSY]) == ("No GPU in service has a free slot.",)


def test_several_gpus_need_as_many_slots_on_one_node():
    said = told(wish(4), device(slots=1), device("GPU-1", 1, slots=1))
    assert said == ("The pod asks for 4 GPUs on one node; no node has more than 2 free slots (n1).",)
    assert told(wish(2), device(slots=1), device("GPU-1", 1, slots=1)) == ()
    assert told(wish(2), device(), schedulable=False) == ("The pod asks for 2 GPUs on one node; no GPU is in service.",)


def test_where_there_is_room_the_blocker_is_named():
    made = ledger([node(device())]).node("n1")
    (line,) = said(wish(gpumem=1024), [made], blocker=QUOTA)
    assert line.endswith("100% of its cores free. The blocker is the quota of namespace ml.")
    (small,) = said(wish(gpumem=90 * 1024), [made], blocker=QUOTA)
    assert "blocker" not in small


def counted(free, capacity=4, resource=GPU, name="plain"):
    offers = (OfferedResource(resource=resource, mode="whole", capacity=capacity, allocatable=free),)
    return ledger([node(name=name, offers=offers)]).node(name)


def test_gpus_that_are_only_counted_are_told_by_number():
    assert said(wish(3), [counted(1), counted(2, name="other")]) == (
        "The pod asks for 3 nvidia.com/gpu on one node; the most that is free is 2 of 4 (other): 1 missing.",
    )
    assert said(wish(3), [counted(3)]) == ("Capacity is not the problem: plain has 3 of 4 nvidia.com/gpu free.",)
    assert said({"nvidia.com/mig-1g.10gb": 1}, [counted(3)]) == ()
    assert said(wish(3, gpumem=1024), [counted(3)]) == ()  # that only HAMi grants
    assert said(wish(9), [counted(3), ledger([node(device())]).node("n1")]) == ()  # HAMi's GPUs may do


@pytest.mark.parametrize(
    ("asked", "gpus"),
    [
        (wish(), [device()]),  # how much memory it means is a setting of HAMi's
        (wish(gpumem=1024), []),
        (wish(gpumem=1024), [device(mode="mig")]),  # a placement decides
        ({"cpu": 4}, [device()]),
        ({"nvidia.com/mig-1g.10gb": 1}, [device()]),
        ({}, [device()]),
    ],
    ids=["memory not said", "no cards", "mig", "no devices", "a resource of its own", "nothing"],
)
def test_nothing_is_told_where_nothing_is_certain(asked, gpus):
    assert told(asked, *gpus) == ()


@given_(st.integers(1, 90 * 1024), st.integers(0, 100), st.lists(st.integers(0, 80), max_size=3))
def test_no_piece_is_called_too_small_that_would_do(mib, cores, taken):
    gpus = [device(f"GPU-{n}", n) for n in range(len(taken))]
    pods = [pod(f"p{n}", given(f"GPU-{n}", gib * GIB, 0)) for n, gib in enumerate(taken) if gib]
    fits = any((80 - gib) * 1024 >= mib for gib in taken)
    said = told(wish(gpumem=mib, gpucores=cores), *gpus, pods=pods)
    assert not (fits and any("largest free piece" in line for line in said))
    assert fits or not taken or said
