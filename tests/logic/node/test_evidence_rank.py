"""A region is what a tenant says of itself: it changes nothing that was measured of another."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from tests.logic.node.builders import (
    GIB,
    A,
    B,
    grant,
    ledger,
    make_gpu,
    owner,
    pod,
    process,
    region,
    sample,
    share,
    slot,
    usage,
)
from vgpuscope.catalog import agent as catalog
from vgpuscope.model.pod import ProcessOwner
from vgpuscope.model.region import ContainerRegion, RegionDevice
from vgpuscope.views.build import Build
from vgpuscope.views.node.metrics import SelfUse, node_samples
from vgpuscope.views.node.top.notes import notices

pytestmark = pytest.mark.attack

UNKNOWN = "GPU-99999999-0000-0000-0000-000000000000"
VICTIM_PID, ATTACKER_PID = 11, 66
BUILD = Build(version="1", revision="r", build_date="d", python_version="3", compiler="c", platform="p")

forged_slots = st.lists(
    st.builds(
        lambda host_pid, used, sm, status: slot(host_pid, used, sm, status=status, devices=2),
        st.sampled_from([0, VICTIM_PID, 12, ATTACKER_PID, 12345]),
        st.integers(0, 200 * GIB),
        st.floats(0, 1),
        st.sampled_from([0, 1, 2]),
    ),
    max_size=6,
)
forged_devices = st.lists(st.sampled_from([A, B, UNKNOWN, None]), min_size=2, max_size=2)


def forged(slots, uuids, limit) -> ContainerRegion:
    made = region("attacker", *slots, limit=limit)
    devices = tuple(RegionDevice(index=i, uuid=u, memory_limit=limit, sm_limit=1.0) for i, u in enumerate(uuids))
    return structs.replace(made, region=structs.replace(made.region, devices=devices))


GREEDY = forged([slot(0, 100 * GIB, 0.9, devices=2), slot(0, 100 * GIB, 0.9, pid=9, devices=2)], [A, B], 0)
forgeries = st.builds(forged, forged_slots, forged_devices, st.sampled_from([0, 1, 8 * GIB, 500 * GIB]))


def node(forgery: ContainerRegion | None, **more):
    """A victim at work on A beside an attacker that was given a share of A, and another victim that has B alone."""
    busy = make_gpu(
        used=63 * GIB,
        utilization=0.97,
        processes=(process(VICTIM_PID, 59 * GIB, 0.95), process(ATTACKER_PID, GIB, 0.01)),
    )
    whole = make_gpu(uuid=B, index=1, used=20 * GIB, utilization=0.5, processes=(process(12, 20 * GIB, 0.5),))
    return sample(
        busy,
        whole,
        owners=[owner(VICTIM_PID, "victim"), owner(ATTACKER_PID, "attacker"), owner(12, "whole")],
        pods=[pod("victim", shares=[share(memory=60 * GIB)]), pod("attacker", shares=[share()]), pod("whole")],
        grants=[grant("whole", B)],
        regions=[region("victim", slot(VICTIM_PID, 58 * GIB, 0.9)), *([forgery] if forgery else [])],
        **more,
    )


def others(snapshot):
    """Everything that is said of containers other than the attacker's."""
    return [row for row in snapshot.containers if row.key.pod != "attacker"]


@example(GREEDY)
@given(forgeries)
def test_no_content_of_a_region_changes_what_was_measured_of_another_container(forgery):
    assert others(node(forgery)) == others(node(None))


@example(GREEDY)
@given(forgeries)
def test_no_content_of_a_region_creates_a_series_for_a_device_that_the_node_does_not_have(forgery):
    for pods in ({}, {"pods": None}):
        seen = node(forgery, **pods) if not pods else sample(make_gpu(), regions=[forgery], pods=None, grants=None)
        assert {row.gpu for row in seen.containers} | {vgpu.gpu for vgpu in seen.vgpus} <= {A, B}


@example(GREEDY)
@given(forgeries)
def test_a_region_takes_at_most_what_the_driver_leaves_over_and_the_limit_allows(forgery):
    seen = node(forgery)
    attacker = usage(seen, "attacker")
    assert GIB <= attacker.memory <= 4 * GIB  # measured; used without what was measured of the victim
    assert ledger(seen).memory.unattributed >= 0


@example(GREEDY, GREEDY)
@given(forgeries, forgeries)
def test_two_forged_regions_change_nothing_either(one, two):
    twin = structs.replace(two, pod_uid="uid-twin")
    seen = sample(
        make_gpu(used=63 * GIB, utilization=0.97, processes=(process(VICTIM_PID, 59 * GIB, 0.95),)),
        owners=[owner(VICTIM_PID, "victim")],
        pods=[pod("victim", shares=[share()]), pod("attacker", shares=[share()]), pod("twin", shares=[share()])],
        regions=[one, twin],
    )
    assert (usage(seen, "victim").memory, usage(seen, "victim").sm) == (59 * GIB, 0.95)


def test_two_slots_of_one_byte_hide_nothing_of_their_own_container():
    gpu = make_gpu(used=70 * GIB, utilization=0.9, processes=(process(ATTACKER_PID, 69 * GIB, 0.9),))
    seen = sample(
        gpu,
        owners=[owner(ATTACKER_PID, "attacker")],
        pods=[pod("attacker", shares=[share()])],
        regions=[region("attacker", slot(0, 1), slot(0, 1, pid=8))],
    )
    assert usage(seen, "attacker").memory == 69 * GIB


def test_a_region_raises_its_own_containers_memory_where_the_driver_does_not_see_all_of_its_processes():
    gpu = make_gpu(used=12 * GIB, processes=(process(ATTACKER_PID, 2 * GIB),))
    seen = sample(
        gpu,
        owners=[owner(ATTACKER_PID, "a")],
        pods=[pod("a", shares=[share(memory=8 * GIB)])],
        regions=[region("a", slot(ATTACKER_PID, 2 * GIB), slot(0, 3 * GIB, pid=8))],
    )
    assert (usage(seen, "a").memory, usage(seen, "a").memory_method) == (5 * GIB, "hami-region")


def test_a_region_claims_no_more_than_the_limit_that_was_assigned_whatever_limit_it_writes():
    given_two = pod("a", shares=[share(memory=2 * GIB)])
    seen = sample(make_gpu(used=40 * GIB), pods=[given_two], regions=[region("a", slot(0, 30 * GIB), limit=60 * GIB)])
    assert (usage(seen, "a").memory, usage(seen, "a").memory_total) == (2 * GIB, 2 * GIB)


def test_driver_figures_that_contradict_each_other_are_still_cut():
    gpu = make_gpu(used=6 * GIB, processes=(process(1, 6 * GIB), process(2, 6 * GIB)))
    seen = sample(gpu, owners=[owner(1, "a"), owner(2, "b")], pods=[pod("a"), pod("b")])
    assert [usage(seen, name).memory for name in "ab"] == [3 * GIB, 3 * GIB]


def test_a_device_that_was_not_assigned_is_disputed_by_name():
    seen = sample(
        make_gpu(),
        make_gpu(uuid=B, index=1),
        pods=[pod("a", shares=[share()])],
        regions=[region("a", slot(0, GIB), uuid=B)],
    )
    (dispute,) = seen.disputes
    assert (dispute.key.namespace, dispute.key.pod, dispute.key.container) == ("ml", "a", "main")
    assert (dispute.devices, dispute.example) == (1, B)
    assert (seen.vgpus, [row.gpu for row in seen.containers]) == ((), [A])


def test_without_any_source_of_assignments_a_region_is_believed_for_devices_of_the_node():
    seen = sample(make_gpu(used=4 * GIB), pods=None, grants=None, regions=[region("a", slot(0, 3 * GIB))])
    assert [(row.gpu, row.memory) for row in seen.containers] == [(A, 3 * GIB)]
    assert seen.disputes == ()


def test_without_pods_a_region_takes_nothing_from_the_container_that_the_kubelet_gave_the_gpu_alone():
    gpu = make_gpu(used=60 * GIB, utilization=0.9, processes=(process(1, 59 * GIB, 0.9),))
    alone = {"owners": [owner(1, "victim")], "pods": None, "grants": [grant("victim", A)]}
    seen = sample(gpu, regions=[region("attacker", slot(0, 100 * GIB, 0.9))], **alone)
    assert usage(seen, "victim").memory >= 59 * GIB
    assert usage(seen, "victim").sm == 0.9


def test_hamis_ids_at_the_kubelet_do_not_say_which_gpu_so_a_region_without_annotation_may():
    given_some = grant("a", f"{A}-3", resource="nvidia.com/gpu")
    seen = sample(make_gpu(used=4 * GIB), pods=[pod("a")], grants=[given_some], regions=[region("a", slot(0, GIB))])
    assert usage(seen, "a").memory == GIB


def test_a_region_may_not_name_the_process_of_another_container_of_its_pod():
    gpu = make_gpu(used=5 * GIB, processes=(process(1, 4 * GIB, 0.5),))
    both = pod("a", "x", "y", shares=[share("x"), share("y")])
    seen = sample(gpu, owners=[owner(1, "a", "y")], pods=[both], regions=[region("a", slot(1, GIB), container="x")])
    assert usage(seen, "a", "y").memory == 4 * GIB


def test_a_process_that_two_regions_claim_is_nobodys_where_the_kernel_does_not_say_whose_it_is():
    gpu = make_gpu(used=5 * GIB, processes=(process(1, 4 * GIB, 0.5),))
    pods = [pod("a", shares=[share()]), pod("b", shares=[share()])]
    seen = sample(gpu, owners=[], pods=pods, regions=[region("a", slot(1, GIB)), region("b", slot(1, GIB))])
    assert [usage(seen, name).memory for name in "ab"] == [GIB, GIB]


def nested(pid, *chain):
    *outer, (uid, container) = [(f"uid-{name}", f"{name}-main-id") for name in chain]
    return ProcessOwner(
        pid=pid, start_time=1, pod_uid=uid, container_id=container, command="python", outer=tuple(outer)
    )


def test_in_nested_cgroups_the_outermost_pod_that_is_known_has_the_process():
    gpu = make_gpu(used=5 * GIB, processes=(process(1, 4 * GIB, 0.5),))
    pods = [pod("attacker"), pod("victim")]
    seen = sample(gpu, owners=[nested(1, "attacker", "victim")], pods=pods)
    assert [row.key.pod for row in seen.containers] == ["attacker"]
    inside = sample(gpu, owners=[nested(1, "not-known-here", "victim")], pods=pods)
    assert [row.key.pod for row in inside.containers] == ["victim"]


def test_a_real_uid_wins_over_a_configuration_hash():
    gpu = make_gpu(used=5 * GIB, processes=(process(1, 4 * GIB, 0.5),))
    thief = structs.replace(pod("thief"), config_hash="uid-victim")
    for pods in ([thief, pod("victim")], [pod("victim"), thief]):
        assert [row.key.pod for row in sample(gpu, owners=[owner(1, "victim")], pods=pods).containers] == ["victim"]


def test_a_dispute_is_on_the_page_and_on_the_screen():
    seen = sample(
        make_gpu(),
        make_gpu(uuid=B, index=1),
        pods=[pod("a", shares=[share()])],
        regions=[region("a", slot(0, GIB), uuid=B)],
    )
    page = [s for s in node_samples(seen, build=BUILD, self_use=SelfUse()) if s.metric is catalog.REGIONS_DISPUTED]
    assert [(one.value, one.extra) for one in page] == [(1, ("ml", "a", "main"))]
    assert any("claims 1 device that the container was not assigned" in str(line) for line in notices(seen))
