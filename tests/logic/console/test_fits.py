"""What still fits: the same for GPUs that are registered with HAMi and for those that a kubelet only counts."""

import io
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from tests.logic.console.clusters import GIB, device, node
from tests.logic.console.test_groups import ledgers
from vgpuscope.logic.console.nodes import node_rows
from vgpuscope.logic.console.scheduling import counted_capacity, fleet_capacity
from vgpuscope.model.allocation import OfferedResource, OfferMode
from vgpuscope.model.cluster import Capacity, NodeLedger, OfferLedger
from vgpuscope.views.cluster.inventory import nodes_table


def offer(
    mode: OfferMode, free: int, *, capacity: int = 4, memory: int | None = None, profile: str = ""
) -> OfferLedger:
    resource = f"nvidia.com/mig-{profile}" if profile else "nvidia.com/gpu"
    offered = OfferedResource(
        resource=resource,
        mode=mode,
        capacity=capacity,
        allocatable=capacity,
        type="H100",
        profile=profile,
        memory=memory,
        replicas=None if mode == "shared" else 1,
    )
    return OfferLedger(offer=offered, requested=capacity - free, free=free)


HAMI = replace(
    node("hami", device("GPU-1"), device("GPU-2")),
    capacity=Capacity(largest_memory=70 * GIB, largest_cores=100, whole_cards=1),
)
PLAIN = NodeLedger(
    name="plain", offers=(offer("whole", 2, memory=80 * GIB), offer("mig", 1, profile="1g.10gb", memory=10 * GIB))
)
SHARED = NodeLedger(name="shared", offers=(offer("shared", 4, capacity=16, memory=24 * GIB),))
NODES = (HAMI, PLAIN, SHARED)


def test_a_node_says_what_still_fits_whoever_offers_its_gpus():
    rows = {row.name: row for row in node_rows((), cluster=ledgers(NODES), agents={})}
    assert {name: (row.whole_gpus, row.largest_memory) for name, row in rows.items()} == {
        "hami": (1, 70 * GIB),
        "plain": (2, 80 * GIB),
        "shared": (0, None),  # a share has no limit of memory
    }
    assert [(one.profile, one.free, one.memory_free) for one in rows["plain"].counted] == [
        (None, 2, 160 * GIB),
        ("1g.10gb", 1, 10 * GIB),
    ]
    assert [(one.mode, one.free, one.capacity, one.memory_free) for one in rows["shared"].counted] == [
        ("shared", 4, 16, None)
    ]


def test_the_cluster_has_the_largest_of_its_nodes_of_any_kind():
    found = fleet_capacity(NODES)
    assert (found.whole_gpus, found.largest_memory) == (2, 80 * GIB)


def test_a_node_of_which_no_gpu_is_offered_has_no_answer():
    assert NodeLedger(name="gone").whole_gpus is None
    assert NodeLedger(name="gone").largest_memory is None


def test_what_is_counted_on_several_nodes_adds_up_and_one_pod_gets_what_one_node_has():
    nodes = [NodeLedger(name=name, offers=(offer("whole", free),)) for name, free in (("a", 1), ("b", 3))]
    (one,) = counted_capacity(nodes)
    assert (one.free, one.free_on_one, one.whole_gpus, one.capacity) == (4, 3, 3, 8)
    assert one.memory_free is None  # no label says how much memory a GPU has


def drawn(nodes: tuple[NodeLedger, ...]) -> str:
    console = Console(width=240, file=io.StringIO())
    with console.capture() as text:
        console.print(nodes_table(nodes, None))
    return text.get()


offers = st.builds(
    offer, st.sampled_from(["whole", "mig"]), st.integers(0, 4), profile=st.sampled_from(["", "1g.10gb"])
)


@given(st.lists(offers, min_size=1, max_size=3, unique_by=lambda one: one.offer.mode))
def test_the_command_shows_the_whole_gpus_that_the_console_shows(found):
    plain = NodeLedger(name="plain", offers=tuple(found))
    (row,) = node_rows((), cluster=ledgers((plain,)), agents={})
    words = drawn((plain,)).replace(",", "").split()
    said = [int(word) for word, unit in pairwise(words) if unit == "whole"]
    assert row.whole_gpus == max(said, default=0)
