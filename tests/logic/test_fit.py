"""What would make a pod fit: only what is certain."""

import pytest
from hypothesis import given as given_
from hypothesis import strategies as st

from tests.logic.cluster_builders import GIB, device, given, ledger, node, pod
from vgpuscope.logic.fit import advice

GPU = "nvidia.com/gpu"


def wish(count=1, **more):
    return {GPU: count, **{f"nvidia.com/{name}": amount for name, amount in more.items()}}


def told(asked, *cards, pods=(), **of_node):
    made = ledger([node(*cards, **of_node)], pods)
    return advice(asked, [made.node(name) for name in made.node_names()])


BUSY = pod("p", given("GPU-0", 74 * GIB, 60))


def test_the_largest_free_piece_is_told_where_it_is_too_small():
    assert told(wish(gpumem=8192), device(), pods=[BUSY]) == (
        "it asks for 8.0 GiB of one card: the largest free piece is 6.0 GiB (n1 #0)",
    )


def test_a_piece_that_is_just_large_enough_is_enough():
    (said,) = told(wish(gpumem=6144), device(), pods=[BUSY])
    assert "memory and cores enough" in said


def test_two_sizes_that_are_almost_the_same_are_told_apart():
    (said,) = told(wish(gpumem=6150), device(), pods=[BUSY])
    assert said == "it asks for 6150 MiB of one card: the largest free piece is 6144 MiB (n1 #0)"


def test_cores_that_no_card_has_are_told():
    assert told(wish(gpumem=1024, gpucores=50), device(), pods=[BUSY]) == (
        "it asks for 50% of a card's cores: no card gives more than 40%",
    )


def test_a_whole_card_is_only_for_who_is_alone_on_it():
    held = pod("p", given("GPU-0", GIB, 0))
    (said,) = told(wish(gpumem=1024, gpucores=100), device(), pods=[held])
    assert said == "it asks for 100% of a card's cores: no card gives more than 99%"


def test_where_there_is_room_something_else_keeps_the_pod_away():
    (said,) = told(wish(gpumem=1024, gpucores=30), device())
    assert said.startswith("n1 #0 has a free slot, and memory and cores enough")
    assert told({GPU: 1, "nvidia.com/gpumem-percentage": 50}, device()) == (said,)


def test_a_card_that_is_out_of_service_is_named_if_it_would_have_room():
    (small, lost) = told(wish(gpumem=8192), device(), device("GPU-1", 1, healthy=False), pods=[BUSY])
    assert "6.0 GiB" in small
    assert lost == "n1 #1 would have room, but takes no pods: unhealthy"


def test_slots_that_are_gone_are_told():
    assert told(wish(gpumem=1), device(slots=1), pods=[BUSY]) == ("no card that is in service has a free slot",)


def test_several_cards_need_as_many_slots_on_one_node():
    said = told(wish(4), device(slots=1), device("GPU-1", 1, slots=1))
    assert said == ("it asks for 4 cards on one node: no node has more than 2 free slots (n1)",)
    assert told(wish(2), device(slots=1), device("GPU-1", 1, slots=1)) == ()
    assert told(wish(2), device(), schedulable=False) == ("it asks for 2 cards on one node: no card is in service",)


@pytest.mark.parametrize(
    ("asked", "cards"),
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
def test_nothing_is_told_where_nothing_is_certain(asked, cards):
    assert told(asked, *cards) == ()


@given_(st.integers(1, 90 * 1024), st.integers(0, 100), st.lists(st.integers(0, 80), max_size=3))
def test_no_piece_is_called_too_small_that_would_do(mib, cores, taken):
    cards = [device(f"GPU-{n}", n) for n in range(len(taken))]
    pods = [pod(f"p{n}", given(f"GPU-{n}", gib * GIB, 0)) for n, gib in enumerate(taken) if gib]
    fits = any((80 - gib) * 1024 >= mib for gib in taken)
    said = told(wish(gpumem=mib, gpucores=cores), *cards, pods=pods)
    assert not (fits and any("largest free piece" in line for line in said))
    assert fits or not taken or said
